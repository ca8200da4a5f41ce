// Sequences: values that depend on the index alone. ACC is the type they are computed in.

kernel ramp(out T x, long n, long chunk, ACC start, ACC step) {
  const long first = GID0 * chunk, last = first + chunk < n ? first + chunk : n;
  for (long i = first; i < last; ++i) x[i] = T_save(start + step * (ACC)i);
}

// Both halves count from their own end, so that the ends are exact. R rounds as torch does after each operation;
// AT(v) is what becomes of a point (logspace raises its base to it).
kernel between(out T x, long n, long chunk, ACC from, ACC to, ACC base) {
  const ACC start = R(from), end = R(to);
  const long first = GID0 * chunk, last = first + chunk < n ? first + chunk : n;
  const ACC step = n > 1 ? R(R(end - start) / R((ACC)(n - 1))) : (ACC)0;
  for (long i = first; i < last; ++i) {
    const ACC v = i < n / 2 ? R(start + R(step * R((ACC)i))) : R(end - R(step * R((ACC)(n - 1 - i))));
    x[i] = T_save(AT(n > 1 ? v : start));
  }
}

// Row i of tril_indices(rows, columns, diagonal) holds its first clamp(i + diagonal + 1, 0, columns) columns.
FUNC long entries_before(long i, long columns, long diagonal) {
  const long a = diagonal < 0 ? -diagonal : 0, b = columns - diagonal - 1 > a ? columns - diagonal - 1 : a;
  const long part = i < b ? i : b;
  const long sloped = part > a ? (part - a) * (a + part - 1 + 2 * (diagonal + 1)) / 2 : 0;
  return sloped + (i > b ? (i - b) * columns : 0);
}

kernel triangle(out T x, long total, long columns, long diagonal, int upper) {
  const long i = GID0, below = upper ? diagonal - 1 : diagonal;
  long edge = i + below + 1;
  edge = edge < 0 ? 0 : edge > columns ? columns : edge;
  const long before = entries_before(i, columns, below);
  long at = upper ? i * columns - before : before;
  const long first = upper ? edge : 0, last = upper ? columns : edge;
  for (long j = first; j < last; ++j, ++at) {
    x[at] = T_save(i);
    x[total + at] = T_save(j);
  }
}
