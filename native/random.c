// Numbers from a distribution that needs a fixed count of random words per element (after philox.h).
// DRAW is the value of element k of a tile, from U (in [0, 1)), O (in (0, 1)), RAW (bits) and the parameters a and b.
// Without DRAW it is AFTER(z) of a standard normal z (Box and Muller: two normals from two numbers).
// WORDS: 32-bit words per element. VALUE: type the numbers are computed in. PARAM: type of a and b.

#define TILE (4 * LANES / WORDS)
#if WORDS == 2
#define RAW bits_u64(r[2 * k], r[2 * k + 1])
#define RAW_NEXT bits_u64(r[2 * k + 2], r[2 * k + 3])
#ifdef FP64
#define U unit_f64(r[2 * k], r[2 * k + 1])
#define U_NEXT unit_f64(r[2 * k + 2], r[2 * k + 3])
#define O open_f64(r[2 * k], r[2 * k + 1])
#define LOG(v) log(v)
#define COS_TURN(v) cos(6.283185307179586 * (v))
#define SIN_TURN(v) sin(6.283185307179586 * (v))
#endif
#else
#define RAW r[k]
#define U unit_f32(r[k])
#define U_NEXT unit_f32(r[k + 1])
#define O open_f32(r[k])
#define LOG(v) log_f32(v)
#define COS_TURN(v) cos_turn_f32(v)
#define SIN_TURN(v) sin_turn_f32(v)
#endif

#ifdef DRAW
#define FILL for (int k = 0; k < TILE; ++k) v[k] = (VALUE)(DRAW);
#else
#define FILL                                                  \
  for (int k = 0; k < TILE; k += 2) {                         \
    const VALUE radius = sqrt(-2 * LOG(O)), turn = U_NEXT;    \
    v[k] = AFTER(radius * COS_TURN(turn));                    \
    v[k + 1] = AFTER(radius * SIN_TURN(turn));                \
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
      for (int k = 0; k < TILE; ++k) x[at + k] = T_save(v[k]);
    } else {
      for (int k = 0; k < n - at; ++k) x[at + k] = T_save(v[k]);
    }
  }
}
