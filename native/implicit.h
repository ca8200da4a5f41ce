// Derivatives of samples by their parameter with the quantile held: dx/da = -(dF/da) / (dF/dx) of gamma and beta numbers.
//
// Both are integrals of one sign over the side of x where log(t) - E log(t) has that sign, so nothing cancels. The
// integrals over (0, infinity) are sums by the double exponential formula (Takahasi and Mori, 1974).
#ifdef ACC_REAL
#define IMPLICIT_POINTS 92

// Node j of the formula for an integrand that decays over the length `scale`, and its weight.
FUNC ACC implicit_node(int j, ACC scale, ACC* weight) {
  const ACC t = K(0.1) * (j - 45), back = exp(-t), v = scale * exp(t - back);
  *weight = K(0.1) * v * (1 + back);
  return v;
}

// log(a) - digamma(a), without cancellation for large a.
FUNC ACC implicit_log_gap(ACC a) {
  if (a < 8) return log(a) - s_digamma(a);
  const ACC r = 1 / a, z = r * r;
  return r * (K(0.5) + r * (K(0.08333333333333333) - z * (K(0.008333333333333333) - z * K(0.003968253968253968))));
}

FUNC ACC implicit_gamma(ACC a, ACC x) {
  if (!(a > 0 && x > 0)) return a != a || x != x ? M_NAN : 0;
  const ACC gap = implicit_log_gap(a), level = log(x / a) + gap;  // log(x) - digamma(a)
  ACC sum = 0, weight;
  if (level < 0) {  // t = x exp(-v)
    const ACC scale = 1 / (a < 1 ? a : fmax(a - x, (ACC)0) + sqrt(x));
    for (int j = 0; j < IMPLICIT_POINTS; ++j) {
      const ACC v = implicit_node(j, scale, &weight);
      sum += weight * exp(-a * v - x * expm1(-v)) * (level - v);
    }
    return -x * sum;
  }
  const ACC scale = a > 1 ? 1 / (1 - (a - 1) / x + 1 / sqrt(x)) : 1;
  for (int j = 0; j < IMPLICIT_POINTS; ++j) {  // t = x + v
    const ACC v = implicit_node(j, scale, &weight), step = log1p(v / x);
    sum += weight * exp((a - 1) * step - v) * (level + step);
  }
  return sum;
}

// Beta(a, b), without the factor 1 - x of dx/da: torch's _dirichlet_grad.
FUNC ACC implicit_beta(ACC x, ACC a, ACC total) {
  const ACC b = total - a, y = 1 - x;
  if (!(x > 0 && y >= 0 && a > 0 && b > 0)) return x != x || a != a || b != b ? M_NAN : 0;
  const ACC level = log(x * total / a) + implicit_log_gap(a) - implicit_log_gap(total);  // log(x) - E log(t)
  const ACC r = level < 0 ? x / y : y / x, p = level < 0 ? a : b, q = level < 0 ? b : a;
  const ACC bend = q > 1 ? q - 1 : 0, slope = p - bend * r;
  const ACC scale = 1 / fmin(p, fmax(slope, (ACC)0) + sqrt(bend * (r + r * r)));
  ACC sum = 0, weight;
  for (int j = 0; j < IMPLICIT_POINTS; ++j) {  // t = x exp(-v), or 1 - t = (1 - x) exp(-v)
    const ACC v = implicit_node(j, bend > 0 ? scale : 1 / p, &weight), grown = log1p(-r * expm1(-v));
    sum += weight * exp((q - 1) * grown - p * v) * (level < 0 ? v - level : level + grown);
  }
  return level < 0 ? sum * x / y : sum;
}
#endif
