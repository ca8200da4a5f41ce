// Vectors along a row (native/vector.h) as elements are stored, and what is computed on all lanes at once.
//
// V is VL floats. DEFINE_ROW(X, kind) makes X_at(p) and X_put(p, v), which load and store VL elements of dtype X, and
// X_some(p, count, rest), the first `count` of them with `rest` in the other lanes.
VECTOR(SIGNS, int, VL)
#ifdef __OPENCL_VERSION__
#define CHOOSE(m, a, b) ((m) ? (a) : (b))
#else
#define CHOOSE(m, a, b) choose_lanes(m, (V)(a), (V)(b))
FUNC V choose_lanes(const SIGNS m, const V a, const V b) {
  const SIGNS r = (*(const SIGNS*)&a & m) | (*(const SIGNS*)&b & ~m);
  return *(const V*)&r;
}
#endif
#define ALL(x) SPLAT(V, (ACC)(x))
#define LARGER(a, b) CHOOSE((a) > (b), a, b)

#define DEFINE_ROW(X, KIND)                                             \
  DEFINE_LOAD(X##_at, X, X##_load, KIND)                                \
  FUNC void X##_put(GLOBAL X* p, const V v) {                           \
    if (KIND == 0) *(GLOBAL V*)p = v;                                   \
    else *(GLOBAL H*)p = to_halves(v, KIND);                            \
  }                                                                     \
  FUNC V X##_some(const GLOBAL X* p, const int count, const ACC rest) { \
    ACC lane[VL];                                                       \
    HERE(lane, 0) = ALL(rest);                                          \
    for (int j = 0; j < count; ++j) lane[j] = X##_load(p[j]);           \
    return HERE(lane, 0);                                               \
  }                                                                     \
  FUNC void X##_put_some(GLOBAL X* p, const int count, const V v) {     \
    ACC lane[VL];                                                       \
    HERE(lane, 0) = v;                                                  \
    for (int j = 0; j < count; ++j) p[j] = X##_save(lane[j]);           \
  }

// The lanes of a last vector, of which `left` elements are new, that were seen before.
FUNC SIGNS seen_before(const IDX left) {
  int lane[VL];
  for (int j = 0; j < VL; ++j) lane[j] = j < VL - left ? -1 : 0;
  return *(SIGNS*)lane;
}

FUNC ACC largest_of(const V v) {
  ACC lane[VL], top = -INFINITY;
  HERE(lane, 0) = v;
  for (int j = 0; j < VL; ++j) top = lane[j] > top ? lane[j] : top;
  return top;
}

// fast_exp_down of native/fastmath.h.
FUNC V exp_lanes(const V given) {
  const V x = CHOOSE(given < (ACC)-88.0f, ALL(-88.0f), given);
  const V t = x * (ACC)1.44269504f + (ACC)FAST_POWER, n = t - (ACC)FAST_POWER;
  const V r = (x - n * (ACC)0.693359375f) + n * (ACC)2.12194440e-4f;
  V p = r * (ACC)1.381461324e-3f + (ACC)8.368709937e-3f;
  p = p * r + (ACC)4.166838737e-2f;
  p = p * r + (ACC)1.666652069e-1f;
  p = p * r + (ACC)4.999999345e-1f;
  p = p * r + (ACC)1.0f;
  p = p * r + (ACC)1.0f;
  const U power = *(const U*)&t << 23;
  return p * *(const V*)&power;
}
