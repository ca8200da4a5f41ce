// Elements found by index. `m` walks the result: strides of result, source (0 along indexed dimensions) and index.
// SY, SX: inner strides of result and source. A place out of bounds reads nothing and gives 0. inside.h comes first.

FUNC void gather_some(GLOBAL T* restrict y, GLOBAL const T* restrict x, GLOBAL const TI* restrict idx, const IDX sy, const IDX sx, const IDX si, const IDX n, const IDX stride, const IDX below) {
  for (IDX j = 0; j < n; ++j) {
    const IDX i = (IDX)idx[j * si];
    y[j * sy] = x[j * sx + (i < 0 ? i + below : i) * stride];
  }
}

kernel gather(out T y, in T x, in TI idx, inout long seen, long total, long chunk, Layout3 m, long size, long stride, int wrap, int code) {
  const IDX inner = m.size[0], si = m.stride[2][0];
  IDX start = (IDX)(GID0 * chunk);
  const IDX end = start + chunk < total ? start + chunk : total;
  while (start < end) {
    IDX row = start / inner;
    const IDX j0 = start - row * inner, left = inner - j0, n = left < end - start ? left : end - start;
    IDX ay = j0 * SY, ax = j0 * SX, ai = j0 * si;
    for (IDX d = 1; d < m.rank; ++d) {
      const IDX q = row % m.size[d];
      row /= m.size[d];
      ay += q * m.stride[0][d];
      ax += q * m.stride[1][d];
      ai += q * m.stride[2][d];
    }
    if (si == 0) {
      const long at = checked(idx[ai], size, wrap, seen, code);
      if (at < 0) {
        for (IDX j = 0; j < n; ++j) y[ay + j * SY] = 0;
      } else {
        ax += (IDX)(at * stride);
        for (IDX j = 0; j < n; ++j) y[ay + j * SY] = x[ax + j * SX];
      }
    } else {
      for (IDX b = 0; b < n; b += BLOCK) {
        const IDX w = n - b < BLOCK ? n - b : BLOCK, by = ay + b * SY, bx = ax + b * SX, bi = ai + b * si;
        if (inside(idx + bi, si, w, size, wrap)) {
          if (si == 1) gather_some(y + by, x + bx, idx + bi, SY, SX, 1, w, (IDX)stride, (IDX)size);
          else gather_some(y + by, x + bx, idx + bi, SY, SX, si, w, (IDX)stride, (IDX)size);
          continue;
        }
        for (IDX j = 0; j < w; ++j) {
          const long at = checked(idx[bi + j * si], size, wrap, seen, code);
          y[by + j * SY] = at < 0 ? 0 : x[bx + j * SX + (IDX)(at * stride)];
        }
      }
    }
    start += n;
  }
}
