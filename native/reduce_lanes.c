// As reduce_rows.c, in explicit vectors: elements that are neighbours, of the kind of number it accumulates in.
DEFINE_ROW(T, T_KIND)
DEFINE_ROW(Z, Z_KIND)
FUNC V map_lanes(V v, V z, ACC s, ACC e) { return MAP; }
FUNC V join_lanes(V a, V b) { return JOIN_LANES; }
#define BOTH(k) map_lanes(T_at(from + i + (k) * VL), OTHER_AT(i + (k) * VL), s, e)
#define DO(k) s##k = join_lanes(s##k, BOTH(k));

kernel reduce_lanes(in T x, in Z other, in S shift, out R y, long outs, long chunk, long count, long part, long part_stride, EXTRA e, Layout4 kept, Layout2 red) {
  const IDX first = (IDX)(GID1 * part), last = (IDX)LOWER(first + part, count), span = red.size[0], tall = kept.size[0];
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, outs);
  for (IDX o = (IDX)(GID0 * chunk); o < stop; ++o) {
    IDX rest = o, row = 0, row_z = 0, at_s = 0, at_y = (IDX)(GID1 * part_stride);
    for (IDX d = 0; d < kept.rank; ++d) {
      const IDX q = rest % kept.size[d];
      rest /= kept.size[d];
      row += q * kept.stride[0][d];
      at_y += q * kept.stride[1][d];
      at_s += q * kept.stride[2][d];
      row_z += q * kept.stride[3][d];
    }
    const ACC s = SHIFT(shift[at_s]);
    V total = ALL(INIT);
    ACC tail = INIT;
    for (IDX r = first; r < last;) {
      IDX up = r / span, at_x = row, at_z = row_z;
      const IDX i0 = r - up * span, left = LOWER(span - i0, last - r), m = LOWER(left, BLOCK);
      for (IDX d = 1; d < red.rank; ++d) {
        const IDX q = up % red.size[d];
        up /= red.size[d];
        at_x += q * red.stride[0][d];
        at_z += q * red.stride[1][d];
      }
      const GLOBAL T* from = x + at_x + i0;
      const GLOBAL Z* from_z = other + at_z + i0;
      IDX i = 0;
      V s0 = ALL(INIT), s1 = s0, s2 = s0, s3 = s0;
      for (; i + 4 * VL <= m; i += 4 * VL) { DO(0) DO(1) DO(2) DO(3) }
      for (; i + VL <= m; i += VL) DO(0)
      total = join_lanes(total, join_lanes(join_lanes(s0, s1), join_lanes(s2, s3)));
      for (; i < m; ++i) tail = join(tail, map_one(T_load(from[i]), OTHER(from_z[i]), s, r + i, e));
      r += m;
    }
    ACC lane[VL], acc = INIT;
    HERE(lane, 0) = total;
    for (int w = VL / 2; w; w /= 2)
      for (int j = 0; j < w; ++j) lane[j] = join(lane[j], lane[j + w]);
    acc = join(lane[0], tail);
    y[at_y] = R_save(end_one(acc, s, e, count));
  }
}
