// softmax and log_softmax along one dimension, and their gradients.
//
// `rows`: that dimension is the closest in memory, one row at a time. `columns`: another one is, a tile of columns at
// a time. The kept layouts hold every other dimension. LOGARITHM chooses log_softmax. Exponentials are computed twice:
// that costs less than storing and loading them in one loop with the sum.
#define LANES 32
#if UNIT  // every innermost stride is 1: compilers vectorize what they can see
#define AT(step) 1
#else
#define AT(step) step
#endif
#define LOWER(a, b) ((a) < (b) ? (a) : (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define FOLD(lane, OP, result)                                                                  \
  for (int l = 0; l < LANES / 2; ++l) lane[l] = OP(lane[l], lane[l + LANES / 2]);               \
  for (int l = 0; l < LANES / 4; ++l) lane[l] = OP(lane[l], lane[l + LANES / 4]);               \
  for (int l = 0; l < LANES / 4; ++l) result = OP(result, lane[l]);
#define PLUS(a, b) ((a) + (b))

// The gradient from the result y: y (g - sum(g y)), and for the logarithm g - exp(y) sum(g).
#define TERM(g, y) (LOGARITHM ? (g) : (g) * (y))
#define GRAD(g, y, total) (LOGARITHM ? (g) - EXP(y) * (total) : (y) * ((g) - (total)))
