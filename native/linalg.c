// LU and Cholesky factors, and solving with them (linalg.h comes first). A panel of columns is factored by one work-item
// per matrix, the rest is updated by as many as there are columns or tiles.
// Source of the methods: Golub and Van Loan, Matrix Computations (right-looking blocked forms).

// c -= a x: rows of a and c lie together (leading dimensions la, lc); x has strides xk, xn. GID: rows, 4 columns, matrix.
// lower: only tiles that reach the diagonal or below are needed.
FUNC void update_tile(GLOBAL const T* a, GLOBAL const T* x, GLOBAL T* c, IDX k, IDX la, IDX xk, IDX xn, IDX lc) {
  V s0 = SPLAT(V, (T)0), s1 = s0, s2 = s0, s3 = s0;
  for (IDX p = 0; p < k; ++p) {
    const V v = AT(a, p * la);
    GLOBAL const T* f = x + p * xk;
    s0 += v * f[0];
    s1 += v * f[xn];
    s2 += v * f[2 * xn];
    s3 += v * f[3 * xn];
  }
  HERE(c, 0) = AT(c, 0) - s0;
  HERE(c, lc) = AT(c, lc) - s1;
  HERE(c, 2 * lc) = AT(c, 2 * lc) - s2;
  HERE(c, 3 * lc) = AT(c, 3 * lc) - s3;
}

kernel update(in T a, in T x, inout T c, long m, long n, long k, long rows, long la, long xk, long xn, long lc, long step_a, long step_x, long step_c, int lower) {
  const IDX i0 = GID0 * rows, j0 = GID1 * 4, left = m - i0, height = left < rows ? left : rows;
  const IDX width = n - j0 < 4 ? n - j0 : 4;
  if (lower && i0 + height <= j0) return;
  GLOBAL const T* pa = a + GID2 * step_a + i0;
  GLOBAL const T* px = x + GID2 * step_x + j0 * xn;
  GLOBAL T* pc = c + GID2 * step_c + j0 * lc + i0;
  IDX i = 0;
  if (width == 4) {
    for (; i + LANES <= height; i += LANES) update_tile(pa + i, px, pc + i, k, la, xk, xn, lc);
  }
  for (IDX j = 0; j < width; ++j) {
    for (IDX p = 0; p < k; ++p) add_scaled(pc + j * lc + i, -px[p * xk + j * xn], pa + p * la + i, height - i);
  }
}

// Columns j0 to j0 + w of [m, n] with partial pivoting: rows are exchanged inside the panel only.
kernel lu_panel(inout T a, inout int pivots, inout int info, long m, long n, long k, long j0, long w) {
  GLOBAL T* x = a + GID0 * m * n;
  GLOBAL int* swaps = pivots + GID0 * k;
  const IDX j1 = j0 + w;
  if (j0 == 0) info[GID0] = 0;
  for (IDX j = j0; j < j1; ++j) {
    GLOBAL T* column = x + j * m;
    IDX at = j;
    T most = fabs(column[j]);
    for (IDX i = j + 1; i < m; ++i) {
      const T v = fabs(column[i]);
      if (v > most) {
        most = v;
        at = i;
      }
    }
    swaps[j] = (int)at + 1;
    if (most == 0) {
      if (info[GID0] == 0) info[GID0] = (int)j + 1;
      continue;
    }
    for (IDX c = j0; c < j1 && at != j; ++c) {
      const T v = x[c * m + j];
      x[c * m + j] = x[c * m + at];
      x[c * m + at] = v;
    }
    const T pivot = column[j];
    for (IDX i = j + 1; i < m; ++i) column[i] /= pivot;
    for (IDX c = j + 1; c < j1; ++c) add_scaled(x + c * m + j + 1, -x[c * m + j], column + j + 1, m - j - 1);
  }
}

// The other columns, one per work-item: the panel's exchanges, and right of it a solve with its unit lower triangle.
kernel lu_columns(in T panel, in int pivots, inout T a, long m, long n, long k, long j0, long w) {
  const IDX j1 = j0 + w, c = GID0 < j0 ? GID0 : GID0 + w;
  GLOBAL T* x = a + GID1 * m * n + c * m;
  GLOBAL const T* l = panel + GID1 * m * n;
  for (IDX j = j0; j < j1; ++j) {
    const IDX at = pivots[GID1 * k + j] - 1;
    const T v = x[j];
    x[j] = x[at];
    x[at] = v;
  }
  if (c < j0) return;
  for (IDX j = j0; j < j1; ++j) add_scaled(x + j + 1, -x[j], l + j * m + j + 1, j1 - j - 1);
}

