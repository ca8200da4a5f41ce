// Convolution on CPU-type devices: a matrix product whose right side is gathered from the input while it is multiplied.
//
// Output positions are counted without gaps, over every line, plane and sample; Runs says where they lie in a tensor.
// conv_block copies the taps of a tile of positions into a private panel (so many at once that it stays in the first
// cache) and multiplies many output channels by it. conv_taps, for the gradient of the weight, turns the gradient
// so that lanes are output channels, and takes the input one number at a time from where it lies.
//
// T: element type of output or gradient, ACC: type of sums and of the input (as it is or framed, native/conv.c),
// VL: lanes of a vector, MR: output channels of a tile of conv_block, PLAIN: T is ACC, NV: vectors of conv_taps.
#define TILES 8           // most tiles of positions per work-item
#define PANEL (512 * NR)  // taps of all of them
#define SUMS 32           // most tiles of sums per work-item

// Whether whole vectors may be read at every run: none reaches past `limit`.
FUNC int readable(const Runs* runs, const long limit) {
  int fits = 1;
  for (int r = 0; r < runs->count; ++r) fits &= runs->at[r] + VL <= limit;
  return fits;
}

// panel[k][NR] = taps offset[k] at the positions of a tile. `wide`: by vectors, which may write VL lanes too many.
#define KEEP(R) const int lane##R = runs->lane[R]; const IDX at##R = runs->at[R];
#define MOVE(R) HERE(to, lane##R) = AT(from, at##R);
#define MOVES(KEEPS, EACH)                         \
  KEEPS                                            \
  for (int k = 0; k < depth; ++k) {                \
    const GLOBAL ACC* restrict from = x + offset[k]; \
    ACC* to = panel + k * NR;                      \
    EACH                                           \
  }
FUNC void gather(ACC* restrict panel, const GLOBAL ACC* restrict x, const GLOBAL long* restrict offset, const int depth,
                 const Runs* runs, const IDX step, const int wide) {
  if (wide && runs->count == 2) {
    MOVES(KEEP(0) KEEP(1), MOVE(0) MOVE(1))
  } else if (wide && runs->count == 3) {
    MOVES(KEEP(0) KEEP(1) KEEP(2), MOVE(0) MOVE(1) MOVE(2))
  } else if (wide && runs->count == 4) {
    MOVES(KEEP(0) KEEP(1) KEEP(2) KEEP(3), MOVE(0) MOVE(1) MOVE(2) MOVE(3))
  } else if (wide) {
    MOVES(, for (int r = 0; r < runs->count; ++r) HERE(to, runs->lane[r]) = AT(from, runs->at[r]);)
  } else {
    MOVES(, for (int r = 0; r < runs->count; ++r)
      for (int j = runs->lane[r]; j < runs->lane[r + 1]; ++j) to[j] = from[runs->at[r] + (j - runs->lane[r]) * step];)
  }
}

// One row of a tile to where its positions lie.
FUNC void put(const ACC* restrict sum, GLOBAL T* restrict y, const Runs* runs, const IDX step) {
  for (int r = 0; r < runs->count; ++r) {
    const int size = runs->lane[r + 1] - runs->lane[r];
    const ACC* restrict from = sum + runs->lane[r];
    GLOBAL T* restrict to = y + runs->at[r];
#if PLAIN
    if (step == 1 && size == VL)
      *(GLOBAL V*)to = HERE(from, 0);
    else
#endif
      for (int j = 0; j < size; ++j) to[j * step] = T_save(from[j]);
  }
}

