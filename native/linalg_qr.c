// Householder reflections (linalg.h comes first). Column j of `a`, below the diagonal, and tau[j] are reflection j.
// Source of the method: Golub and Van Loan, Matrix Computations; signs as LAPACK chooses them.

// Reflections of columns j0 to j0 + w, applied inside these columns.
kernel qr_panel(inout T a, out T tau, long m, long n, long k, long j0, long w) {
  GLOBAL T* x = a + GID0 * m * n;
  for (IDX j = j0; j < j0 + w; ++j) {
    GLOBAL T* v = x + j * m + j;
    const T t = reflector(v, m - j);
    tau[GID0 * k + j] = t;
    for (IDX c = j + 1; c < j0 + w; ++c) reflect_one(x + c * m + j, v, t, m - j);
  }
}

// Reflections j0 to j0 + count applied to c, one column of it per work-item: the first one first, or the last one first.
kernel reflect(in T a, in T tau, inout T c, long m, long step_a, long step_tau, long step_c, long j0, long count, int last_first) {
  GLOBAL const T* v = a + GID1 * step_a;
  GLOBAL T* x = c + GID1 * step_c + GID0 * m;
  for (IDX p = 0; p < count; ++p) {
    const IDX j = j0 + (last_first ? count - 1 - p : p);
    reflect_one(x + j, v + j * m + j, tau[GID1 * step_tau + j], m - j);
  }
}
