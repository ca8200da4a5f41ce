// The gradients of layer_norm_backward.c.
kernel norm_grad_lanes(in T g, in T x, in M mean, in M rstd, in WT weight, out T dx, out ACC dw, out ACC db, long rows, long chunk, IDX n) {
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, rows), whole = n - n % VL, last = n - VL;
  const SIGNS seen = seen_before(n - whole);
  GLOBAL ACC* my_w = dw + (SUM_W ? GID0 * n : 0);
  GLOBAL ACC* my_b = db + (SUM_B ? GID0 * n : 0);
  for (IDX i = 0; i < n; ++i) {
    if (SUM_W) my_w[i] = 0;
    if (SUM_B) my_b[i] = 0;
  }
  for (IDX row = (IDX)(GID0 * chunk); row < stop; ++row) {
    const GLOBAL T* from = x + row * n;
    const GLOBAL T* by = g + row * n;
    GLOBAL T* to = dx + (WRITE_X ? row * n : 0);
    const ACC m = CENTER ? M_load(mean[row]) : 0, r = M_load(rstd[row]);
    ACC p = 0, q = 0;
    if (WRITE_X) {
#define TERM(i) weighted(T_at(by + (i)), weight + (i))
      if (CENTER) SUM_OVER(p, TERM)
#undef TERM
#define TERM(i) (weighted(T_at(by + (i)), weight + (i)) * (T_at(from + (i)) - m))
      SUM_OVER(q, TERM)
#undef TERM
      p /= (ACC)n;
      q *= r * r / (ACC)n;
    }
#define STEP(i, FRESH)                                                     \
  const V u = T_at(by + (i)), d = T_at(from + (i)) - m;                    \
  if (WRITE_X) T_put(to + (i), (weighted(u, weight + (i)) - p - d * q) * r);          \
  if (SUM_W) ACC_put(my_w + (i), ACC_at(my_w + (i)) + FRESH(u * d * r));   \
  if (SUM_B) ACC_put(my_b + (i), ACC_at(my_b + (i)) + FRESH(u));
#define AS_IS(v) (v)
#define DO(i) STEP(i, AS_IS)
#define ONCE(i) STEP(i, NEW)
    EACH(DO, ONCE)
#undef DO
  }
}
