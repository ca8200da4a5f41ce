// Convolution for chips with local memory, as products whose right side is read from the input where it lies (implicit
// gemm): no temporary. In all kernels:
//
// xs: sizes (w, h, d, n, channels of a group) of the input and its strides. ys: the same of the output. ws: sizes (kw, kh,
// kd, in, out, groups) of the weight and its strides. e: stride, padding and dilation (w, h, d). KW, KH, KD: the window.
// GROUP1 is a part of the depth, GROUP2 the group of channels; parts of the result lie `part_stride` apart.
#define TAPS (KW * KH * KD)
FOUR(QuadT, T);
// An output position, as its sample, its first input position, and what they add up to in the input.
typedef struct { IDX w, h, d, at; bool is; } Spot;

FUNC Spot spot_of(IDX p, const IDX positions, const Layout1 xs, const Layout1 ys, const Layout3 e) {
  Spot s;
  s.is = p < positions;
  const IDX q = p / ys.size[0], r = q / ys.size[1], n = r / ys.size[2];
  s.w = (p - q * ys.size[0]) * e.stride[0][0] - e.stride[1][0];
  s.h = (q - r * ys.size[1]) * e.stride[0][1] - e.stride[1][1];
  s.d = (r - n * ys.size[2]) * e.stride[0][2] - e.stride[1][2];
  s.at = n * xs.stride[0][3] + s.w * xs.stride[0][0] + s.h * xs.stride[0][1] + s.d * xs.stride[0][2];
  return s;
}
FUNC IDX output_of(IDX p, const Layout1 ys) {
  const IDX q = p / ys.size[0], r = q / ys.size[1], n = r / ys.size[2];
  return (p - q * ys.size[0]) * ys.stride[0][0] + (q - r * ys.size[1]) * ys.stride[0][1] +
         (r - n * ys.size[2]) * ys.stride[0][2] + n * ys.stride[0][3];
}
// Number k of the depth: a channel and a tap, and what they add to a position.
typedef struct { IDX w, h, d, at; bool is; } Tap;

FUNC Tap tap_of(const IDX k, const IDX depth, const Layout1 xs, const Layout3 e) {
  Tap t;
  t.is = k < depth;
  const IDX c = k / TAPS, r = k - c * TAPS;
  t.w = r % KW * e.stride[2][0];
  t.h = r / KW % KH * e.stride[2][1];
  t.d = r / (KW * KH) * e.stride[2][2];
  t.at = c * xs.stride[0][4] + t.w * xs.stride[0][0] + t.h * xs.stride[0][1] + t.d * xs.stride[0][2];
  return t;
}
FUNC bool is_inside(const Spot s, const Tap t, const Layout1 xs) {
  const IDX w = s.w + t.w, h = s.h + t.h, d = s.d + t.d;
  return s.is && t.is && w >= 0 && w < xs.size[0] && h >= 0 && h < xs.size[1] && d >= 0 && d < xs.size[2];
}
#define INPUT_AT(LOAD, x, s, t) (is_inside(s, t, xs) ? LOAD((x)[(s).at + (t).at]) : 0)
FUNC IDX weight_of(const IDX k, const Layout1 ws) {
  if (W_FLAT) return k;
  const IDX c = k / TAPS, r = k - c * TAPS;
  return c * ws.stride[0][3] + r % KW * ws.stride[0][0] + r / KW % KH * ws.stride[0][1] + r / (KW * KH) * ws.stride[0][2];
}

// y = w * x + bias: rows are output channels, columns are positions.
#define NEXT_STEP(t)                                                                                          \
  {                                                                                                           \
    UNROLL for (int p = 0; p < FOURS(TM); ++p) {                                                              \
      const IDX o = i0 + ACROSS_OF(p, 1, TM), k = (t) * TK + DEEP_OF(p, 1, TM), n = o < rows ? depth - k : 0; \
      if (W_FLAT) {                                                                                           \
        FETCH(next_w[p], QuadT, HELD_OF(T_load), w_g + o * ws.stride[0][4] + k, 1, n, wide_w)                 \
      } else {                                                                                                \
        UNROLL for (int c_ = 0; c_ < 4; ++c_)                                                                 \
          next_w[p][c_] = c_ < n ? HELD_OF(T_load)(w_g[o * ws.stride[0][4] + weight_of(k + c_, ws)]) : 0;     \
      }                                                                                                       \
    }                                                                                                         \
    UNROLL for (int p = 0; p < FOURS(TN); ++p) {                                                              \
      const Tap tap = tap_of((t) * TK + DEEP_OF(p, 0, TN), depth, xs, e);                                     \
      UNROLL for (int c_ = 0; c_ < 4; ++c_) next_x[p][c_] = INPUT_AT(HELD_OF(T_load), x_g, spot[c_], tap);    \
    }                                                                                                         \
  }

