// The innermost kept dimension is the closest in memory: keep a tile of outputs and add row after row to it.
kernel reduce_columns(in T x, in Z other, in S shift, out U y, long tiles, long chunk, long count, long part, long part_stride, EXTRA e, Layout4 kept, Layout2 red) {
  const IDX first = (IDX)(GID1 * part), last = (IDX)LOWER(first + part, count), tall = kept.size[0], step = STEP, step_z = STEP_Z;
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, tiles), across = (tall + TILE - 1) / TILE;
  for (IDX tile = (IDX)(GID0 * chunk); tile < stop; ++tile) {
    IDX rest = tile / across, at_x = 0, at_z = 0, at_s = 0, at_y = (IDX)(GID1 * part_stride);
    const IDX j0 = (tile - rest * across) * TILE, n = LOWER(tall - j0, TILE);
    for (IDX d = 1; d < kept.rank; ++d) {
      const IDX q = rest % kept.size[d];
      rest /= kept.size[d];
      at_x += q * kept.stride[0][d];
      at_y += q * kept.stride[1][d];
      at_s += q * kept.stride[2][d];
      at_z += q * kept.stride[3][d];
    }
    at_x += j0 * step;
    at_z += j0 * step_z;
    at_y += j0 * kept.stride[1][0];
    at_s += j0 * kept.stride[2][0];
    ACC acc[TILE], sums[TILE];
    SVAL s[TILE];
    for (IDX j = 0; j < n; ++j) {
      sums[j] = INIT;
      s[j] = SHIFT(shift[at_s + j * kept.stride[2][0]]);
    }
    for (IDX r0 = first; r0 < last; r0 += ROWS) {
      for (IDX j = 0; j < n; ++j) acc[j] = INIT;
      for (IDX r = r0; r < LOWER(r0 + ROWS, last); ++r) {
        IDX up = r, from = at_x, from_z = at_z;
        for (IDX d = 0; d < red.rank; ++d) {
          const IDX q = up % red.size[d];
          up /= red.size[d];
          from += q * red.stride[0][d];
          from_z += q * red.stride[1][d];
        }
        for (IDX j = 0; j < n; ++j) acc[j] = join(acc[j], map_one(T_load(x[from + j * STEP]), OTHER(other[from_z + j * STEP_Z]), s[j], r, e));
      }
      for (IDX j = 0; j < n; ++j) sums[j] = join(sums[j], acc[j]);
    }
    for (IDX j = 0; j < n; ++j) y[at_y + j * kept.stride[1][0]] = U_save(end_one(sums[j], s[j], e, count));
  }
}