// q: output sizes (w, h, d, n, groups) with strides in x; g: the same (w, h, d, n, groups, channels) with strides in y.
// `packed` and `offset` as made by conv_pack, `deep` taps at once. Work-item: `tiles` tiles of NR positions by `some`
// blocks of MR channels; all its sums are kept if there is more than one pass over the taps.
kernel conv_block(in ACC x, in ACC packed, in long offset, out T y, Layout1 q, Layout1 g, long depth, long deep,
                  long positions, long limit, int tiles, int some) {
  const IDX channels = g.size[5], blocks = (channels + MR - 1) / MR, group = (IDX)GID2, b0 = (IDX)GID1 * some;
  const int here = b0 + some < blocks ? some : (int)(blocks - b0), kept = depth > deep;
  const GLOBAL ACC* restrict from = x + group * q.stride[0][4];
  const GLOBAL ACC* restrict a = packed + group * blocks * depth * MR;
  const GLOBAL ACC* restrict bias = packed + (g.size[4] * depth + group) * blocks * MR;
  GLOBAL T* restrict to = y + group * g.stride[0][4];
  const long first = GID0 * tiles * NR;
  ACC panel[PANEL + VL] ON_LINE, sum[SUMS * MR * NR] ON_LINE;
  Runs source[TILES], target[TILES];
  int used = 0;
  for (; used < tiles && first + used * NR < positions; ++used) {
    const long p = first + used * NR;
    const int lanes = positions - p < NR ? (int)(positions - p) : NR;
    find_runs(source + used, (IDX)p, lanes, q.size, q.stride[0]);
    find_runs(target + used, (IDX)p, lanes, g.size, g.stride[0]);
  }
  for (long k = 0; k < depth; k += deep) {
    const int run = depth - k < deep ? (int)(depth - k) : (int)deep;
    for (int t = 0; t < used; ++t)
      gather(panel + t * run * NR, from, offset + k, run, source + t, q.stride[0][0],
             q.stride[0][0] == 1 && readable(source + t, limit));
    for (int i = 0; i < used * here; ++i) {
      const int t = kept ? i / here : i % used, b = kept ? i % here : i / used;
      const IDX o = (b0 + b) * MR;
      ACC* s = sum + (kept ? i : 0) * MR * NR;
      multiply(s, a + k * blocks * MR + o * run, panel + t * run * NR, run, bias + o, k == 0);
      if (k + run == depth)
        for (int r = 0; r < MR && o + r < channels; ++r)
          put(s + r * NR, to + (o + r) * g.stride[0][5], target + t, g.stride[0][0]);
    }
  }
}

#define PB 128     // positions that a panel of the turned gradient holds
#define NW (NV * VL)
#define WR MR      // taps of a tile
#define MOST 512   // most taps per work-item, and WR more
#define EACH_TAP(DO) EACH_ROW(DO)

// sum[WR][NW] += x[offset[r] + at[p]] * turned[p][NW]
FUNC void correlate(ACC* restrict sum, const GLOBAL ACC* restrict x, const GLOBAL long* restrict offset, const int last,
                    const ACC* restrict turned, const IDX* restrict at, const int positions) {
#if NV == 2
#define ROW(R) const GLOBAL ACC* restrict x##R = x + offset[R < last ? R : last]; V s##R = SPLAT(V, 0), t##R = s##R;
  EACH_TAP(ROW)
#undef ROW
  for (int p = 0; p < positions; ++p) {
    const V v0 = HERE(turned, p * NW), v1 = HERE(turned, p * NW + VL);
    const IDX i = at[p];
#define ROW(R) s##R = madd(x##R[i], v0, s##R); t##R = madd(x##R[i], v1, t##R);
    EACH_TAP(ROW)
#undef ROW
  }
#define ROW(R) HERE(sum, R * NW) += s##R; HERE(sum, R * NW + VL) += t##R;
  EACH_TAP(ROW)
#undef ROW
#else
#define ROW(R) const GLOBAL ACC* restrict x##R = x + offset[R < last ? R : last]; V s##R = SPLAT(V, 0);
  EACH_TAP(ROW)
#undef ROW
  for (int p = 0; p < positions; ++p) {
    const V v0 = HERE(turned, p * NW);
    const IDX i = at[p];
#define ROW(R) s##R = madd(x##R[i], v0, s##R);
    EACH_TAP(ROW)
#undef ROW
  }
#define ROW(R) HERE(sum, R * NW) += s##R;
  EACH_TAP(ROW)
#undef ROW
#endif
}

