// Matrix products for CPUs: out[b, m, n] = alpha * sum over (s, k) of a[b, s, m, k] * x[b, s, k, n] + beta * c[b, m, n].
// Sizes and strides as in gemm.c; no depth is 0. The register tile is MR rows by vectors of VL lanes; x is first copied into panels
// of neighbouring columns, where each k is one vector load. Private arrays hold sums, so any chip order of items works.
#define N_ 0
#define M_ 1
#define K_ 2
#define B1_ 3
#define B0_ 4
#define S_ 5
#define NR (2 * VL)    // columns of a panel of x
#define KC 256         // depth of a panel that stays in the first cache
#define MB (16 * MR)   // largest block of the output
#define NB (4 * NR)
// HALF_A, HALF_X, HALF_C, HALF_O: how a, x, c and o are stored, see DEFINE_LOAD.
DEFINE_LOAD(load_a, T_a, T_a_load, HALF_A)
DEFINE_LOAD(load_x, T_x, T_x_load, HALF_X)
DEFINE_LOAD(load_c, T_c, T_c_load, HALF_C)
#if HALF_O == 0
FUNC void save_o(GLOBAL T_o* p, const V v) { *(GLOBAL V*)p = v; }
#elif HALF_O < 3
FUNC void save_o(GLOBAL T_o* p, const V v) { *(GLOBAL H*)p = to_halves(v, HALF_O); }
#endif

// dst[kk][width] = src of `lanes` neighbours, for kk in [from, to) of the flattened (s, k); missing lanes of a vector
// become 0. TURNED: blocks whose k is dense are turned in registers; others lane by lane.
#define DEFINE_PACK(NAME, T, LOAD, LOADS, SPACE, TURNED)                                                             \
  FUNC void NAME(SPACE ACC* restrict dst, const GLOBAL T* restrict src, const int width, const int lanes,            \
                 const IDX lane_step, const IDX k_step, const IDX s_step, const IDX depth, IDX from, const IDX to) { \
    IDX s = from / depth, k = from - s * depth;                                                                      \
    const int whole = lanes / VL * VL, padded = lanes > whole && whole + VL <= width ? whole + VL : lanes;           \
    while (from < to) {                                                                                              \
      const IDX run = depth - k < to - from ? depth - k : to - from;                                                 \
      const GLOBAL T* restrict p = src + s * s_step + k * k_step;                                                    \
      int first = 0;                                                                                                 \
      if (lanes < padded)                                                                                            \
        AS_WRITTEN for (IDX i = 0; i < run; ++i)                                                                     \
          AS_WRITTEN for (int j = lanes; j < padded; ++j) dst[i * width + j] = 0;                                    \
      if (lane_step == 1) {                                                                                          \
        AS_WRITTEN for (IDX i = 0; i < run; ++i)                                                                     \
          for (int j = 0; j < whole; j += VL) *(SPACE V*)(dst + i * width + j) = LOADS(p + i * k_step + j);          \
        first = whole;                                                                                               \
      } else if (TURNED && k_step == 1) {                                                                            \
        const IDX turned = run / VL * VL;                                                                            \
        for (IDX i = 0; i < turned; i += VL)                                                                         \
          for (int j = 0; j < whole; j += VL) {                                                                      \
            V block[VL];                                                                                             \
            UNROLLED for (int r = 0; r < VL; ++r) block[r] = LOADS(p + i + (j + r) * lane_step);                     \
            turn(block);                                                                                             \
            UNROLLED for (int r = 0; r < VL; ++r) *(SPACE V*)(dst + (i + r) * width + j) = block[r];                 \
          }                                                                                                          \
        AS_WRITTEN for (IDX i = turned; i < run; ++i)                                                                \
          AS_WRITTEN for (int j = 0; j < whole; ++j) dst[i * width + j] = LOAD(p[i + j * lane_step]);                \
        first = whole;                                                                                               \
      }                                                                                                              \
      for (IDX i0 = 0; i0 < run && first < lanes; i0 += 16) {                                                        \
        const IDX i1 = i0 + 16 < run ? i0 + 16 : run;                                                                \
        for (int j = first; j < lanes; ++j)                                                                          \
          AS_WRITTEN for (IDX i = i0; i < i1; ++i) dst[i * width + j] = LOAD(p[j * lane_step + i * k_step]);         \
      }                                                                                                              \
      dst += run * width;                                                                                            \
      from += run;                                                                                                   \
      ++s;                                                                                                           \
      k = 0;                                                                                                         \
    }                                                                                                                \
  }