// The block on the diagonal; info: the first leading minor that is not positive, or 0.
kernel cholesky_panel(inout T a, inout int info, long n, long j0, long w) {
  GLOBAL T* x = a + GID0 * n * n;
  const IDX j1 = j0 + w;
  if (j0 == 0) info[GID0] = 0;
  if (info[GID0] != 0) return;
  for (IDX j = j0; j < j1; ++j) {
    GLOBAL T* column = x + j * n;
    if (!(column[j] > 0)) {
      info[GID0] = (int)j + 1;
      return;
    }
    const T root = sqrt(column[j]);
    column[j] = root;
    scale_by(column + j + 1, 1 / root, j1 - j - 1);
    for (IDX c = j + 1; c < j1; ++c) add_scaled(x + c * n + c, -column[c], column + c, j1 - c);
  }
}

// The rows below the block, `rows` per work-item.
kernel cholesky_below(inout T a, in int info, long n, long j0, long w, long rows) {
  if (info[GID1] != 0) return;
  const IDX j1 = j0 + w, from = j1 + GID0 * rows, count = n - from < rows ? n - from : rows;
  GLOBAL T* x = a + GID1 * n * n;
  for (IDX j = j0; j < j1; ++j) {
    for (IDX k = j0; k < j; ++k) add_scaled(x + j * n + from, -x[k * n + j], x + k * n + from, count);
    scale_by(x + j * n + from, 1 / x[j * n + j], count);
  }
}

// Solve with w rows and columns, from j0, of a triangle with strides sr, sc; one column of x per work-item.
kernel solve_columns(in T a, inout T x, long n, long columns, long sr, long sc, long step_a, long j0, long w, int lower, int unit) {
  GLOBAL const T* t = a + GID1 * step_a;
  GLOBAL T* y = x + (GID1 * columns + GID0) * n;
  const IDX j1 = j0 + w;
  for (IDX p = 0; p < w; ++p) {
    const IDX j = lower ? j0 + p : j1 - 1 - p, from = lower ? j + 1 : j0, count = lower ? j1 - from : j - j0;
    if (sr == 1) {
      const T v = unit ? y[j] : y[j] / t[j + j * sc];
      y[j] = v;
      add_scaled(y + from, -v, t + j * sc + from, count);
      continue;
    }
    const IDX done = lower ? j0 : j + 1;
    T v = y[j];
    if (sc == 1) v -= dot(t + j * sr + done, y + done, p);
    else {
      for (IDX i = 0; i < p; ++i) v -= t[j * sr + (done + i) * sc] * y[done + i];
    }
    y[j] = unit ? v : v / t[j * (sr + sc)];
  }
}

// The exchanges of k rows of x, one column per work-item; in the opposite order to undo them. Wrong pivots are skipped.
kernel exchange_rows(in int pivots, inout T x, long n, long columns, long k, int undo) {
  GLOBAL T* y = x + (GID1 * columns + GID0) * n;
  for (IDX p = 0; p < k; ++p) {
    const IDX j = undo ? k - 1 - p : p, at = pivots[GID1 * k + j] - 1;
    if (at < 0 || at >= n) continue;
    const T v = y[j];
    y[j] = y[at];
    y[at] = v;
  }
}

// p[b, i, j] = 1 where row j of L U is row i of the matrix; p is row-major and zero before. `order`: room for m numbers.
kernel permutation(in int pivots, inout int order, inout T p, inout long seen, long m, long k, int code) {
  GLOBAL int* row = order + GID0 * m;
  for (IDX i = 0; i < m; ++i) row[i] = (int)i;
  for (IDX i = 0; i < k && i < m; ++i) {
    const IDX at = (IDX)checked((long)pivots[GID0 * k + i] - 1, m, 0, seen, code);
    if (at < 0) continue;
    if (at < 0 || at >= m) continue;  // not pivots of a factorization
    const int v = row[i];
    row[i] = row[at];
    row[at] = v;
  }
  for (IDX i = 0; i < m; ++i) p[(GID0 * m + row[i]) * m + i] = 1;
}

// From LU: the sign of the determinant (value: its absolute value too), and the logarithm of its absolute value.
kernel determinant(in T lu, in int pivots, out T value, out T logarithm, long n, int log_form) {
  T product = 1, sum = 0;
  for (IDX i = 0; i < n; ++i) {
    const T v = lu[GID0 * n * n + i * (n + 1)];
    if (pivots[GID0 * n + i] != i + 1) product = -product;
    if (log_form) {
      product *= v > 0 ? (T)1 : v < 0 ? (T)-1 : v;
      sum += log(fabs(v));
    } else product *= v;
  }
  value[GID0] = product;
  if (log_form) logarithm[GID0] = sum;
}
