// Resampling and edge padding in three spatial dimensions: each output element is a weighted sum of TD x TH x TW
// inputs, found per dimension. Upsampling (nearest, linear, cubic) and padding (reflect, replicate) differ in `tap` alone.
//
// T: element type, A: type of weights and sums; TD, TH, TW: taps per dimension (1 in a dimension that stays 1).
// m: output sizes (W, H, D, C, N) and strides; n: input sizes (W, H, D), its row the padding in front.
#define NEAREST 0
#define EXACT 1
#define LINEAR 2
#define CUBIC 3
#define REFLECT 4
#define REPLICATE 5

FUNC A cubic_near(A t) { return ((A)1.25 * t - (A)2.25) * t * t + 1; }
FUNC A cubic_far(A t) { return (((A)-0.75 * t + (A)3.75) * t - 6) * t + 3; }
FUNC A cubic_weight(A t, int k) {
  return k == 0 ? cubic_far(t + 1) : k == 1 ? cubic_near(t) : k == 2 ? cubic_near(1 - t) : cubic_far(2 - t);
}
FUNC IDX clamp_index(IDX i, IDX size) { return i < 0 ? 0 : i < size ? i : size - 1; }

// Largest integer not above v; a cast truncates, and floor() is a call on some compilers.
FUNC IDX floor_index(A v) {
  const IDX i = (IDX)v;
  return (A)i > v ? i - 1 : i;
}

FUNC A source_position(IDX o, A scale, int align, int may_be_negative) {
  if (align) return scale * o;
  const A at = scale * (o + (A)0.5) - (A)0.5;
  return !may_be_negative && at < 0 ? 0 : at;
}

// Index and weight of input k of `taps` for output o of one dimension; `param` is the padding in front.
FUNC IDX tap(IDX o, int k, int taps, IDX in_n, IDX out_n, A scale, IDX pad, int align, A* weight) {
  *weight = 1;
  if (MODE == REPLICATE) return clamp_index(o - pad, in_n);
  if (MODE == REFLECT) {
    const IDX i = o - pad, j = i < 0 ? -i : i;
    return j < in_n ? j : 2 * (in_n - 1) - j;
  }
  if (MODE == EXACT) return clamp_index((IDX)(scale * (o + (A)0.5)), in_n);
  if (MODE == NEAREST) {
    if (out_n == in_n) return o;
    return out_n == 2 * in_n ? o >> 1 : clamp_index((IDX)(scale * o), in_n);
  }
  if (taps == 1) return o;
  if (MODE == LINEAR) {
    if (in_n == out_n) {
      *weight = k ? 0 : 1;
      return o;
    }
    const A at = source_position(o, scale, align, 0);
    const IDX i = clamp_index((IDX)at, in_n);
    A right = at - i;
    right = right < 0 ? 0 : right > 1 ? 1 : right;
    *weight = k ? right : 1 - right;
    return k && i < in_n - 1 ? i + 1 : i;
  }
  const A at = source_position(o, scale, align, 1);
  const IDX i = floor_index(at);
  *weight = cubic_weight(at - i, k);
  return clamp_index(i - 1 + k, in_n);
}

#define TAPS(d, count, o)                                                                            \
  IDX at##d[count];                                                                                  \
  A weight##d[count];                                                                                \
  for (int k = 0; k < count; ++k)                                                                    \
    at##d[k] = tap(o, k, count, n.size[d], m.size[d], scale##d, n.stride[0][d], align, &weight##d[k]);

// Strides in m: x, y.
kernel resample(in T x, out T y, Layout2 m, Layout1 n, A scale0, A scale1, A scale2, int align, long total, long chunk) {
  const IDX s0 = m.stride[0][0], s1 = m.stride[0][1], s2 = m.stride[0][2], y0 = m.stride[1][0];
  IDX start = (IDX)GID0 * chunk;
  const IDX end = start + chunk < total ? start + chunk : total;
  while (start < end) {
    IDX line = start / m.size[0];
    const IDX j0 = start - line * m.size[0];
    const IDX j1 = m.size[0] - j0 < end - start ? m.size[0] : j0 + (end - start);
    start += j1 - j0;
    const IDX i1 = line % m.size[1];
    line /= m.size[1];
    const IDX i2 = line % m.size[2];
    line /= m.size[2];
    const IDX i3 = line % m.size[3], i4 = line / m.size[3];
    const IDX plane = i3 * m.stride[0][3] + i4 * m.stride[0][4];
    const IDX out = i1 * m.stride[1][1] + i2 * m.stride[1][2] + i3 * m.stride[1][3] + i4 * m.stride[1][4];
    TAPS(2, TD, i2)
    TAPS(1, TH, i1)
    for (IDX j = j0; j < j1; ++j) {
      TAPS(0, TW, j)
#if TD * TH * TW == 1
      y[out + j * y0] = x[plane + at2[0] * s2 + at1[0] * s1 + at0[0] * s0];  // bits, whatever they mean
#else
      A sum = 0;
      for (int d = 0; d < TD; ++d)
        for (int h = 0; h < TH; ++h) {
          const IDX row = plane + at2[d] * s2 + at1[h] * s1;
          A part = 0;
          for (int k = 0; k < TW; ++k) part += weight0[k] * T_load(x[row + at0[k] * s0]);
          sum += weight2[d] * weight1[h] * part;
        }
      y[out + j * y0] = T_save(sum);
#endif
    }
  }
}

// Strides in m: grad. A work-item owns whole planes of the row-major result, so nothing is written twice.
kernel resample_backward(in T grad, inout A result, Layout1 m, Layout1 n, A scale0, A scale1, A scale2, int align,
                         long total, long chunk) {
  const IDX plane = n.size[0] * n.size[1] * n.size[2];
  IDX p = (IDX)GID0 * chunk;
  const IDX end = p + chunk < total ? p + chunk : total;
  for (; p < end; ++p) {
    const IDX i3 = p % m.size[3], i4 = p / m.size[3];
    GLOBAL A* target = result + p * plane;
    for (IDX j = 0; j < plane; ++j) target[j] = 0;
    for (IDX i2 = 0; i2 < m.size[2]; ++i2) {
      TAPS(2, TD, i2)
      for (IDX i1 = 0; i1 < m.size[1]; ++i1) {
        TAPS(1, TH, i1)
        const IDX row = i1 * m.stride[0][1] + i2 * m.stride[0][2] + i3 * m.stride[0][3] + i4 * m.stride[0][4];
        for (IDX j = 0; j < m.size[0]; ++j) {
          TAPS(0, TW, j)
          const A g = T_load(grad[row + j * m.stride[0][0]]);
          for (int d = 0; d < TD; ++d)
            for (int h = 0; h < TH; ++h) {
              const A part = weight2[d] * weight1[h] * g;
              GLOBAL A* line = target + (at2[d] * n.size[1] + at1[h]) * n.size[0];
              for (int k = 0; k < TW; ++k) line[at0[k]] += weight0[k] * part;
            }
        }
      }
    }
  }
}