DEFINE_PACK(pack_a, T_a, T_a_load, load_a, GLOBAL, 0)
DEFINE_PACK(pack_x, T_x, T_x_load, load_x, GLOBAL, 1)
DEFINE_PACK(strip_x, T_x, T_x_load, load_x, , 1)

// out = alpha * sum + beta * c over a rows x cols corner; `sum` has `step` columns.
FUNC void store(const ACC* restrict sum, const int step, const int rows, const int cols, GLOBAL T_o* restrict o,
                const GLOBAL T_c* restrict c, const ACC alpha, const ACC beta, const IDX o_m, const IDX o_n,
                const IDX c_m, const IDX c_n) {
  for (int i = 0; i < rows; ++i) {
    GLOBAL T_o* restrict op = o + i * o_m;
    const GLOBAL T_c* restrict cp = c + i * c_m;
    const ACC* restrict from = sum + i * step;
    int j = 0;
#if HALF_O < 3
    if (o_n == 1 && beta == 0)
      for (; j + VL <= cols; j += VL) save_o(op + j, madd(alpha, *(const V*)(from + j), SPLAT(V, 0)));
    else if (o_n == 1 && c_n == 1)
      for (; j + VL <= cols; j += VL) save_o(op + j, madd(alpha, *(const V*)(from + j), beta * load_c(cp + j)));
#endif
    AS_WRITTEN for (; j < cols; ++j) {
      ACC v = alpha * from[j];
      if (beta != 0) v += beta * T_c_load(cp[j * c_n]);
      op[j * o_n] = T_o_save(v);
    }
  }
}

