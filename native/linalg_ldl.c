// L D L^T of symmetric matrices with pivots of one or two rows, one matrix per work-item (linalg.h comes first).
// Source of the method: Bunch and Kaufman 1977; pivots are numbered as LAPACK's sytrf does: counted from 1, and negative
// for both rows of a pivot of two.

// Rows and columns p and q (p < q) of the lower triangle change places, right of the columns that are done.
FUNC void exchange_both(GLOBAL T* a, IDX n, IDX p, IDX q) {
  exchange(a + p * n + q + 1, a + q * n + q + 1, n - q - 1);
  for (IDX i = p + 1; i < q; ++i) exchange(a + p * n + i, a + i * n + q, 1);
  exchange(a + p * (n + 1), a + q * (n + 1), 1);
}

// Which row becomes the pivot of column k; *two: together with row k.
FUNC IDX choose_pivot(GLOBAL const T* a, IDX n, IDX k, T most, int* two) {
  const T alpha = (T)0.6403882032022076, here = fabs(a[k * (n + 1)]);  // (1 + sqrt 17) / 8
  IDX at = k + 1;
  while (fabs(a[k * n + at]) != most) ++at;
  T row = largest(a + at * n + at + 1, n - at - 1);
  for (IDX j = k; j < at; ++j) row = fmax(row, fabs(a[j * n + at]));
  *two = 0;
  if (here >= alpha * most * (most / row)) return k;
  *two = !(fabs(a[at * (n + 1)]) >= alpha * row);
  return at;
}

FUNC void eliminate_one(GLOBAL T* a, IDX n, IDX k) {
  GLOBAL T* x = a + k * n;
  const T d = 1 / x[k];
  for (IDX j = k + 1; j < n; ++j) add_scaled(a + j * n + j, -d * x[j], x + j, n - j);
  scale_by(x + k + 1, d, n - k - 1);
}

FUNC void eliminate_two(GLOBAL T* a, IDX n, IDX k) {
  GLOBAL T* x = a + k * n;
  GLOBAL T* y = x + n;
  const T d = x[k + 1], p = y[k + 1] / d, q = x[k] / d, f = 1 / (p * q - 1) / d;
  for (IDX j = k + 2; j < n; ++j) {
    const T u = f * (p * x[j] - y[j]), v = f * (q * y[j] - x[j]);
    add_scaled(a + j * n + j, -u, x + j, n - j);
    add_scaled(a + j * n + j, -v, y + j, n - j);
    x[j] = u;
    y[j] = v;
  }
}

// info: the first pivot that is exactly 0 (counted from 1), or 0.
kernel ldl(inout T a, out int pivots, out int info, long n) {
  GLOBAL T* x = a + GID0 * n * n;
  GLOBAL int* p = pivots + GID0 * n;
  const T alpha = (T)0.6403882032022076;
  info[GID0] = 0;
  for (IDX k = 0, step; k < n; k += step) {
    const T here = fabs(x[k * (n + 1)]), most = largest(x + k * n + k + 1, n - k - 1);
    step = 1;
    p[k] = (int)k + 1;
    if (!(here > 0 || most > 0) || most != most) {
      if (info[GID0] == 0) info[GID0] = (int)k + 1;
      continue;
    }
    int two = 0;
    const IDX at = here >= alpha * most ? k : choose_pivot(x, n, k, most, &two), row = k + two;
    if (at != row) {
      exchange_both(x, n, row, at);
      if (two) exchange(x + k * n + k + 1, x + k * n + at, 1);
    }
    if (two) {
      eliminate_two(x, n, k);
      p[k] = p[k + 1] = -(int)at - 1;
    } else {
      eliminate_one(x, n, k);
      p[k] = (int)at + 1;
    }
    step = 1 + two;
  }
}

// Row k of a column changes places as a pivot says; a wrong pivot is skipped.
FUNC void exchange_row(GLOBAL T* y, IDX n, IDX k, int pivot) {
  const IDX at = (pivot < 0 ? -pivot : pivot) - 1;
  if (at >= 0 && at < n) exchange(y + k, y + at, 1);
}

// One column of x per work-item: x becomes the solution of L D L^T solution = x.
kernel ldl_solve(in T a, in int pivots, inout T x, long n, long columns) {
  GLOBAL const T* l = a + GID1 * n * n;
  GLOBAL const int* p = pivots + GID1 * n;
  GLOBAL T* y = x + (GID1 * columns + GID0) * n;
  IDX k = 0;
  while (k < n) {
    GLOBAL const T* c = l + k * n;
    const int two = p[k] < 0 && k + 1 < n;
    exchange_row(y, n, k + two, p[k]);
    add_scaled(y + k + 1 + two, -y[k], c + k + 1 + two, n - k - 1 - two);
    if (two) {
      add_scaled(y + k + 2, -y[k + 1], c + n + k + 2, n - k - 2);
      const T d = c[k + 1], q = c[k] / d, r = c[n + k + 1] / d, u = y[k] / d, v = y[k + 1] / d;
      y[k] = (r * u - v) / (q * r - 1);
      y[k + 1] = (q * v - u) / (q * r - 1);
    } else y[k] /= c[k];
    k += 1 + two;
  }
  while (k > 0) {
    const int two = p[k - 1] < 0 && k > 1;
    for (int i = 1; i <= 1 + two; ++i) y[k - i] -= dot(l + (k - i) * n + k, y + k, n - k);
    exchange_row(y, n, k - 1, p[k - 1]);
    k -= 1 + two;
  }
}
