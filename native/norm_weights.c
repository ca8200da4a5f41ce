// Gradients of weight and bias over `part` rows: one work-item per column and part.
kernel norm_grad_weights(in T g, in T x, in M mean, in M rstd, out ACC dw, out ACC db, long rows, long part, IDX n) {
  const IDX i = (IDX)GID0, first = (IDX)(GID1 * part), last = (IDX)(first + part < rows ? first + part : rows);
  ACC along = 0, plain = 0;
  for (IDX row = first; row < last; ++row) {
    const ACC u = T_load(g[row * n + i]);
    along += u * (T_load(x[row * n + i]) - (CENTER ? M_load(mean[row]) : 0)) * M_load(rstd[row]);
    plain += u;
  }
  if (SUM_W) dw[GID1 * n + i] = along;
  if (SUM_B) db[GID1 * n + i] = plain;
}