// VL channels by VL positions turned in registers: each round of zipping halves what is not in place yet. Source of the
// method: the perfect shuffle, Stone, Parallel Processing with the Perfect Shuffle (1971).
#if VL == 16
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif VL == 8
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif VL == 4
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif
#if PLAIN && VL >= 4 && (defined(__clang__) || __GNUC__ >= 12)
#define TURNS 1
FUNC void turn(ACC* restrict to, const GLOBAL ACC* restrict from, const IDX step) {
  V a[VL], b[VL];
  for (int i = 0; i < VL; ++i) a[i] = AT(from, i * step);
  for (int round = 1; round < VL; round *= 4) {
    for (int i = 0; i < VL / 2; ++i) {
      b[2 * i] = ZIP_LOW(a[i], a[i + VL / 2]);
      b[2 * i + 1] = ZIP_HIGH(a[i], a[i + VL / 2]);
    }
    if (round * 2 == VL) {
      for (int i = 0; i < VL; ++i) a[i] = b[i];
      break;
    }
    for (int i = 0; i < VL / 2; ++i) {
      a[2 * i] = ZIP_LOW(b[i], b[i + VL / 2]);
      a[2 * i + 1] = ZIP_HIGH(b[i], b[i + VL / 2]);
    }
  }
  for (int i = 0; i < VL; ++i) HERE(to, i * NW) = a[i];
}
#else
#define TURNS 0
#endif

// result[part][group][channel][k] = sum over positions of grad * x. q and g: as in conv_block, with the strides of x and
// grad. Work-item: NW channels by `some` taps over `span` positions.
kernel conv_taps(in T grad, in ACC x, in long offset, out ACC result, Layout1 q, Layout1 g, long depth, long positions,
                 long span, int some) {
  const IDX groups = g.size[4], channels = g.size[5], group = (IDX)(GID2 % groups), o0 = (IDX)GID0 * NW;
  const int lanes = channels - o0 < NW ? (int)(channels - o0) : NW;
  const long k0 = GID1 * some, begin = GID2 / groups * span, end = begin + span < positions ? begin + span : positions;
  const int taps = depth - k0 < some ? (int)(depth - k0) : some;
  const GLOBAL ACC* restrict from = x + group * q.stride[0][4];
  const GLOBAL T* restrict dy = grad + group * g.stride[0][4] + o0 * g.stride[0][5];
  ACC turned[PB * NW] ON_LINE, sum[(MOST + WR) * NW] ON_LINE;
  IDX at[PB];
  for (int i = 0; i < (taps + WR) * NW; ++i) sum[i] = 0;
  for (int i = 0; i < PB * NW; ++i) turned[i] = 0;
  for (long p0 = begin; p0 < end; p0 += PB) {
    const int count = end - p0 < PB ? (int)(end - p0) : PB;
    Runs runs;
    for (int p = 0; p < count; p += NR) {
      const int width = count - p < NR ? count - p : NR;
      find_runs(&runs, (IDX)(p0 + p), width, q.size, q.stride[0]);
      for (int r = 0; r < runs.count; ++r)
        for (int j = runs.lane[r]; j < runs.lane[r + 1]; ++j)
          at[p + j] = runs.at[r] + (j - runs.lane[r]) * q.stride[0][0];
      find_runs(&runs, (IDX)(p0 + p), width, g.size, g.stride[0]);
      for (int r = 0; r < runs.count; ++r) {
        const GLOBAL T* restrict lines = dy + runs.at[r];
        ACC* restrict to = turned + (p + runs.lane[r]) * NW;
        int o = 0;
#if TURNS
        if (g.stride[0][0] == 1 && runs.lane[r + 1] - runs.lane[r] == VL)
          for (; o + VL <= lanes; o += VL) turn(to + o, lines + o * g.stride[0][5], g.stride[0][5]);
#endif
        for (; o < lanes; ++o) {
          const GLOBAL T* restrict line = lines + o * g.stride[0][5];
          for (int j = 0; j < runs.lane[r + 1] - runs.lane[r]; ++j) to[j * NW + o] = T_load(line[j * g.stride[0][0]]);
        }
      }
    }
    for (int k = 0; k < taps; k += WR)
      correlate(sum + k * NW, from, offset + k0 + k, taps - k - 1, turned, at, count);
  }
  GLOBAL ACC* restrict to = result + (GID2 * channels + o0) * depth + k0;
  for (int o = 0; o < lanes; ++o)
    for (int k = 0; k < taps; ++k) to[o * depth + k] = sum[k * NW + o];
}
