// As norm_lanes.c for short rows, of which several are in the nearest cache: their sums are finished together.
#define TOGETHER 16

kernel norm_short_lanes(in T x, in WT weight, in WT bias, out T y, out M mean, out M rstd, long rows, long chunk, IDX n, ACC eps) {
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, rows), whole = n - n % VL, last = n - VL;
  const SIGNS seen = seen_before(n - whole);
  for (IDX row = (IDX)(GID0 * chunk); row < stop; row += TOGETHER) {
    const IDX here = LOWER(stop - row, TOGETHER);
    V lanes[TOGETHER];
    ACC m[TOGETHER], r[TOGETHER];
    for (IDX k = 0; k < TOGETHER; ++k) lanes[k] = ALL(0), m[k] = 0;
#define TERM(i) T_at(from + (i))
    if (CENTER) {
      for (IDX k = 0; k < here; ++k) {
        const GLOBAL T* from = x + (row + k) * n;
        LANES_OVER(lanes[k], TERM)
      }
      totals_of(lanes, m);
    }
#undef TERM
    for (IDX k = 0; k < TOGETHER; ++k) lanes[k] = ALL(0), m[k] /= (ACC)n;
#define TERM(i) square_lanes(T_at(from + (i)) - m[k])
    for (IDX k = 0; k < here; ++k) {
      const GLOBAL T* from = x + (row + k) * n;
      LANES_OVER(lanes[k], TERM)
    }
#undef TERM
    totals_of(lanes, r);
    for (IDX k = 0; k < TOGETHER; ++k) r[k] = 1 / sqrt(r[k] / (ACC)n + eps);
    for (IDX k = 0; k < here; ++k) {
      const GLOBAL T* from = x + (row + k) * n;
      GLOBAL T* to = y + (row + k) * n;
#define DO(i) T_put(to + (i), weighted((T_at(from + (i)) - m[k]) * r[k], weight + (i)) + BIAS(WT_at(bias + (i))));
      EACH(DO, DO)
#undef DO
      if (CENTER) mean[row + k] = M_save(m[k]);
      rstd[row + k] = M_save(r[k]);
    }
  }
}