kernel conv_forward(in T x, in T w, in T bias, out U y, int has_bias, IDX part, long part_stride, Layout1 xs, Layout1 ys, Layout1 ws, Layout3 e) groups(GROUP) {
  OPERAND(left, TM);
  OPERAND(right, TN);
  const IDX rows = ws.size[4], depth = ws.size[3] * TAPS, steps = (depth + TK - 1) / TK;
  const IDX positions = ys.size[0] * ys.size[1] * ys.size[2] * ys.size[3], across = (positions + TN - 1) / TN;
  const IDX j0 = (IDX)(GROUP0 % across) * TN, i0 = (IDX)(GROUP0 / across) * TM, group = (IDX)GROUP2;
  const GLOBAL T* x_g = x + group * ws.size[3] * xs.stride[0][4];
  const GLOBAL T* w_g = w + group * ws.stride[0][5];
  const bool wide_w = WIDE_W && ALIGNED(w, 4 * sizeof(T));
  const IDX first = (IDX)GROUP1 * part, last = LOWER(first + part, steps);
  ACC sum[RM][RN];
  HELD next_w[FOURS(TM)][4], next_x[FOURS(TN)][4];
  Spot spot[4];  // every p has the same positions: ACROSS_OF(p, 0, TN) does not depend on it
  UNROLL for (int c = 0; c < 4; ++c) spot[c] = spot_of(j0 + ACROSS_OF(0, 0, TN) + c, positions, xs, ys, e);
  CLEAR(sum, RM, RN)
  if (first < last) NEXT_STEP(first)
  for (IDX t = first; t < last; ++t) {
    PUT_STEP(left, TM, next_w, 1)
    PUT_STEP(right, TN, next_x, 0)
    BARRIER;
    if (t + 1 < last) NEXT_STEP(t + 1)
    MULTIPLY_STEP(sum, left, right)
    BARRIER;
  }
  GLOBAL U* to = y + (GROUP1 * part_stride + group * rows * ys.stride[0][4]);
  UNROLL for (int u = 0; u < RN; ++u) {
    const IDX j = j0 + COL_OF(u);
    if (j < positions) {
      const IDX at = output_of(j, ys);
      UNROLL for (int r = 0; r < RM; ++r) {
        const IDX o = i0 + ROW_OF(r);
        if (o < rows) to[at + o * ys.stride[0][4]] = U_save(sum[r][u] + (has_bias ? T_load(bias[group * rows + o]) : 0));
      }
    }
  }
}

// The gradient of the weight: rows are output channels, columns are channels and taps of the input, the depth is all
// positions. `y` is the gradient of the output.
#define NEXT_POSITIONS(t)                                                                                     \
  {                                                                                                           \
    Spot spot[4];                                                                                             \
    IDX out_at[4];                                                                                            \
    UNROLL for (int c_ = 0; c_ < 4; ++c_) {                                                                   \
      const IDX p_ = (t) * TK + DEEP_OF(0, 1, TM) + c_;                                                       \
      spot[c_] = spot_of(p_, positions, xs, ys, e);                                                           \
      out_at[c_] = output_of(p_, ys);                                                                         \
    }                                                                                                         \
    UNROLL for (int p = 0; p < FOURS(TM); ++p) {                                                              \
      const IDX o = i0 + ACROSS_OF(p, 1, TM);                                                                 \
      UNROLL for (int c_ = 0; c_ < 4; ++c_)                                                                   \
        next_y[p][c_] = o < rows && spot[c_].is ? HELD_OF(T_load)(y_g[o * ys.stride[0][4] + out_at[c_]]) : 0; \
    }                                                                                                         \
    UNROLL for (int p = 0; p < FOURS(TN); ++p) {                                                              \
      UNROLL for (int c_ = 0; c_ < 4; ++c_) next_x[p][c_] = INPUT_AT(HELD_OF(T_load), x_g, spot[c_], tap[p]); \
    }                                                                                                         \
  }

