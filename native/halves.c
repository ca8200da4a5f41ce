// Floats to float16, by the CPU's own instruction where it has one: loops over f32_to_f16 take three times as long.
#ifdef __F16C__
typedef float Floats __attribute__((vector_size(32), aligned(4), may_alias));  // the types that the builtin wants
typedef short Halves __attribute__((vector_size(16), aligned(2), may_alias));
FUNC IDX by_eights(GLOBAL const float* restrict x, GLOBAL ushort* restrict y, const IDX n) {
  IDX i = 0;
  for (; i + 8 <= n; i += 8) {
    const Floats v = *(GLOBAL const Floats*)(x + i);
    *(GLOBAL Halves*)(y + i) = __builtin_ia32_vcvtps2ph256(v, 0);
  }
  return i;
}
#else
#define by_eights(x, y, n) 0
#endif

kernel to_halves(in float x, out ushort y, long total, long chunk) {
  const IDX start = (IDX)(GID0 * chunk), n = (IDX)(start + chunk < total ? chunk : total - start);
  for (IDX i = by_eights(x + start, y + start, n); i < n; ++i) y[start + i] = f32_to_f16(x[start + i]);
}
