// Several indices as one offset into the source: at += index * stride; -1 where one of them is out of bounds.
kernel linear(inout long at, in TI idx, inout long seen, long total, long chunk, Layout2 m, long size, long stride, int wrap, int code, int first) {
  const IDX begin = (IDX)(GID0 * chunk), end = begin + chunk < total ? begin + chunk : total;
  for (IDX i = begin; i < end; ++i) {
    IDX row = i, a = 0, ai = 0;
    for (IDX d = 0; d < m.rank; ++d) {
      const IDX q = row % m.size[d];
      row /= m.size[d];
      a += q * m.stride[0][d];
      ai += q * m.stride[1][d];
    }
    const long place = checked(idx[ai], size, wrap, seen, code), sum = first ? 0 : at[a];
    at[a] = place < 0 || sum < 0 ? -1 : sum + place * stride;
  }
}
