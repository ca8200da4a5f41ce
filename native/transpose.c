// y[outer][i][j] = x[outer][j][i]: one has unit stride along j, the other along i. Work-items take whole tiles, so that
// every cache line is used up while it is near. `m` holds the two tiled dimensions first (j, then i), then the others.
#define TILE 32
kernel transpose(in X x, out Y y, long tiles, long chunk, Layout2 m) {
  const IDX nj = m.size[0], ni = m.size[1], across = (nj + TILE - 1) / TILE, down = (ni + TILE - 1) / TILE;
  IDX tile = (IDX)(GID0 * chunk);
  const IDX end = tiles - tile < chunk ? tiles : tile + chunk;
  for (; tile < end; ++tile) {
    IDX rest = tile / across, at_y = 0, at_x = 0;
    const IDX j0 = tile % across * TILE, i0 = rest % down * TILE;
    rest /= down;
    for (IDX d = 2; d < m.rank; ++d) {
      const IDX q = rest % m.size[d];
      rest /= m.size[d];
      at_y += q * m.stride[0][d];
      at_x += q * m.stride[1][d];
    }
    const IDX j1 = nj - j0 < TILE ? nj : j0 + TILE, i1 = ni - i0 < TILE ? ni : i0 + TILE;
    for (IDX i = i0; i < i1; ++i)
      for (IDX j = j0; j < j1; ++j)
        y[at_y + j * m.stride[0][0] + i * m.stride[0][1]] =
            Y_save((ACC)X_load(x[at_x + j * m.stride[1][0] + i * m.stride[1][1]]));
  }
}
