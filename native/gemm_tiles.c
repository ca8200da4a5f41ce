// Matrix products for chips with local memory; out, a, x, c and the Layout as in native/gemm.c.
//
// A group makes a tile of TM x TN. While it multiplies TK steps from local memory, the next ones are on their way to
// registers. A_ALONG_K, X_ALONG_K: the operand is dense along k, else fours are taken along m or n. WIDE_A, WIDE_X,
// WIDE_O: strides allow fours to be aligned. GROUP1 is a part of the steps; parts lie `part_stride` apart in out.
#define N_ 0
#define M_ 1
#define K_ 2
#define B1_ 3
#define B0_ 4
#define S_ 5
FOUR(QuadA, T_a);
FOUR(QuadX, T_x);
FOUR(QuadO, T_o);
#define LOAD_STEP(t)                                                                       \
  {                                                                                        \
    const IDX s_ = (t) / steps, k0_ = ((t) - s_ * steps) * TK;                             \
    const GLOBAL T_a* a_s = a + a_at + s_ * g.stride[1][S_];                               \
    const GLOBAL T_x* x_s = x + x_at + s_ * g.stride[2][S_];                               \
    UNROLL for (int p = 0; p < FOURS(TM); ++p) {                                           \
      const IDX i = i0 + ACROSS_OF(p, A_ALONG_K, TM), k = k0_ + DEEP_OF(p, A_ALONG_K, TM); \
      const IDX n = A_ALONG_K ? (i < rows ? depth - k : 0) : (k < depth ? rows - i : 0);   \
      FETCH(next_a[p], QuadA, HELD_OF(T_a_load), a_s + i * g.stride[1][M_] + k * g.stride[1][K_], g.stride[1][A_ALONG_K ? K_ : M_], n, wide_a) \
    }                                                                                      \
    UNROLL for (int p = 0; p < FOURS(TN); ++p) {                                           \
      const IDX j = j0 + ACROSS_OF(p, X_ALONG_K, TN), k = k0_ + DEEP_OF(p, X_ALONG_K, TN); \
      const IDX n = X_ALONG_K ? (j < cols ? depth - k : 0) : (k < depth ? cols - j : 0);   \
      FETCH(next_x[p], QuadX, HELD_OF(T_x_load), x_s + j * g.stride[2][N_] + k * g.stride[2][K_], g.stride[2][X_ALONG_K ? K_ : N_], n, wide_x) \
    }                                                                                      \
  }

kernel gemm_tiles(out T_o o, in T_a a, in T_x x, in T_c c, ACC alpha, ACC beta, IDX part, long part_stride, Layout4 g) groups(GROUP) {
  OPERAND(left, TM);
  OPERAND(right, TN);
  const IDX cols = g.size[N_], rows = g.size[M_], depth = g.size[K_], steps = (depth + TK - 1) / TK;
  const IDX across = (cols + TN - 1) / TN, j0 = (IDX)(GROUP0 % across) * TN, i0 = (IDX)(GROUP0 / across) * TM;
  const IDX b1 = (IDX)GROUP2 % g.size[B1_], b0 = (IDX)GROUP2 / g.size[B1_];
  const IDX a_at = b0 * g.stride[1][B0_] + b1 * g.stride[1][B1_], x_at = b0 * g.stride[2][B0_] + b1 * g.stride[2][B1_];
  const bool wide_a = WIDE_A && ALIGNED(a, 4 * sizeof(T_a)), wide_x = WIDE_X && ALIGNED(x, 4 * sizeof(T_x));
  const IDX first = (IDX)GROUP1 * part, last = LOWER(first + part, steps * g.size[S_]);
  ACC sum[RM][RN];
  HELD next_a[FOURS(TM)][4], next_x[FOURS(TN)][4];
  CLEAR(sum, RM, RN)
  if (first < last) LOAD_STEP(first)
  for (IDX t = first; t < last; ++t) {
    PUT_STEP(left, TM, next_a, A_ALONG_K)
    PUT_STEP(right, TN, next_x, X_ALONG_K)
    BARRIER;
    if (t + 1 < last) LOAD_STEP(t + 1)
    MULTIPLY_STEP(sum, left, right)
    BARRIER;
  }
  GLOBAL T_o* to = o + (GROUP1 * part_stride + b0 * g.stride[0][B0_] + b1 * g.stride[0][B1_]);
  const IDX c_at = b0 * g.stride[3][B0_] + b1 * g.stride[3][B1_];
  const bool wide_o = WIDE_O && ALIGNED(to, 4 * sizeof(T_o));
  UNROLL for (int r = 0; r < RM; ++r) {
    const IDX i = i0 + ROW_OF(r);
    UNROLL for (int q = 0; q < RN; q += 4) {
      const IDX j = j0 + COL_OF(q), n = i < rows ? cols - j : 0;
      ACC v[4];
      UNROLL for (int u = 0; u < 4; ++u) {
        v[u] = alpha * sum[r][q + u];
        if (beta != 0 && u < n) v[u] += beta * T_c_load(c[c_at + i * g.stride[3][M_] + (j + u) * g.stride[3][N_]]);
      }
      if (wide_o && n >= 4) {
        QuadO w;
        w.x = T_o_save(v[0]), w.y = T_o_save(v[1]), w.z = T_o_save(v[2]), w.w = T_o_save(v[3]);
        *(GLOBAL QuadO*)(to + i * g.stride[0][M_] + j) = w;
      } else {
        UNROLL for (int u = 0; u < 4; ++u)
          if (u < n) to[i * g.stride[0][M_] + (j + u) * g.stride[0][N_]] = T_o_save(v[u]);
      }
    }
  }
}
