// As native/attention.c, for chips with local memory: a group makes BLOCK rows of one head, BLOCK others at a time. Every
// product is one of tiles (native/tiles.h): scores from chunks of TK dimensions of both sides, and sums over the others
// from the scores, which lie in local memory as [other][row], and chunks of TK others.
#define BLOCK 64
#define STEP (BLOCK + PAD)
#define WIDE (DIM + PAD)
#define RD (DIM / 16)  // columns of a sum that a work-item has
#define D_ 0
#define L_ 1
#define H_ 2
#define B_ 3
FOUR(QuadT, T);
#define OFF(K) (batch * g.stride[K][B_] + head * g.stride[K][H_])
#define OFF_KV(K) (batch * g.stride[K][B_] + head / group * g.stride[K][H_])

// to[d][row] = x[row0 + row, d0 + d] of a chunk of TK dimensions.
#define LOAD_CHUNK(to, x, row0, rows, d0, dims, K)                                                                     \
  {                                                                                                                    \
    const IDX r_ = (row0) + LID / 4, at_ = (d0) + LID % 4 * 4, n_ = r_ < (rows) ? (dims) - at_ : 0;                    \
    ACC four_[4];                                                                                                      \
    FETCH(four_, QuadT, T_load, (x) + (r_ * g.stride[K][L_] + at_ * g.stride[K][D_]), g.stride[K][D_], n_, WIDE_IN && ALIGNED(x, 4 * sizeof(T))) \
    UNROLL for (int u_ = 0; u_ < 4; ++u_) (to)[(LID % 4 * 4 + u_) * STEP + LID / 4] = four_[u_];                       \
  }
// s[row][other] = the sum over `dims` of a[row0 + row] * x[other0 + other].
#define SCORES(s, a, row0, rows, KA, x, other0, others, KX, dims)           \
  CLEAR(s, 4, 4)                                                            \
  for (int d0_ = 0; d0_ < (dims); d0_ += TK) {                              \
    LOAD_CHUNK(left, a, row0, rows, d0_, dims, KA)                          \
    LOAD_CHUNK(right, x, other0, others, d0_, dims, KX)                     \
    BARRIER;                                                                \
    MULTIPLY(s, 4, 4, left, STEP, right, STEP, TK)                          \
    BARRIER;                                                                \
  }
// Brings s into local memory; the next barrier makes it seen.
#define SHOW(s)                                                             \
  UNROLL for (int c_ = 0; c_ < 4; ++c_) {                                   \
    const ACC column_[4] = {s[0][c_], s[1][c_], s[2][c_], s[3][c_]};        \
    PUT(shown + COL_OF(c_) * STEP + ROW_OF(0), column_)                     \
  }
// sum[row][d] += shown[other][row] * x[other0 + other, d]; ends with a barrier, and does not begin with one.
#define ADD_UP(sum, x, other0, others, K, dims)                                                                        \
  for (int o_ = 0; o_ < BLOCK && (other0) + o_ < (others); o_ += TK) {                                                 \
    UNROLL for (int p_ = 0; p_ < DIM / 64; ++p_) {                                                                     \
      const int f_ = LID + p_ * 256, d_ = f_ % (DIM / 4) * 4, i_ = f_ / (DIM / 4);                                     \
      const IDX r_ = (other0) + o_ + i_, n_ = r_ < (others) ? (dims) - d_ : 0;                                         \
      ACC four_[4];                                                                                                    \
      FETCH(four_, QuadT, T_load, (x) + (r_ * g.stride[K][L_] + d_ * g.stride[K][D_]), g.stride[K][D_], n_, WIDE_IN && ALIGNED(x, 4 * sizeof(T))) \
      PUT(right + i_ * WIDE + d_, four_)                                                                               \
    }                                                                                                                  \
    BARRIER;                                                                                                           \
    MULTIPLY(sum, 4, RD, shown + o_ * STEP, STEP, right, WIDE, TK)                                                     \
    BARRIER;                                                                                                           \
  }
#define GIVE(to, sum, row0, rows, K, dims, factor)                                                                     \
  UNROLL for (int r_ = 0; r_ < 4; ++r_) {                                                                              \
    UNROLL for (int c_ = 0; c_ < RD; ++c_) {                                                                           \
      if ((row0) + ROW_OF(r_) < (rows) && COL_OF(c_) < (dims))                                                         \
        (to)[((row0) + ROW_OF(r_)) * g.stride[K][L_] + COL_OF(c_) * g.stride[K][D_]] = T_save(sum[r_][c_] * (factor)); \
    }                                                                                                                  \
  }
#define MEMORY                 \
  NUMBERS(left, TK * STEP);    \
  NUMBERS(right, TK * WIDE);   \
  NUMBERS(shown, BLOCK * STEP)

