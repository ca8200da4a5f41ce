// Elementary functions of float that compilers can inline and vectorize: math builtins are calls in a loop.
// Errors are 1 to 2 ulp; infinities, NaN, zeros and denormals behave as in C's math.h.

FUNC float fast_copysign(float magnitude, float sign) {
  return bits_to_f32((f32_to_bits(magnitude) & 0x7fffffffu) | (f32_to_bits(sign) & 0x80000000u));
}

// The integer nearest to x (|x| < 2^22): the adder rounds; the low bits of the sum are the integer.
#define FAST_ROUND 12582912.0f
// With 127 added, the low bits of the sum are the exponent of 2^n: for -127 <= n <= 128, at whose ends it is 0 and infinity.
#define FAST_POWER 12583039.0f
#define FAST_POW2(t) bits_to_f32(f32_to_bits(t) << 23)

// expm1(r) for |r| <= ln(2)/2: a minimax polynomial, relative error 3e-9.
FUNC float fast_expm1_small(float r) {
  float p = 1.381461324e-3f;
  p = p * r + 8.368709937e-3f;
  p = p * r + 4.166838737e-2f;
  p = p * r + 1.666652069e-1f;
  p = p * r + 4.999999345e-1f;
  return r + r * r * p;
}

FUNC float fast_pow2(int n) { return bits_to_f32((uint)(n + 127) << 23); }

// x = n ln(2) + r, exp(x) = 2^n exp(r); 2^n in two factors, so that results near both ends of the range are right.
FUNC float fast_exp(float x) {
  x = x > 89.0f ? 89.0f : x < -105.0f ? -105.0f : x;
  const float t = x * 1.44269504f + FAST_ROUND, n = t - FAST_ROUND;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  const int k = (int)(f32_to_bits(t) - 0x4b400000u), half_ = k >> 1;
  return (1.0f + fast_expm1_small(r)) * fast_pow2(half_) * fast_pow2(k - half_);
}

// The same where it does not matter that results below 2^-126 are 0. For x <= 88.
FUNC float fast_exp_down(float x) {
  x = x < -88.0f ? -88.0f : x;
  const float t = x * 1.44269504f + FAST_POWER, n = t - FAST_POWER;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.381461324e-3f;
  p = p * r + 8.368709937e-3f;
  p = p * r + 4.166838737e-2f;
  p = p * r + 1.666652069e-1f;
  p = p * r + 4.999999345e-1f;
  p = p * r + 1.0f;
  return (p * r + 1.0f) * FAST_POW2(t);
}

// The same where, besides, results above 2^127.5 may be infinite.
FUNC float fast_exp_near(float x) { return fast_exp_down(x > 89.0f ? 89.0f : x); }

FUNC float fast_expm1(float x) {
  const float c = x > 89.0f ? 89.0f : x < -18.0f ? -18.0f : x;
  const float t = c * 1.44269504f + FAST_ROUND, n = t - FAST_ROUND;
  const float r = (c - n * 0.693359375f) + n * 2.12194440e-4f;
  const float s = fast_pow2((int)(f32_to_bits(t) - 0x4b400000u) - 1);
  const float y = 2.0f * (s * fast_expm1_small(r) + (s - 0.5f));
  return x == 0.0f ? x : y;
}

// x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); log(1 + f) from the series of 2 atanh(s), s = f / (2 + f),
// arranged as in FreeBSD's msun so that f itself is added last.
FUNC float fast_log(float x) {
  const int tiny = x < 1.17549435e-38f;
  const uint bits = f32_to_bits(tiny ? x * 8388608.0f : x);
  const int e = (int)(bits - 0x3f3504f3u) >> 23;
  const float f = bits_to_f32(bits - ((uint)e << 23)) - 1.0f, n = (float)(tiny ? e - 23 : e);
  const float s = f / (2.0f + f), z = s * s, h = 0.5f * f * f;
  const float series = z * (0.666666667f + z * (0.4f + z * (0.285714286f + z * (0.222222222f + z * 0.181818182f))));
  const float y = n * 0.693359375f + (f - (h - (s * (h + series) - n * 2.12194440e-4f)));
  return x > 0.0f ? (x > 3.40282347e38f ? x : y) : x == 0.0f ? -INFINITY : NAN;
}

FUNC float fast_log1p(float x) {
  const float u = 1.0f + x, y = fast_log(u) + (x - (u - 1.0f)) / u;
  return x == 0.0f || x > 3.40282347e38f ? x : u == 0.0f ? -INFINITY : y;
}

