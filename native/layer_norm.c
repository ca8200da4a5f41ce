kernel layer_norm(in T x, in WT weight, in WT bias, out T y, out M mean, out M rstd, long rows, long chunk, IDX n, ACC eps) {
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, rows);
  for (IDX row = (IDX)(GID0 * chunk); row < stop; ++row) {
    const IDX at = row * n;
    ACC total = 0, squares;
    if (CENTER) SUM_OVER(total, X(k))
    const ACC m = total / (ACC)n;
    SUM_OVER(squares, (X(k) - m) * (X(k) - m))
    const ACC r = 1 / sqrt(squares / (ACC)n + eps);
    for (IDX k = 0; k < n; ++k) y[at + k] = T_save((X(k) - m) * r * W(k) + BIAS(WT_load(bias[k])));
    if (CENTER) mean[row] = M_save(m);
    rstd[row] = M_save(r);
  }
}
