// dx of each row; each work-item adds up its rows' share of the gradients of weight and bias in its row of `dw`, `db`.
kernel layer_norm_backward(in T g, in T x, in M mean, in M rstd, in WT weight, out T dx, out ACC dw, out ACC db, long rows, long chunk, IDX n) {
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, rows), part = (IDX)GID0 * n;
  if (SUM_W) for (IDX k = 0; k < n; ++k) dw[part + k] = 0;
  if (SUM_B) for (IDX k = 0; k < n; ++k) db[part + k] = 0;
  for (IDX row = (IDX)(GID0 * chunk); row < stop; ++row) {
    const IDX at = row * n;
    const ACC m = CENTER ? M_load(mean[row]) : 0, r = M_load(rstd[row]);
    ACC plain = 0, along;
    if (CENTER) SUM_OVER(plain, G(k) * W(k))
    SUM_OVER(along, G(k) * W(k) * (X(k) - m))
    const ACC p = plain / (ACC)n, q = along * r * r / (ACC)n;
    if (WRITE_X) for (IDX k = 0; k < n; ++k) dx[at + k] = T_save(r * (G(k) * W(k) - p - (X(k) - m) * q));
    if (SUM_W) for (IDX k = 0; k < n; ++k) dw[part + k] += G(k) * (X(k) - m) * r;
    if (SUM_B) for (IDX k = 0; k < n; ++k) db[part + k] += G(k);
  }
}
