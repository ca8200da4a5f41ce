// Triangles of matrices: y = KEEP ? x : 0, for c, r = column, row. `m` walks the rows of all matrices.

kernel triangle(out T y, in T x, long total, long chunk, Layout2 m, long columns, long sy, long sx, long diagonal) {
  const IDX start = (IDX)(GID0 * chunk), end = start + chunk < total ? start + chunk : total;
  for (IDX i = start; i < end; ++i) {
    IDX row = i, ay = 0, ax = 0;
    const long r = i % m.size[0];
    for (IDX d = 0; d < m.rank; ++d) {
      const IDX q = row % m.size[d];
      row /= m.size[d];
      ay += q * m.stride[0][d];
      ax += q * m.stride[1][d];
    }
    for (IDX c = 0; c < columns; ++c) y[ay + c * sy] = KEEP ? x[ax + c * sx] : 0;
  }
}
