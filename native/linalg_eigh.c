// Eigenvalues of symmetric matrices, one matrix per work-item (linalg.h comes first).
// Source of the method: Householder tridiagonalisation, then QL with implicit shifts (Bowdler, Martin, Reinsch and
// Wilkinson 1968; Golub and Van Loan, Matrix Computations).

// a = Q T Q^T: d, e: the diagonals of T. Reflection i stays below the subdiagonal of column i, its factor in tau.
FUNC void tridiagonal(GLOBAL T* a, GLOBAL T* d, GLOBAL T* e, GLOBAL T* tau, GLOBAL T* w, IDX n) {
  for (IDX i = 0; i + 1 < n; ++i) {
    const IDX from = i + 1, left = n - from;
    GLOBAL T* v = a + i * n + from;
    GLOBAL T* rest = a + from * n + from;
    const T t = reflector(v, left);
    d[i] = a[i * n + i];
    e[i] = v[0];
    tau[i] = t;
    if (t == 0) continue;
    v[0] = 1;
    for (IDX c = 0; c < left; ++c) w[c] = t * dot(rest + c * n, v, left);
    add_scaled(w, -t / 2 * dot(w, v, left), v, left);
    for (IDX c = 0; c < left; ++c) {
      add_scaled(rest + c * n, -w[c], v, left);
      add_scaled(rest + c * n, -v[c], w, left);
    }
  }
  d[n - 1] = a[n * n - 1];
  e[n - 1] = 0;
}

// q = the product of the reflections.
FUNC void accumulate(GLOBAL const T* a, GLOBAL const T* tau, GLOBAL T* q, IDX n) {
  for (IDX i = 0; i < n * n; ++i) q[i] = 0;
  for (IDX i = 0; i < n; ++i) q[i * (n + 1)] = 1;
  for (IDX i = n - 2; i >= 0; --i) {
    for (IDX c = i + 1; c < n; ++c) reflect_one(q + c * n + i + 1, a + i * n + i + 1, tau[i], n - i - 1);
  }
}

// One implicit QL step on rows l to m of the tridiagonal matrix.
FUNC void ql_step(GLOBAL T* d, GLOBAL T* e, GLOBAL T* q, IDX n, IDX l, IDX m, int vectors) {
  const T ratio = (d[l + 1] - d[l]) / (2 * e[l]), root = hypot(ratio, (T)1);
  T g = d[m] - d[l] + e[l] / (ratio + (ratio < 0 ? -root : root)), s = 1, c = 1, p = 0;
  for (IDX i = m - 1; i >= l; --i) {
    const T f = s * e[i], b = c * e[i], size = hypot(f, g);
    e[i + 1] = size;
    if (size == 0) {
      d[i + 1] -= p;
      e[m] = 0;
      return;
    }
    s = f / size;
    c = g / size;
    const T before = d[i + 1] - p, r = (d[i] - before) * s + 2 * c * b;
    p = s * r;
    d[i + 1] = before + p;
    g = c * r - b;
    if (vectors) rotate_pair(q + i * n, q + (i + 1) * n, c, s, n);
  }
  d[l] -= p;
  e[l] = g;
  e[m] = 0;
}

FUNC int ql(GLOBAL T* d, GLOBAL T* e, GLOBAL T* q, IDX n, int vectors) {
  for (IDX l = 0; l < n; ++l) {
    for (int steps = 0;; ++steps) {
      IDX m = l;
      while (m < n - 1 && !(fabs(e[m]) <= EPSILON / 2 * (fabs(d[m]) + fabs(d[m + 1])))) ++m;
      if (m == l) break;
      if (steps == 60) return (int)l + 1;
      ql_step(d, e, q, n, l, m, vectors);
    }
  }
  return 0;
}

FUNC void ascending(GLOBAL T* d, GLOBAL T* q, IDX n, int vectors) {
  for (IDX i = 0; i + 1 < n; ++i) {
    IDX at = i;
    for (IDX j = i + 1; j < n; ++j) at = d[j] < d[at] ? j : at;
    if (at == i) continue;
    exchange(d + i, d + at, 1);
    if (vectors) exchange(q + i * n, q + at * n, n);
  }
}

// a is used up: both triangles of it are read. room: 3 n numbers per matrix. info: 0, or where QL did not converge.
kernel eigh(inout T a, out T values, inout T q, inout T room, inout int info, long n, int vectors) {
  GLOBAL T* x = a + GID0 * n * n;
  GLOBAL T* d = values + GID0 * n;
  GLOBAL T* z = q + (vectors ? GID0 * n * n : 0);
  GLOBAL T* e = room + GID0 * 3 * n;
  tridiagonal(x, d, e, e + n, e + 2 * n, n);
  if (vectors) accumulate(x, e + n, z, n);
  info[GID0] = d[0] * 0 != 0 ? (int)n : ql(d, e, z, n, vectors);
  ascending(d, z, n, vectors);
}
