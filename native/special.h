// Special functions of pointwise kernels in their compute type ACC: series and recurrences, no tables.
#ifdef ACC_REAL
#define S_PI K(3.141592653589793)
#ifdef ACC_DOUBLE
#define S_EPS 1.1e-16
#else
#define S_EPS 6e-8f
#endif

// psi(x): reflection to x > 0, recurrence to x >= 10, asymptotic series.
FUNC ACC s_digamma(ACC x) {
  if (x == 0) return copysign((ACC)INFINITY, -x);
  ACC y = 0;
  if (x < 0) {
    if (x == trunc(x)) return M_NAN;
    y = -S_PI / tan(S_PI * (x - trunc(x)));
    x = 1 - x;
  }
  for (; x < 10; x += 1) y -= 1 / x;
  if (x == 10) return y + K(2.2517525890667214);
  const ACC z = 1 / (x * x);
  const ACC series = z * (K(0.08333333333333333) - z * (K(0.008333333333333333) - z * (K(0.003968253968253968) -
      z * (K(0.004166666666666667) - z * (K(0.007575757575757576) - z * (K(0.021092796092796094) -
      z * K(0.08333333333333333)))))));
  return y + log(x) - K(0.5) / x - (x < K(1e17) ? series : 0);
}

// Hurwitz zeta: the first terms of the sum, then Euler-Maclaurin; B(2j) / (2j)! are the factors.
FUNC ACC s_zeta(ACC x, ACC q) {
  if (x == 1) return M_INF;
  if (x < 1 || x != x || q != q) return M_NAN;
  if (q <= 0) {
    if (q == floor(q)) return M_INF;
    if (x != floor(x)) return M_NAN;
  }
  ACC sum = 0, a = q;
  for (int i = 0; i < 10 || a <= 9; ++i, a += 1) {
    const ACC term = pow(a, -x);
    sum += term;
    if (a > 0 && term < sum * K(1e-17)) return sum;
  }
  const ACC power = pow(a, -x), square = 1 / (a * a);
  sum += power * a / (x - 1) + power / 2;
  ACC factor = x * power / a;
  const ACC terms[8] = {K(8.333333333333333e-2), K(-1.388888888888889e-3), K(3.306878306878307e-5),
                        K(-8.267195767195768e-7), K(2.08767569878681e-8), K(-5.284190138687493e-10),
                        K(1.3382536530684679e-11), K(-3.38968029632258287e-13)};
  for (int j = 0; j < 8; ++j) {
    sum += factor * terms[j];
    factor *= (x + 2 * j + 1) * (x + 2 * j + 2) * square;
  }
  return sum;
}

// psi'(x) by reflection, recurrence and its asymptotic series.
FUNC ACC s_trigamma(ACC x) {
  ACC sign = 1, y = 0;
  if (x < K(0.5)) {
    const ACC s = sin(S_PI * x);
    sign = -1;
    y = -(S_PI * S_PI) / (s * s);
    x = 1 - x;
  }
  for (int i = 0; i < 6; ++i, x += 1) y += 1 / (x * x);
  const ACC z = 1 / (x * x);
  y += (1 + 1 / (2 * x) + z * (K(0.16666666666666666) - z * (K(0.03333333333333333) - z * K(0.023809523809523808)))) / x;
  return sign * y;
}

FUNC ACC s_polygamma(ACC n, ACC x) {
  const ACC size = exp(lgamma(n + 1)) * s_zeta(n + 1, x);
  return fmod(n, (ACC)2) == 1 ? size : -size;
}

// x with erfc(x) = c for 0 < c <= 1, from a guess by Halley's method.
FUNC ACC s_erfc_solve(ACC x, ACC c) {
  for (int i = 0; i < 4; ++i) {
    const ACC step = (erfc(x) - c) * exp(x * x) * K(0.8862269254527580);
    const ACC d = step / (1 + x * step);
    if (d - d == 0) x += d;
  }
  return x;
}

// erfcinv of c in (0, 1]; guess: Winitzki's formula with w = -log(1 - erf(x)^2).
FUNC ACC s_erfcinv(ACC c) {
  const ACC l = log(c * (2 - c)), t = K(4.330746750799873) + l / 2;
  return s_erfc_solve(sqrt(fmax((ACC)0, sqrt(fmax((ACC)0, t * t - l / K(0.147))) - t)), c);
}

FUNC ACC s_erfinv(ACC y) {
  const ACC a = fabs(y);
  if (!(a < 1)) return a == 1 ? copysign((ACC)INFINITY, y) : M_NAN;
  if (a < K(0.5)) {  // Newton on erf: no cancellation near 0
    ACC x = K(0.8862269254527580) * y * (1 + K(0.2617993877991494) * y * y);
    for (int i = 0; i < 4; ++i) x -= (erf(x) - y) * exp(x * x) * K(0.8862269254527580);
    return y == 0 ? y : x;
  }
  return copysign(s_erfcinv(1 - a), y);
}

