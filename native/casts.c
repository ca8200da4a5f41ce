// Casts between floats and bfloat16 in explicit vectors.
DEFINE_ROW(T, T_KIND)
DEFINE_ROW(R, R_KIND)

kernel cast_lanes(in T x, out R y, long total, long chunk) {
  const IDX start = (IDX)(GID0 * chunk), n = (IDX)(start + chunk < total ? chunk : total - start);
  const GLOBAL T* from = x + start;
  GLOBAL R* to = y + start;
  IDX i = 0;
  for (; i + 2 * VL <= n; i += 2 * VL) {
    const V a = T_at(from + i), b = T_at(from + i + VL);
    R_put(to + i, a);
    R_put(to + i + VL, b);
  }
  for (; i < n; ++i) to[i] = R_save(T_load(from[i]));
}
