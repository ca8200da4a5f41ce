// Running extremes along one dimension of n elements. `m` walks the other dimensions (strides of values, indices and
// x); sy, sw, sx: strides of the dimension itself.

// The extreme so far and where it was seen last; NaN is the most extreme. BEATS(v, a): v replaces a.
kernel extremes(out X y, out long where, in X x, long total, long chunk, long n, Layout3 m, long sy, long sw, long sx) {
  const IDX start = (IDX)(GID0 * chunk), end = start + chunk < total ? start + chunk : total;
  for (IDX i = start; i < end; ++i) {
    IDX row = i, ay = 0, aw = 0, ax = 0;
    for (IDX d = 0; d < m.rank; ++d) {
      const IDX q = row % m.size[d];
      row /= m.size[d];
      ay += q * m.stride[0][d];
      aw += q * m.stride[1][d];
      ax += q * m.stride[2][d];
    }
    X_acc best = X_load(x[ax]);
    long at = 0;
    for (IDX k = 0; k < n; ++k) {
      const X_acc v = X_load(x[ax + k * sx]);
      if (k == 0 || BEATS(v, best)) {
        best = v;
        at = k;
      }
      y[ay + k * sy] = X_save(best);
      where[aw + k * sw] = at;
    }
  }
}
