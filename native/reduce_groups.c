// The innermost reduced dimension is the closest in memory: LPR work-items of a group share an output's elements (those
// of one part). See native/reduce.h for the macros and native/row_groups.h for LPR.
FUNC IDX place_of(IDX r, IDX inner, const Layout2 red, int k) {
  if (red.rank == 1) return r * inner;
  IDX at = 0;
  for (IDX d = 0; d < red.rank; ++d) {
    const IDX q = r % red.size[d];
    r /= red.size[d];
    at += q * red.stride[k][d];
  }
  return at;
}
#define ONE(r) map_one(T_load(x[at_x + place_of(r, STEP, red, 0)]), OTHER(other[at_z + place_of(r, STEP_Z, red, 1)]), s, r, e)

kernel reduce_groups(in T x, in Z other, in S shift, out U y, long outs, long chunk, long count, long part, long part_stride, EXTRA e, Layout4 kept, Layout2 red) groups(GROUP) {
  SHARED(ACC, scratch, GROUP);
  const IDX first = (IDX)(GROUP1 * part), last = ROW < outs ? (IDX)LOWER(first + part, count) : first;
  IDX rest = ROW < outs ? (IDX)ROW : 0, at_x = 0, at_z = 0, at_s = 0, at_y = (IDX)(GROUP1 * part_stride);
  for (IDX d = 0; d < kept.rank; ++d) {
    const IDX q = rest % kept.size[d];
    rest /= kept.size[d];
    at_x += q * kept.stride[0][d];
    at_y += q * kept.stride[1][d];
    at_s += q * kept.stride[2][d];
    at_z += q * kept.stride[3][d];
  }
  const SVAL s = SHIFT(shift[at_s]);
  ACC total = INIT, more[3];
  UNROLL for (int u = 0; u < 3; ++u) more[u] = INIT;
  IDX r = first + LANE;
  for (; r < last - 3 * LPR; r += 4 * LPR) {  // four loads in flight
    total = join(total, ONE(r));
    UNROLL for (int u = 0; u < 3; ++u) more[u] = join(more[u], ONE(r + (u + 1) * LPR));
  }
  for (; r < last; r += LPR) total = join(total, ONE(r));
  total = join(join(total, more[0]), join(more[1], more[2]));
  ACROSS(total, join)
  if (LANE == 0 && ROW < outs) y[at_y] = U_save(end_one(total, s, e, count));
}
