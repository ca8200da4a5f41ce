// Indices are checked by the block before they are used: a loop that only compares is a vector loop.
#define BLOCK 256

FUNC int all_inside(GLOBAL const TI* restrict idx, const IDX step, const IDX n, const long low, const long high) {
  int bad = 0;
  for (IDX j = 0; j < n; ++j) bad |= idx[j * step] < low || idx[j * step] >= high;
  return !bad;
}

FUNC int inside(GLOBAL const TI* restrict idx, const IDX step, const IDX n, const long size, const int wrap) {
  const long low = wrap ? -size : 0;
  return step == 1 ? all_inside(idx, 1, n, low, size) : all_inside(idx, step, n, low, size);
}
