// Looks for zeros among divisors: a kernel cannot raise, so the first one is noted for the host.
kernel zeros(in T x, inout long seen, long total, long chunk, int code, Layout1 m) {
  const IDX stop = (IDX)(total - GID0 * chunk < chunk ? total : GID0 * chunk + chunk);
  for (IDX i = (IDX)(GID0 * chunk); i < stop; ++i) {
    IDX rest = i, at = 0;
    for (IDX d = 0; d < m.rank; ++d) {
      const IDX q = rest % m.size[d];
      rest /= m.size[d];
      at += q * m.stride[0][d];
    }
    if (x[at] == 0) {
      checked(-1, 1, 0, seen, code);
      return;
    }
  }
}
