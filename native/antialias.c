// Antialiased resampling along one dimension of [outer][size][inner]: a filter as wide as the stretch of input that
// an output element stands for. Weights are computed in A and sum to 1. T: element type, A: its compute type.
// FILTER(t): the filter, REACH: where it ends. Method and edge rules: torch's UpSampleKernel (as Pillow's resize).

FUNC A linear_filter(A t) {
  const A a = fabs(t);
  return a < 1 ? 1 - a : 0;
}
// Cubic convolution with a = -0.5.
FUNC A cubic_filter(A t) {
  const A a = fabs(t), k = (A)-0.5;
  if (a < 1) return ((k + 2) * a - (k + 3)) * a * a + 1;
  return a < 2 ? (((a - 5) * a + 8) * a - 4) * k : 0;
}

// The inputs [first, first + count) of output o, and what brings their weights to a sum of 1.
#define WINDOW(o)                                                            \
  const A support = REACH * (scale > 1 ? scale : 1), squeeze = scale > 1 ? 1 / scale : 1; \
  const A center = scale * ((o) + (A)0.5);                                   \
  const IDX low = (IDX)(center - support + (A)0.5), high = (IDX)(center + support + (A)0.5); \
  const IDX first = low > 0 ? low : 0, past = high < in_n ? high : in_n;     \
  A total = 0;                                                               \
  for (IDX i = first; i < past; ++i) total += FILTER((i - center + (A)0.5) * squeeze);
#define WEIGHT(i) (total == 0 ? 0 : FILTER(((i) - center + (A)0.5) * squeeze) / total)

// A work-item owns one line of `inner` outputs.
kernel shrink(in T x, out T y, long in_n, long out_n, long inner, T_acc scale) {
  const IDX o = GID0 % out_n, outer = GID0 / out_n;
  GLOBAL T* target = y + (IDX)GID0 * inner;
  WINDOW(o)
  for (IDX j = 0; j < inner; j += TILE) {
    const IDX n = inner - j < TILE ? inner - j : TILE;
    A s[TILE];
    for (IDX k = 0; k < TILE; ++k) s[k] = 0;
    for (IDX i = first; i < past; ++i) {
      const A w = WEIGHT(i);
      GLOBAL const T* line = x + (outer * (IDX)in_n + i) * (IDX)inner + j;
      for (IDX k = 0; k < n; ++k) s[k] += w * T_load(line[k]);
    }
    for (IDX k = 0; k < n; ++k) target[j + k] = T_save(s[k]);
  }
}

// The transpose: dx [outer][in_n][inner] from grad [outer][out_n][inner]. A work-item owns one column.
kernel shrink_backward(in T grad, inout T_acc dx, long in_n, long out_n, long inner, T_acc scale) {
  const IDX column = GID0 % inner, outer = GID0 / inner;
  GLOBAL A* line = dx + outer * (IDX)(in_n * inner) + column;
  for (IDX i = 0; i < in_n; ++i) line[i * inner] = 0;
  for (IDX o = 0; o < out_n; ++o) {
    WINDOW(o)
    const A g = T_load(grad[(outer * (IDX)out_n + o) * (IDX)inner + column]);
    for (IDX i = first; i < past; ++i) line[i * inner] += WEIGHT(i) * g;
  }
}
