// Normalization of rows and its gradients as in layer_norm.h, in explicit vectors: rows of at least one vector. A row's
// last elements are the last vector of it, of which the lanes that were seen before count as 0.
#define LOWER(a, b) ((a) < (b) ? (a) : (b))
#define BLOCK 4096  // elements per accumulator level, see reduce.h
DEFINE_ROW(T, T_KIND)
DEFINE_ROW(WT, WT_KIND)
DEFINE_ROW(ACC, 0)
FUNC V weighted(const V v, const GLOBAL WT* weight) {
  if (HAS_W) return v * WT_at(weight);
  return v;
}
#define NEW(v) CHOOSE(seen, ALL(0), v)
// The lanes' sums over a row of TERM(i), which starts at element i; `last` is where its last vector starts.
#define LANES_OVER(result, TERM)                                    \
  {                                                                 \
    V total_ = ALL(0);                                              \
    for (IDX i = 0; i < whole;) {                                   \
      const IDX stop_ = LOWER(i + BLOCK, whole);                    \
      V s0 = ALL(0), s1 = s0, s2 = s0, s3 = s0;                     \
      for (; i + 4 * VL <= stop_; i += 4 * VL) {                    \
        s0 += TERM(i);                                              \
        s1 += TERM(i + VL);                                         \
        s2 += TERM(i + 2 * VL);                                     \
        s3 += TERM(i + 3 * VL);                                     \
      }                                                             \
      for (; i < stop_; i += VL) s0 += TERM(i);                     \
      total_ += (s0 + s1) + (s2 + s3);                              \
    }                                                               \
    if (whole < n) total_ += NEW(TERM(last));                       \
    result = total_;                                                \
  }
// The sum of them.
#define SUM_OVER(result, TERM)                                      \
  {                                                                 \
    V lanes_;                                                       \
    LANES_OVER(lanes_, TERM)                                        \
    result = total_of(lanes_);                                      \
  }
// DO(i) for each vector of a row, ONCE(i) for the last one where some lanes of it were seen before.
#define EACH(DO, ONCE)                          \
  for (IDX i = 0; i < whole; i += VL) { DO(i) } \
  if (whole < n) { ONCE(last) }

FUNC V square_lanes(const V v) { return v * v; }
