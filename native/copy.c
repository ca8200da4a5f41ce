// Copies without a change of type, as runs of bytes (move.h comes first).

// y = x where both lie in runs of `run` bytes; `m` walks the runs (strides of y and x in bytes). Work-items share out bytes.
kernel runs(out uchar y, in uchar x, long total, long chunk, long run, Layout2 m) {
  const long start = GID0 * chunk, end = start + chunk < total ? start + chunk : total;
  long left = end - start, from = start % run;
  IDX rest = (IDX)(start / run), at[MAX_RANK], ay = 0, ax = 0;
  for (IDX d = 0; d < m.rank; ++d) {
    at[d] = rest % m.size[d];
    rest /= m.size[d];
    ay += at[d] * m.stride[0][d];
    ax += at[d] * m.stride[1][d];
  }
  while (left > 0) {
    const long n = run - from < left ? run - from : left;
    move(x + ax + from, y + ay + from, n);
    left -= n;
    from = 0;
    ay += m.stride[0][0];
    ax += m.stride[1][0];
    for (IDX d = 0; ++at[d] == m.size[d] && d + 1 < m.rank; ++d) {
      at[d] = 0;
      ay += m.stride[0][d + 1] - m.size[d] * m.stride[0][d];
      ax += m.stride[1][d + 1] - m.size[d] * m.stride[1][d];
    }
  }
}
