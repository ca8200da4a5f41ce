// Layer and RMS norm of rows, a group of work-items per row, and their gradients: see native/layer_norm.h for the macros.
#define X(i) T_load(x[at + (i)])
#define W(i) WEIGHT(WT_load(weight[i]))
#define GW(i) (T_load(g[at + (i)]) * W(i))

kernel norm_groups(in T x, in WT weight, in WT bias, out T y, out M mean, out M rstd, long rows, IDX n, ACC eps) groups(GROUP) {
  SHARED(ACC, scratch, GROUP);
  const IDX count = ROW < rows ? n : 0, at = ROW < rows ? (IDX)ROW * n : 0;
  ACC m = 0, squares = 0;
#if KEEP
  ACC keep[KEEP];
  EACH(i, k, count) keep[k] = X(i);
#define OF_ROW(i, k) keep[k]
#else
#define OF_ROW(i, k) X(i)
#endif
  if (CENTER) {
    EACH(i, k, count) m += OF_ROW(i, k);
    ACROSS(m, PLUS)
    m /= (ACC)n;
  }
  EACH(i, k, count) squares += (OF_ROW(i, k) - m) * (OF_ROW(i, k) - m);
  ACROSS(squares, PLUS)
  const ACC r = 1 / sqrt(squares / (ACC)n + eps);
  EACH(i, k, count) y[at + i] = T_save((OF_ROW(i, k) - m) * r * W(i) + BIAS(WT_load(bias[i])));
  if (LANE == 0 && ROW < rows) {
    if (CENTER) mean[ROW] = M_save(m);
    rstd[ROW] = M_save(r);
  }
}

// The gradient of x.
kernel norm_grad_groups(in T g, in T x, in M mean, in M rstd, in WT weight, out T dx, long rows, IDX n) groups(GROUP) {
  SHARED(ACC, scratch, GROUP);
  const IDX count = ROW < rows ? n : 0, row = ROW < rows ? (IDX)ROW : 0, at = row * n;
  const ACC m = CENTER ? M_load(mean[row]) : 0, r = M_load(rstd[row]);
  ACC plain = 0, along = 0;
#if KEEP
  ACC keep_g[KEEP], keep_x[KEEP];
  EACH(i, k, count) {
    keep_g[k] = GW(i);
    keep_x[k] = X(i) - m;
  }
#define G_OF(i, k) keep_g[k]
#define X_OF(i, k) keep_x[k]
#else
#define G_OF(i, k) GW(i)
#define X_OF(i, k) (X(i) - m)
#endif
  EACH(i, k, count) {
    plain += G_OF(i, k);
    along += G_OF(i, k) * X_OF(i, k);
  }
  if (CENTER) {
    ACROSS(plain, PLUS)
  } else {
    plain = 0;
  }
  ACROSS(along, PLUS)
  const ACC p = plain / (ACC)n, q = along * r * r / (ACC)n;
  EACH(i, k, count) dx[at + i] = T_save(r * (G_OF(i, k) - p - X_OF(i, k) * q));
}
