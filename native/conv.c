// Convolution in three spatial dimensions without im2col.
//
// `frame` lays the input out so that every tap of the window is a constant offset: zeros between lines, planes and
// samples stand for the padding (one gap serves both neighbours), and a stride separates positions into phases.
// An output position is then one number p, and out[co][p] = sum over k of w[co][k] * frame[offset[k] + p]: a matrix
// product whose right side is read in place. Positions in the gaps are computed and thrown away; for the gradient of
// the weight they are multiplied by 0, and what is not finite then is summed again without them.
//
// T: element type of x, ACC: type of sums, VL: lanes of a vector, MR: output channels of a tile.
#define NR (2 * VL)
FUNC V madd_each(const V a, const V x, const V s) { return a * x + s; }

// Rows of a tile of weight gradients: every row has four taps, more would not fit the registers.
#if MR >= 4
#define WR 4
#define EACH_WEIGHT_ROW(DO) DO(0) DO(1) DO(2) DO(3)
#else
#define WR 1
#define EACH_WEIGHT_ROW(DO) DO(0)
#endif

// Number of i >= 0 with i * step < n.
FUNC IDX count_below(IDX n, IDX step) { return n <= 0 ? 0 : (n + step - 1) / step; }

// q: frame sizes (w, h, d, n, phases of w, h, d, channels) with the strides of x; e: sizes of x (w, h, d), then the
// stride and the padding. A segment is one channel and phase; zeros follow its last line, and `tail` more the last one.
kernel conv_frame(in T x, out ACC frame, Layout1 q, Layout2 e, long segment, long tail, long total, long chunk) {
  long line = GID0 * chunk;
  const long end = line + chunk < total ? line + chunk : total;
  const IDX width = q.size[0], lines = q.size[1] * q.size[2] * q.size[3], step = e.stride[0][0], x_w = q.stride[0][0];
  IDX rest = (IDX)line, at[8];
  for (int d = 1; d < 8; ++d) {
    at[d] = rest % q.size[d];
    rest /= q.size[d];
  }
  for (; line < end; ++line) {
    const long seg = line / lines;
    GLOBAL ACC* restrict to = frame + seg * segment + (line - seg * lines) * width;
    const IDX h = at[1] * e.stride[0][1] + at[5] - e.stride[1][1], d = at[2] * e.stride[0][2] + at[6] - e.stride[1][2];
    const IDX first = at[4] - e.stride[1][0];
    const bool inside = h >= 0 && h < e.size[1] && d >= 0 && d < e.size[2];
    IDX lo = inside ? count_below(-first, step) : width, hi = inside ? count_below(e.size[0] - first, step) : width;
    hi = hi < width ? hi : width;
    lo = lo < hi ? lo : hi;
    const GLOBAL T* restrict from = x + h * q.stride[0][1] + d * q.stride[0][2] + at[3] * q.stride[0][3] +
                                    at[7] * q.stride[0][7] + first * x_w;
    const IDX move = step * x_w;
    for (IDX j = 0; j < lo; ++j) to[j] = 0;
    if (move == 1)
      for (IDX j = lo; j < hi; ++j) to[j] = T_load(from[j]);
    else
      for (IDX j = lo; j < hi; ++j) to[j] = T_load(from[j * move]);
    for (IDX j = hi; j < width; ++j) to[j] = 0;
    if (line - seg * lines == lines - 1) {
      const long zeros = segment - lines * width + (line == total - 1 ? tail : 0);
      for (long j = 0; j < zeros; ++j) to[width + j] = 0;
    }
    for (int a = 1; a < 8 && ++at[a] == q.size[a]; ++a) at[a] = 0;
  }
}

// Where tap k, counted over (w, h, d, channel), lies in the input: see conv_pack.
FUNC long tap_of(const IDX k, const Layout1 q, const Layout3 e) {
  const IDX h = k / q.size[0], d = h / q.size[1], c = d / q.size[2];
  const IDX reach[3] = {k % q.size[0] * e.stride[1][0], h % q.size[1] * e.stride[1][1], d % q.size[2] * e.stride[1][2]};
  long total = (long)c * q.stride[0][3], phase = 0;
  for (int i = 2; i >= 0; --i) {
    phase = phase * e.stride[2][i] + reach[i] % e.stride[0][i];
    total += reach[i] / e.stride[0][i] * (long)q.stride[0][i];
  }
  return total + phase * q.stride[0][4];
}