kernel conv_weight(in T x, in T y, out U w, IDX part, long part_stride, Layout1 xs, Layout1 ys, Layout1 ws, Layout3 e) groups(GROUP) {
  OPERAND(left, TM);
  OPERAND(right, TN);
  const IDX rows = ws.size[4], cols = ws.size[3] * TAPS, across = (cols + TN - 1) / TN;
  const IDX positions = ys.size[0] * ys.size[1] * ys.size[2] * ys.size[3], steps = (positions + TK - 1) / TK;
  const IDX j0 = (IDX)(GROUP0 % across) * TN, i0 = (IDX)(GROUP0 / across) * TM, group = (IDX)GROUP2;
  const GLOBAL T* x_g = x + group * ws.size[3] * xs.stride[0][4];
  const GLOBAL T* y_g = y + group * rows * ys.stride[0][4];
  const IDX first = (IDX)GROUP1 * part, last = LOWER(first + part, steps);
  ACC sum[RM][RN];
  HELD next_y[FOURS(TM)][4], next_x[FOURS(TN)][4];
  Tap tap[FOURS(TN)];
  UNROLL for (int p = 0; p < FOURS(TN); ++p) tap[p] = tap_of(j0 + ACROSS_OF(p, 1, TN), cols, xs, e);
  CLEAR(sum, RM, RN)
  if (first < last) NEXT_POSITIONS(first)
  for (IDX t = first; t < last; ++t) {
    PUT_STEP(left, TM, next_y, 1)
    PUT_STEP(right, TN, next_x, 1)
    BARRIER;
    if (t + 1 < last) NEXT_POSITIONS(t + 1)
    MULTIPLY_STEP(sum, left, right)
    BARRIER;
  }
  GLOBAL U* to = w + (GROUP1 * part_stride + group * ws.stride[0][5]);
  UNROLL for (int u = 0; u < RN; ++u) {
    const IDX k = j0 + COL_OF(u);
    if (k < cols) {
      UNROLL for (int r = 0; r < RM; ++r) {
        const IDX o = i0 + ROW_OF(r);
        if (o < rows) to[o * ws.stride[0][4] + weight_of(k, ws)] = U_save(sum[r][u]);
      }
    }
  }
}

// Few output channels in a group (depthwise): one work-item per output.
kernel conv_few(in T x, in T w, in T bias, out T y, int has_bias, Layout1 xs, Layout1 ys, Layout1 ws, Layout3 e) {
  const IDX positions = ys.size[0] * ys.size[1] * ys.size[2] * ys.size[3], depth = ws.size[3] * TAPS, rows = ws.size[4];
  const IDX o = (IDX)GID1 % rows, group = (IDX)GID1 / rows;
  const Spot spot = spot_of((IDX)GID0, positions, xs, ys, e);
  const GLOBAL T* x_g = x + group * ws.size[3] * xs.stride[0][4];
  const GLOBAL T* w_o = w + (group * ws.stride[0][5] + o * ws.stride[0][4]);
  ACC sum = has_bias ? T_load(bias[GID1]) : 0;
  for (IDX k = 0; k < depth; ++k) {
    const Tap tap = tap_of(k, depth, xs, e);
    sum += T_load(w_o[weight_of(k, ws)]) * INPUT_AT(T_load, x_g, spot, tap);
  }
  y[output_of((IDX)GID0, ys) + (IDX)GID1 * ys.stride[0][4]] = T_save(sum);
}

// Its gradient of the weight: a group of work-items per number of the weight.
kernel conv_few_weight(in T x, in T y, out T w, Layout1 xs, Layout1 ys, Layout1 ws, Layout3 e) groups(GROUP) {
  SHARED(ACC, scratch, GROUP);
  const IDX positions = ys.size[0] * ys.size[1] * ys.size[2] * ys.size[3], depth = ws.size[3] * TAPS, rows = ws.size[4];
  const IDX k = (IDX)GROUP0, o = (IDX)GROUP1 % rows, group = (IDX)GROUP1 / rows;
  const Tap tap = tap_of(k, depth, xs, e);
  const GLOBAL T* x_g = x + group * ws.size[3] * xs.stride[0][4];
  const GLOBAL T* y_o = y + (IDX)GROUP1 * ys.stride[0][4];
  ACC sum = 0;
  for (IDX p = LID; p < positions; p += GROUP) {
    const Spot spot = spot_of(p, positions, xs, ys, e);
    sum += T_load(y_o[output_of(p, ys)]) * INPUT_AT(T_load, x_g, spot, tap);
  }
  ACROSS(sum, PLUS)
  if (LID == 0) w[group * ws.stride[0][5] + o * ws.stride[0][4] + weight_of(k, ws)] = T_save(sum);
}
