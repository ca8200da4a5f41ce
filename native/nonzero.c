// Places of the elements that are not 0, in row-major order: first counted by chunk, then written.

kernel count(in T x, out long counts, long total, long chunk) {
  const IDX start = (IDX)(GID0 * chunk), end = start + chunk < total ? start + chunk : total;
  long n = 0;
  for (IDX i = start; i < end; ++i) n += T_load(x[i]) != 0;
  counts[GID0] = n;
}

// y[k + d * n] = coordinate d of the k-th place; `m` holds sizes and row-major steps of the dimensions.
kernel places(in T x, in long counts, out long y, long total, long chunk, long n, Layout1 m) {
  const IDX start = (IDX)(GID0 * chunk), end = start + chunk < total ? start + chunk : total;
  long k = 0;
  for (IDX g = 0; g < GID0; ++g) k += counts[g];
  for (IDX i = start; i < end; ++i) {
    if (T_load(x[i]) == 0) continue;
    for (IDX d = 0; d < m.rank; ++d) y[k + d * n] = i / m.stride[0][d] % m.size[d];
    ++k;
  }
}
