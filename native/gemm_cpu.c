// Matrix products for CPUs: out[b, m, n] = alpha * sum over (s, k) of a[b, s, m, k] * x[b, s, k, n] + beta * c[b, m, n].
// Sizes and strides as in gemm.c. The register tile is MR rows by vectors of VL lanes; x is first copied into panels
// of neighbouring columns, where each k is one vector load. Private arrays hold sums, so any chip order of items works.
#define N_ 0
#define M_ 1
#define K_ 2
#define B1_ 3
#define B0_ 4
#define S_ 5
#define NR (2 * VL)    // columns of a packed panel of x
#define KC 256         // depth of a panel that stays in the first cache
#define MB (8 * MR)    // largest block of the output
#define NB (4 * NR)
// HALF_A, HALF_X: how a and x are stored, see DEFINE_LOAD.
DEFINE_LOAD(load_a, T_a, T_a_load, HALF_A)
DEFINE_LOAD(load_x, T_x, T_x_load, HALF_X)

// dst[kk][width] = src of `lanes` neighbours, for kk in [from, to) of the flattened (s, k); missing lanes of a vector become 0.
#define DEFINE_PACK(NAME, T, LOAD, LOADS, SPACE)                                                                     \
  FUNC void NAME(SPACE ACC* restrict dst, const GLOBAL T* restrict src, const int width, const int lanes,            \
                 const IDX lane_step, const IDX k_step, const IDX s_step, const IDX depth, IDX from, const IDX to) { \
    IDX s = from / depth, k = from - s * depth;                                                                      \
    while (from < to) {                                                                                              \
      const IDX run = depth - k < to - from ? depth - k : to - from;                                                 \
      const GLOBAL T* restrict p = src + s * s_step + k * k_step;                                                    \
      const int padded = (lanes + VL - 1) / VL * VL < width ? (lanes + VL - 1) / VL * VL : width;                    \
      if (lanes < padded)                                                                                            \
        AS_WRITTEN for (IDX i = 0; i < run; ++i)                                                                     \
          AS_WRITTEN for (int j = lanes; j < padded; ++j) dst[i * width + j] = 0;                                    \
      if (lane_step == 1 && lanes == width && width < VL) {                                                          \
        AS_WRITTEN for (IDX i = 0; i < run; ++i)                                                                     \
          for (int j = 0; j < width; ++j) dst[i * width + j] = LOAD(p[i * k_step + j]);                              \
      } else if (lane_step == 1) {                                                                                   \
        AS_WRITTEN for (IDX i = 0; i < run; ++i) {                                                                   \
          int j = 0;                                                                                                 \
          for (; j + VL <= lanes; j += VL) *(SPACE V*)(dst + i * width + j) = LOADS(p + i * k_step + j);             \
          AS_WRITTEN for (; j < lanes; ++j) dst[i * width + j] = LOAD(p[i * k_step + j]);                            \
        }                                                                                                            \
      } else {                                                                                                       \
        for (IDX i0 = 0; i0 < run; i0 += 16) {                                                                       \
          const IDX i1 = i0 + 16 < run ? i0 + 16 : run;                                                              \
          if (k_step == 1)                                                                                           \
            for (int j = 0; j < lanes; ++j)                                                                          \
              AS_WRITTEN for (IDX i = i0; i < i1; ++i) dst[i * width + j] = LOAD(p[j * lane_step + i]);              \
          else                                                                                                       \
            for (int j = 0; j < lanes; ++j)                                                                          \
              AS_WRITTEN for (IDX i = i0; i < i1; ++i) dst[i * width + j] = LOAD(p[j * lane_step + i * k_step]);     \
        }                                                                                                            \
      }                                                                                                              \
      dst += run * width;                                                                                            \
      from += run;                                                                                                   \
      ++s;                                                                                                           \
      k = 0;                                                                                                         \
    }                                                                                                                \
  }
DEFINE_PACK(pack_a, T_a, T_a_load, load_a, GLOBAL)
DEFINE_PACK(pack_x, T_x, T_x_load, load_x, GLOBAL)
DEFINE_PACK(strip_x, T_x, T_x_load, load_x, )