// A score with the mask and causality applied; -inf past the ends.
FUNC ACC score_of(const ACC product, const GLOBAL T_m* mask, const IDX i, const IDX j, const int lq, const int lk,
                  const int causal, const IDX i_step, const IDX j_step) {
  if (i >= lq || j >= lk || (causal && j > i)) return -INFINITY;
#if MASK == 1
  return T_m_load(mask[i * i_step + j * j_step]) ? product : -INFINITY;
#elif MASK == 2
  return product + (ACC)T_m_load(mask[i * i_step + j * j_step]);
#endif
  return product;
}

kernel attention_forward(in T q, in T k, in T v, in T_m mask, out T o, out ACC lse, ACC scale, int causal, int lq, int lk, int e, int ev, int group, Layout5 g) groups(GROUP) {
  MEMORY;
  SHARED(ACC, top, BLOCK);
  SHARED(ACC, total, BLOCK);
  SHARED(ACC, fade, BLOCK);
  const IDX head = (IDX)GROUP1, batch = (IDX)GROUP2, i0 = (IDX)GROUP0 * BLOCK;
  const int last = causal && i0 + BLOCK < lk ? i0 + BLOCK : lk;
  const GLOBAL T* qp = q + OFF(0);
  const GLOBAL T* kp = k + OFF_KV(1);
  const GLOBAL T* vp = v + OFF_KV(2);
  ACC sum[4][RD], s[4][4];
  CLEAR(sum, 4, RD)
  if (LID < BLOCK) top[LID] = -INFINITY, total[LID] = 0;
  for (int j0 = 0; j0 < last; j0 += BLOCK) {
    SCORES(s, qp, i0, lq, 0, kp, j0, lk, 1, e)
    UNROLL for (int r = 0; r < 4; ++r) {
      ACC most = -INFINITY;
      UNROLL for (int c = 0; c < 4; ++c) {
        s[r][c] = score_of(scale * s[r][c], mask + OFF(4), i0 + ROW_OF(r), j0 + COL_OF(c), lq, lk, causal, g.stride[4][L_], g.stride[4][D_]);
        most = s[r][c] > most ? s[r][c] : most;
      }
      left[TCOL * BLOCK + ROW_OF(r)] = most;
    }
    BARRIER;
    if (LID < BLOCK) {
      const ACC before = top[LID];
      ACC most = before;
      for (int c = 0; c < 16; ++c) most = left[c * BLOCK + LID] > most ? left[c * BLOCK + LID] : most;
      top[LID] = most;
      fade[LID] = before == most ? 1 : exp(before - most);
    }
    BARRIER;
    UNROLL for (int r = 0; r < 4; ++r) {
      const ACC most = top[ROW_OF(r)];
      ACC part = 0;
      UNROLL for (int c = 0; c < 4; ++c) {
        s[r][c] = s[r][c] == -INFINITY ? 0 : EXP(s[r][c] - most);
        part += s[r][c];
      }
      left[TCOL * BLOCK + ROW_OF(r)] = part;
      UNROLL for (int c = 0; c < RD; ++c) sum[r][c] *= fade[ROW_OF(r)];
    }
    SHOW(s)
    BARRIER;
    if (LID < BLOCK) {
      ACC all = total[LID] * fade[LID];
      for (int c = 0; c < 16; ++c) all += left[c * BLOCK + LID];
      total[LID] = all;
    }
    ADD_UP(sum, vp, j0, last, 2, ev)
  }
  BARRIER;
  UNROLL for (int r = 0; r < 4; ++r) {
    const ACC share = total[ROW_OF(r)] == 0 ? 0 : 1 / total[ROW_OF(r)];
    UNROLL for (int c = 0; c < RD; ++c) sum[r][c] *= share;
  }
  GIVE(o + OFF(3), sum, i0, lq, 3, ev, 1)
  if (LID < BLOCK && i0 + LID < lq)
    lse[(batch * GROUPS1 + head) * lq + i0 + LID] = total[LID] == 0 ? INFINITY : top[LID] + log(total[LID]);
}

