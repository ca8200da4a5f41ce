// Rows for chips with local memory: a group of GROUP work-items takes GROUP / LPR rows, LPR work-items each.
//
// KEEP elements of each work-item stay in registers where the row fits (k-th: LANE + k * LPR), else it is read again.
#define LANE (LID % LPR)
#define ROW (GROUP0 * (GROUP / LPR) + LID / LPR)
#define LOWER(a, b) ((a) < (b) ? (a) : (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define PLUS(a, b) ((a) + (b))
// v of every work-item of a row becomes all of theirs joined by OP, the same to the last bit; `scratch` has GROUP places.
#define ACROSS(v, OP)                                                                         \
  scratch[LID] = v;                                                                           \
  BARRIER;                                                                                    \
  if (LPR > 16) {                                                                             \
    if (LANE < 16) {                                                                          \
      for (int j_ = 16; j_ < LPR; j_ += 16) v = OP(v, scratch[LID + j_]);                     \
      scratch[LID] = v;                                                                       \
    }                                                                                         \
    BARRIER;                                                                                  \
  }                                                                                           \
  v = scratch[LID - LANE];                                                                    \
  for (int j_ = 1; j_ < 16; ++j_) v = OP(v, scratch[LID - LANE + j_]);                        \
  BARRIER;
// For every element i of the row that this work-item has, its k-th.
#if KEEP
#define EACH(i, k, n) UNROLL for (int k = 0; k < KEEP; ++k) for (IDX i = LANE + k * LPR; i < (n); i = (n))
#else
#define EACH(i, k, n) for (IDX i = LANE; i < (n); i += LPR)
#endif