// out = alpha * sum + beta * c over a rows x cols corner; `sum` has `step` columns. PLAIN: out and c hold ACC.
FUNC void store(const ACC* restrict sum, const int step, const int rows, const int cols, GLOBAL T_o* restrict o,
                const GLOBAL T_c* restrict c, const ACC alpha, const ACC beta, const IDX o_m, const IDX o_n,
                const IDX c_m, const IDX c_n) {
  for (int i = 0; i < rows; ++i) {
    GLOBAL T_o* restrict op = o + i * o_m;
    const GLOBAL T_c* restrict cp = c + i * c_m;
    const ACC* restrict from = sum + i * step;
    int j = 0;
#if PLAIN
    if (o_n == 1 && beta == 0)
      for (; j + VL <= cols; j += VL) *(GLOBAL V*)(op + j) = madd(alpha, *(const V*)(from + j), SPLAT(V, 0));
    else if (o_n == 1 && c_n == 1)
      for (; j + VL <= cols; j += VL) *(GLOBAL V*)(op + j) = madd(alpha, *(const V*)(from + j), beta * AT(cp, j));
#endif
    AS_WRITTEN for (; j < cols; ++j) {
      ACC v = alpha * from[j];
      if (beta != 0) v += beta * T_c_load(cp[j * c_n]);
      op[j * o_n] = T_o_save(v);
    }
  }
}

// One strip of WIDE columns and up to MB rows in one launch: x is packed into private memory, a is read where it is.
#define DEPTH 128
#define WIDE (2 * NR)
#define DIRECT_ROWS(COLUMNS)                                                                                \
  for (int i = 0; i < rows; i += MR) {                                                                      \
    EACH_ROW(DIRECT_BEGIN)                                                                                  \
    AS_WRITTEN for (IDX q = 0; q < run; ++q) {                                                                         \
      const V x0 = HERE(strip, q * WIDE + j);                                                               \
      COLUMNS                                                                                               \
    }                                                                                                       \
    ACC* to = sum + i * WIDE + j;                                                                           \
    EACH_ROW(DIRECT_END)                                                                                    \
  }
#define DIRECT_BEGIN(R)                                                                        \
  const GLOBAL T_a* restrict a##R = as + (i + R < rows ? i + R : rows - 1) * a_m;              \
  V s##R = SPLAT(V, 0), t##R = SPLAT(V, 0);
#define DIRECT_ONE(R) s##R = madd((ACC)T_a_load(a##R[q * a_k]), x0, s##R);
#define DIRECT_TWO(R)                                \
  const ACC c##R = (ACC)T_a_load(a##R[q * a_k]);     \
  s##R = madd(c##R, x0, s##R);                       \
  t##R = madd(c##R, x1, t##R);
#define DIRECT_END(R)                       \
  if (i + R < rows) {                       \
    HERE(to, R * WIDE) += s##R;             \
    HERE(to, R * WIDE + VL) += t##R;        \
  }
kernel gemm_direct(out T_o o, in T_a a, in T_x x, in T_c c, ACC alpha, ACC beta, int mb, int nb, Layout4 g) {
  const IDX n = g.size[N_], m = g.size[M_], depth = g.size[K_], total = depth * g.size[S_];
  const IDX strips = (n + nb - 1) / nb, blocks = (m + mb - 1) / mb;
  const IDX j0 = (IDX)(GID0 % strips) * nb, i0 = (IDX)(GID0 / strips % blocks) * mb;
  const IDX batch = (IDX)(GID0 / strips / blocks), b1 = batch % g.size[B1_], b0 = batch / g.size[B1_];
  const int cols = n - j0 < nb ? n - j0 : nb, rows = m - i0 < mb ? m - i0 : mb;
  const GLOBAL T_a* restrict ap = a + b0 * g.stride[1][B0_] + b1 * g.stride[1][B1_] + i0 * g.stride[1][M_];
  const GLOBAL T_x* restrict xp = x + b0 * g.stride[2][B0_] + b1 * g.stride[2][B1_] + j0 * g.stride[2][N_];
  const IDX a_m = g.stride[1][M_], a_k = g.stride[1][K_];
  ACC strip[DEPTH * WIDE], sum[MB * WIDE];
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < WIDE; j += VL) HERE(sum, i * WIDE + j) = SPLAT(V, 0);
  for (IDX from = 0; from < total;) {
    const IDX s = from / depth, k = from - s * depth;
    const IDX run = depth - k < DEPTH ? depth - k : DEPTH;
    strip_x(strip, xp, WIDE, cols, g.stride[2][N_], g.stride[2][K_], g.stride[2][S_], depth, from, from + run);
    const GLOBAL T_a* restrict as = ap + s * g.stride[1][S_] + k * a_k;
    for (int j = 0; j < cols; j += NR) {
      if (cols - j > VL) {
        DIRECT_ROWS(const V x1 = HERE(strip, q * WIDE + j + VL); EACH_ROW(DIRECT_TWO))
      } else {
        DIRECT_ROWS(EACH_ROW(DIRECT_ONE))
      }
    }
    from += run;
  }
  store(sum, WIDE, rows, cols, o + b0 * g.stride[0][B0_] + b1 * g.stride[0][B1_] + i0 * g.stride[0][M_] + j0 * g.stride[0][N_],
        c + b0 * g.stride[3][B0_] + b1 * g.stride[3][B1_] + i0 * g.stride[3][M_] + j0 * g.stride[3][N_], alpha, beta,
        g.stride[0][M_], g.stride[0][N_], g.stride[3][M_], g.stride[3][N_]);
}