// Gradient of BLOCK queries. delta: the sum of grad * out of each query, which attention_grad_kv needs.
kernel attention_grad_q(in T q, in T k, in T v, in T_m mask, in T o, in T grad, in ACC lse, out T gq, out ACC delta, ACC scale, int causal, int lq, int lk, int e, int ev, int group, Layout7 g) groups(GROUP) {
  MEMORY;
  SHARED(ACC, norm, BLOCK);
  SHARED(ACC, along, BLOCK);
  const IDX head = (IDX)GROUP1, batch = (IDX)GROUP2, i0 = (IDX)GROUP0 * BLOCK, row0 = (batch * GROUPS1 + head) * lq + i0;
  const int last = causal && i0 + BLOCK < lk ? i0 + BLOCK : lk;
  const GLOBAL T* qp = q + OFF(0);
  const GLOBAL T* kp = k + OFF_KV(1);
  const GLOBAL T* vp = v + OFF_KV(2);
  const GLOBAL T* gp = grad + OFF(5);
  ACC sum[4][RD], s[4][4], dp[4][4], part = 0;
  CLEAR(sum, 4, RD)
  if (i0 + LID / 4 < lq) {
    const GLOBAL T* out_row = o + (OFF(4) + (i0 + LID / 4) * g.stride[4][L_]);
    const GLOBAL T* grad_row = gp + (i0 + LID / 4) * g.stride[5][L_];
    for (int d = LID % 4; d < ev; d += 4) part += T_load(out_row[d * g.stride[4][D_]]) * T_load(grad_row[d * g.stride[5][D_]]);
  }
  left[LID] = part;
  BARRIER;
  if (LID < BLOCK) {
    along[LID] = left[4 * LID] + left[4 * LID + 1] + left[4 * LID + 2] + left[4 * LID + 3];
    norm[LID] = i0 + LID < lq ? lse[row0 + LID] : INFINITY;
    if (i0 + LID < lq) delta[row0 + LID] = along[LID];
  }
  BARRIER;
  for (int j0 = 0; j0 < last; j0 += BLOCK) {
    SCORES(s, qp, i0, lq, 0, kp, j0, lk, 1, e)
    SCORES(dp, gp, i0, lq, 5, vp, j0, lk, 2, ev)
    UNROLL for (int r = 0; r < 4; ++r) {
      UNROLL for (int c = 0; c < 4; ++c) {
        const ACC w = score_of(scale * s[r][c], mask + OFF(3), i0 + ROW_OF(r), j0 + COL_OF(c), lq, lk, causal, g.stride[3][L_], g.stride[3][D_]);
        s[r][c] = w == -INFINITY ? 0 : EXP(w - norm[ROW_OF(r)]) * (dp[r][c] - along[ROW_OF(r)]);
      }
    }
    SHOW(s)
    ADD_UP(sum, kp, j0, last, 1, e)
  }
  GIVE(gq + OFF(6), sum, i0, lq, 6, e, scale)
}

// Gradients of BLOCK keys and values of one key head: the sum over all queries of the `group` heads that share it.
kernel attention_grad_kv(in T q, in T k, in T v, in T_m mask, in T grad, in ACC lse, in ACC delta, out T gk, out T gv, ACC scale, int causal, int lq, int lk, int e, int ev, int group, Layout7 g) groups(GROUP) {
  MEMORY;
  const IDX kv_head = (IDX)GROUP1, batch = (IDX)GROUP2, j0 = (IDX)GROUP0 * BLOCK;
  const GLOBAL T* kp = k + (batch * g.stride[1][B_] + kv_head * g.stride[1][H_]);
  const GLOBAL T* vp = v + (batch * g.stride[2][B_] + kv_head * g.stride[2][H_]);
  ACC sum_k[4][RD], sum_v[4][RD], s[4][4], dp[4][4];
  CLEAR(sum_k, 4, RD)
  CLEAR(sum_v, 4, RD)
  for (IDX head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const GLOBAL T* qp = q + OFF(0);
    const GLOBAL T* gp = grad + OFF(4);
    const IDX row0 = (batch * GROUPS1 * group + head) * lq;
    for (int i0 = causal ? j0 : 0; i0 < lq; i0 += BLOCK) {
      SCORES(s, kp, j0, lk, 1, qp, i0, lq, 0, e)
      SCORES(dp, vp, j0, lk, 2, gp, i0, lq, 4, ev)
      UNROLL for (int c = 0; c < 4; ++c) {
        const IDX i = i0 + COL_OF(c);
        const ACC norm = i < lq ? lse[row0 + i] : INFINITY, along = i < lq ? delta[row0 + i] : 0;
        UNROLL for (int r = 0; r < 4; ++r) {
          const ACC w = score_of(scale * s[r][c], mask + OFF(3), i, j0 + ROW_OF(r), lq, lk, causal, g.stride[3][L_], g.stride[3][D_]);
          s[r][c] = w == -INFINITY ? 0 : EXP(w - norm);
          dp[r][c] = s[r][c] == 0 ? 0 : s[r][c] * (dp[r][c] - along);
        }
      }
      SHOW(s)
      ADD_UP(sum_v, gp, i0, lq, 4, ev)
      SHOW(dp)
      ADD_UP(sum_k, qp, i0, lq, 0, e)
    }
  }
  GIVE(gk + (batch * g.stride[5][B_] + kv_head * g.stride[5][H_]), sum_k, j0, lk, 5, e, scale)
  GIVE(gv + (batch * g.stride[6][B_] + kv_head * g.stride[6][H_]), sum_v, j0, lk, 6, ev, 1)
}
