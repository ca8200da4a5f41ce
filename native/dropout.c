// Per-element decisions that read a tensor (after philox.h, WORDS 1): dropout, and Bernoulli of a tensor of chances.
#define TILE (4 * LANES)
// u[k]: the number in [0, 1) of element at + k, of which there are `left`.
#define TILES_BEGIN                                                                              \
  const long tiles = (n + TILE - 1) / TILE, first = GID0 * chunk;                                \
  const long last = first + chunk < tiles ? first + chunk : tiles;                               \
  for (long tile = first; tile < last; ++tile) {                                                 \
    uint r[TILE];                                                                                \
    float u[TILE];                                                                               \
    philox_tile(r, seed, offset + (ulong)tile * LANES, 0);                                       \
    for (int l = 0; l < LANES; ++l)                                                              \
      for (int w = 0; w < 4; ++w) u[4 * l + w] = unit_f32(r[w * LANES + l]);                     \
    const long at = tile * TILE;                                                                 \
    const int left = n - at < TILE ? (int)(n - at) : TILE;                                       \
    for (int k = 0; k < left; ++k) {
#define TILES_END }}

kernel dropout(in T x, out T y, out uchar mask, long n, long chunk, ulong seed, ulong offset, float keep, T_acc scale) {
  TILES_BEGIN
    const uchar kept = u[k] < keep;
    mask[at + k] = kept;
    y[at + k] = T_save(T_load(x[at + k]) * (kept ? scale : 0));
  TILES_END
}

// A chance that is none is noted for the host.
kernel bernoulli(in T chance, out X x, inout long seen, long n, long chunk, ulong seed, ulong offset, int code) {
  TILES_BEGIN
    const float p = (float)T_load(chance[at + k]);
    if (!(p >= 0 && p <= 1)) checked(-1, 1, 0, seen, code);
    x[at + k] = X_save(u[k] < p);
  TILES_END
}
