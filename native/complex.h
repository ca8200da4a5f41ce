// Complex numbers of kernels that compute in them: ACC is complex64 or complex128, REAL the type of its parts.
//
// Formulas of inverse functions and of tanh are those of W. Kahan, Branch Cuts for Complex Elementary Functions (1987):
// signed zeros keep to the right side of every cut.
typedef struct { float re, im; } complex64;
#ifdef COMPLEX128
typedef struct { double re, im; } complex128;
#endif

FUNC ACC c_new(REAL re, REAL im) {
  ACC z;
  z.re = re;
  z.im = im;
  return z;
}
FUNC ACC c_real(REAL x) { return c_new(x, 0); }

#define CASTS(T, R)                               \
  FUNC T to_##T(ACC z) {                          \
    T y;                                          \
    y.re = (R)z.re;                               \
    y.im = (R)z.im;                               \
    return y;                                     \
  }                                               \
  FUNC ACC from_##T(T z) { return c_new((REAL)z.re, (REAL)z.im); }
CASTS(complex64, float)
#ifdef COMPLEX128
CASTS(complex128, double)
#endif

FUNC int c_true(ACC z) { return z.re != 0 || z.im != 0; }
FUNC int c_eq(ACC a, ACC b) { return a.re == b.re && a.im == b.im; }
FUNC int c_isnan(ACC z) { return z.re != z.re || z.im != z.im; }
FUNC int c_isinf(ACC z) { return fabs(z.re) == (REAL)INFINITY || fabs(z.im) == (REAL)INFINITY; }

FUNC ACC c_neg(ACC z) { return c_new(-z.re, -z.im); }
FUNC ACC c_conj(ACC z) { return c_new(z.re, -z.im); }
FUNC ACC c_times_i(ACC z) { return c_new(-z.im, z.re); }
FUNC ACC c_over_i(ACC z) { return c_new(z.im, -z.re); }
FUNC ACC c_scale(REAL s, ACC z) { return c_new(s * z.re, s * z.im); }
FUNC ACC c_add(ACC a, ACC b) { return c_new(a.re + b.re, a.im + b.im); }
FUNC ACC c_sub(ACC a, ACC b) { return c_new(a.re - b.re, a.im - b.im); }
FUNC ACC c_mul(ACC a, ACC b) { return c_new(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re); }

FUNC ACC c_lerp(ACC a, ACC b, ACC weight) {
  const ACC d = c_sub(b, a);
  return hypot(weight.re, weight.im) < K(0.5) ? c_add(a, c_mul(weight, d)) : c_sub(b, c_mul(d, c_sub(c_real(1), weight)));
}

// Both operands are divided by the larger part of the divisor: no square overflows.
FUNC ACC c_div(ACC a, ACC b) {
  const REAL s = fmax(fabs(b.re), fabs(b.im));
  if (s == 0) return c_new(a.re / s, a.im / s);
  const REAL re = b.re / s, im = b.im / s, d = (re * re + im * im) * s;
  return c_new((a.re * re + a.im * im) / d, (a.im * re - a.re * im) / d);
}
FUNC ACC c_reciprocal(ACC z) { return c_div(c_real(1), z); }

FUNC REAL c_abs(ACC z) { return hypot(z.re, z.im); }
FUNC REAL c_square(ACC z) { return z.re * z.re + z.im * z.im; }
FUNC REAL c_angle(ACC z) { return atan2(z.im, z.re); }
FUNC ACC c_sgn(ACC z) {
  const REAL r = c_abs(z);
  return r == 0 ? c_real(0) : c_new(z.re / r, z.im / r);
}
FUNC ACC c_polar(REAL r, REAL angle) { return c_new(r * cos(angle), r * sin(angle)); }

FUNC ACC c_exp(ACC z) {
  if (z.im == 0) return c_new(exp(z.re), z.im);
  const REAL r = exp(z.re);
  return r == 0 ? c_real(0) : c_polar(r, z.im);
}
FUNC ACC c_exp2(ACC z) { return c_exp(c_scale(K(0.6931471805599453), z)); }
FUNC ACC c_expm1(ACC z) {
  const REAL r = expm1(z.re), s = sin(K(0.5) * z.im);
  return z.im == 0 ? c_new(r, z.im) : c_new(r * cos(z.im) - 2 * s * s, (r + 1) * sin(z.im));
}
// log|z|: near 1 the logarithm of the modulus would lose the digits that z has.
FUNC REAL c_log_abs(ACC z) {
  const REAL x = fmax(fabs(z.re), fabs(z.im)), y = fmin(fabs(z.re), fabs(z.im));
  if (x > K(0.5) && x < K(1.5)) return K(0.5) * log1p((x - 1) * (x + 1) + y * y);
  return log(c_abs(z));
}
FUNC ACC c_log(ACC z) { return c_new(c_log_abs(z), c_angle(z)); }
FUNC ACC c_log2(ACC z) { return c_scale(K(1.4426950408889634), c_log(z)); }
FUNC ACC c_log10(ACC z) { return c_scale(K(0.4342944819032518), c_log(z)); }
FUNC ACC c_log1p(ACC z) {
  const REAL d = z.re * (2 + z.re) + z.im * z.im;
  if (d < K(-0.5) || d > 1) return c_log(c_new(1 + z.re, z.im));
  return c_new(K(0.5) * log1p(d), atan2(z.im, 1 + z.re));
}

