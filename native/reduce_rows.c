// The innermost reduced dimension is the closest in memory: walk it, with many accumulators at once.
kernel reduce_rows(in T x, in Z other, in S shift, out U y, long outs, long chunk, long count, long part, long part_stride, EXTRA e, Layout4 kept, Layout2 red) {
  const IDX first = (IDX)(GID1 * part), last = (IDX)LOWER(first + part, count), span = red.size[0], tall = kept.size[0];
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, outs);
  IDX o = (IDX)(GID0 * chunk);
  while (o < stop) {
    IDX rest = o / tall, at_x = 0, at_z = 0, at_s = 0, at_y = (IDX)(GID1 * part_stride);
    const IDX j0 = o - rest * tall, n = LOWER(tall - j0, stop - o);
    for (IDX d = 1; d < kept.rank; ++d) {
      const IDX q = rest % kept.size[d];
      rest /= kept.size[d];
      at_x += q * kept.stride[0][d];
      at_y += q * kept.stride[1][d];
      at_s += q * kept.stride[2][d];
      at_z += q * kept.stride[3][d];
    }
    for (IDX j = j0; j < j0 + n; ++j) {
      const IDX row = at_x + j * kept.stride[0][0], row_z = at_z + j * kept.stride[3][0];
      const SVAL s = SHIFT(shift[at_s + j * kept.stride[2][0]]);
      ACC acc = INIT;
      for (IDX r = first; r < last;) {
        IDX up = r / span, from = row, from_z = row_z;
        const IDX i0 = r - up * span, left = LOWER(span - i0, last - r), m = LOWER(left, BLOCK);
        for (IDX d = 1; d < red.rank; ++d) {
          const IDX q = up % red.size[d];
          up /= red.size[d];
          from += q * red.stride[0][d];
          from_z += q * red.stride[1][d];
        }
        from += i0 * STEP;
        from_z += i0 * STEP_Z;
        IDX i = 0;
        ACC tail = INIT;
        if (m >= LANES) {
          ACC lane[LANES];
          for (int l = 0; l < LANES; ++l) lane[l] = INIT;
          for (; i + LANES <= m; i += LANES)
            for (int l = 0; l < LANES; ++l)
              lane[l] = join(lane[l], map_one(T_load(x[from + (i + l) * STEP]), OTHER(other[from_z + (i + l) * STEP_Z]), s, r + i + l, e));
          for (int l = 0; l < LANES / 2; ++l) lane[l] = join(lane[l], lane[l + LANES / 2]);
          for (int l = 0; l < LANES / 4; ++l) lane[l] = join(lane[l], lane[l + LANES / 4]);
          for (int l = 0; l < LANES / 4; ++l) tail = join(tail, lane[l]);
        }
        for (; i < m; ++i) tail = join(tail, map_one(T_load(x[from + i * STEP]), OTHER(other[from_z + i * STEP_Z]), s, r + i, e));
        acc = join(acc, tail);
        r += m;
      }
      y[at_y + j * kept.stride[1][0]] = U_save(end_one(acc, s, e, count));
    }
    o += n;
  }
}
