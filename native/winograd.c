// Convolution by windows of 3x3 with stride 1 on CPU-type devices: Winograd's F(2x2, 3x3). A tile of 2x2 outputs takes 16
// products per pair of channels where the sum itself takes 36. Source of the method: Lavin and Gray, Fast Algorithms for
// Convolutional Neural Networks (2015).
//
// Lanes are tiles. A work-item has NR tiles and up to BLOCKS blocks of MR output channels; for DEEP input channels at a time
// it transforms the 4x4 inputs of its tiles into panels, one for each of 16 points, and multiplies all blocks by them.
// What is not finite has spoilt its whole tile, so the item is then made again by the plain sum.
#if VL > 4
VECTOR(QUAD, ACC, 4)
#else
#define QUAD V
#endif
#define POINTS 16
#define BLOCKS 16
#define DEEP 32

// Runs of neighbouring tiles in a line. to: their first output, of `rows` lines and `cols` columns.
typedef struct { Runs from; IDX to[NR]; int rows[NR], cols[NR]; } Tiles;

// Tiles p up to p + lanes. g: sizes of tiles (w, h, d, n) with strides in the frame and in y; width, height: of a plane of y.
FUNC void find_tiles(Tiles* t, IDX p, const int lanes, const Layout2 g, const int width, const int height) {
  int done = 0, r = 0;
  for (; done < lanes; ++r) {
    IDX at[4], rest = p;
    t->from.at[r] = t->to[r] = 0;
    for (int d = 0; d < 4; ++d) {
      at[d] = rest % g.size[d];
      rest /= g.size[d];
      t->from.at[r] += at[d] * g.stride[0][d];
      t->to[r] += at[d] * g.stride[1][d];
    }
    const int most = lanes - done < VL ? lanes - done : VL, run = g.size[0] - at[0] < most ? (int)(g.size[0] - at[0]) : most;
    t->from.lane[r] = done;
    t->rows[r] = height - 2 * at[1] < 2 ? 1 : 2;
    t->cols[r] = width - 2 * at[0] < 2 * run ? (int)(width - 2 * at[0]) : 2 * run;
    done += run;
    p += run;
  }
  t->from.lane[r] = lanes;
  t->from.count = r;
}

// inputs[4][4][NR]: the window of every tile in one channel. The frame keeps odd and even lines and columns in segments apart.
FUNC void window_of(ACC* restrict inputs, const GLOBAL ACC* restrict x, const long segment, const long line, const Runs* runs) {
  const IDX at0 = runs->at[0], at1 = runs->at[1];
  const int simple = runs->count == 2 && runs->lane[1] == VL;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const GLOBAL ACC* restrict from = x + ((i & 1) * 2 + (j & 1)) * segment + (i >> 1) * line + (j >> 1);
      ACC* restrict to = inputs + (4 * i + j) * NR;
      if (simple) {
        HERE(to, 0) = AT(from, at0);
        HERE(to, VL) = AT(from, at1);
      } else {
        for (int r = 0; r < runs->count; ++r) HERE(to, runs->lane[r]) = AT(from, runs->at[r]);
      }
    }
}

// panel[point][k of `depth`][NR] of one k: B' inputs B.
#define INWARD(TO, FROM, STEP, BY)                                                                     \
  {                                                                                                    \
    const V i0 = HERE(FROM, 0), i1 = HERE(FROM, STEP), i2 = HERE(FROM, 2 * (STEP)), i3 = HERE(FROM, 3 * (STEP)); \
    HERE(TO, 0) = i0 - i2;                                                                             \
    HERE(TO, BY) = i1 + i2;                                                                            \
    HERE(TO, 2 * (BY)) = i2 - i1;                                                                      \
    HERE(TO, 3 * (BY)) = i1 - i3;                                                                      \
  }
FUNC void transform(ACC* restrict panel, ACC* restrict inputs, const int depth) {
  for (int j = 0; j < 4 * NR; j += VL) INWARD(inputs + j, inputs + j, 4 * NR, 4 * NR)
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < NR; j += VL) INWARD(panel + 4 * i * depth * NR + j, inputs + 4 * i * NR + j, NR, depth * NR)
}

