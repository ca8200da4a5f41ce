// Fractional max pooling in three spatial dimensions (Graham, 2014): windows of fixed size at pseudo-random places.
// T: element type, R: type of the random numbers, IS_NAN(v): always false for integers.
// m: output sizes (W, H, D, C, N), strides of x, y, index; w: input sizes (W, H, D), window sizes.

// Where window o of one dimension starts; the last one ends at the edge.
FUNC IDX fraction_start(IDX o, IDX in_n, IDX out_n, IDX window, R_acc u) {
  if (o == out_n - 1) return in_n - window;
  const R_acc step = (R_acc)(in_n - window) / (R_acc)(out_n - 1);
  return (IDX)((o + u) * step) - (IDX)(u * step);
}

// Random numbers [N][C][rank]: of `DRAW(d)` for dimension d. A NaN wins; of equal elements the first.
kernel fractional_pool(in T x, in R random, out T y, out long index, Layout3 m, Layout1 w, int rank, long total, long chunk) {
  IDX at = (IDX)GID0 * chunk;
  const IDX end = at + chunk < total ? at + chunk : total;
  for (; at < end; ++at) {
    IDX o[5], rest = at, to = 0, into = 0;
    for (int d = 0; d < 5; ++d) {
      o[d] = rest % m.size[d];
      rest /= m.size[d];
      to += o[d] * m.stride[1][d], into += o[d] * m.stride[2][d];
    }
    const IDX plane = o[3] * m.stride[0][3] + o[4] * m.stride[0][4];
    IDX first[3];
    for (int d = 0; d < 3; ++d) {
      const R_acc u = d < rank ? R_load(random[(o[4] * m.size[3] + o[3]) * rank + DRAW(d)]) : 0;
      first[d] = d < rank ? fraction_start(o[d], w.size[d], m.size[d], w.stride[0][d], u) : 0;
    }
    T found = x[plane + first[0] * m.stride[0][0] + first[1] * m.stride[0][1] + first[2] * m.stride[0][2]];
    IDX place = (first[2] * w.size[1] + first[1]) * w.size[0] + first[0];
    T_acc best = T_load(found);
    for (IDX d = first[2]; d < first[2] + w.stride[0][2]; ++d)
      for (IDX h = first[1]; h < first[1] + w.stride[0][1]; ++h)
        for (IDX k = first[0]; k < first[0] + w.stride[0][0]; ++k) {
          const T raw = x[plane + k * m.stride[0][0] + h * m.stride[0][1] + d * m.stride[0][2]];
          const T_acc v = T_load(raw);
          if (!(v > best || IS_NAN(v))) continue;
          best = v, found = raw;
          place = (d * w.size[1] + h) * w.size[0] + k;
        }
    y[to] = found;
    index[into] = place;
  }
}
