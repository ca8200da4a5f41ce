// Sampling an image or a volume at given places (F.grid_sample) and its gradients.
//
// T: element type, A: type of weights and sums; MODE 0 linear, 1 nearest, 2 cubic; TD, TH, TW: taps per dimension (1
// for the depth of images). padding: 0 zeros, 1 border, 2 reflection. e: sizes of x (w, h, d, n, c) and its strides.
// m: places (w, h, d, n, c) with the strides of grid (its last for the component) and of what goes with the output.
#define PLACES_PER_SAMPLE (m.size[0] * m.size[1] * m.size[2])

// Folds a coordinate into the image as the padding says; *slope becomes the derivative.
FUNC A pad_coordinate(A at, const IDX size, const int padding, const int align, A* slope) {
  if (padding == 2) {
    const A low = align ? 0 : (A)-0.5, span = align ? size - 1 : size;
    if (span <= 0) {
      *slope = 0;
      return 0;
    }
    A away = at - low;
    if (away < 0) {
      away = -away;
      *slope = -*slope;
    }
    const A flips = floor(away / span), extra = away - flips * span;
    const bool odd = flips - 2 * floor(flips / 2) != 0;
    if (odd) *slope = -*slope;
    at = low + (odd ? span - extra : extra);
  }
  if (padding) {
    if (at <= 0) {
      *slope = 0;
      return 0;
    }
    if (at >= size - 1) {
      *slope = 0;
      return size - 1;
    }
  }
  return at;
}

// Keys' cubic convolution with a = -3/4, factored so that nothing cancels: the weight of the second neighbour on a side
// at t beyond the first, and of the first at t.
FUNC A cubic_far(const A t) { return (A)-0.75 * t * (1 - t) * (1 - t); }
FUNC A cubic_near(const A t) { return (1 - t) * (1 + t - (A)1.25 * t * t); }
FUNC A cubic_far_slope(const A t) { return (A)-0.75 * (1 - t) * (1 - 3 * t); }
FUNC A cubic_near_slope(const A t) { return ((A)3.75 * t - (A)4.5) * t; }

// Indices (-1: outside), weights, and derivatives of the weights by the grid's number, for one dimension.
FUNC void taps(const A number, const IDX size, const int count, const int padding, const int align, IDX* at, A* weight,
               A* slope) {
  A rate = align ? (A)(size - 1) / 2 : (A)size / 2;
  A place = align ? (number + 1) * rate : (number + 1) * rate - (A)0.5;
  if (MODE != 2) place = pad_coordinate(place, size, padding, align, &rate);
  if (!(place > (A)-1e9 && place < (A)1e9)) place = -100;
  const A base = MODE == 1 ? rint(place) : floor(place), t = place - base;
  for (int k = 0; k < count; ++k) {
    A i = base + k;
    if (MODE == 0) {
      weight[k] = k ? t : 1 - t;
      slope[k] = k ? rate : -rate;
    } else if (MODE == 1) {
      weight[k] = 1;
      slope[k] = 0;
    } else {
      A ignored = 1;
      weight[k] = k == 0 ? cubic_far(t) : k == 1 ? cubic_near(t) : k == 2 ? cubic_near(1 - t) : cubic_far(1 - t);
      slope[k] = rate * (k == 0   ? cubic_far_slope(t)
                         : k == 1 ? cubic_near_slope(t)
                         : k == 2 ? -cubic_near_slope(1 - t)
                                  : -cubic_far_slope(1 - t));
      i = pad_coordinate(i - 1, size, padding, align, &ignored);
    }
    at[k] = i >= 0 && i < size ? (IDX)i : -1;
  }
}

#define DIMENSION(d, count)       \
  IDX at##d[count];               \
  A weight##d[count], slope##d[count];

// The place `p` (a position of one sample n): where it is in the output, and its taps.
#define LOOK(p, n)                                                                                                    \
  const IDX i0 = (p) % m.size[0], i1 = (p) / m.size[0] % m.size[1], i2 = (p) / m.size[0] / m.size[1];                 \
  const IDX there = i0 * m.stride[1][0] + i1 * m.stride[1][1] + i2 * m.stride[1][2] + (n) * m.stride[1][3];           \
  const GLOBAL T* number = grid + i0 * m.stride[0][0] + i1 * m.stride[0][1] + i2 * m.stride[0][2] + (n) * m.stride[0][3]; \
  DIMENSION(0, TW) DIMENSION(1, TH) DIMENSION(2, TD)                                                                  \
  taps(T_load(number[0]), e.size[0], TW, padding, align, at0, weight0, slope0);                                       \
  taps(T_load(number[m.stride[0][4]]), e.size[1], TH, padding, align, at1, weight1, slope1);                          \
  if (FLAT) {                                                                                                         \
    at2[0] = 0;                                                                                                       \
    weight2[0] = 1;                                                                                                   \
    slope2[0] = 0;                                                                                                    \
  } else {                                                                                                            \
    taps(T_load(number[FLAT ? 0 : 2 * m.stride[0][4]]), e.size[2], TD, padding, align, at2, weight2, slope2);         \
  }

