// Orthogonal polynomials by their three-term recurrences, in the compute type ACC; degrees below 0 give 0.
//
// Ends of the interval, and Chebyshev polynomials of a high degree inside it (by angles), are treated as torch does.
#ifdef ACC_REAL
#ifdef ACC_DOUBLE
#define POLY_HERMITE_LIMIT 512
#else
#define POLY_HERMITE_LIMIT 128
#endif

// A degree is a number of the compute type: rounded towards 0; one that is no number, or too large for a long, is -1.
FUNC long poly_degree(ACC n) { return fabs(n) < K(9e18) ? (long)n : -1; }
FUNC ACC poly_sign(long n) { return n % 2 ? -1 : 1; }

// Chebyshev polynomials: p(0) = 1, p(1) = first, p(k) = 2 x p(k - 1) - p(k - 2).
FUNC ACC poly_chebyshev(ACC x, long n, ACC first) {
  ACC last = 1, now = first;
  if (n == 0) return last;
  for (long k = 2; k <= n && now == now; ++k) {
    const ACC next = 2 * x * now - last;
    last = now, now = next;
  }
  return now;
}

// The four kinds; `high` is the degree from which on angles serve inside (-1, 1).
FUNC ACC poly_chebyshev_t(ACC x, ACC degree, long high) {
  const long n = poly_degree(degree);
  if (n < 0) return 0;
  if (fabs(x) == 1) return x > 0 ? 1 : poly_sign(n);
  if (n >= high && fabs(x) < 1) return cos(n * acos(x));
  return poly_chebyshev(x, n, x);
}
FUNC ACC poly_chebyshev_u(ACC x, ACC degree, long high) {
  const long n = poly_degree(degree);
  if (n < 0) return 0;
  if (fabs(x) == 1) return (n + 1) * (x > 0 ? 1 : poly_sign(n));
  if (n >= high && fabs(x) < 1) {
    const ACC t = acos(x), s = sin(t);
    return s != 0 ? sin((n + 1) * t) / s : (n + 1) * cos((n + 1) * t) / x;
  }
  return poly_chebyshev(x, n, 2 * x);
}
FUNC ACC poly_chebyshev_v(ACC x, ACC degree, long high) {
  const long n = poly_degree(degree);
  if (n < 0) return 0;
  if (x == 1) return 1;
  if (x == -1) return poly_sign(n) * (2 * n + 1);
  if (n >= high && fabs(x) < 1) {
    const ACC t = acos(x);
    return sin(t / 2) != 1 ? cos((n + K(0.5)) * t) / cos(t / 2) : poly_sign(n) * (2 * n + 1);
  }
  return poly_chebyshev(x, n, 2 * x - 1);
}
FUNC ACC poly_chebyshev_w(ACC x, ACC degree, long high) {
  const long n = poly_degree(degree);
  if (n < 0) return 0;
  if (x == 1) return 2 * n + 1;
  if (x == -1) return poly_sign(n);
  if (n >= high && fabs(x) < 1) {
    const ACC t = acos(x);
    if (cos(t / 2) != 1) return sin((n + K(0.5)) * t) / sin(t / 2);
    return x > 0 ? 2 * n + 1 : poly_sign(n);
  }
  return poly_chebyshev(x, n, 2 * x + 1);
}

// Hermite polynomials of physics (scale 2) and of probability (scale 1): p(k + 1) = scale (x p(k) - k p(k - 1)).
FUNC ACC poly_hermite(ACC x, ACC degree, ACC scale) {
  const long n = poly_degree(degree);
  if (n < 0) return 0;
  if (n > POLY_HERMITE_LIMIT) return (ACC)NAN;
  ACC last = 1, now = scale * x;
  if (n == 0) return last;
  for (long k = 1; k < n; ++k) {
    const ACC next = scale * x * now - scale * k * last;
    last = now, now = next;
  }
  return now;
}

FUNC ACC poly_laguerre(ACC x, ACC degree) {
  const long n = poly_degree(degree);
  if (n < 0) return 0;
  ACC last = 1, now = 1 - x;
  if (n == 0 || x == 0) return last;
  for (long k = 1; k < n && now == now; ++k) {
    const ACC next = ((2 * k + (1 - x)) * now - k * last) / (k + 1);
    last = now, now = next;
  }
  return now;
}

FUNC ACC poly_legendre(ACC x, ACC degree) {
  const long n = poly_degree(degree);
  if (n < 0) return 0;
  if (fabs(x) == 1) return x > 0 ? 1 : poly_sign(n);
  ACC last = 1, now = x;
  if (n == 0) return last;
  for (long k = 1; k < n && now == now; ++k) {
    const ACC next = ((2 * k + 1) * x * now - k * last) / (k + 1);
    last = now, now = next;
  }
  return now;
}
#endif
