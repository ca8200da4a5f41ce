// Where values belong among sorted bounds. `rows`: 1 where every line of x has its own n bounds, else 0.
// BEFORE(bound, v): the bound lies before the place; where comparison with NaN fails, so does every search.

kernel search(in B bounds, in X x, in long sorter, out Y y, inout long seen, long total, long chunk, long n, long width, int rows, int code) {
  const IDX start = (IDX)(GID0 * chunk), end = start + chunk < total ? start + chunk : total;
  for (IDX i = start; i < end; ++i) {
    const IDX base = rows ? i / width * n : 0;
    const ACC v = (ACC)X_load(x[i]);
    IDX low = 0, high = n;
    while (low < high) {
      const IDX mid = (low + high) / 2;
      const long at = SORTED ? mid : checked(sorter[base + mid], n, 0, seen, code);
      const ACC bound = (ACC)B_load(bounds[base + (at < 0 ? 0 : (IDX)at)]);
      if (BEFORE(bound, v)) low = mid + 1;
      else high = mid;
    }
    y[i] = low;
  }
}
