// Max and average pooling in three spatial dimensions (missing ones have size 1).
//
// T: element type, A: type of sums, IS_NAN(v): always false for integers, ADAPTIVE: windows follow from the two sizes and not from w.
// m: output sizes (W, H, D, C, N) with the strides of each tensor; w: input sizes (W, H, D) with kernel, stride,
// padding and dilation as its four rows.

FUNC IDX window_first(IDX o, IDX in_n, IDX out_n, IDX stride, IDX pad) {
  return ADAPTIVE ? (IDX)((long)o * in_n / out_n) : o * stride - pad;
}

FUNC IDX window_end(IDX o, IDX in_n, IDX out_n, IDX stride, IDX pad, IDX reach) {
  return ADAPTIVE ? (IDX)(((long)(o + 1) * in_n + out_n - 1) / out_n) : o * stride - pad + reach;
}

// The windows that hold input i are those from cover_first up to cover_end; dilation is 1.
FUNC IDX cover_first(IDX i, IDX in_n, IDX out_n, IDX stride, IDX pad, IDX size) {
  if (ADAPTIVE) return (IDX)((long)i * out_n / in_n);
  return i + pad < size ? 0 : (i + pad - size) / stride + 1;
}

FUNC IDX cover_end(IDX i, IDX in_n, IDX out_n, IDX stride, IDX pad) {
  const IDX end = ADAPTIVE ? (IDX)(((long)(i + 1) * out_n + in_n - 1) / in_n) : (i + pad) / stride + 1;
  return end < out_n ? end : out_n;
}

// Elements that a window counts along one dimension.
FUNC IDX window_count(IDX o, IDX in_n, IDX out_n, IDX stride, IDX pad, IDX size, int include_pad) {
  IDX lo = window_first(o, in_n, out_n, stride, pad), hi = window_end(o, in_n, out_n, stride, pad, size);
  hi = hi < in_n + pad ? hi : in_n + pad;
  if (include_pad) return hi - lo;
  return (hi < in_n ? hi : in_n) - (lo > 0 ? lo : 0);
}

#define EACH_LINE(inner)                                                                          \
  IDX start = (IDX)GID0 * chunk;                                                                  \
  const IDX end = start + chunk < total ? start + chunk : total;                                  \
  for (; start < end;) {                                                                          \
    IDX line = start / (inner);                                                                   \
    const IDX j0 = start - line * (inner);                                                        \
    const IDX j1 = (inner) - j0 < end - start ? (inner) : j0 + (end - start);                     \
    const IDX i1 = line % m.size[1], i2 = line / m.size[1] % m.size[2];                           \
    const IDX i3 = line / m.size[1] / m.size[2] % m.size[3], i4 = line / m.size[1] / m.size[2] / m.size[3]; \
    start += j1 - j0;

#define PLANE(k) (i3 * m.stride[k][3] + i4 * m.stride[k][4])
#define LINE(k) (PLANE(k) + i1 * m.stride[k][1] + i2 * m.stride[k][2])

// First index not below 0 on the grid of a dilated window.
FUNC IDX clamp_first(IDX lo, IDX dilation) { return lo < 0 ? lo + (-lo + dilation - 1) / dilation * dilation : lo; }

#define BOUNDS(d, o)                                                                                           \
  const IDX first##d = clamp_first(window_first(o, w.size[d], m.size[d], w.stride[1][d], w.stride[2][d]), w.stride[3][d]); \
  IDX end##d = window_end(o, w.size[d], m.size[d], w.stride[1][d], w.stride[2][d], (w.stride[0][d] - 1) * w.stride[3][d] + 1); \
  end##d = end##d < w.size[d] ? end##d : w.size[d];

// Windows of LANES neighbours that lie inside along the innermost dimension, the first of which starts at `first0`.
#define LANES 16
FUNC void max_of_lanes(const GLOBAL T* restrict x, GLOBAL T* restrict y, GLOBAL long* restrict index, const IDX first0,
                       const IDX first1, const IDX end1, const IDX first2, const IDX end2, const Layout3 m, const Layout4 w) {
  const IDX step = w.stride[1][0], move = step * m.stride[0][0];
  A best[LANES];
  IDX at[LANES];
  for (int u = 0; u < LANES; ++u) {
    at[u] = (first2 * w.size[1] + first1) * w.size[0] + first0 + u * step;
    best[u] = T_load(x[first0 * m.stride[0][0] + first1 * m.stride[0][1] + first2 * m.stride[0][2] + u * move]);
  }
  for (IDX d = first2; d < end2; d += w.stride[3][2])
    for (IDX h = first1; h < end1; h += w.stride[3][1])
      for (IDX k = 0; k < w.stride[0][0]; ++k) {
        const IDX i = first0 + k * w.stride[3][0], here = (d * w.size[1] + h) * w.size[0] + i;
        const GLOBAL T* restrict from = x + i * m.stride[0][0] + h * m.stride[0][1] + d * m.stride[0][2];
        A v[LANES];
        for (int u = 0; u < LANES; ++u) v[u] = T_load(from[u * move]);
        for (int u = 0; u < LANES; ++u) {  // apart from the loads: this loop becomes vectors, without a branch
          const int taken = (v[u] > best[u]) | (IS_NAN(v[u]));
          best[u] = taken ? v[u] : best[u];
          at[u] = taken ? here + u * step : at[u];
        }
      }
  for (int u = 0; u < LANES; ++u) {
    y[u * m.stride[1][0]] = T_save(best[u]);
    index[u * m.stride[2][0]] = at[u];
  }
}

// Strides in m: x, y, index. A NaN wins; of equal elements the first wins.
kernel max_pool(in T x, out T y, out long index, Layout3 m, Layout4 w, long total, long chunk) {
  const IDX s0 = m.stride[0][0], s1 = m.stride[0][1], s2 = m.stride[0][2];
  EACH_LINE(m.size[0])
    BOUNDS(1, i1)
    BOUNDS(2, i2)
    const IDX plane = PLANE(0), y_line = LINE(1), index_line = LINE(2);
    for (IDX i0 = j0; i0 < j1; ++i0) {
      if (!ADAPTIVE && i0 + LANES <= j1 && i0 * w.stride[1][0] >= w.stride[2][0] &&
          (i0 + LANES - 1) * w.stride[1][0] - w.stride[2][0] + (w.stride[0][0] - 1) * w.stride[3][0] < w.size[0]) {
        max_of_lanes(x + plane, y + y_line + i0 * m.stride[1][0], index + index_line + i0 * m.stride[2][0],
                     i0 * w.stride[1][0] - w.stride[2][0], first1, end1, first2, end2, m, w);
        i0 += LANES - 1;
        continue;
      }
      BOUNDS(0, i0)
      IDX at = (first2 * w.size[1] + first1) * w.size[0] + first0;
      T found = x[plane + first0 * s0 + first1 * s1 + first2 * s2];
      A best = T_load(found);
      for (IDX d = first2; d < end2; d += w.stride[3][2])
        for (IDX h = first1; h < end1; h += w.stride[3][1])
          for (IDX k = first0; k < end0; k += w.stride[3][0]) {
            const T raw = x[plane + k * s0 + h * s1 + d * s2];
            const A v = T_load(raw);
            if (v > best || IS_NAN(v)) {
              best = v;
              found = raw;
              at = (d * w.size[1] + h) * w.size[0] + k;
            }
          }
      y[y_line + i0 * m.stride[1][0]] = found;
      index[index_line + i0 * m.stride[2][0]] = at;
    }
  }
}