#define EACH_TAP                        \
  for (int d = 0; d < TD; ++d)          \
    for (int h = 0; h < TH; ++h)        \
      for (int k = 0; k < TW; ++k)      \
        if (at2[d] >= 0 && at1[h] >= 0 && at0[k] >= 0)

kernel grid_sample(in T x, in T grid, out T y, Layout2 m, Layout1 e, int padding, int align, long total, long chunk) {
  const IDX end = (IDX)(GID0 * chunk + chunk < total ? GID0 * chunk + chunk : total);
  for (IDX p = (IDX)(GID0 * chunk); p < end; ++p) {
    const IDX n = p / PLACES_PER_SAMPLE, q = p % PLACES_PER_SAMPLE;
    LOOK(q, n)
    for (IDX c = 0; c < m.size[4]; ++c) {
      const GLOBAL T* from = x + n * e.stride[0][3] + c * e.stride[0][4];
      A sum = 0;
      EACH_TAP sum += weight2[d] * weight1[h] * weight0[k] *
                      T_load(from[at0[k] * e.stride[0][0] + at1[h] * e.stride[0][1] + at2[d] * e.stride[0][2]]);
      y[there + c * m.stride[1][4]] = T_save(sum);
    }
  }
}

// The gradient of the grid: row-major [n, d, h, w, component].
kernel grid_sample_grid(in T grad, in T x, in T grid, out T result, Layout2 m, Layout1 e, int padding, int align,
                        long total, long chunk) {
  const IDX end = (IDX)(GID0 * chunk + chunk < total ? GID0 * chunk + chunk : total);
  for (IDX p = (IDX)(GID0 * chunk); p < end; ++p) {
    const IDX n = p / PLACES_PER_SAMPLE, q = p % PLACES_PER_SAMPLE;
    LOOK(q, n)
    A sum0 = 0, sum1 = 0, sum2 = 0;
    for (IDX c = 0; c < m.size[4]; ++c) {
      const GLOBAL T* from = x + n * e.stride[0][3] + c * e.stride[0][4];
      const A g = T_load(grad[there + c * m.stride[1][4]]);
      EACH_TAP {
        const A v = g * T_load(from[at0[k] * e.stride[0][0] + at1[h] * e.stride[0][1] + at2[d] * e.stride[0][2]]);
        sum0 += v * weight2[d] * weight1[h] * slope0[k];
        sum1 += v * weight2[d] * slope1[h] * weight0[k];
        sum2 += v * slope2[d] * weight1[h] * weight0[k];
      }
    }
    GLOBAL T* to = result + p * (FLAT ? 2 : 3);
    to[0] = T_save(sum0);
    to[1] = T_save(sum1);
    if (!FLAT) to[FLAT ? 0 : 2] = T_save(sum2);
  }
}

// The gradient of the image, row-major. A work-item owns whole planes, so nothing is written twice at once.
kernel grid_sample_input(in T grad, in T grid, inout A result, Layout2 m, Layout1 e, int padding, int align, long total,
                         long chunk) {
  const IDX end = (IDX)(GID0 * chunk + chunk < total ? GID0 * chunk + chunk : total);
  const IDX plane = e.size[0] * e.size[1] * e.size[2], places = PLACES_PER_SAMPLE;
  for (IDX i = (IDX)(GID0 * chunk); i < end; ++i) {
    const IDX n = i / m.size[4], c = i % m.size[4];
    GLOBAL A* to = result + i * plane;
    for (IDX j = 0; j < plane; ++j) to[j] = 0;
    for (IDX q = 0; q < places; ++q) {
      LOOK(q, n)
      const A g = T_load(grad[there + c * m.stride[1][4]]);
      EACH_TAP to[(at2[d] * e.size[1] + at1[h]) * e.size[0] + at0[k]] += g * weight2[d] * weight1[h] * weight0[k];
    }
  }
}
