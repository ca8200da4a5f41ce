// Singular values of square matrices, one matrix per work-item (linalg.h comes first).
// Source of the method: Hestenes 1958, one-sided Jacobi: columns of w are rotated in pairs until all are orthogonal.

// The squared length of a column after a rotation: anew where cancellation has left nothing of it.
#define NOTHING (EPSILON * EPSILON)
FUNC T shortened(GLOBAL const T* x, IDX n, const T before, const T change) {
  const T after = before + change;
  return after > before / 2 ? after : dot(x, x, n);
}

// Returns whether the pair had to be rotated; the matrix is of size 1, and columns below a rounding of a rounding are 0.
FUNC int orthogonalise(GLOBAL T* w, GLOBAL T* v, GLOBAL T* squares, IDX n, IDX i, IDX j, const T tolerance, int vectors) {
  const T a = squares[i], b = squares[j], g = dot(w + i * n, w + j * n, n);
  if (a <= NOTHING * NOTHING || b <= NOTHING * NOTHING || !(fabs(g) > tolerance * sqrt(a) * sqrt(b))) return 0;
  const T zeta = (b - a) / (2 * g), size = fabs(zeta);
  const T magnitude = size > 1 / EPSILON ? (T)0.5 / size : 1 / (size + sqrt(1 + size * size));
  const T t = zeta < 0 ? -magnitude : magnitude, c = 1 / sqrt(1 + t * t), s = c * t;
  rotate_pair(w + i * n, w + j * n, c, s, n);
  if (vectors) rotate_pair(v + i * n, v + j * n, c, s, n);
  squares[i] = shortened(w + i * n, n, a, -t * g);
  squares[j] = shortened(w + j * n, n, b, t * g);
  return 1;
}

FUNC int jacobi(GLOBAL T* w, GLOBAL T* v, GLOBAL T* squares, IDX n, int vectors) {
  const T tolerance = EPSILON * sqrt((T)(n > 4 ? n : 4));
  for (int sweep = 0; sweep < 60; ++sweep) {
    int rotated = 0;
    for (IDX i = 0; i < n; ++i) squares[i] = dot(w + i * n, w + i * n, n);
    for (IDX i = 0; i + 1 < n; ++i) {
      for (IDX j = i + 1; j < n; ++j) rotated |= orthogonalise(w, v, squares, n, i, j, tolerance, vectors);
    }
    if (!rotated) return 0;
  }
  return (int)n;
}

FUNC void descending(GLOBAL T* s, GLOBAL T* w, GLOBAL T* v, IDX n, int vectors) {
  for (IDX i = 0; i + 1 < n; ++i) {
    IDX at = i;
    for (IDX j = i + 1; j < n; ++j) at = s[j] > s[at] ? j : at;
    if (at == i) continue;
    exchange(s + i, s + at, 1);
    if (vectors) {
      exchange(w + i * n, w + at * n, n);
      exchange(v + i * n, v + at * n, n);
    }
  }
}

// Column j of w becomes a unit vector orthogonal to the j columns before it: the axis that they cover least, cleaned twice.
FUNC void complete(GLOBAL T* w, IDX n, IDX j) {
  GLOBAL T* x = w + j * n;
  IDX at = 0;
  T least = 2;
  for (IDX i = 0; i < n; ++i) {
    T covered = 0;
    for (IDX c = 0; c < j; ++c) covered += w[c * n + i] * w[c * n + i];
    if (covered < least) {
      least = covered;
      at = i;
    }
  }
  for (IDX i = 0; i < n; ++i) x[i] = i == at;
  for (int pass = 0; pass < 2; ++pass) {
    for (IDX c = 0; c < j; ++c) add_scaled(x, -dot(x, w + c * n, n), w + c * n, n);
    scale_by(x, 1 / sqrt(dot(x, x, n)), n);
  }
}

// w: the matrix, then its left singular vectors; v: the right ones, the identity before. info: 0, -4 for numbers that are
// not finite (as LAPACK says it), or n where the rotations did not converge.
kernel svd(inout T w, inout T v, inout T s, inout int info, long n, int vectors) {
  GLOBAL T* x = w + GID0 * n * n;
  GLOBAL T* z = v + (vectors ? GID0 * n * n : 0);
  GLOBAL T* values = s + GID0 * n;
  const T most = largest(x, n * n);
  if (most * 0 != 0) {
    info[GID0] = -4;
    return;
  }
  // A power of two: scaling must not round.
  const T unit = most > 0 ? exp2(floor(log2(most))) : 1;
  for (IDX i = 0; i < n * n; ++i) x[i] /= unit;
  info[GID0] = jacobi(x, z, values, n, vectors);
  for (IDX j = 0; j < n; ++j) values[j] = length_of(x + j * n, n);
  descending(values, x, z, n, vectors);
  for (IDX j = 0; j < n; ++j) {
    const T value = values[j];
    if (vectors && value > NOTHING) scale_by(x + j * n, 1 / value, n);
    else if (vectors) complete(x, n, j);
    values[j] = value * unit;
  }
}
