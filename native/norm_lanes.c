// The forward of layer_norm.c.
kernel norm_lanes(in T x, in WT weight, in WT bias, out T y, out M mean, out M rstd, long rows, long chunk, IDX n, ACC eps) {
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, rows), whole = n - n % VL, last = n - VL;
  const SIGNS seen = seen_before(n - whole);
  for (IDX row = (IDX)(GID0 * chunk); row < stop; ++row) {
    const GLOBAL T* from = x + row * n;
    GLOBAL T* to = y + row * n;
    ACC total = 0, squares;
#define TERM(i) T_at(from + (i))
    if (CENTER) SUM_OVER(total, TERM)
#undef TERM
    const ACC m = total / (ACC)n;
#define TERM(i) square_lanes(T_at(from + (i)) - m)
    SUM_OVER(squares, TERM)
#undef TERM
    const ACC r = 1 / sqrt(squares / (ACC)n + eps);
#define DO(i) T_put(to + (i), weighted((T_at(from + (i)) - m) * r, weight + (i)) + BIAS(WT_at(bias + (i))));
    EACH(DO, DO)
#undef DO
    if (CENTER) mean[row] = M_save(m);
    rstd[row] = M_save(r);
  }
}
