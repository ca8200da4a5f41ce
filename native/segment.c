// Reductions of runs of a dimension, and their gradients. x [outer][size][inner], y [outer][segments][inner], row-major.
// `ends`: where each run ends (OFFSETS: [outer][segments + 1], with the first start; else [outer][segments]).
// T: element type, TI: index. MODE: SUM, MEAN, MAX, MIN or PROD. A work-item owns TILE columns of one run.
#define SUM 0
#define MEAN 1
#define MAX 2
#define MIN 3
#define PROD 4
#if MODE == MAX || MODE == MIN
#define EXTREME 1
#else
#define EXTREME 0
#endif

FUNC IDX cut(long i, long size) { return i < 0 ? 0 : i > size ? size : i; }

#define RUN                                                                                              \
  const IDX tile = GID0 % tiles, run = GID0 / tiles % segments, o = GID0 / tiles / segments;             \
  GLOBAL const TI* bounds = ends + o * (segments + OFFSETS) + OFFSETS;                                   \
  const IDX first = cut(run > 0 || OFFSETS > 0 ? (long)bounds[run - 1] : 0, size), last = cut(bounds[run], size); \
  const IDX column = tile * TILE, left = inner - column, n = left < TILE ? left : TILE;                  \
  const IDX at = (o * segments + run) * (IDX)inner + column;

FUNC T_acc joined(T_acc s, T_acc v) {
  if (MODE == PROD) return s * v;
  if (MODE == MAX) return v > s || v != v ? v : s;
  if (MODE == MIN) return v < s || v != v ? v : s;
  return s + v;
}

kernel segment_reduce(in T x, in TI ends, out T y, long size, long segments, long inner, long tiles, T_acc start,
                      int has_start) {
  RUN
  T_acc s[TILE];
  for (IDX j = 0; j < TILE; ++j) s[j] = start;
  for (IDX k = first; k < last; ++k) {
    GLOBAL const T* row = x + (o * (IDX)size + k) * (IDX)inner + column;
    for (IDX j = 0; j < n; ++j) s[j] = joined(s[j], T_load(row[j]));
  }
  const IDX count = last - first;
  for (IDX j = 0; j < n; ++j) {
    if (MODE == MEAN) s[j] = count > 0 ? s[j] / count : has_start ? start : (T_acc)NAN;
    y[at + j] = T_save(s[j]);
  }
}

// The product of a run without element `skip`.
FUNC T_acc product_without(GLOBAL const T* x, IDX first, IDX last, IDX inner, IDX skip, T_acc start) {
  T_acc s = start;
  for (IDX k = first; k < last; ++k)
    if (k != skip) s *= T_load(x[k * inner]);
  return s;
}

// As torch: several largest elements share a gradient above 0 only.
kernel segment_reduce_backward(in T grad, in T y, in T x, in TI ends, out T dx, long size, long segments, long inner,
                               long tiles, T_acc start) {
  RUN
  const IDX count = last - first;
  for (IDX j = 0; j < n; ++j) {
    const IDX base = o * (IDX)(size * inner) + column + j;
    const T_acc g = T_load(grad[at + j]), result = T_load(y[at + j]);
    IDX ties = 0;
    if (EXTREME)
      for (IDX k = first; k < last; ++k) {
        const T_acc v = T_load(x[base + k * inner]);
        ties += v != v || v == result;
      }
    for (IDX k = first; k < last; ++k) {
      const T_acc v = T_load(x[base + k * inner]);
      T_acc d = g;
      if (MODE == MEAN) d = g / count;
      if (EXTREME) d = v != v || v == result ? (ties > 1 && g > 0 ? g / ties : g) : 0;
      if (MODE == PROD)
        d = v != v || v == 0 ? g * product_without(x + base, first, last, inner, k, start) : g * result / v;
      dx[base + k * inner] = T_save(d);
    }
  }
}
