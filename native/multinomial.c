// Drawing indices in proportion to weights, with replacement (after philox.h, LANES 1, WORDS 1).
// REAL: float64 where the chip has it, else float32.

// sums[row, :]: running sums of the weights of a row. bad[row]: 1 for a negative or infinite weight, 2 for sum 0.
kernel running_sums(in T weights, out REAL sums, out int bad, long n) {
  const long row = GID0 * n;
  REAL sum = 0;
  int wrong = 0;
  for (long i = 0; i < n; ++i) {
    const REAL w = (REAL)T_load(weights[row + i]);
    wrong |= !(w >= 0 && w - w == 0);
    sum += w;
    sums[row + i] = sum;
  }
  bad[GID0] = wrong ? 1 : sum > 0 ? 0 : 2;
}

kernel draw_indices(in REAL sums, out long index, long n, long samples, ulong seed, ulong offset) {
  const long row = GID0 / samples * n;
  uint r[4];
  philox_tile(r, seed, offset + (ulong)GID0, 0);
  const REAL total = sums[row + n - 1];
  REAL target = ((REAL)r[0] + (REAL)unit_f32(r[1])) * (REAL)2.3283064365386962890625e-10f * total;
  const bool past = target >= total;  // by rounding: then the last index with a weight
  long low = 0, high = n - 1;
  while (low < high) {
    const long mid = (low + high) / 2;
    const bool right = past ? sums[row + mid] < total : sums[row + mid] <= target;
    if (right) low = mid + 1; else high = mid;
  }
  index[GID0] = low;
}