// Strides in m: grad, index. A work-item owns whole planes of the row-major result, so nothing is written twice.
kernel max_pool_backward(in T grad, in long index, inout A result, Layout2 m, long plane, long total, long chunk) {
  IDX at = (IDX)GID0 * chunk;
  const IDX end = at + chunk < total ? at + chunk : total;
  for (; at < end; ++at) {
    const IDX i3 = at % m.size[3], i4 = at / m.size[3];
    GLOBAL A* target = result + at * plane;
    for (IDX j = 0; j < plane; ++j) target[j] = 0;
    for (IDX i2 = 0; i2 < m.size[2]; ++i2)
      for (IDX i1 = 0; i1 < m.size[1]; ++i1)
        for (IDX i0 = 0; i0 < m.size[0]; ++i0)
          target[index[LINE(1) + i0 * m.stride[1][0]]] += T_load(grad[LINE(0) + i0 * m.stride[0][0]]);
  }
}

#define COUNT(d, o) \
  window_count(o, w.size[d], m.size[d], w.stride[1][d], w.stride[2][d], w.stride[0][d], include_pad)

// Strides in m: x, y. divisor 0: the number of elements.
kernel avg_pool(in T x, out T y, Layout2 m, Layout4 w, int include_pad, long divisor, long total, long chunk) {
  const IDX s0 = m.stride[0][0], s1 = m.stride[0][1], s2 = m.stride[0][2];
  EACH_LINE(m.size[0])
    BOUNDS(1, i1)
    BOUNDS(2, i2)
    const IDX plane = PLANE(0), y_line = LINE(1), rows = COUNT(1, i1) * COUNT(2, i2);
    for (IDX i0 = j0; i0 < j1; ++i0) {
      BOUNDS(0, i0)
      A sum = 0;
      for (IDX d = first2; d < end2; ++d)
        for (IDX h = first1; h < end1; ++h)
          for (IDX k = first0; k < end0; ++k) sum += T_load(x[plane + k * s0 + h * s1 + d * s2]);
      const A n = (A)(divisor ? divisor : (long)rows * COUNT(0, i0));
      // torch leaves a window that lies in the padding as 0
      y[y_line + i0 * m.stride[1][0]] = T_save(first0 < end0 && first1 < end1 && first2 < end2 ? sum / n : (A)0);
    }
  }
}

#undef COUNT
#define COUNT(d, o) window_count(o, m.size[d], w.size[d], w.stride[1][d], w.stride[2][d], w.stride[0][d], include_pad)
#define COVER(d, i)                                                                                             \
  const IDX first##d = cover_first(i, m.size[d], w.size[d], w.stride[1][d], w.stride[2][d], w.stride[0][d]); \
  const IDX end##d = cover_end(i, m.size[d], w.size[d], w.stride[1][d], w.stride[2][d]);

// Here m walks the input: strides of grad (of the output) and of the result; w.size is the output's.
kernel avg_pool_backward(in T grad, out T result, Layout2 m, Layout4 w, int include_pad, long divisor, long total,
                         long chunk) {
  const IDX s0 = m.stride[0][0], s1 = m.stride[0][1], s2 = m.stride[0][2];
  EACH_LINE(m.size[0])
    COVER(1, i1)
    COVER(2, i2)
    const IDX plane = PLANE(0), line_at = LINE(1);
    for (IDX i0 = j0; i0 < j1; ++i0) {
      COVER(0, i0)
      A sum = 0;
      for (IDX d = first2; d < end2; ++d)
        for (IDX h = first1; h < end1; ++h) {
          const long rows = (long)COUNT(2, d) * COUNT(1, h);
          for (IDX k = first0; k < end0; ++k) {
            const A n = (A)(divisor ? divisor : rows * COUNT(0, k));
            sum += T_load(grad[plane + k * s0 + h * s1 + d * s2]) / n;
          }
        }
      result[line_at + i0 * m.stride[1][0]] = T_save(sum);
    }
  }
}
