// Numbers from a distribution that needs a fixed count of random words per element (after philox.h).
// DRAW is the value of an element, from U (in [0, 1)), O (in (0, 1)), RAW (bits) and the parameters a and b.
// Without DRAW it is AFTER(z) of a standard normal z (Box and Muller: two normals from two numbers).
// WORDS: 32-bit words per element. VALUE: type the numbers are computed in. PARAM: type of a and b.
// Element EACH * l + e of a tile, from block l, is computed at v[e * LANES + l]: contiguous over the lanes.

#define EACH (4 / WORDS)
#define TILE (EACH * LANES)
#define WORD(e, w) r[((e) * WORDS + w) * LANES + l]
#if WORDS == 2
#define RAW_OF(e) bits_u64(WORD(e, 0), WORD(e, 1))
#ifdef FP64
#define U_OF(e) unit_f64(WORD(e, 0), WORD(e, 1))
#define O_OF(e) open_f64(WORD(e, 0), WORD(e, 1))
#define LOG(v) log(v)
#define SQRT(v) sqrt(v)
#define COS_TURN(v) cos(6.283185307179586 * (v))
#define SIN_TURN(v) sin(6.283185307179586 * (v))
#endif
#else
#define RAW_OF(e) WORD(e, 0)
#define U_OF(e) unit_f32(WORD(e, 0))
#define O_OF(e) open_f32(WORD(e, 0))
#define LOG(v) log_f32(v)
#define SQRT(v) sqrt_f32(v)
#define COS_TURN(v) cos_turn_f32(v)
#define SIN_TURN(v) sin_turn_f32(v)
#endif
#define RAW RAW_OF(e)
#define U U_OF(e)
#define O O_OF(e)

#ifdef DRAW
#define FILL                      \
  for (int e = 0; e < EACH; ++e)  \
    for (int l = 0; l < LANES; ++l) v[e * LANES + l] = (VALUE)(DRAW);
#else
#define FILL                                                      \
  for (int e = 0; e < EACH; e += 2)                               \
    for (int l = 0; l < LANES; ++l) {                             \
      const VALUE radius = SQRT(-2 * LOG(O)), turn = U_OF(e + 1); \
      v[e * LANES + l] = AFTER(radius * COS_TURN(turn));          \
      v[(e + 1) * LANES + l] = AFTER(radius * SIN_TURN(turn));    \
    }
#endif

kernel draw(out T x, long n, long chunk, ulong seed, ulong offset, PARAM a, PARAM b) {
  const long tiles = (n + TILE - 1) / TILE, first = GID0 * chunk;
  const long last = first + chunk < tiles ? first + chunk : tiles;
  for (long tile = first; tile < last; ++tile) {
    uint r[4 * LANES];
    VALUE v[TILE];
    philox_tile(r, seed, offset + (ulong)tile * LANES, 0);
    FILL
    const long at = tile * TILE;
    if (n - at >= TILE) {
      for (int l = 0; l < LANES; ++l)
        for (int e = 0; e < EACH; ++e) x[at + l * EACH + e] = T_save(v[e * LANES + l]);
    } else {
      for (int k = 0; k < n - at; ++k) x[at + k] = T_save(v[k % EACH * LANES + k / EACH]);
    }
  }
}
