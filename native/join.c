// Tensors side by side: y[outer][...] takes from each of `count` row-major tensors [outer][its bytes of a row].
// `ends`: where in a row of y each one ends. MOST: how many there can be. move.h comes first.
typedef struct { ulong at[MOST]; } Sources;
typedef struct { long at[MOST]; } Ends;

kernel join(out uchar y, Sources sources, Ends ends, int count, long total, long chunk) {
  const long row = ends.at[count - 1], end = (GID0 + 1) * chunk < total ? (GID0 + 1) * chunk : total;
  long at = GID0 * chunk, o = at / row, j = at - o * row;
  int k = 0;
  while (ends.at[k] <= j) ++k;
  while (at < end) {
    const long first = k ? ends.at[k - 1] : 0, width = ends.at[k] - first, n = ends.at[k] - j < end - at ? ends.at[k] - j : end - at;
    move((GLOBAL const uchar*)sources.at[k] + o * width + (j - first), y + at, n);
    at += n;
    j += n;
    while (k < count && ends.at[k] <= j) ++k;
    if (k == count) {
      k = 0;
      j = 0;
      ++o;
      while (at < end && ends.at[k] <= j) ++k;
    }
  }
}