// sum[MR][NR] (rows `step` apart) += a[depth][MR] * x[depth][NR]; `first`: sum is not read. Rows of a from `rows` on are
// not read. Each call starts at 0: sums of sums lose less than one long sum. COLUMNS: how many vectors of the NR columns.
#define DEFINE_MICRO(NAME, A_SPACE, X_SPACE, COLUMNS)                                                            \
  APART void NAME(ACC* restrict sum, const int step, const A_SPACE ACC* restrict a, const IDX a_m, const IDX a_k, \
                 const int rows, const X_SPACE ACC* restrict x, const IDX depth, const int first) {              \
    EACH_ROW(MICRO_BEGIN)                                                                                        \
    IDX at = 0;                                                                                                  \
    AS_WRITTEN for (IDX k = 0; k < depth; ++k) {                                                                 \
      const V x0 = *(const X_SPACE V*)x;                                                                         \
      COLUMNS(const V x1 = *(const X_SPACE V*)(x + VL);)                                                         \
      EACH_ROW(COLUMNS##_STEP)                                                                                   \
      at += a_k;                                                                                                 \
      x += NR;                                                                                                   \
    }                                                                                                            \
    if (!first) {                                                                                                \
      EACH_ROW(COLUMNS##_ADD)                                                                                    \
    }                                                                                                            \
    EACH_ROW(COLUMNS##_END)                                                                                      \
  }
#define MICRO_BEGIN(R) V s##R = SPLAT(V, 0), t##R = SPLAT(V, 0); __typeof__(a) a##R = a + (R < rows ? R : rows - 1) * a_m;
#define ONE(X)
#define ONE_STEP(R) s##R = madd(a##R[at], x0, s##R);
#define ONE_ADD(R) s##R += HERE(sum, R * step);
#define ONE_END(R) HERE(sum, R * step) = s##R;
#define TWO(X) X
#define TWO_STEP(R) ONE_STEP(R) t##R = madd(a##R[at], x1, t##R);
#define TWO_ADD(R) ONE_ADD(R) t##R += HERE(sum, R * step + VL);
#define TWO_END(R) ONE_END(R) HERE(sum, R * step + VL) = t##R;

// Up to NR columns and mb rows in one launch: x is packed into private memory; so is a, unless it is stored as ACC.
#if HALF_A
DEFINE_PACK(rows_a, T_a, T_a_load, load_a, , 0)
#define LEFT
#else
#define LEFT GLOBAL
#endif
DEFINE_MICRO(micro_one, LEFT, , ONE)
DEFINE_MICRO(micro_two, LEFT, , TWO)
kernel gemm_direct(out T_o o, in T_a a, in T_x x, in T_c c, ACC alpha, ACC beta, int mb, Layout4 g) {
  const IDX n = g.size[N_], m = g.size[M_], depth = g.size[K_], total = depth * g.size[S_];
  const IDX strips = (n + NR - 1) / NR, blocks = (m + mb - 1) / mb;
  const IDX i0 = (IDX)(GID0 % blocks) * mb, j0 = (IDX)(GID0 / blocks % strips) * NR;
  const IDX batch = (IDX)(GID0 / strips / blocks), b1 = batch % g.size[B1_], b0 = batch / g.size[B1_];
  const int cols = n - j0 < NR ? n - j0 : NR, rows = m - i0 < mb ? m - i0 : mb;
  const IDX a_m = g.stride[1][M_], a_k = g.stride[1][K_];
  const GLOBAL T_a* restrict ap = a + b0 * g.stride[1][B0_] + b1 * g.stride[1][B1_] + i0 * a_m;
  const GLOBAL T_x* restrict xp = x + b0 * g.stride[2][B0_] + b1 * g.stride[2][B1_] + j0 * g.stride[2][N_];
  ACC strip[KC * NR], sum[MB * NR];
  for (IDX from = 0; from < total;) {
    const IDX s = from / depth, k = from - s * depth, run = depth - k < KC ? depth - k : KC;
    strip_x(strip, xp, NR, cols, g.stride[2][N_], g.stride[2][K_], g.stride[2][S_], depth, from, from + run);
    const GLOBAL T_a* restrict as = ap + s * g.stride[1][S_] + k * a_k;
    for (int i = 0; i < rows; i += MR) {
      const int some = rows - i < MR ? rows - i : MR;
#if HALF_A
      ACC left[MR * KC];
      rows_a(left, as + i * a_m, KC, run, a_k, a_m, 0, some, 0, some);
      const IDX l_m = KC, l_k = 1;
#else
      const GLOBAL ACC* restrict left = as + i * a_m;
      const IDX l_m = a_m, l_k = a_k;
#endif
      if (cols > VL)
        micro_two(sum + i * NR, NR, left, l_m, l_k, some, strip, run, from == 0);
      else
        micro_one(sum + i * NR, NR, left, l_m, l_k, some, strip, run, from == 0);
    }
    from += run;
  }
  store(sum, NR, rows, cols, o + b0 * g.stride[0][B0_] + b1 * g.stride[0][B1_] + i0 * g.stride[0][M_] + j0 * g.stride[0][N_],
        c + b0 * g.stride[3][B0_] + b1 * g.stride[3][B1_] + i0 * g.stride[3][M_] + j0 * g.stride[3][N_], alpha, beta,
        g.stride[0][M_], g.stride[0][N_], g.stride[3][M_], g.stride[3][N_]);
}

// Panels for gemm_block: the first a_items work-items pack a, the others x. Layout sizes (lanes, k, b1, b0, s); packed as
// [b0, b1, panels, s * k, width].
#define PACK_ITEM(PACK, SOURCE, PACKED, ITEM, WIDTH, CHUNK, L)                                                       \
  const int width = WIDTH;                                                                                           \
  const IDX lanes = L.size[0], total = L.size[1] * L.size[4], panels = (lanes + width - 1) / width;                  \
  const IDX chunks = (total + CHUNK - 1) / CHUNK, batch = (IDX)((ITEM) / panels / chunks);                           \
  const IDX panel = (IDX)((ITEM) % panels), from = (IDX)((ITEM) / panels % chunks) * CHUNK, first = panel * width;   \
  const IDX to = from + CHUNK < total ? from + CHUNK : total, b1 = batch % L.size[2], b0 = batch / L.size[2];        \
  PACK(PACKED + ((batch * panels + panel) * total + from) * width,                                                   \
       SOURCE + b0 * L.stride[0][3] + b1 * L.stride[0][2] + first * L.stride[0][0], width,                           \
       lanes - first < width ? lanes - first : width, L.stride[0][0], L.stride[0][1], L.stride[0][4], L.size[1], from, to);

kernel gemm_pack(in T_a a, in T_x x, out ACC packed_a, out ACC packed_x, long a_items, int a_width, int a_chunk, int x_chunk, Layout1 ga, Layout1 gx) {
  if (GID0 < a_items) {
    PACK_ITEM(pack_a, a, packed_a, GID0, a_width, a_chunk, ga)
  } else {
    PACK_ITEM(pack_x, x, packed_x, GID0 - a_items, NR, x_chunk, gx)
  }
}

// One block of mb x nb outputs from panels of x, and panels of a_w rows of a (1: a where it lies), a_i apart. a_m, a_k:
// steps within a panel. a_b1 ... x_b0: strides of batches (0: shared).
DEFINE_MICRO(micro, GLOBAL, GLOBAL, TWO)
kernel gemm_block(out T_o o, in ACC a, in ACC x, in T_c c, ACC alpha, ACC beta, int mb, int nb, int a_w, long a_i, long a_m, long a_k, long a_b1, long a_b0, long x_b1, long x_b0, Layout4 g) {
  const IDX n = g.size[N_], m = g.size[M_], total = g.size[K_] * g.size[S_];
  const IDX across = (n + nb - 1) / nb, blocks = (m + mb - 1) / mb;
  const IDX j0 = (IDX)(GID0 % across) * nb, i0 = (IDX)(GID0 / across % blocks) * mb;
  const IDX batch = (IDX)(GID0 / across / blocks), b1 = batch % g.size[B1_], b0 = batch / g.size[B1_];
  const int cols = n - j0 < nb ? n - j0 : nb, rows = m - i0 < mb ? m - i0 : mb;
  const GLOBAL ACC* restrict ap = a + b0 * a_b0 + b1 * a_b1;
  const GLOBAL ACC* restrict xp = x + b0 * x_b0 + b1 * x_b1 + j0 * total;
  ACC sum[MB * NB];
  for (IDX from = 0; from < total; from += KC) {
    const IDX run = total - from < KC ? total - from : KC;
    for (int j = 0; j < cols; j += NR)
      for (int i = 0; i < rows; i += MR)
        micro(sum + i * NB + j, NB, ap + (i0 + i) / a_w * a_i + (i0 + i) % a_w * a_m + from * a_k, a_m, a_k, rows - i < MR ? rows - i : MR,
              xp + j * total + from * NR, run, from == 0);
  }
  store(sum, NB, rows, cols, o + b0 * g.stride[0][B0_] + b1 * g.stride[0][B1_] + i0 * g.stride[0][M_] + j0 * g.stride[0][N_],
        c + b0 * g.stride[3][B0_] + b1 * g.stride[3][B1_] + i0 * g.stride[3][M_] + j0 * g.stride[3][N_], alpha, beta,
        g.stride[0][M_], g.stride[0][N_], g.stride[3][M_], g.stride[3][N_]);
}

// One row times a matrix, x streamed once, `chunk` columns to a work-item. Rows of x are dense (n has stride 1).
kernel gemv_rows(out T_o o, in T_a a, in T_x x, in T_c c, ACC alpha, ACC beta, long chunk, Layout4 g) {
  const IDX n = g.size[N_], depth = g.size[K_], items = (n + chunk - 1) / chunk, batch = (IDX)(GID0 / items);
  const IDX b1 = batch % g.size[B1_], b0 = batch / g.size[B1_];
  IDX j = (IDX)(GID0 % items) * chunk;
  const IDX end = j + chunk < n ? j + chunk : n, a_k = g.stride[1][K_], x_k = g.stride[2][K_];
  const GLOBAL T_a* restrict ap = a + b0 * g.stride[1][B0_] + b1 * g.stride[1][B1_];
  const GLOBAL T_x* restrict xp = x + b0 * g.stride[2][B0_] + b1 * g.stride[2][B1_];
  GLOBAL T_o* restrict op = o + b0 * g.stride[0][B0_] + b1 * g.stride[0][B1_];
  const GLOBAL T_c* restrict cp = c + b0 * g.stride[3][B0_] + b1 * g.stride[3][B1_];
  ACC sum[8 * VL];
  while (j < end) {
    int width = 8 * VL;
    if (j + 8 * VL <= end) {
#define EACH_VECTOR(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define PART(Q) V s##Q = SPLAT(V, 0);
      EACH_VECTOR(PART)
#undef PART
      for (IDX k = 0; k < depth; ++k) {
        const ACC av = T_a_load(ap[k * a_k]);
        const GLOBAL T_x* restrict row = xp + k * x_k + j;
#define PART(Q) s##Q = madd(av, load_x(row + Q * VL), s##Q);
        EACH_VECTOR(PART)
#undef PART
      }
#define PART(Q) HERE(sum, Q * VL) = s##Q;
      EACH_VECTOR(PART)
#undef PART
    } else if (j + VL <= end) {
      V s = SPLAT(V, 0);
      for (IDX k = 0; k < depth; ++k) s = madd((ACC)T_a_load(ap[k * a_k]), load_x(xp + k * x_k + j), s);
      HERE(sum, 0) = s;
      width = VL;
    } else {
      width = end - j;
      AS_WRITTEN for (int q = 0; q < width; ++q) sum[q] = 0;
      for (IDX k = 0; k < depth; ++k)
        AS_WRITTEN for (int q = 0; q < width; ++q) sum[q] += (ACC)T_a_load(ap[k * a_k]) * (ACC)T_x_load(xp[k * x_k + j + q]);
    }
    store(sum, width, 1, width, op + j * g.stride[0][N_], cp + j * g.stride[3][N_], alpha, beta, 0, g.stride[0][N_], 0,
          g.stride[3][N_]);
    j += width;
  }
}

// The same where columns of x are dense (k has stride 1 in a and x): dot products, four columns at a time.
kernel gemv_dots(out T_o o, in T_a a, in T_x x, in T_c c, ACC alpha, ACC beta, long chunk, Layout4 g) {
  const IDX n = g.size[N_], depth = g.size[K_], items = (n + chunk - 1) / chunk, batch = (IDX)(GID0 / items);
  const IDX b1 = batch % g.size[B1_], b0 = batch / g.size[B1_], x_n = g.stride[2][N_];
  IDX j = (IDX)(GID0 % items) * chunk;
  const IDX end = j + chunk < n ? j + chunk : n;
  const GLOBAL T_a* restrict ap = a + b0 * g.stride[1][B0_] + b1 * g.stride[1][B1_];
  const GLOBAL T_x* restrict xp = x + b0 * g.stride[2][B0_] + b1 * g.stride[2][B1_];
  GLOBAL T_o* restrict op = o + b0 * g.stride[0][B0_] + b1 * g.stride[0][B1_];
  const GLOBAL T_c* restrict cp = c + b0 * g.stride[3][B0_] + b1 * g.stride[3][B1_];
  while (j < end) {
    ACC sum[4] = {0, 0, 0, 0};
    IDX k = 0;
    V s0 = SPLAT(V, 0), s1 = s0, s2 = s0, s3 = s0;
    const int width = j + 4 <= end ? 4 : 1;
    if (width == 4) {
      const GLOBAL T_x* restrict x0 = xp + j * x_n;
      for (; k + VL <= depth; k += VL) {
        const V av = load_a(ap + k);
        s0 += av * load_x(x0 + k);
        s1 += av * load_x(x0 + x_n + k);
        s2 += av * load_x(x0 + 2 * x_n + k);
        s3 += av * load_x(x0 + 3 * x_n + k);
      }
      sum[0] = total_of(s0);
      sum[1] = total_of(s1);
      sum[2] = total_of(s2);
      sum[3] = total_of(s3);
    } else {
      const GLOBAL T_x* restrict x0 = xp + j * x_n;
      for (; k + 4 * VL <= depth; k += 4 * VL) {
        s0 += load_a(ap + k) * load_x(x0 + k);
        s1 += load_a(ap + k + VL) * load_x(x0 + k + VL);
        s2 += load_a(ap + k + 2 * VL) * load_x(x0 + k + 2 * VL);
        s3 += load_a(ap + k + 3 * VL) * load_x(x0 + k + 3 * VL);
      }
      sum[0] = total_of((s0 + s1) + (s2 + s3));
    }
    for (int q = 0; q < width; ++q)
      AS_WRITTEN for (IDX r = k; r < depth; ++r) sum[q] += (ACC)T_a_load(ap[r]) * (ACC)T_x_load(xp[(j + q) * x_n + r]);
    store(sum, 4, 1, width, op + j * g.stride[0][N_], cp + j * g.stride[3][N_], alpha, beta, 0, g.stride[0][N_], 0,
          g.stride[3][N_]);
    j += width;
  }
}

// Several rows, where k has stride 1 in a and x: tiles of 4x4 dot products, nothing is packed.
#define EACH_PAIR(DO) DOT_ROW(DO, 0) DOT_ROW(DO, 1) DOT_ROW(DO, 2) DOT_ROW(DO, 3)
#define DOT_ROW(DO, R) DO(R, 0) DO(R, 1) DO(R, 2) DO(R, 3)
kernel gemm_dots(out T_o o, in T_a a, in T_x x, in T_c c, ACC alpha, ACC beta, int mb, int nb, Layout4 g) {
  const IDX n = g.size[N_], m = g.size[M_], depth = g.size[K_], x_n = g.stride[2][N_], a_m = g.stride[1][M_];
  const IDX across = (n + nb - 1) / nb, blocks = (m + mb - 1) / mb;
  const IDX j0 = (IDX)(GID0 % across) * nb, i0 = (IDX)(GID0 / across % blocks) * mb;
  const IDX batch = (IDX)(GID0 / across / blocks), b1 = batch % g.size[B1_], b0 = batch / g.size[B1_];
  const IDX j_end = j0 + nb < n ? j0 + nb : n, i_end = i0 + mb < m ? i0 + mb : m;
  const GLOBAL T_a* restrict ap = a + b0 * g.stride[1][B0_] + b1 * g.stride[1][B1_];
  const GLOBAL T_x* restrict xp = x + b0 * g.stride[2][B0_] + b1 * g.stride[2][B1_];
  GLOBAL T_o* restrict op = o + b0 * g.stride[0][B0_] + b1 * g.stride[0][B1_];
  const GLOBAL T_c* restrict cp = c + b0 * g.stride[3][B0_] + b1 * g.stride[3][B1_];
  ACC sum[16];
  for (IDX j = j0; j < j_end; j += 4) {
#define X_(R) const GLOBAL T_x* restrict x##R = xp + (j + R < n ? j + R : n - 1) * x_n;
    X_(0) X_(1) X_(2) X_(3)
    for (IDX i = i0; i < i_end; i += 4) {
#define A_(R) const GLOBAL T_a* restrict a##R = ap + (i + R < m ? i + R : m - 1) * a_m;
      A_(0) A_(1) A_(2) A_(3)
#define BEGIN(R, Q) V s##R##Q = SPLAT(V, 0);
      EACH_PAIR(BEGIN)
      IDX k = 0;
      for (; k + VL <= depth; k += VL) {
        const V x_0 = load_x(x0 + k), x_1 = load_x(x1 + k), x_2 = load_x(x2 + k), x_3 = load_x(x3 + k);
        const V a_0 = load_a(a0 + k), a_1 = load_a(a1 + k), a_2 = load_a(a2 + k), a_3 = load_a(a3 + k);
#define STEP(R, Q) s##R##Q += a_##R * x_##Q;
        EACH_PAIR(STEP)
      }
#define GATHER(R, Q) all[4 * R + Q] = s##R##Q;
      V all[16];
      EACH_PAIR(GATHER)
      totals_of(all, sum);
      AS_WRITTEN for (; k < depth; ++k) {
        const ACC x_0 = T_x_load(x0[k]), x_1 = T_x_load(x1[k]), x_2 = T_x_load(x2[k]), x_3 = T_x_load(x3[k]);
        const ACC a_0 = T_a_load(a0[k]), a_1 = T_a_load(a1[k]), a_2 = T_a_load(a2[k]), a_3 = T_a_load(a3[k]);
#define REST(R, Q) sum[4 * R + Q] += a_##R * x_##Q;
        EACH_PAIR(REST)
      }
      store(sum, 4, i_end - i < 4 ? i_end - i : 4, j_end - j < 4 ? j_end - j : 4,
            op + i * g.stride[0][M_] + j * g.stride[0][N_], cp + i * g.stride[3][M_] + j * g.stride[3][N_], alpha, beta,
            g.stride[0][M_], g.stride[0][N_], g.stride[3][M_], g.stride[3][N_]);
    }
  }
}
