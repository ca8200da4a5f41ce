// Scalar functions of pointwise kernels in their compute type ACC (see kernels/pointwise.py).
#ifdef ACC_REAL
#ifdef ACC_DOUBLE
#define m_exp(x) exp(x)
#define m_expm1(x) expm1(x)
#define m_log(x) log(x)
#define m_log1p(x) log1p(x)
#define m_tanh(x) tanh(x)
#define m_erf(x) erf(x)
#define m_sin(x) sin(x)
#define m_cos(x) cos(x)
#define m_sqrt(x) sqrt(x)
FUNC ACC m_sigmoid(ACC x) { return 1 / (1 + exp(-x)); }
#else
#define m_exp(x) fast_exp(x)
#define m_expm1(x) fast_expm1(x)
#define m_log(x) fast_log(x)
#define m_log1p(x) fast_log1p(x)
#define m_tanh(x) fast_tanh(x)
#define m_erf(x) fast_erf(x)
#define m_sin(x) fast_sin(x)
#define m_cos(x) fast_cos(x)
#define m_sigmoid(x) fast_sigmoid(x)
// An instruction, where OpenCL's function may be a call. Oclgrind does not have it.
#if defined(__clang__) && !defined(SIMULATED)
#define m_sqrt(x) __builtin_sqrtf(x)
#else
#define m_sqrt(x) sqrt(x)
#endif
#endif
#define M_NAN ((ACC)NAN)
#define M_INF ((ACC)INFINITY)

// Python's floor division: a NaN or infinity of a / b by zero stays, the rest is exact to one rounding.
FUNC ACC m_floor_div(ACC a, ACC b) {
  if (b == 0) return a / b;
  const ACC mod = fmod(a, b);
  ACC q = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) q -= 1;
  if (q == 0) return copysign((ACC)0, a / b);
  const ACC down = floor(q);
  return q - down > K(0.5) ? down + 1 : down;
}
FUNC ACC m_trunc_div(ACC a, ACC b) { return trunc(a / b); }
FUNC ACC m_fmod(ACC a, ACC b) { return fmod(a, b); }
FUNC ACC m_remainder(ACC a, ACC b) {
  const ACC mod = fmod(a, b);
  return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
}
FUNC ACC m_pow(ACC a, ACC b) { return pow(a, b); }
FUNC ACC m_logaddexp(ACC a, ACC b) {
  if (a == b && a - a != 0) return a;  // both the same infinity
  const ACC top = a > b ? a : b, d = a > b ? b - a : a - b;
  return a != a || b != b ? M_NAN : top + m_log1p(m_exp(d));
}
FUNC ACC m_logaddexp2(ACC a, ACC b) {
  if (a == b && a - a != 0) return a;
  const ACC top = a > b ? a : b, d = a > b ? b - a : a - b;
  return a != a || b != b ? M_NAN : top + m_log1p(exp2(d)) * K(1.4426950408889634);
}
FUNC ACC m_xlogy(ACC a, ACC b) { return b != b ? b : a == 0 ? 0 : a * m_log(b); }
FUNC ACC m_xlog1py(ACC a, ACC b) { return b != b ? b : a == 0 ? 0 : a * m_log1p(b); }
// Derivative and value of GELU: x Phi(x), and its tanh approximation.
#ifdef ACC_DOUBLE
FUNC ACC m_gelu(ACC x) { return K(0.5) * x * (1 + m_erf(x * K(0.7071067811865476))); }
FUNC ACC m_gelu_grad(ACC g, ACC x) {
  const ACC cdf = K(0.5) * (1 + m_erf(x * K(0.7071067811865476)));
  return g * (cdf + x * (m_exp(K(-0.5) * x * x) * K(0.3989422804014327)));
}
#else
#define m_gelu(x) fast_gelu(x)
#define m_gelu_grad(g, x) fast_gelu_grad(g, x)
#endif
FUNC ACC m_silu_grad(ACC g, ACC x) {
  const ACC s = m_sigmoid(x);
  return g * (s * (1 + x * (1 - s)));
}
FUNC ACC m_gelu_tanh(ACC x) {
  return K(0.5) * x * (1 + m_tanh(K(0.7978845608028654) * (x + K(0.044715) * x * x * x)));
}
FUNC ACC m_gelu_tanh_grad(ACC g, ACC x) {
  const ACC t = m_tanh(K(0.7978845608028654) * (x + K(0.044715) * x * x * x));
  const ACC d = K(0.7978845608028654) * (1 + 3 * K(0.044715) * x * x);
  return g * (K(0.5) * (1 + t) + K(0.5) * x * (1 - t * t) * d);
}
FUNC ACC m_softplus(ACC x) { return m_log1p(m_exp(x)); }
FUNC ACC m_mish_grad(ACC g, ACC x) {
  const ACC s = m_sigmoid(x), t = m_tanh(m_softplus(x));
  return g * (t + x * s * (1 - t * t));
}
#else
// Division by zero gives -1, as CUDA's does in practice: a CPU would trap.
FUNC ACC m_trunc_div(ACC a, ACC b) { return b == 0 ? (ACC)-1 : ACC_SIGNED && b == (ACC)-1 ? (ACC)(0 - a) : a / b; }
FUNC ACC m_fmod(ACC a, ACC b) { return b == 0 ? (ACC)-1 : ACC_SIGNED && b == (ACC)-1 ? (ACC)0 : a % b; }
FUNC ACC m_remainder(ACC a, ACC b) {
  const ACC mod = m_fmod(a, b);
  return b != 0 && mod != 0 && (mod < 0) != (b < 0) ? mod + b : mod;
}
FUNC ACC m_floor_div(ACC a, ACC b) {
  const ACC q = m_trunc_div(a, b);
  return b != 0 && q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}
FUNC ACC m_pow(ACC a, ACC b) {
  if (b < 0) return a == 1 ? 1 : a == (ACC)-1 ? (b % 2 ? (ACC)-1 : (ACC)1) : 0;
  ACC y = 1;
  for (; b; b >>= 1, a *= a)
    if (b & 1) y *= a;
  return y;
}
FUNC ACC m_shl(ACC a, ACC b) { return b < 0 || b >= ACC_BITS ? 0 : (ACC)((ulong)a << b); }
FUNC ACC m_shr(ACC a, ACC b) {
  const int most = ACC_BITS - ACC_SIGNED;
  return b >= 0 && b < most ? a >> b : most == 64 ? 0 : a >> most;
}
FUNC ACC m_gcd(ACC a, ACC b) {
  a = a < 0 ? -a : a, b = b < 0 ? -b : b;
  while (a) {
    const ACC c = a;
    a = b % a;
    b = c;
  }
  return b;
}
FUNC ACC m_lcm(ACC a, ACC b) {
  const ACC g = m_gcd(a, b), y = g == 0 ? 0 : a / g * b;
  return y < 0 ? -y : y;
}
#endif