// m: sizes of the weight, four of its taps and channels joined where they follow each other, then out and groups.
// q: sizes (kw, kh, kd, in) with shifts per tap in the input; e: stride, dilation and phase sizes.
// packed[group][pass][block][k][MR] with `deep` taps in a pass, then bias[group][block][MR]; offset[k].
kernel conv_pack(in T w, in T bias, out ACC packed, out long offset, Layout1 m, Layout1 q, Layout3 e, int has_bias,
                 long deep, long chunk) {
  const IDX depth = m.size[0] * m.size[1] * m.size[2] * m.size[3], blocks = (m.size[4] + MR - 1) / MR;
  const IDX begin = (IDX)(GID1 * chunk), end = begin + (IDX)chunk < depth ? begin + (IDX)chunk : depth;
  const IDX group = (IDX)GID0 / blocks, o0 = (IDX)GID0 % blocks * MR, step = m.stride[0][0], row = m.stride[0][4];
  const long pass = begin / deep * deep, taps = depth - pass < deep ? depth - pass : deep;
  GLOBAL ACC* restrict to = packed + ((group * depth + pass) * blocks + (GID0 % blocks) * taps - pass) * MR;
  const GLOBAL T* restrict from = w + group * m.stride[0][5] + o0 * row;
  const IDX rows = m.size[4] - o0 < MR ? m.size[4] - o0 : MR;
  IDX at[4], rest = begin;
  for (int d = 0; d < 4; ++d) {
    at[d] = rest % m.size[d];
    rest /= m.size[d];
  }
  for (IDX k = begin; k < end;) {
    const IDX run = m.size[0] - at[0] < end - k ? m.size[0] - at[0] : end - k;
    const GLOBAL T* restrict tap = from + at[0] * step + at[1] * m.stride[0][1] + at[2] * m.stride[0][2] + at[3] * m.stride[0][3];
    GLOBAL ACC* restrict put = to + k * MR;
    if (rows == MR)
      for (IDX j = 0; j < run; ++j) {
#define ROW(R) put[j * MR + R] = T_load(tap[j * step + R * row]);
        EACH_ROW(ROW)
#undef ROW
      }
    else
      for (IDX j = 0; j < run; ++j)
        for (IDX r = 0; r < MR; ++r) put[j * MR + r] = r < rows ? T_load(tap[j * step + r * row]) : 0;
    k += run;
    at[0] = 0;
    for (int a = 1; a < 4 && ++at[a] == m.size[a]; ++a) at[a] = 0;
  }
  if (GID0 == 0)
    for (IDX k = begin; k < end; ++k) offset[k] = tap_of(k, q, e);
  if (end == depth)
    for (IDX r = 0; r < MR; ++r)
      packed[((long)m.size[5] * blocks * depth + GID0) * MR + r] = has_bias && r < rows ? T_load(bias[group * m.size[4] + o0 + r]) : 0;
}

kernel conv_offset(out long offset, Layout1 q, Layout3 e) { offset[GID0] = tap_of((IDX)GID0, q, e); }

// Writes a tile of sums at position p: only positions that are outputs. g as in conv_tile.
FUNC void scatter(const ACC* restrict sum, const int rows, GLOBAL T* restrict y, const IDX p, const IDX* line,
                  const IDX* size, const IDX* move, const IDX y_c) {
  IDX w = p % line[0], h = p / line[0] % line[1], d = p / line[0] / line[1] % line[2], n = p / line[0] / line[1] / line[2];
  for (IDX done = 0; done < NR;) {
    IDX run = line[0] - w < NR - done ? line[0] - w : NR - done;
    if (h < size[1] && d < size[2] && n < size[3] && w < size[0]) {
      const IDX valid = size[0] - w < run ? size[0] - w : run;
      GLOBAL T* restrict to = y + w * move[0] + h * move[1] + d * move[2] + n * move[3];
      for (int r = 0; r < rows; ++r) {
        if (move[0] == 1)
          for (IDX j = 0; j < valid; ++j) to[r * y_c + j] = T_save(sum[r * NR + done + j]);
        else
          for (IDX j = 0; j < valid; ++j) to[r * y_c + j * move[0]] = T_save(sum[r * NR + done + j]);
      }
    }
    done += run;
    w = 0;
    if (++h == line[1]) {
      h = 0;
      if (++d == line[2]) {
        d = 0;
        ++n;
      }
    }
  }
}

