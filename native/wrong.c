// Looks for values that an op may not take: a kernel cannot raise, so the first one is noted for the host.
//
// T: element. WRONG(v, limit): whether v is such a value.
kernel wrong(in T x, inout long seen, long total, long chunk, long limit, int code, Layout1 m) {
  const IDX stop = (IDX)(total - GID0 * chunk < chunk ? total : GID0 * chunk + chunk);
  for (IDX i = (IDX)(GID0 * chunk); i < stop; ++i) {
    IDX rest = i, at = 0;
    for (IDX d = 0; d < m.rank; ++d) {
      const IDX q = rest % m.size[d];
      rest /= m.size[d];
      at += q * m.stride[0][d];
    }
    if (WRONG(x[at], limit)) {
      checked(-1, 1, 0, seen, code);
      return;
    }
  }
}
