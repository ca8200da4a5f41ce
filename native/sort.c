// Sorting lines of n elements. An element and its index become one comparable thing, E: no two are equal, so every
// order found is the stable one. FLIP turns the order around (~ for descending), WIDE is for keys of 64 bits.
// NaN is larger than every number; -0 and 0 are equal.

#if WIDE
typedef struct { long key, at; } E;
#define LESS(a, b) ((a).key < (b).key || ((a).key == (b).key && (a).at < (b).at))
#define AT(e) ((IDX)(e).at)
#else
typedef long E;
#define LESS(a, b) ((a) < (b))
#define AT(e) ((IDX)((e) & 0xffffffffL))
#endif

#define IS_NUMBER(v) ((v) == (v))

FUNC E last_of_all(void) {
#if WIDE
  E e;
  e.key = e.at = 0x7fffffffffffffffL;
  return e;
#else
  return 0x7fffffffffffffffL;
#endif
}

#if KEY_KIND == 1  // float
FUNC int key_of(float v) {
  const int bits = v != v ? 0x7fffffff : v == 0 ? 0 : (int)f32_to_bits(v);
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}
#elif KEY_KIND == 2  // double
FUNC long key_of(double v) {
  union { double d; long l; } u;
  u.d = v;
  const long bits = v != v ? 0x7fffffffffffffffL : v == 0 ? 0 : u.l;
  return bits < 0 ? bits ^ 0x7fffffffffffffffL : bits;
}
#else
#define key_of(v) ((v) ^ SIGN)
#endif

FUNC E element(T_acc v, IDX at) {
#if WIDE
  E e;
  e.key = FLIP(key_of(v));
  e.at = at;
  return e;
#else
  return (E)((ulong)(uint)(int)FLIP(key_of(v)) << 32 | (uint)at);
#endif
}

// Start of line `row` by a layout of the dimensions that are not sorted.
FUNC IDX line_start(IDX row, Layout1 m) {
  IDX at = 0;
  for (IDX d = 0; d < m.rank; ++d) {
    at += row % m.size[d] * m.stride[0][d];
    row /= m.size[d];
  }
  return at;
}

kernel elements(in T x, out E e, long total, long chunk, long n, long sx, Layout1 m) {
  IDX start = (IDX)(GID0 * chunk);
  const IDX end = start + chunk < total ? start + chunk : total;
  while (start < end) {
    const IDX row = start / (IDX)n, k0 = start - row * n, left = n - k0, w = left < end - start ? left : end - start;
    const IDX ax = line_start(row, m);
    for (IDX k = k0; k < k0 + w; ++k) e[row * n + k] = element(T_load(x[ax + k * sx]), k);
    start += w;
  }
}

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

// The k smallest of a part of a line, in order, for k so small that insertion is the fastest way.
kernel smallest(in T x, out E best, long n, long k, long part, long parts, long sx, Layout1 m) {
  const IDX row = GID0 / parts, from = (GID0 - row * parts) * part, left = n - from, to = from + (left < part ? left : part);
  const IDX ax = line_start(row, m);
  GLOBAL E* y = best + GID0 * k;
  for (IDX i = 0; i < k; ++i) y[i] = last_of_all();
  E limit = y[k - 1];
  for (IDX i = from; i < to; ++i) {
    const E v = element(T_load(x[ax + i * sx]), i);
    if (!LESS(v, limit)) continue;
    IDX j = k - 1;
    for (; j > 0 && LESS(v, y[j - 1]); --j) y[j] = y[j - 1];
    y[j] = v;
    limit = y[k - 1];
  }
}

// Elements first .. first + take of each sorted line, as values and indices; `line` is the length of a line in `e`.
kernel unpack(in E e, in T x, out T values, out long indices, long total, long chunk, long take, long first, long line, Layout1 mx, Layout1 mv, Layout1 mi, long sx, long sv, long si) {
  IDX start = (IDX)(GID0 * chunk);
  const IDX end = start + chunk < total ? start + chunk : total;
  while (start < end) {
    const IDX row = start / (IDX)take, k0 = start - row * take, left = take - k0, w = left < end - start ? left : end - start;
    const IDX ax = line_start(row, mx), av = line_start(row, mv), ai = line_start(row, mi);
    for (IDX k = k0; k < k0 + w; ++k) {
      const IDX at = AT(e[row * line + first + k]);
      values[av + k * sv] = x[ax + at * sx];
      indices[ai + k * si] = at;
    }
    start += w;
  }
}

// The middle of each sorted line (the lower one of two). NaN wins, or is left out where `skip` is 1.
kernel middle(in E e, in T x, out T values, out long indices, long n, int skip, Layout1 mx, Layout1 mv, Layout1 mi, long sx) {
  const IDX row = GID0, ax = line_start(row, mx);
  IDX numbers = n;
  for (; numbers > 0; --numbers) {
    const T_acc v = T_load(x[ax + AT(e[row * n + numbers - 1]) * sx]);
    if (IS_NUMBER(v)) break;
  }
  IDX k = numbers < n && !skip ? numbers : numbers ? (numbers - 1) / 2 : 0;
  const IDX at = AT(e[row * n + k]);
  values[line_start(row, mv)] = x[ax + at * sx];
  indices[line_start(row, mi)] = at;
}

// The most frequent element of each sorted line, the smallest of several, and where it was seen last. NaN equals NaN here.
kernel mode(in E e, in T x, out T values, out long indices, long n, Layout1 mx, Layout1 mv, Layout1 mi, long sx) {
  const IDX row = GID0, ax = line_start(row, mx);
  IDX best = 0, count = 0, run = 0;
  T_acc last = 0;
  for (IDX k = 0; k < n; ++k) {
    const T_acc v = T_load(x[ax + AT(e[row * n + k]) * sx]);
    run = k > 0 && (v == last || (!IS_NUMBER(v) && !IS_NUMBER(last))) ? run + 1 : 1;
    last = v;
    if (run > count) {
      count = run;
      best = k;
    }
  }
  const IDX at = AT(e[row * n + best]);
  values[line_start(row, mv)] = x[ax + at * sx];
  indices[line_start(row, mi)] = at;
}