// lines[2][2 * NR]: the outputs of NR tiles in one channel, from sums[point] `step` apart: A' sums A.
#define OUTWARD(Y0, Y1, S0, S1, S2, S3) const V Y0 = S0 + S1 + S2, Y1 = S1 - S2 - S3;
#define POINT(I, J) HERE(sum, (4 * I + J) * step + v)
#define COLUMN(J) OUTWARD(u0##J, u1##J, POINT(0, J), POINT(1, J), POINT(2, J), POINT(3, J))
FUNC V outputs_of(ACC* restrict lines, const ACC* restrict sum, const int step) {
  V wrong = SPLAT(V, 0);
  for (int v = 0; v < NR; v += VL) {
    COLUMN(0) COLUMN(1) COLUMN(2) COLUMN(3)
    OUTWARD(y00, y01, u00, u01, u02, u03)
    OUTWARD(y10, y11, u10, u11, u12, u13)
    HERE(lines, 2 * v) = LOW(y00, y01);
    HERE(lines, 2 * v + VL) = HIGH(y00, y01);
    HERE(lines, 2 * NR + 2 * v) = LOW(y10, y11);
    HERE(lines, 2 * NR + 2 * v + VL) = HIGH(y10, y11);
    wrong += (y00 - y00) + (y01 - y01) + (y10 - y10) + (y11 - y11);
  }
  return wrong;
}

FUNC void put(const ACC* restrict lines, GLOBAL T* restrict y, const Tiles* t, const IDX step, const IDX down) {
  for (int r = 0; r < t->from.count; ++r)
    for (int i = 0; i < t->rows[r]; ++i) {
      const ACC* restrict from = lines + i * 2 * NR + 2 * t->from.lane[r];
      GLOBAL T* restrict to = y + t->to[r] + i * down;
      const int size = t->cols[r];
      int j = 0;
#if PLAIN
      if (step == 1) {
        for (; j + VL <= size; j += VL) *(GLOBAL V*)(to + j) = HERE(from, j);
        for (; j + 4 <= size; j += 4) *(GLOBAL QUAD*)(to + j) = *(const QUAD*)(from + j);
      }
#endif
      for (; j < size; ++j) to[j * step] = T_save(from[j]);
    }
}

// of: sizes (kw, kh, in, out, groups) with the strides of w. packed[group][pass][point][block][k][MR] = G w G', DEEP channels in a pass; then for
// each block its bias, and MR zeros.
kernel winograd_pack(in T w, in T bias, out ACC packed, Layout1 of, int has_bias) {
  const IDX inner = of.size[2], channels = of.size[3], blocks = (channels + MR - 1) / MR, group = (IDX)GID0 / blocks;
  const IDX block = (IDX)GID0 % blocks, first = (IDX)GID1 * DEEP, run = inner - first < DEEP ? inner - first : DEEP;
  const IDX rows = channels - block * MR < MR ? channels - block * MR : MR;
  const IDX kw = of.stride[0][0], kh = of.stride[0][1], row = of.stride[0][3];
  const GLOBAL T* restrict from = w + group * of.stride[0][4] + block * MR * row + first * of.stride[0][2];
  GLOBAL ACC* restrict to = packed + ((group * inner + first) * blocks * POINTS + block * run) * MR;
  ACC g[9][MR], h[12][MR];
  IDX at[9];
  for (int i = 0; i < 9; ++i) {
    at[i] = i / 3 * kh + i % 3 * kw;
    for (int r = 0; r < MR; ++r) g[i][r] = 0;
  }
  for (IDX k = 0; k < run; ++k) {
    for (IDX r = 0; r < rows; ++r) {
      const GLOBAL T* restrict tap = from + k * of.stride[0][2] + r * row;
      UNROLLED for (int i = 0; i < 9; ++i) g[i][r] = T_load(tap[at[i]]);
    }
    for (int j = 0; j < 3; ++j)
      for (int r = 0; r < MR; ++r) {
        const ACC ends = g[j][r] + g[6 + j][r], middle = g[3 + j][r];
        h[j][r] = g[j][r];
        h[3 + j][r] = (ends + middle) / 2;
        h[6 + j][r] = (ends - middle) / 2;
        h[9 + j][r] = g[6 + j][r];
      }
    for (int i = 0; i < 4; ++i) {
      GLOBAL ACC* restrict put = to + (4 * i * blocks * run + k) * MR;
      const IDX step = blocks * run * MR;
      for (int r = 0; r < MR; ++r) {
        const ACC ends = h[3 * i][r] + h[3 * i + 2][r], middle = h[3 * i + 1][r];
        put[r] = h[3 * i][r];
        put[step + r] = (ends + middle) / 2;
        put[2 * step + r] = (ends - middle) / 2;
        put[3 * step + r] = h[3 * i + 2][r];
      }
    }
  }
  if (first == 0)
    for (IDX r = 0; r < MR; ++r) {
      GLOBAL ACC* last = packed + (of.size[4] * inner * POINTS * blocks + 2 * GID0) * MR + r;
      last[0] = has_bias && r < rows ? T_load(bias[group * channels + block * MR + r]) : 0;
      last[MR] = 0;
    }
}

