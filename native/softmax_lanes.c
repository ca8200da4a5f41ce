// softmax and log_softmax of contiguous rows, in explicit vectors. The kept layout holds every other dimension. LOGARITHM
// chooses log_softmax. Exponentials are kept in the result where KEEP says that it is of their type, else they are
// computed twice. NaN needs no care in the maximum: it comes back through x - top.
#define LOWER(a, b) ((a) < (b) ? (a) : (b))
DEFINE_ROW(T, T_KIND)
DEFINE_ROW(S, S_KIND)
DEFINE_ROW(R, R_KIND)
// DO(i) for all whole vectors of a row but the last few, four at once; ONE(i) for those; `i` is then at the rest.
#define EACH(DO, ONE)                                                      \
  for (; i + 4 * VL <= n; i += 4 * VL) { DO(0) DO(1) DO(2) DO(3) }         \
  for (; i + VL <= n; i += VL) { ONE(0) }

// A result from its exponential where that is kept, else from x.
FUNC V finish(const V v, const ACC top, const ACC scale) {
  if (LOGARITHM) return v - top - scale;
  if (KEEP) return v * scale;
  return exp_lanes(v - top) * scale;
}

kernel forward_lanes(in T x, out R y, long rows, long chunk, IDX n, Layout2 kept) {
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, rows);
  for (IDX row = (IDX)(GID0 * chunk); row < stop; ++row) {
    IDX rest = row, at_x = 0, at_y = 0;
    for (IDX d = 0; d < kept.rank; ++d) {
      const IDX q = rest % kept.size[d];
      rest /= kept.size[d];
      at_x += q * kept.stride[0][d];
      at_y += q * kept.stride[1][d];
    }
    const GLOBAL T* from = x + at_x;
    GLOBAL R* to = y + at_y;
    IDX i = 0;
    V s0 = ALL(-INFINITY), s1 = s0, s2 = s0, s3 = s0;
#define DO(k) { const V v = T_at(from + i + k * VL); s##k = LARGER(v, s##k); }
    EACH(DO, DO)
#undef DO
    const int left = (int)(n - i);
    if (left) s1 = LARGER(T_some(from + i, left, -INFINITY), s1);
    s0 = LARGER(s0, s1);
    s2 = LARGER(s2, s3);
    const ACC top = largest_of(LARGER(s0, s2));
    i = 0;
    s0 = s1 = s2 = s3 = ALL(0);
#define DO(k) { const V e = exp_lanes(T_at(from + i + k * VL) - top); if (KEEP) R_put(to + i + k * VL, e); s##k += e; }
    EACH(DO, DO)
#undef DO
    if (left) {
      const V e = exp_lanes(T_some(from + i, left, -INFINITY) - top);
      if (KEEP) R_put_some(to + i, left, e);
      ACC lane[VL];
      HERE(lane, 0) = e;
      for (int j = left; j < VL; ++j) lane[j] = 0;
      s1 += HERE(lane, 0);
    }
    const ACC total = total_of((s0 + s1) + (s2 + s3)), scale = LOGARITHM ? log(total) : 1 / total;
    i = 0;
#define DO(k) { R_put(to + i + k * VL, finish(KEEP ? R_at(to + i + k * VL) : T_at(from + i + k * VL), top, scale)); }
    EACH(DO, DO)
#undef DO
    if (left) R_put_some(to + i, left, finish(KEEP ? R_some(to + i, left, 0) : T_some(from + i, left, 0), top, scale));
  }
}

// The gradient from the result y: y (g - sum(g y)), and for the logarithm g - exp(y) sum(g).
FUNC V term(const V g, const V y) {
  if (LOGARITHM) return g;
  return g * y;
}
FUNC V gradient(const V g, const V y, const ACC total) {
  if (LOGARITHM) return g - exp_lanes(y) * total;
  return y * (g - total);
}

kernel backward_lanes(in T g, in S y, out R dx, long rows, long chunk, IDX n, Layout3 kept) {
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, rows);
  for (IDX row = (IDX)(GID0 * chunk); row < stop; ++row) {
    IDX rest = row, at_g = 0, at_y = 0, at_x = 0;
    for (IDX d = 0; d < kept.rank; ++d) {
      const IDX q = rest % kept.size[d];
      rest /= kept.size[d];
      at_g += q * kept.stride[0][d];
      at_y += q * kept.stride[1][d];
      at_x += q * kept.stride[2][d];
    }
    const GLOBAL T* from = g + at_g;
    const GLOBAL S* by = y + at_y;
    GLOBAL R* to = dx + at_x;
    IDX i = 0;
    V s0 = ALL(0), s1 = s0, s2 = s0, s3 = s0;
#define DO(k) { s##k += term(T_at(from + i + k * VL), S_at(by + i + k * VL)); }
    EACH(DO, DO)
#undef DO
    const int left = (int)(n - i);
    if (left) s1 += term(T_some(from + i, left, 0), S_some(by + i, left, 0));
    const ACC total = total_of((s0 + s1) + (s2 + s3));
    i = 0;
#define DO(k) { R_put(to + i + k * VL, gradient(T_at(from + i + k * VL), S_at(by + i + k * VL), total)); }
    EACH(DO, DO)
#undef DO
    if (left) R_put_some(to + i, left, gradient(T_some(from + i, left, 0), S_some(by + i, left, 0), total));
  }
}
