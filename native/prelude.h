// Common to all dialects: sixteen-bit floats as bits, index type, layouts.
#ifndef IDX
#define IDX long
#endif
#define MAX_RANK 8
// Before a loop over elements. On CPUs clang would leave half of each of the widest registers unused, and joins no two
// iterations of a long body to hide latencies.
#if defined(ON_CPU) && defined(__clang__)
#define WHOLE_REGISTERS _Pragma("clang loop vectorize_width(16)")
#else
#define WHOLE_REGISTERS
#endif

FUNC float f16_to_f32(ushort h) {
  const uint rest = h & 0x7fffu, sign = (uint)(h & 0x8000u) << 16;
  const float tiny = (float)(int)rest * 5.9604644775390625e-8f;  // denormal: a multiple of 2^-24
  const uint bits = (rest << 13) + (rest < 0x7c00u ? 0x38000000u : 0x70000000u);
  return bits_to_f32((rest < 0x400u ? f32_to_bits(tiny) : bits) | sign);  // no branches: loops become vector loops
}

FUNC ushort f32_to_f16(float f) {
  uint v = f32_to_bits(f), sign = v >> 16 & 0x8000u, a = v & 0x7fffffffu;
  if (a > 0x7f800000u) return (ushort)(sign | 0x7e00u);
  if (a >= 0x477ff000u) return (ushort)(sign | 0x7c00u);  // rounds past 65504
  if (a < 0x38800000u) {                                  // denormal or zero: let the adder round at 2^-24
    float magic = bits_to_f32(a) + 0.5f;
    return (ushort)(sign | (f32_to_bits(magic) - 0x3f000000u));
  }
  a += 0xc8000fffu + (a >> 13 & 1u);
  return (ushort)(sign | a >> 13);
}

FUNC float bf16_to_f32(ushort h) { return bits_to_f32((uint)h << 16); }

FUNC ushort f32_to_bf16(float f) {
  uint v = f32_to_bits(f);
  if ((v & 0x7fffffffu) > 0x7f800000u) return (ushort)0x7fc0u;
  return (ushort)((v + 0x7fffu + (v >> 16 & 1u)) >> 16);
}

// Whether an address is a multiple of n, a power of two.
#define ALIGNED(p, n) (((ulong)(p) & ((n) - 1)) == 0)

// Shape and strides (in elements) of K tensors walked together; dimension 0 is the innermost.
#define LAYOUT(K) \
  typedef struct { IDX rank; IDX size[MAX_RANK]; IDX stride[K][MAX_RANK]; } Layout##K;
LAYOUT(1) LAYOUT(2) LAYOUT(3) LAYOUT(4) LAYOUT(5) LAYOUT(6) LAYOUT(7) LAYOUT(8)

// The place of index i in a dimension of n elements. Out of bounds: -1, and the first one of all is noted in `seen`
// (code of the op, index, size) for the host. `wrap`: negative indices count from the end.
FUNC long checked(long i, long n, int wrap, GLOBAL long* seen, int code) {
  long at = wrap && i < 0 ? i + n : i;
  if (at >= 0 && at < n) return at;
  if (cas32((volatile GLOBAL uint*)seen, 0u, (uint)code) == 0u) {
    seen[1] = i;
    seen[2] = n;
  }
  return -1;
}
