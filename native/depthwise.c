// Convolution of every channel by itself, in one or two dimensions, on CPU-type devices.
//
// The lines that a few rows of one plane need are copied into private memory with the padding around them, every
// phase of the stride by itself: there each tap of a row is a constant offset, and all reads are whole vectors.
//
// T: element type, ACC: type of sums, VL: lanes of a vector, PLAIN: T is ACC.
VECTOR(V, ACC, VL)
#define ROOM 8192  // elements of the lines kept
#define MOST 64    // most taps
#define HERE(p, i) (*(V*)((p) + (i)))
// A function with vector parameters: clang keeps to half-width registers where it sees none.
FUNC V madd(const ACC a, const V x, const V s) { return a * x + s; }

FUNC IDX count_below(IDX n, IDX step) { return n <= 0 ? 0 : (n + step - 1) / step; }

// One line by phases of `width` each: phase f holds from[i * step] for i = f - pad, f - pad + stride, ..., 0 outside [0, size).
FUNC void keep_line(ACC* restrict to, const GLOBAL T* restrict from, const IDX size, const IDX step, const IDX pad,
                    const IDX stride, const IDX width) {
  for (IDX f = 0; f < stride; ++f) {
    IDX lo = count_below(pad - f, stride), hi = count_below(size + pad - f, stride);
    hi = hi < width ? hi : width;
    lo = lo < hi ? lo : hi;
    const GLOBAL T* restrict first = from + (f - pad) * step;
    for (IDX j = 0; j < lo; ++j) to[j] = 0;
    if (stride * step == 1)
      for (IDX j = lo; j < hi; ++j) to[j] = T_load(first[j]);
    else
      for (IDX j = lo; j < hi; ++j) to[j] = T_load(first[j * stride * step]);
    for (IDX j = hi; j < width; ++j) to[j] = 0;
    to += width;
  }
}

FUNC void put(const V v, GLOBAL T* restrict y, const IDX size, const IDX step) {
#if PLAIN
  if (step == 1 && size >= VL) {
    *(GLOBAL V*)y = v;
    return;
  }
#endif
  ACC lanes[VL];
  HERE(lanes, 0) = v;
  for (IDX j = 0; j < VL && j < size; ++j) y[j * step] = T_save(lanes[j]);
}

// g: output sizes (w, h, channels, samples) with the strides of x and y; e: sizes (kw, kh) of the window and (w, h) of x,
// with the strides of the weight (kw, kh, channel), then stride, padding and dilation. Unit: `rows` rows of one plane.
kernel conv_depthwise(in T x, in T w, in T bias, out T y, Layout2 g, Layout4 e, int has_bias, int rows, long units,
                      long chunk) {
  const IDX stride = e.stride[1][0], down = e.stride[1][1], ow = g.size[0], oh = g.size[1], taps = e.size[0] * e.size[1];
  const IDX width = ow + (e.size[0] - 1) * e.stride[3][0] / stride, line = width * stride, blocks = (oh + rows - 1) / rows;
  const IDX x_h = g.stride[0][1], y_w = g.stride[1][0], y_h = g.stride[1][1];
  ACC room[ROOM + 2 * VL], factor[MOST];
  IDX at[MOST];
  for (IDX k = 0; k < taps; ++k) {
    const IDX reach = k % e.size[0] * e.stride[3][0];
    at[k] = k / e.size[0] * e.stride[3][1] * line + reach % stride * width + reach / stride;
  }
  for (int j = 0; j < ROOM + 2 * VL; ++j) room[j] = 0;
  long unit = GID0 * chunk;
  const long end = unit + chunk < units ? unit + chunk : units;
  for (; unit < end; ++unit) {
    const IDX plane = (IDX)(unit / blocks), r0 = (IDX)(unit % blocks) * rows, r1 = r0 + rows < oh ? r0 + rows : oh;
    const IDX c = plane % g.size[2], n = plane / g.size[2], h0 = r0 * down - e.stride[2][1];
    const GLOBAL T* restrict from = x + c * g.stride[0][2] + n * g.stride[0][3];
    GLOBAL T* restrict to = y + c * g.stride[1][2] + n * g.stride[1][3];
    for (IDX k = 0; k < taps; ++k)
      factor[k] = T_load(w[k % e.size[0] * e.stride[0][0] + k / e.size[0] * e.stride[0][1] + c * e.stride[0][2]]);
    const ACC start = has_bias ? T_load(bias[c]) : 0;
    const IDX lines = (r1 - 1 - r0) * down + (e.size[1] - 1) * e.stride[3][1] + 1;
    for (IDX i = 0; i < lines; ++i) {
      const IDX h = h0 + i, inside = h >= 0 && h < e.size[3];
      keep_line(room + i * line, from + (inside ? h : 0) * x_h, inside ? e.size[2] : 0, g.stride[0][0], e.stride[2][0], stride, width);
    }
    for (IDX r = r0; r < r1; ++r) {
      const ACC* restrict row = room + (r - r0) * down * line;
      GLOBAL T* restrict out = to + r * y_h;
      for (IDX j = 0; j < ow; j += 2 * VL) {
        V s = SPLAT(V, start), t = s;
        for (IDX k = 0; k < taps; ++k) {
          s = madd(factor[k], HERE(row + at[k], j), s);
          t = madd(factor[k], HERE(row + at[k], j + VL), t);
        }
        put(s, out + j * y_w, ow - j, y_w);
        if (j + VL < ow) put(t, out + (j + VL) * y_w, ow - j - VL, y_w);
      }
    }
  }
}