// g: output sizes (w, h, d, n, channels, groups, outer n), strides in the frame (line lengths for d, n), strides of y.
// Work-item: `tiles` tiles of NR positions by `some` blocks of MR channels.
kernel conv_tile(in ACC frame, in ACC packed, in long offset, out T y, Layout2 g, long depth, long positions,
                 long tiles, long some) {
  const IDX blocks = (g.size[4] + MR - 1) / MR, group = (IDX)GID2 % g.size[5], outer = (IDX)GID2 / g.size[5];
  const GLOBAL ACC* restrict x = frame + group * g.stride[0][5] + outer * g.stride[0][6];
  GLOBAL T* restrict out = y + group * g.stride[1][5] + outer * g.stride[1][6];
  const IDX line[3] = {g.stride[0][0], g.stride[0][1], g.stride[0][2]};
  const IDX size[4] = {g.size[0], g.size[1], g.size[2], g.size[3]};
  const IDX move[4] = {g.stride[1][0], g.stride[1][1], g.stride[1][2], g.stride[1][3]};
  const IDX block_end = (IDX)((GID1 + 1) * some < blocks ? (GID1 + 1) * some : blocks);
  const IDX begin = (IDX)(GID0 * tiles * NR), end = (IDX)(begin + tiles * NR < positions ? begin + tiles * NR : positions);
  for (IDX block = (IDX)(GID1 * some); block < block_end; ++block) {
    const GLOBAL ACC* restrict panel = packed + (long)(group * blocks + block) * depth * MR;
    const GLOBAL ACC* restrict bias = packed + (g.size[5] * depth * blocks + group * blocks + block) * MR;
    const int rows = g.size[4] - block * MR < MR ? g.size[4] - block * MR : MR;
    for (IDX p = begin; p < end; p += NR) {
      // the last tile moves back instead of reading past the end; what it repeats is the same
      const IDX p0 = p + NR <= positions || positions < NR ? p : positions - NR;
      const GLOBAL ACC* restrict xp = x + p0;
      const GLOBAL ACC* restrict a = panel;
#define ROW(R) V s##R = SPLAT(V, bias[R]), t##R = s##R;
      EACH_ROW(ROW)
#undef ROW
      for (long k = 0; k < depth; ++k) {
        const GLOBAL ACC* restrict from = xp + offset[k];
        const V x0 = AT(from, 0), x1 = AT(from, VL);
#define ROW(R) s##R = madd(a[R], x0, s##R); t##R = madd(a[R], x1, t##R);
        EACH_ROW(ROW)
#undef ROW
        a += MR;
      }
      ACC sum[MR * NR];
#define ROW(R) *(V*)(sum + R * NR) = s##R; *(V*)(sum + R * NR + VL) = t##R;
      EACH_ROW(ROW)
#undef ROW
      scatter(sum, rows, out + block * MR * g.stride[1][4], p0, line, size, move, g.stride[1][4]);
    }
  }
}

#define TAPS 4
#define LANES(sum, R, K) (*(V*)(sum + (R * TAPS + K) * VL))

// Adds the lanes of every vector of a tile into its first one; all tiles at once, so that the steps overlap.
FUNC void fold_lanes(ACC* sum) {
  for (int fold = VL / 2; fold; fold /= 2)
    for (int i = 0; i < WR * TAPS; ++i)
      for (int j = 0; j < fold; ++j) sum[i * VL + j] += sum[i * VL + j + fold];
}

// The same sum over the positions of outputs only. m: sizes (w, h, d, n) of the outputs, strides of their positions.
FUNC ACC sum_without_gaps(const GLOBAL ACC* restrict grad, const GLOBAL ACC* restrict x, const Layout1 m) {
  ACC total = 0;
  for (IDX n = 0; n < m.size[3]; ++n)
    for (IDX d = 0; d < m.size[2]; ++d)
      for (IDX h = 0; h < m.size[1]; ++h) {
        const IDX p = n * m.stride[0][3] + d * m.stride[0][2] + h * m.stride[0][1];
        for (IDX w = 0; w < m.size[0]; ++w) total += grad[p + w] * x[p + w];
      }
  return total;
}

