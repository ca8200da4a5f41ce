// Between tensors and packed elements (packed.h comes first). `flip` turns the order around: -1 for descending, else 0.
// NaN is larger than every number; -0 and 0 are equal. KEY_KIND: 1 float, 2 double, 0 integers; SIGN: see key_of.

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

FUNC E element(T_acc v, IDX at, int flip) {
#if WIDE
  E e;
  e.key = key_of(v) ^ (long)flip;
  e.at = at;
  return e;
#else
  return (E)((ulong)(uint)((int)key_of(v) ^ flip) << 32 | (uint)at);
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

kernel elements(in T x, out E e, long total, long chunk, long n, long sx, Layout1 m, int flip) {
  IDX start = (IDX)(GID0 * chunk);
  const IDX end = start + chunk < total ? start + chunk : total;
  while (start < end) {
    const IDX row = start / (IDX)n, k0 = start - row * n, left = n - k0, w = left < end - start ? left : end - start;
    const IDX ax = line_start(row, m);
    for (IDX k = k0; k < k0 + w; ++k) e[row * n + k] = element(T_load(x[ax + k * sx]), k, flip);
    start += w;
  }
}

// The k smallest of a part of a line, in order, for k so small that insertion is the fastest way.
kernel smallest(in T x, out E best, long n, long k, long part, long parts, long sx, Layout1 m, int flip) {
  const IDX row = GID0 / parts, from = (GID0 - row * parts) * part, left = n - from, to = from + (left < part ? left : part);
  const IDX ax = line_start(row, m);
  GLOBAL E* y = best + GID0 * k;
  for (IDX i = 0; i < k; ++i) y[i] = last_of_all();
  E limit = y[k - 1];
  for (IDX i = from; i < to; ++i) {
    const E v = element(T_load(x[ax + i * sx]), i, flip);
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

// The most frequent element of each sorted line, the smallest of several, and where it was seen last. NaN equals nothing.
kernel mode(in E e, in T x, out T values, out long indices, long n, Layout1 mx, Layout1 mv, Layout1 mi, long sx) {
  const IDX row = GID0, ax = line_start(row, mx);
  IDX best = 0, count = 0, run = 0;
  T_acc last = 0;
  for (IDX k = 0; k < n; ++k) {
    const T_acc v = T_load(x[ax + AT(e[row * n + k]) * sx]);
    run = k > 0 && v == last ? run + 1 : 1;
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