FUNC float fast_tanh(float x) {
  const float a = bits_to_f32(f32_to_bits(x) & 0x7fffffffu), c = a > 10.0f ? 10.0f : a, t = fast_expm1(2.0f * c);
  return fast_copysign(t / (t + 2.0f), x);
}

FUNC float fast_sigmoid(float x) { return 1.0f / (1.0f + fast_exp_near(-x)); }

// log2(erfc(a)) for 0 <= a <= 4, a minimax polynomial; beyond, it falls on.
FUNC float fast_log2_erfc(float a) {
  float p = -5.864502428e-5f;
  p = p * a + 5.490341993e-4f;
  p = p * a - 1.804042004e-3f;
  p = p * a - 2.994308018e-4f;
  p = p * a + 2.787729675e-2f;
  p = p * a - 1.483305503e-1f;
  p = p * a - 9.184433541e-1f;
  p = p * a - 1.627907091e+0f;
  return p * a;
}

// (2^f - 1) / f for |f| <= 1/2: a minimax polynomial, relative error 2e-9.
FUNC float fast_exp2m1_over(float f) {
  float p = 1.535359953e-4f;
  p = p * f + 1.339885206e-3f;
  p = p * f + 9.618436384e-3f;
  p = p * f + 5.550332546e-2f;
  p = p * f + 2.402264792e-1f;
  return p * f + 6.931472028e-1f;
}

// 1 - erfc(|x|), as 2^n 2^f - 1 without cancellation near 0.
FUNC float fast_erf(float x) {
  const float a = bits_to_f32(f32_to_bits(x) & 0x7fffffffu), y = fast_log2_erfc(a > 4.0f ? 4.0f : a);
  const float t = y + FAST_POWER, f = y - (t - FAST_POWER), s = FAST_POW2(t);
  return fast_copysign((1.0f - s) - s * f * fast_exp2m1_over(f), x);
}

// Phi(-a) = erfc(a / sqrt(2)) / 2 for 0 <= a <= FAST_PHI_ENDS, where it is 0.
#define FAST_PHI_ENDS 9.670624f
FUNC float fast_phi(float a) {
  const float y = fast_log2_erfc(a * 0.707106781f) - 1.0f;
  const float t = y + FAST_POWER, f = y - (t - FAST_POWER), s = FAST_POW2(t);
  return s + s * f * fast_exp2m1_over(f);
}

// x Phi(x) = max(x, 0) - |x| Phi(-|x|). NaN at negative infinity, as x (1 + erf(x)) is.
FUNC float fast_gelu(float x) {
  const float a = bits_to_f32(f32_to_bits(x) & 0x7fffffffu), c = a > FAST_PHI_ENDS ? FAST_PHI_ENDS : a;
  return (x > 0.0f ? x : x * 0.0f) - c * fast_phi(c);
}

FUNC float fast_gelu_grad(float g, float x) {
  const float a = bits_to_f32(f32_to_bits(x) & 0x7fffffffu), h = fast_phi(a > FAST_PHI_ENDS ? FAST_PHI_ENDS : a);
  return g * ((x > 0.0f ? 1.0f - h : h) + x * 0.398942280f * fast_exp_down(-0.5f * x * x));
}

// sin(x + quarter pi/2): x = k pi/2 + r in three steps (Cody and Waite), Taylor series on |r| <= pi/4. Larger arguments
// need more digits of pi than this has: the builtin takes over.
FUNC float fast_sin_quarter(float x, uint quarter) {
  const float t = x * 0.636619772f + FAST_ROUND, k = t - FAST_ROUND;
  const float r = ((x - k * 1.5703125f) - k * 4.83751296997e-4f) - k * 7.54978995e-8f, z = r * r;
  const float s = r + r * z * (-0.166666667f + z * (8.33333333e-3f + z * (-1.98412698e-4f + z * 2.75573192e-6f)));
  const float c = 1.0f + z * (-0.5f + z * (4.16666667e-2f + z * (-1.38888889e-3f + z * (2.48015873e-5f + z * -2.7557319e-7f))));
  const uint q = f32_to_bits(t) - 0x4b400000u + quarter;
  const float y = q & 1u ? c : s;
  return q & 2u ? -y : y;
}

FUNC float fast_sin(float x) { return fabs(x) <= 8192.0f ? (x == 0.0f ? x : fast_sin_quarter(x, 0)) : sin(x); }
FUNC float fast_cos(float x) { return fabs(x) <= 8192.0f ? fast_sin_quarter(x, 1) : cos(x); }
