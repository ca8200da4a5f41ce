// As reduce_rows.c, in explicit vectors: elements that are neighbours, of the kind of number it accumulates in.
// VL outputs at a time: their vectors are turned, so that the last joins and the ends are done for all of them at once.
DEFINE_ROW(T, T_KIND)
DEFINE_ROW(Z, Z_KIND)
FUNC V map_lanes(V v, V z, ACC s, ACC e) { return MAP; }
FUNC V join_lanes(V a, V b) { return JOIN_LANES; }
#define BOTH(i) map_lanes(T_at(from + (i)), OTHER_AT(i), s, e)
#define DO(k) s##k = join_lanes(s##k, BOTH(i + (k) * VL));

// The joined lanes of m elements, before which the row has `before` others.
APART V block_of(const GLOBAL T* restrict from, const GLOBAL Z* restrict from_z, const IDX m, const IDX before,
                 const ACC s, const ACC e) {
  V s0 = ALL(INIT), s1 = s0, s2 = s0, s3 = s0;
  IDX i = 0;
  for (; i + 4 * VL <= m; i += 4 * VL) { DO(0) DO(1) DO(2) DO(3) }
  for (; i + VL <= m; i += VL) DO(0)
  if (i < m && before + m >= VL) {
    s1 = join_lanes(s1, CHOOSE(seen_before(m - i), ALL(INIT), BOTH(m - VL)));
  } else if (i < m) {
    ACC tail = INIT;
    for (; i < m; ++i) tail = join(tail, map_one(T_load(from[i]), OTHER(from_z[i]), s, i, e));
    ((ACC*)&s1)[0] = join(((ACC*)&s1)[0], tail);
  }
  return join_lanes(join_lanes(s0, s1), join_lanes(s2, s3));
}

kernel reduce_lanes(in T x, in Z other, in S shift, out R y, long outs, long chunk, long count, long part, long part_stride, EXTRA e, Layout4 kept, Layout2 red) {
  const IDX first = (IDX)(GID1 * part), last = (IDX)LOWER(first + part, count), span = red.size[0];
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, outs);
  for (IDX o = (IDX)(GID0 * chunk); o < stop; o += VL) {
    const IDX rows = LOWER(stop - o, VL);
    V total[VL];
    ACC shifts[VL], lane[VL];
    IDX to[VL];
    for (IDX k = 0; k < VL; ++k) total[k] = ALL(INIT);
    for (IDX k = 0; k < rows; ++k) {
      IDX rest = o + k, row = 0, row_z = 0, at_s = 0, at_y = (IDX)(GID1 * part_stride);
      for (IDX d = 0; d < kept.rank; ++d) {
        const IDX up = d + 1 < kept.rank ? rest / kept.size[d] : 0, q = rest - up * kept.size[d];
        rest = up;
        row += q * kept.stride[0][d];
        at_y += q * kept.stride[1][d];
        at_s += q * kept.stride[2][d];
        row_z += q * kept.stride[3][d];
      }
      const ACC s = SHIFT(shift[at_s]);
      for (IDX r = first; r < last;) {
        IDX up = red.rank > 1 ? r / span : 0, at_x = row, at_z = row_z;
        const IDX i0 = r - up * span, left = LOWER(span - i0, last - r), m = LOWER(left, BLOCK);
        for (IDX d = 1; d < red.rank; ++d) {
          const IDX q = up % red.size[d];
          up /= red.size[d];
          at_x += q * red.stride[0][d];
          at_z += q * red.stride[1][d];
        }
        total[k] = join_lanes(total[k], block_of(x + at_x + i0, other + at_z + i0, m, i0, s, e));
        r += m;
      }
      shifts[k] = s;
      to[k] = at_y;
    }
    turn(total);
    for (int w = VL / 2; w; w /= 2)
      for (int k = 0; k < w; ++k) total[k] = join_lanes(total[k], total[k + w]);
    HERE(lane, 0) = total[0];
    for (IDX k = 0; k < rows; ++k) y[to[k]] = R_save(end_one(lane[k], shifts[k], e, count));
  }
}