// result[group][co][k] = sum over p of grad[co][p] * frame[offset[k] + p], grad framed like the output positions.
// g: sizes (k, channels, groups) with the strides of (frame, grad) per channel and group. Work-item: `rows` channels by
// `some` taps; positions come in spans that stay in the cache while all its tiles pass over them.
kernel conv_weight_grad(in ACC grad, in ACC frame, in long offset, inout ACC result, Layout2 g, Layout1 m,
                        long positions, long span, long rows, long some) {
  const IDX depth = g.size[0], channels = g.size[1], group = (IDX)GID2, step = g.stride[1][1];
  const IDX k_begin = (IDX)(GID1 * some), k_end = k_begin + some < depth ? k_begin + (IDX)some : depth;
  const IDX o_begin = (IDX)(GID0 * rows), o_end = o_begin + rows < channels ? o_begin + (IDX)rows : channels;
  const GLOBAL ACC* restrict x = frame + group * g.stride[0][2];
  const GLOBAL ACC* restrict dy = grad + group * g.stride[1][2];
  GLOBAL ACC* restrict to = result + (long)group * channels * depth;
  for (long p0 = 0; p0 < positions; p0 += span) {
    const long p1 = p0 + span < positions ? p0 + span : positions;
    for (IDX k = k_begin; k < k_end; k += TAPS) {
      const IDX last = k_end - k - 1;
#define TAP(K) const GLOBAL ACC* restrict x##K = x + offset[k + (K < last ? K : last)];
      TAP(0) TAP(1) TAP(2) TAP(3)
#undef TAP
      for (IDX o = o_begin; o < o_end; o += WR) {
        const IDX below = o_end - o - 1;
#define ROW(R) const GLOBAL ACC* restrict g##R = dy + (o + (R < below ? R : below)) * step; \
        V s##R##0 = SPLAT(V, 0), s##R##1 = s##R##0, s##R##2 = s##R##0, s##R##3 = s##R##0;
        EACH_WEIGHT_ROW(ROW)
#undef ROW
        for (long p = p0; p < p1; p += VL) {
          const V v0 = AT(x0, p), v1 = AT(x1, p), v2 = AT(x2, p), v3 = AT(x3, p);
#define ROW(R) { const V u = AT(g##R, p); s##R##0 = madd_each(u, v0, s##R##0); s##R##1 = madd_each(u, v1, s##R##1); \
          s##R##2 = madd_each(u, v2, s##R##2); s##R##3 = madd_each(u, v3, s##R##3); }
          EACH_WEIGHT_ROW(ROW)
#undef ROW
        }
        ACC sum[WR * TAPS * VL];
#define ROW(R) LANES(sum, R, 0) = s##R##0; LANES(sum, R, 1) = s##R##1; LANES(sum, R, 2) = s##R##2; LANES(sum, R, 3) = s##R##3;
        EACH_WEIGHT_ROW(ROW)
#undef ROW
        fold_lanes(sum);
        GLOBAL ACC* restrict put = to + (long)o * depth + k;
        for (IDX r = 0; r < WR && r <= below; ++r)
          for (IDX t = 0; t < TAPS && t <= last; ++t) {
            const ACC total = sum[(r * TAPS + t) * VL] + (p0 ? put[r * depth + t] : 0);
            const bool finite = p1 < positions || total - total == 0;
            put[r * depth + t] = finite ? total : sum_without_gaps(dy + (o + r) * step, x + offset[k + t], m);
          }
      }
    }
  }
}

// Sum of everything but the channel. m: sizes (w, h, d, n, channels) and strides of grad.
kernel conv_bias_grad(in T grad, out T result, Layout1 m) {
  ACC total = 0;
  for (IDX n = 0; n < m.size[3]; ++n)
    for (IDX d = 0; d < m.size[2]; ++d) {
      ACC plane = 0;
      for (IDX h = 0; h < m.size[1]; ++h) {
        const GLOBAL T* restrict from = grad + (IDX)GID0 * m.stride[0][4] + n * m.stride[0][3] + d * m.stride[0][2] + h * m.stride[0][1];
        ACC part[16];
        IDX j = 0;
        for (int u = 0; u < 16; ++u) part[u] = 0;
        if (m.stride[0][0] == 1)
          for (; j + 16 <= m.size[0]; j += 16)
            for (int u = 0; u < 16; ++u) part[u] += T_load(from[j + u]);
        for (; j < m.size[0]; ++j) part[0] += T_load(from[j * m.stride[0][0]]);
        for (int fold = 8; fold; fold /= 2)
          for (int u = 0; u < fold; ++u) part[u] += part[u + fold];
        plane += part[0];
      }
      total += plane;
    }
  result[GID0] = T_save(total);
}
