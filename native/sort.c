// Sorting lines of n packed elements (packed.h comes first).

FUNC void insertion(GLOBAL E* e, IDX n) {
  for (IDX i = 1; i < n; ++i) {
    const E v = e[i];
    IDX j = i;
    for (; j > 0 && LESS(v, e[j - 1]); --j) e[j] = e[j - 1];
    e[j] = v;
  }
}

FUNC void merge_two(GLOBAL const E* a, IDX na, GLOBAL const E* b, IDX nb, GLOBAL E* y, IDX count) {
  IDX i = 0, j = 0, k = 0;
  while (k < count && i < na && j < nb) {
    const E p = a[i], q = b[j];
    const int second = LESS(q, p);
    y[k++] = second ? q : p;
    i += !second;
    j += second;
  }
  for (; k < count && i < na; ++k) y[k] = a[i++];
  for (; k < count && j < nb; ++k) y[k] = b[j++];
}

// One run of `width` per work-item, `parts` runs per line; `t` is room of the same size.
kernel sort_runs(inout E e, inout E t, long n, long width, long parts) {
  const IDX row = GID0 / parts, from = (GID0 - row * parts) * width, left = n - from, len = left < width ? left : width;
  GLOBAL E* a = e + row * n + from;
  GLOBAL E* b = t + row * n + from;
  const IDX base = 16;
  for (IDX i = 0; i < len; i += base) insertion(a + i, len - i < base ? len - i : base);
  IDX moved = 0;
  for (IDX w = base; w < len; w *= 2) {
    for (IDX i = 0; i < len; i += 2 * w) {
      const IDX na = len - i < w ? len - i : w, rest = len - i - na, nb = rest < w ? rest : w;
      merge_two(a + i, na, a + i + na, nb, b + i, na + nb);
    }
    GLOBAL E* swap = a;
    a = b;
    b = swap;
    moved ^= 1;
  }
  if (moved) {
    for (IDX i = 0; i < len; ++i) b[i] = a[i];
  }
}

// Neighbouring sorted runs of `width` become runs of 2 width; a work-item writes `chunk` elements of one of them.
kernel merge_runs(in E e, out E y, long n, long width, long chunk, long parts) {
  const IDX row = GID0 / parts, p = (GID0 - row * parts) * chunk, pair = p / (2 * width) * (2 * width), d = p - pair;
  const IDX left = n - pair, na = left < width ? left : width, rest = left - na, nb = rest < width ? rest : width;
  GLOBAL const E* a = e + row * n + pair;
  GLOBAL const E* b = a + na;
  IDX low = d > nb ? d - nb : 0, high = d < na ? d : na;
  while (low < high) {  // how many of the first d come from a
    const IDX mid = (low + high) / 2;
    if (LESS(a[mid], b[d - mid - 1])) low = mid + 1;
    else high = mid;
  }
  const IDX room = na + nb - d;
  merge_two(a + low, na - low, b + (d - low), nb - (d - low), y + row * n + p, room < chunk ? room : chunk);
}