// Panels for gemm_block. Layout sizes (lanes, k, b1, b0, s); packed as [b0, b1, panels, s * k, width].
#define PACK_ITEM(PACK, WIDTH)                                                                                    \
  const IDX total = g.size[1] * g.size[4], panels = (g.size[0] + WIDTH - 1) / WIDTH, batch = (IDX)GID2;           \
  const IDX from = (IDX)GID1 * chunk, to = from + chunk < total ? from + chunk : total, first = (IDX)GID0 * WIDTH; \
  const IDX b1 = batch % g.size[2], b0 = batch / g.size[2];                                                       \
  const int lanes = g.size[0] - first < WIDTH ? g.size[0] - first : WIDTH;                                        \
  PACK(packed + ((batch * panels + (IDX)GID0) * total + from) * WIDTH,                                            \
       source + b0 * g.stride[0][3] + b1 * g.stride[0][2] + first * g.stride[0][0], WIDTH, lanes, g.stride[0][0], \
       g.stride[0][1], g.stride[0][4], g.size[1], from, to);

kernel gemm_pack_a(in T_a source, out ACC packed, long chunk, Layout1 g) { PACK_ITEM(pack_a, MR) }

kernel gemm_pack_x(in T_x source, out ACC packed, long chunk, Layout1 g) { PACK_ITEM(pack_x, NR) }

// sum[MR][NR] (rows NB apart) += a panel[depth][MR] * x panel[depth][NR]; `first`: sum is not read. Each call starts
// at 0: sums of sums lose less than one long sum.
FUNC void micro(ACC* restrict sum, const GLOBAL ACC* restrict a, const GLOBAL ACC* restrict x, const IDX depth,
                const int first) {
#define ROW(R) V s##R = SPLAT(V, 0), t##R = SPLAT(V, 0);
  EACH_ROW(ROW)
#undef ROW
  AS_WRITTEN for (IDX k = 0; k < depth; ++k) {
    const V x0 = AT(x, 0), x1 = AT(x, VL);
#define ROW(R) s##R = madd(a[R], x0, s##R); t##R = madd(a[R], x1, t##R);
    EACH_ROW(ROW)
#undef ROW
    a += MR;
    x += NR;
  }
  if (!first) {
#define ROW(R) s##R += HERE(sum, R * NB); t##R += HERE(sum, R * NB + VL);
    EACH_ROW(ROW)
#undef ROW
  }
#define ROW(R) HERE(sum, R * NB) = s##R; HERE(sum, R * NB + VL) = t##R;
  EACH_ROW(ROW)
#undef ROW
}

// One block of mb x nb outputs from packed panels. a_b1 ... x_b0: strides of the packed batches (0: shared).
kernel gemm_block(out T_o o, in ACC a, in ACC x, in T_c c, ACC alpha, ACC beta, int mb, int nb, long a_b1, long a_b0, long x_b1, long x_b0, Layout4 g) {
  const IDX n = g.size[N_], m = g.size[M_], total = g.size[K_] * g.size[S_];
  const IDX across = (n + nb - 1) / nb, blocks = (m + mb - 1) / mb;
  const IDX j0 = (IDX)(GID0 % across) * nb, i0 = (IDX)(GID0 / across % blocks) * mb;
  const IDX batch = (IDX)(GID0 / across / blocks), b1 = batch % g.size[B1_], b0 = batch / g.size[B1_];
  const int cols = n - j0 < nb ? n - j0 : nb, rows = m - i0 < mb ? m - i0 : mb;
  const GLOBAL ACC* restrict ap = a + b0 * a_b0 + b1 * a_b1 + i0 * total;
  const GLOBAL ACC* restrict xp = x + b0 * x_b0 + b1 * x_b1 + j0 * total;
  ACC sum[MB * NB];
  for (IDX from = 0; from < total; from += KC) {
    const IDX run = total - from < KC ? total - from : KC;
    for (int j = 0; j < cols; j += NR)
      for (int i = 0; i < rows; i += MR)
        micro(sum + i * NB + j, ap + i * total + from * MR, xp + j * total + from * NR, run, from == 0);
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
#define TOTAL(R, Q) sum[4 * R + Q] = total_of(s##R##Q);
      EACH_PAIR(TOTAL)
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