// Quantile of the normal distribution.
FUNC ACC s_ndtri(ACC p) {
  if (!(p > 0 && p < 1)) return p == 0 ? -M_INF : p == 1 ? M_INF : M_NAN;
  const ACC root = K(1.4142135623730951);
  if (p > K(0.25) && p < K(0.75)) return root * s_erfinv(2 * p - 1);
  return p < K(0.5) ? -root * s_erfcinv(2 * p) : root * s_erfcinv(2 * (1 - p));
}

// exp(x^2) erfc(x); from 3 on by its continued fraction.
FUNC ACC s_erfcx(ACC x) {
  if (x != x) return x;
  if (x < 3) return x < -30 ? M_INF : exp(x * x) * erfc(x);
  ACC tail = x;
  for (int k = 60; k > 0; --k) tail = x + K(0.5) * k / tail;
  return K(0.5641895835477563) / tail;
}

// I_v(x) exp(-|x|) for v = 0 or 1: power series (all terms positive), from 16 on the asymptotic one.
FUNC ACC s_bessel_ie(ACC x, int v) {
  const ACC a = fabs(x), z = a * a / 4, sign = v && x < 0 ? -1 : 1;
  if (a != a) return x;
  ACC term = v ? a / 2 : 1, sum = term;
  if (a < 16) {
    for (int k = 1; k < 60; ++k) {
      term *= z / ((ACC)k * (k + v));
      sum += term;
    }
    return sign * sum * exp(-a);
  }
  term = sum = 1;
  for (int k = 1; k < 24; ++k) {
    term *= ((ACC)(2 * k - 1) * (2 * k - 1) - 4 * v) / (8 * k * a);
    sum += term;
  }
  return sign * sum / sqrt(2 * S_PI * a);
}
FUNC ACC s_i0e(ACC x) { return s_bessel_ie(x, 0); }
FUNC ACC s_i1e(ACC x) { return s_bessel_ie(x, 1); }
FUNC ACC s_i0(ACC x) { return s_bessel_ie(x, 0) * exp(fabs(x)); }
FUNC ACC s_i1(ACC x) { return s_bessel_ie(x, 1) * exp(fabs(x)); }

// x^a exp(-x) / Gamma(a); for large a by Stirling's series, where the logarithms would cancel.
FUNC ACC s_gamma_scale(ACC a, ACC x) {
  if (a < 8 && x < K(0.5)) return m_exp(a * m_log(x) - x - lgamma(a));
  ACC shift = 1;
  for (; a < 8; a += 1) shift *= a / x;
  const ACC d = (x - a) / a, r = 1 / a;
  const ACC stirling = r * (K(0.08333333333333333) - r * r * (K(0.002777777777777778) - r * r * K(7.936507936507937e-4)));
  return shift * m_exp(a * (m_log1p(d) - d) - stirling) * sqrt(a / (2 * S_PI));
}

// Regularized incomplete gamma functions P and Q: series below a + 1, Lentz's continued fraction above.
FUNC ACC s_gamma_inc(ACC a, ACC x, int upper) {
  if (x < 0 || a < 0 || a != a || x != x) return M_NAN;
  if (a == 0) return x > 0 ? !upper : M_NAN;
  if (x == 0) return upper;
  if (a == M_INF) return x == M_INF ? M_NAN : upper;
  if (x == M_INF) return !upper;
  const ACC scale = s_gamma_scale(a, x), tiny = K(1e-30), eps = K(1e-17);
  if (x < a + 1) {
    ACC term = 1 / a, sum = term;
    for (int k = 1; k < 2000 && term > sum * eps; ++k) sum += term *= x / (a + k);
    return upper ? 1 - sum * scale : sum * scale;
  }
  ACC b = x + 1 - a, c = 1 / tiny, d = 1 / b, h = d;
  for (int k = 1; k < 2000; ++k) {
    const ACC an = -k * (k - a);
    b += 2;
    d = an * d + b, d = 1 / (fabs(d) < tiny ? tiny : d);
    c = b + an / c, c = fabs(c) < tiny ? tiny : c;
    h *= d * c;
    if (fabs(d * c - 1) < 2 * S_EPS) break;  // fused, the difference never gets to 0
  }
  return upper ? scale * h : 1 - scale * h;
}
FUNC ACC s_igamma(ACC a, ACC x) { return s_gamma_inc(a, x, 0); }
FUNC ACC s_igammac(ACC a, ACC x) { return s_gamma_inc(a, x, 1); }
#else
// The neighbour of a 16-bit float in the direction of another, as bits; `top` is the pattern of infinity.
FUNC int s_next16(int a, int b, int top) {
  const int ua = a & 0x7fff, ub = b & 0x7fff;
  if (ua > top) return a;
  if (ub > top) return b;
  const int va = a & 0x8000 ? -ua : ua, vb = b & 0x8000 ? -ub : ub;
  if (va == vb) return b;
  const int next = va + (vb > va ? 1 : -1);
  return next < 0 || (next == 0 && va < 0) ? -next | 0x8000 : next;
}
#endif
