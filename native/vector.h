// Explicit vectors for CPU-type devices, after register_tile.h.
// Before a loop that gains nothing from more vectors or unrolling, which would only cost compile time.
#ifdef __clang__
#define AS_WRITTEN _Pragma("clang loop vectorize(disable) unroll(disable)")
#else
#define AS_WRITTEN
#endif
// A function that gcc must not inline: what lives around its loop would take the registers of the loop.
#ifdef __clang__
#define APART FUNC
#else
#define APART static __attribute__((noinline))
#endif

// VL stored elements as the accumulator type. KIND: 0 stored so, 1 bfloat16, 2 float16, 3 anything else.
VECTOR(H, ushort, VL)
VECTOR(U, uint, VL)
FUNC V from_halves(const H h, const int kind) {
  U u = __builtin_convertvector(h, U);
  if (kind == 1) {
    u <<= 16;
    return *(V*)&u;
  }
  const U low = u & 0x7fffu, special = (0u - ((low + 0x400u) >> 15)) & 0x7f800000u;  // infinity and NaN keep a full exponent
  U bits = low << 13;
  const V scaled = *(V*)&bits * SPLAT(V, (ACC)5.192296858534828e33f);  // 2^112 moves the exponent, denormals too
  bits = *(U*)&scaled | special | (u & 0x8000u) << 16;
  return *(V*)&bits;
}
// Rounded to the nearest, as f32_to_bf16 and f32_to_f16 do.
FUNC H to_halves(const V v, const int kind) {
  const U u = *(const U*)&v, low = u & 0x7fffffffu, sign = u >> 16 & 0x8000u;
  const U nan = 0u - ((low + 0x7fffffu) >> 31);
  if (kind == 1) return __builtin_convertvector((u + 0x7fffu + (u >> 16 & 1u)) >> 16 & ~nan | nan & 0x7fc0u, H);
  const U tiny = 0u - ((low - 0x38800000u) >> 31), huge = 0u - ((0x477fefffu - low) >> 31);
  const V moved = *(const V*)&low + SPLAT(V, (ACC)0.5f);  // the adder rounds at 2^-24
  const U bits = (low + 0xc8000fffu + (low >> 13 & 1u)) >> 13 & ~tiny | (*(const U*)&moved - 0x3f000000u) & tiny;
  return __builtin_convertvector(sign | bits & ~huge | huge & 0x7c00u | nan & 0x0200u, H);
}
#define DEFINE_LOAD(NAME, T, LOAD, KIND)                                 \
  FUNC V NAME(const GLOBAL T* p) {                                       \
    if (KIND == 0) return *(const GLOBAL V*)p;                           \
    if (KIND < 3) return from_halves(*(const GLOBAL H*)p, KIND);         \
    ACC v[VL];                                                           \
    for (int j = 0; j < VL; ++j) v[j] = LOAD(p[j]);                      \
    return *(V*)v;                                                       \
  }

// The sum of all lanes.
VECTOR(V2, ACC, (VL / 2))
FUNC ACC total_of(const V v) {
  ACC lanes[VL], sum = 0;
  HERE(lanes, 0) = v;
  *(V2*)lanes += *(V2*)(lanes + VL / 2);
  for (int j = 0; j < VL / 2; j += 2) sum += lanes[j] + lanes[j + 1];
  return sum;
}
