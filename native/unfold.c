// F.unfold and F.fold: windows of an image as columns, and columns added back into an image.
//
// w: image sizes (w, h) with kernel, stride, padding and dilation as its four rows.

// out[n][c, kh, kw][oh, ow], row-major; m: sizes (ow, oh, kw, kh, c, n) and strides of x for c and n. A work-item makes
// lines of ow; elements are moved as bits.
kernel unfold(in T x, out T y, Layout1 m, Layout4 w, long total, long chunk) {
  IDX start = (IDX)GID0 * chunk;
  const IDX end = start + chunk < total ? start + chunk : total, width = m.size[0];
  while (start < end) {
    IDX line = start / width;
    const IDX j0 = start - line * width, j1 = width - j0 < end - start ? width : j0 + (end - start);
    GLOBAL T* restrict to = y + line * width;
    start += j1 - j0;
    IDX at[6];
    for (int d = 1; d < 6; ++d) {
      at[d] = line % m.size[d];
      line /= m.size[d];
    }
    const IDX row = at[1] * w.stride[1][1] + at[3] * w.stride[3][1] - w.stride[2][1];
    const IDX first = at[2] * w.stride[3][0] - w.stride[2][0], step = w.stride[1][0];
    const GLOBAL T* restrict from = x + at[4] * m.stride[0][4] + at[5] * m.stride[0][5] + row * m.stride[0][1];
    const bool inside = row >= 0 && row < w.size[1];
    for (IDX j = j0; j < j1; ++j) {
      const IDX i = first + j * step;
      to[j] = inside && i >= 0 && i < w.size[0] ? from[i * m.stride[0][0]] : (T)0;
    }
  }
}

// The transpose of it: every image element gathers from the windows that hold it. m: sizes (w, h, c, n) of the
// row-major image and strides of the columns (per tap and channel: columns, n); out: windows per line.
kernel fold(in T columns, out T image, Layout1 m, Layout4 w, long out_w, long out_h, long total, long chunk) {
  const IDX kernel_w = w.stride[0][0], kernel_h = w.stride[0][1], step = w.stride[1][0];
  const IDX end = (IDX)GID0 * chunk + chunk < total ? (IDX)GID0 * chunk + (IDX)chunk : (IDX)total;
  for (IDX at = (IDX)GID0 * chunk; at < end; ++at) {
    const IDX i = at % m.size[0] + w.stride[2][0], rest = at / m.size[0], row = rest % m.size[1] + w.stride[2][1];
    const IDX c = rest / m.size[1] % m.size[2], n = rest / m.size[1] / m.size[2];
    const GLOBAL T* restrict from = columns + n * m.stride[0][3] + c * kernel_h * kernel_w * m.stride[0][2];
    T_acc sum = 0;
    for (IDX h = 0; h < kernel_h; ++h) {
      const IDX up = row - h * w.stride[3][1], oh = up / w.stride[1][1];
      if (up < 0 || oh * w.stride[1][1] != up || oh >= out_h) continue;
      for (IDX k = 0; k < kernel_w; ++k) {
        const IDX left = i - k * w.stride[3][0], ow = left / step;
        if (left < 0 || ow * step != left || ow >= out_w) continue;
        sum += T_load(from[(h * kernel_w + k) * m.stride[0][2] + (oh * (IDX)out_w + ow) * m.stride[0][0]]);
      }
    }
    image[at] = T_save(sum);
  }
}