// The plain sum of one output channel.
FUNC void again(ACC* restrict lines, ACC* restrict inputs, const GLOBAL ACC* restrict x, const GLOBAL T* restrict w,
                const ACC bias, const Layout1 of, const long channel, const long segment, const long line, const Tiles* t) {
  for (int i = 0; i < 4 * NR; ++i) lines[i] = bias;
  for (IDX k = 0; k < of.size[2]; ++k) {
    window_of(inputs, x + k * channel, segment, line, &t->from);
    for (int i = 0; i < 36; ++i) {
      const int tap = i / 4, h = i / 2 % 2, v = i % 2;
      const ACC weight = T_load(w[k * of.stride[0][2] + tap / 3 * of.stride[0][1] + tap % 3 * of.stride[0][0]]);
      const ACC* restrict from = inputs + ((h + tap / 3) * 4 + v + tap % 3) * NR;
      for (int j = 0; j < NR; ++j) lines[h * 2 * NR + 2 * j + v] += weight * from[j];
    }
  }
}

// g: sizes (w, h, d, n) of tiles, groups, channels, with strides in the frame x and in y. channel, segment, line: elements
// of x from one channel, phase and line of tiles to the next. down, across: from one line and column of y to the next.
kernel winograd(in ACC x, in ACC packed, in T w, out T y, Layout2 g, Layout1 of, long channel, long segment, long line,
                int width, int height, long tiles, int some, long down, long across) {
  const IDX inner = of.size[2], channels = g.size[5], blocks = (channels + MR - 1) / MR, group = (IDX)GID2;
  const IDX b0 = (IDX)GID1 * some, p = (IDX)GID0 * NR;
  const int here = b0 + some < blocks ? some : (int)(blocks - b0);
  const GLOBAL ACC* restrict from = x + group * g.stride[0][4];
  const GLOBAL ACC* restrict starts = packed + (g.size[4] * inner * POINTS + 2 * group) * blocks * MR;
  GLOBAL T* restrict to = y + group * g.stride[1][4];
  ACC panel[POINTS * DEEP * NR] ON_LINE, sum[BLOCKS * POINTS * MR * NR] ON_LINE;
  ACC inputs[POINTS * NR + VL] ON_LINE, lines[4 * NR] ON_LINE;
  Tiles t;
  find_tiles(&t, p, tiles - p < NR ? (int)(tiles - p) : NR, g, width, height);
  for (int i = 0; i < POINTS * NR; ++i) inputs[i] = 0;
  for (IDX k = 0; k < inner; k += DEEP) {
    const int run = inner - k < DEEP ? (int)(inner - k) : DEEP;
    for (int i = 0; i < run; ++i) {
      window_of(inputs, from + (k + i) * channel, segment, line, &t.from);
      transform(panel + i * NR, inputs, run);
    }
    const GLOBAL ACC* restrict a = packed + (group * inner + k) * blocks * POINTS * MR;
    for (int q = 0; q < POINTS; ++q)
      for (int b = 0; b < here; ++b)
        multiply(sum + (b * POINTS + q) * MR * NR, a + ((q * blocks + b0 + b) * run) * MR, panel + q * run * NR, run,
                 starts + (2 * (b0 + b) + (q != 5)) * MR, k == 0);
  }
  V wrong = SPLAT(V, 0);
  for (int b = 0; b < here; ++b)
    for (int r = 0; r < MR && (b0 + b) * MR + r < channels; ++r) {
      wrong += outputs_of(lines, sum + b * POINTS * MR * NR + r * NR, MR * NR);
      put(lines, to + ((b0 + b) * MR + r) * g.stride[1][5], &t, across, down);
    }
  ACC check = 0;
  for (int i = 0; i < VL; ++i) check += wrong[i];
  if (check == 0) return;
  for (IDX o = b0 * MR; o < (b0 + here) * MR && o < channels; ++o) {
    again(lines, inputs, from, w + group * of.stride[0][4] + o * of.stride[0][3], starts[2 * (o / MR) * MR + o % MR], of, channel,
          segment, line, &t);
    put(lines, to + o * g.stride[1][5], &t, across, down);
  }
}
