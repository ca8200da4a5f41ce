// Normalization of rows: y = (x - mean) / sqrt(variance + eps) * weight + bias, and its gradients.
//
// Rows are contiguous. CENTER is 0 for RMS norm, where the mean counts as 0 and variance is the mean square. WEIGHT and
// BIAS say which of the two there are. A row is read three times, but comes from memory once.
#define LANES 32
#define LOWER(a, b) ((a) < (b) ? (a) : (b))
#define FOLD(lane, result)                                                  \
  for (int l = 0; l < LANES / 2; ++l) lane[l] += lane[l + LANES / 2];       \
  for (int l = 0; l < LANES / 4; ++l) lane[l] += lane[l + LANES / 4];       \
  for (int l = 0; l < LANES / 4; ++l) result += lane[l];
// result = the sum of `term`, an expression of the index k, over 0 <= k < n.
#define SUM_OVER(result, term)                                              \
  {                                                                         \
    ACC lane[LANES];                                                        \
    IDX i_ = 0;                                                             \
    result = 0;                                                             \
    if (n >= LANES) {                                                       \
      for (int l = 0; l < LANES; ++l) lane[l] = 0;                          \
      for (; i_ + LANES <= n; i_ += LANES)                                  \
        for (int l = 0; l < LANES; ++l) {                                   \
          const IDX k = i_ + l;                                             \
          lane[l] += term;                                                  \
        }                                                                   \
      FOLD(lane, result)                                                    \
    }                                                                       \
    for (; i_ < n; ++i_) {                                                  \
      const IDX k = i_;                                                     \
      result += term;                                                       \
    }                                                                       \
  }
#define X(k) T_load(x[at + (k)])
#define G(k) T_load(g[at + (k)])
#define W(k) WEIGHT(WT_load(weight[k]))
