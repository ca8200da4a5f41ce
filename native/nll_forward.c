// Negative log likelihood: the number of each sample's target class.
//
// `step` is the distance between classes. Layouts walk the samples. WEIGHT(v) is the weight of a class, or 1. A target
// that is `ignore` counts nothing; one outside the classes gives NaN and is noted for the host.
kernel nll_forward(in T x, in INDEX target, in WT weight, out U term, out ACC share, inout long seen, long total, long chunk, IDX classes, IDX step, long ignore, int code, Layout3 m) {
  const IDX stop = (IDX)(total - GID0 * chunk < chunk ? total : GID0 * chunk + chunk);
  for (IDX i = (IDX)(GID0 * chunk); i < stop; ++i) {
    IDX rest = i, at_x = 0, at_t = 0, at_y = 0;
    for (IDX d = 0; d < m.rank; ++d) {
      const IDX q = rest % m.size[d];
      rest /= m.size[d];
      at_x += q * m.stride[0][d];
      at_t += q * m.stride[1][d];
      at_y += q * m.stride[2][d];
    }
    const long t = (long)target[at_t];
    const int counts = t != ignore, known = counts && checked(t, (long)classes, 0, seen, code) >= 0;
    const ACC w = known ? (ACC)WEIGHT(WT_load(weight[t])) : (ACC)0;
    ACC y = 0;
    if (counts) y = known ? -w * T_load(x[at_x + (IDX)t * step]) : (ACC)NAN;
    term[at_y] = U_save(y);
    if (SHARES) share[i] = w;
  }
}
