// y[outer][i][j] = x[outer][j][i]: x has unit stride along i, y along j. Work-items take whole tiles, so that every cache
// line is used up while it is near. `m` holds the two tiled dimensions first (j, then i), then the others.
#define TILE 32
FUNC void one_by_one(GLOBAL const X* restrict x, GLOBAL Y* restrict y, const IDX sx, const IDX sy, const IDX h, const IDX w) {
  for (IDX i = 0; i < h; ++i)
    for (IDX j = 0; j < w; ++j) y[i * sy + j] = Y_save((ACC)X_load(x[j * sx + i]));
}

#ifdef VL
// Without a cast a block is turned in registers (native/turn.h): where lines are powers of two apart they share few
// places in a cache, and none stays until the last of its elements is used.
FUNC void block(GLOBAL const X* restrict x, GLOBAL Y* restrict y, const IDX sx, const IDX sy, const IDX h, const IDX w) {
  if (h < VL || w < VL) {
    one_by_one(x, y, sx, sy, h, w);
    return;
  }
  V r[VL];
  UNROLLED for (int k = 0; k < VL; ++k) r[k] = *(GLOBAL const V*)(x + k * sx);
  turn(r);
  UNROLLED for (int k = 0; k < VL; ++k) *(GLOBAL V*)(y + k * sy) = r[k];
}
#else
#define VL TILE
#define block one_by_one
#endif

kernel transpose(in X x, out Y y, long tiles, long chunk, Layout2 m) {
  const IDX nj = m.size[0], ni = m.size[1], across = (nj + TILE - 1) / TILE, down = (ni + TILE - 1) / TILE;
  const IDX sx = m.stride[1][0], sy = m.stride[0][1];
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
    for (IDX i = i0; i < i1; i += VL)
      for (IDX j = j0; j < j1; j += VL)
        block(x + at_x + j * sx + i, y + at_y + i * sy + j, sx, sy, i1 - i < VL ? i1 - i : VL, j1 - j < VL ? j1 - j : VL);
  }
}
