// Running results along one dimension of n elements. `m` walks the other dimensions (strides of y and x); sy, sx:
// strides of the dimension itself.
// ACC: type of the running result. STEP(a, v): the next one. START: the one before the first.

#ifdef LOGSUMEXP
FUNC ACC log_add(ACC a, ACC b) {
  const ACC high = a > b || a != a ? a : b, low = a > b || a != a ? b : a;
  if (low != low || high != high) return low + high;
  return high == low && high * 0 != 0 ? high : high + (ACC)log1p(exp((ACC_FLOAT)(low - high)));
}
#endif

kernel scan(out Y y, in X x, long total, long chunk, long n, Layout2 m, long sy, long sx) {
  const IDX start = (IDX)(GID0 * chunk), end = start + chunk < total ? start + chunk : total;
  for (IDX i = start; i < end; ++i) {
    IDX row = i, ay = 0, ax = 0;
    for (IDX d = 0; d < m.rank; ++d) {
      const IDX q = row % m.size[d];
      row /= m.size[d];
      ay += q * m.stride[0][d];
      ax += q * m.stride[1][d];
    }
    ACC a = START;
    for (IDX k = 0; k < n; ++k) {
      const ACC v = (ACC)X_load(x[ax + k * sx]);
      a = STEP(a, v);
      y[ay + k * sy] = Y_save(a);
    }
  }
}

// The same where the other dimensions are the inner ones: a run of `width` neighbours walks the dimension together.
kernel scan_columns(out Y y, in X x, inout ACC carry, long total, long width, long inner, long n, long outer_y, long outer_x, long sy, long sx) {
  const IDX parts = (inner + width - 1) / width;
  const IDX o = GID0 / parts, j0 = (GID0 - o * parts) * width, left = inner - j0, w = left < width ? left : width;
  const IDX ay = o * outer_y + j0, ax = o * outer_x + j0, ac = o * inner + j0;
  for (IDX j = 0; j < w; ++j) carry[ac + j] = START;
  for (IDX k = 0; k < n; ++k) {
    for (IDX j = 0; j < w; ++j) {
      const ACC v = (ACC)X_load(x[ax + k * sx + j]), a = STEP(carry[ac + j], v);
      carry[ac + j] = a;
      y[ay + k * sy + j] = Y_save(a);
    }
  }
}
