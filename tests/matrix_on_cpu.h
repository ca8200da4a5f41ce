// Instructions of a whole wave on the CPU, as the vendors' manuals say which work-item holds what: each shows its operands
// to the others, and once all have, works out its own part of the product. Written from the manuals and not from the
// kernels, so that a wrong place in either shows.
#define _Float16 short
typedef float Floats4 __attribute__((vector_size(16)));
typedef float Floats8 __attribute__((vector_size(32)));
typedef short Shorts4 __attribute__((vector_size(8)));
typedef short Shorts16 __attribute__((vector_size(32)));
extern "C" int group_item();
struct Shown { short a[16], b[16]; };
static thread_local Shown shown_[2][256];
static thread_local unsigned char turn_[256];

// What the wave of this work-item holds; the other half of the memory is still read by those who come later.
static inline const Shown* show(int wave, const void* a, const void* b, int bytes_a, int bytes_b) {
  const int me = group_item();
  Shown* all = shown_[turn_[me]++ % 2];
  __builtin_memcpy(all[me].a, a, bytes_a);
  __builtin_memcpy(all[me].b, b, bytes_b);
  __syncthreads();
  return all + me / wave * wave;
}
static inline float half_of(short bits) {
  const int sign = bits < 0 ? -1 : 1, power = bits >> 10 & 31, rest = bits & 1023;
  if (power == 31) return rest ? __builtin_nanf("") : sign * __builtin_inff();
  return sign * __builtin_ldexpf(power ? 1024 + rest : rest, (power ? power : 1) - 25);
}
static inline float bfloat_of(short bits) { return __uint_as_float((unsigned)(unsigned short)bits << 16); }

// RDNA 3's: lane l and l + 16 hold row l of A and column l of B; element e of D is row 2 e + l / 16, column l % 16.
static inline Floats8 wmma_on_cpu(Shorts16 a, Shorts16 b, Floats8 d, float (*value)(short)) {
  const Shown* lanes = show(32, &a, &b, 32, 32);
  const int lane = group_item() % 32, twin = (lane + 16) % 32;
  if (__builtin_memcmp(&lanes[lane], &lanes[twin], sizeof(Shown))) __builtin_abort();  // both halves must hold the same
  for (int e = 0; e < 8; ++e)
    for (int k = 0; k < 16; ++k) d[e] += value(lanes[2 * e + lane / 16].a[k]) * value(lanes[lane % 16].b[k]);
  return d;
}
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, d) wmma_on_cpu(a, b, d, half_of)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, d) wmma_on_cpu(a, b, d, bfloat_of)

// CDNA's: lane i + 16 (k / 4) holds A[i][k] and B[k][i] as element k % 4; element e of D is row 4 (l / 16) + e, column l % 16.
static inline Floats4 mfma_on_cpu(Shorts4 a, Shorts4 b, Floats4 d, float (*value)(short)) {
  const Shown* lanes = show(64, &a, &b, 8, 8);
  const int lane = group_item() % 64;
  for (int e = 0; e < 4; ++e)
    for (int k = 0; k < 16; ++k)
      d[e] += value(lanes[4 * (lane / 16) + e + 16 * (k / 4)].a[k % 4]) * value(lanes[lane % 16 + 16 * (k / 4)].b[k % 4]);
  return d;
}
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, d, cbsz, abid, blgp) mfma_on_cpu(a, b, d, half_of)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, d, cbsz, abid, blgp) mfma_on_cpu(a, b, d, bfloat_of)

// NVIDIA's mma.m16n8k16: A[i][k] is in lane 4 (i % 8) + k % 8 / 2, register i / 8 + 2 (k / 8), half k % 2; B[k][j] in lane
// 4 j + k % 8 / 2, register k / 8; D's rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next, in this order.
static inline void mma_on_cpu(float* const (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], float (*value)(short)) {
  const Shown* lanes = show(32, a, b, 16, 8);
  const int lane = group_item() % 32;
  for (int e = 0; e < 4; ++e) {
    const int i = lane / 4 + e / 2 * 8, j = lane % 4 * 2 + e % 2;
    for (int k = 0; k < 16; ++k)
      *d[e] += value(lanes[4 * (i % 8) + k % 8 / 2].a[2 * (i / 8 + 2 * (k / 8)) + k % 2]) *
               value(lanes[4 * j + k % 8 / 2].b[2 * (k / 8) + k % 2]);
  }
}
#define MMA(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1) \
  mma_on_cpu({&(d0), &(d1), &(d2), &(d3)}, {a0, a1, a2, a3}, {b0, b1}, BFLOAT ? bfloat_of : half_of)
