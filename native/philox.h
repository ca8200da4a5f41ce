// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011) and numbers from it.
// Block b of a call is the counter offset + b in words 0 and 1; words 2 and 3 hold `stream`, for samplers that need
// an unknown count of numbers per element. LANES blocks are made side by side, so that a compiler can vectorize:
// word w of block l is r[w * LANES + l].

FUNC void philox_tile(uint* r, ulong seed, ulong at, ulong stream) {
  uint a[LANES], b[LANES], c[LANES], d[LANES];
  for (int l = 0; l < LANES; ++l) {
    a[l] = (uint)(at + (ulong)l);
    b[l] = (uint)((at + (ulong)l) >> 32);
    c[l] = (uint)stream;
    d[l] = (uint)(stream >> 32);
  }
  uint k0 = (uint)seed, k1 = (uint)(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int l = 0; l < LANES; ++l) {
      const ulong p = (ulong)a[l] * 0xD2511F53u, q = (ulong)c[l] * 0xCD9E8D57u;
      a[l] = (uint)(q >> 32) ^ b[l] ^ k0;
      c[l] = (uint)(p >> 32) ^ d[l] ^ k1;
      b[l] = (uint)q;
      d[l] = (uint)p;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int l = 0; l < LANES; ++l) {
    r[l] = a[l];
    r[LANES + l] = b[l];
    r[2 * LANES + l] = c[l];
    r[3 * LANES + l] = d[l];
  }
}

// [0, 1) with 24 bits.
FUNC float unit_f32(uint x) { return (float)(int)(x >> 8) * 5.9604644775390625e-8f; }

// (0, 1): 31 bits, fine near 0, where logarithms need it; the largest is 1 - 2^-24.
FUNC float open_f32(uint x) {
  const float u = (float)(int)(x >> 1) * 4.656612873077392578125e-10f + 2.3283064365386962890625e-10f;
  return u < 0.99999994f ? u : 0.99999994f;
}

// log of a normal positive float: exponent, then the series of atanh((m - 1) / (m + 1)) for m in [0.7, 1.42).
FUNC float log_f32(float x) {
  const uint v = f32_to_bits(x) + 0x4afb0du;  // carries into the exponent at sqrt(2)
  const float e = (float)((int)(v >> 23) - 127), m = bits_to_f32((v & 0x7fffffu) + 0x3f3504f3u);
  const float s = (m - 1.0f) / (m + 1.0f), z = s * s;
  const float tail = z * (0.66666667f + z * (0.4f + z * (0.28571429f + z * 0.22222222f)));
  return e * 0.69314718f + (2.0f * s + s * tail);
}

// Square root of a normal positive float: Newton's iteration for 1 / sqrt(x). A builtin is a call on some compilers.
FUNC float sqrt_f32(float x) {
  float y = bits_to_f32(0x5f3759dfu - (f32_to_bits(x) >> 1));
  y = y * (1.5f - 0.5f * x * y * y);
  y = y * (1.5f - 0.5f * x * y * y);
  y = y * (1.5f - 0.5f * x * y * y);
  return x * y;
}

// sin and cos of 2 pi u for u in [0, 1): the nearest quarter turn, then Taylor series on [-pi/4, pi/4].
FUNC float sin_turn_f32(float u) {
  const int q = (int)(u * 4.0f + 0.5f);
  const float a = (u * 4.0f - (float)q) * 1.57079633f, z = a * a;
  const float s = a + a * z * (-0.16666667f + z * (8.3333333e-3f + z * (-1.9841270e-4f + z * 2.7557319e-6f)));
  const float c = 1.0f + z * (-0.5f + z * (4.1666667e-2f + z * (-1.3888889e-3f + z * 2.4801587e-5f)));
  const float v = q & 1 ? c : s;
  return q & 2 ? -v : v;
}

FUNC float cos_turn_f32(float u) {
  const float t = u + 0.25f;
  return sin_turn_f32(t < 1.0f ? t : t - 1.0f);
}

#if WORDS == 2
FUNC ulong bits_u64(uint low, uint high) { return (ulong)high << 32 | low; }
#ifdef FP64
FUNC double unit_f64(uint low, uint high) { return (double)(bits_u64(low, high) >> 11) * 1.1102230246251565e-16; }
FUNC double open_f64(uint low, uint high) { return ((double)(bits_u64(low, high) >> 12) + 0.5) * 2.220446049250313e-16; }
#endif
#endif
