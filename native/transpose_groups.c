// As native/transpose.c, for chips with local memory: a group carries a tile through it, so that both reads and writes
// run along memory. One column more than the tile has keeps its columns in different banks.
#define TILE 32
kernel transpose(in X x, out Y y, long tiles, Layout2 m) groups(GROUP) {
  SHARED(X, tile, TILE * (TILE + 1));
  const IDX nj = m.size[0], ni = m.size[1], across = (nj + TILE - 1) / TILE, down = (ni + TILE - 1) / TILE;
  IDX rest = (IDX)GROUP0 / across, at_y = 0, at_x = 0;
  const IDX j0 = (IDX)GROUP0 % across * TILE, i0 = rest % down * TILE;
  rest /= down;
  for (IDX d = 2; d < m.rank; ++d) {
    const IDX q = rest % m.size[d];
    rest /= m.size[d];
    at_y += q * m.stride[0][d];
    at_x += q * m.stride[1][d];
  }
  for (int k = LID; k < TILE * TILE; k += GROUP) {
    const IDX i = i0 + k % TILE, j = j0 + k / TILE;
    if (i < ni && j < nj) tile[k % TILE * (TILE + 1) + k / TILE] = x[at_x + j * m.stride[1][0] + i * m.stride[1][1]];
  }
  BARRIER;
  for (int k = LID; k < TILE * TILE; k += GROUP) {
    const IDX j = j0 + k % TILE, i = i0 + k / TILE;
    if (i < ni && j < nj)
      y[at_y + j * m.stride[0][0] + i * m.stride[0][1]] = Y_save((ACC)X_load(tile[k / TILE * (TILE + 1) + k % TILE]));
  }
}