FUNC ACC c_sqrt(ACC z) {
  if (fabs(z.im) == (REAL)INFINITY) return c_new((REAL)INFINITY, z.im);
  if (z.re == 0 && z.im == 0) return c_new(0, z.im);
  if (z.re == -(REAL)INFINITY) return z.im != z.im ? c_new(z.im, z.re) : c_new(0, copysign((REAL)INFINITY, z.im));
  const REAL big = fmax(fabs(z.re), fabs(z.im)), s = big > 1 ? K(0.25) : K(4.0), back = big > 1 ? 2 : K(0.5);
  const ACC w = c_scale(s, z);  // a power of 4 away from overflow and from denormals
  const REAL t = sqrt(K(0.5) * (fabs(w.re) + c_abs(w))), u = fabs(w.im) / (2 * t);
  return w.re >= 0 ? c_new(back * t, copysign(back * u, z.im)) : c_new(back * u, copysign(back * t, z.im));
}
FUNC ACC c_rsqrt(ACC z) { return c_reciprocal(c_sqrt(z)); }
FUNC ACC c_pow(ACC z, ACC e) {
  if (e.re == 0 && e.im == 0) return c_real(1);
  if (!c_true(z)) return e.im == 0 && e.re > 0 ? c_real(0) : c_new(NAN, NAN);
  if (e.im == 0 && z.im == 0 && (z.re > 0 || rint(e.re) == e.re)) return c_real(pow(z.re, e.re));
  const REAL modulus = c_abs(z), angle = c_angle(z);
  if (e.im == 0) return c_polar(pow(modulus, e.re), e.re * angle);
  return c_polar(pow(modulus, e.re) * exp(-e.im * angle), e.im * log(modulus) + e.re * angle);
}
FUNC ACC c_sigmoid(ACC z) { return c_reciprocal(c_add(c_real(1), c_exp(c_neg(z)))); }

FUNC ACC c_sinh(ACC z) {
  return z.im == 0 ? c_new(sinh(z.re), z.im) : c_new(sinh(z.re) * cos(z.im), cosh(z.re) * sin(z.im));
}
FUNC ACC c_cosh(ACC z) {
  return z.im == 0 ? c_new(cosh(z.re), z.re * z.im) : c_new(cosh(z.re) * cos(z.im), sinh(z.re) * sin(z.im));
}
FUNC ACC c_tanh(ACC z) {
  if (fabs(z.re) > 20) {  // the rest is under half an ulp of 1; its imaginary part decays with the real one
    const REAL c = cos(z.im), s = sin(z.im), d = exp(-2 * fabs(z.re));
    return c_new(copysign((REAL)1, z.re), 4 * s * c * d);
  }
  const REAL t = tan(z.im), b = 1 + t * t, s = sinh(z.re), r = sqrt(1 + s * s), d = 1 + b * s * s;
  return fabs(t) == (REAL)INFINITY ? c_new(r / s, 1 / t) : c_new(b * r * s / d, t / d);
}
FUNC ACC c_sin(ACC z) { return c_over_i(c_sinh(c_times_i(z))); }
FUNC ACC c_cos(ACC z) { return c_cosh(c_times_i(z)); }
FUNC ACC c_tan(ACC z) { return c_over_i(c_tanh(c_times_i(z))); }

FUNC ACC c_one_plus(REAL sign, ACC z) { return c_new(1 + sign * z.re, sign * z.im); }
FUNC REAL c_cross(ACC a, ACC b) { return a.re * b.im - a.im * b.re; }  // the imaginary part of conj(a) b
FUNC ACC c_asin(ACC z) {
  const ACC less = c_sqrt(c_one_plus(-1, z)), more = c_sqrt(c_one_plus(1, z));
  return c_new(atan2(z.re, less.re * more.re - less.im * more.im), asinh(c_cross(less, more)));
}
FUNC ACC c_acos(ACC z) {
  const ACC less = c_sqrt(c_one_plus(-1, z)), more = c_sqrt(c_one_plus(1, z));
  return c_new(2 * atan2(less.re, more.re), asinh(c_cross(more, less)));
}
FUNC ACC c_acosh(ACC z) {
  const ACC less = c_sqrt(c_new(z.re - 1, z.im)), more = c_sqrt(c_one_plus(1, z));
  return c_new(asinh(less.re * more.re + less.im * more.im), 2 * atan2(less.im, more.re));
}
FUNC ACC c_asinh(ACC z) { return c_over_i(c_asin(c_times_i(z))); }
FUNC ACC c_atanh(ACC z) {
  const REAL x = fabs(z.re), d = (1 - x) * (1 - x) + z.im * z.im;
  return c_new(copysign(K(0.25) * log1p(4 * x / d), z.re), K(0.5) * atan2(2 * z.im, (1 - z.re) * (1 + z.re) - z.im * z.im));
}
FUNC ACC c_atan(ACC z) { return c_over_i(c_atanh(c_times_i(z))); }
