// Samplers by rejection: element i draws from its own stream, the counters (offset + i, 0), (offset + i, 1) ...
// After philox.h with LANES 1 and WORDS 1. REAL: float64 where the chip has it, else float32.

typedef struct { ulong seed, at, stream; uint r[4]; int used; } Stream;

FUNC uint next_bits(Stream* s) {
  if (s->used == 4) {
    philox_tile(s->r, s->seed, s->at, s->stream++);
    s->used = 0;
  }
  return s->r[s->used++];
}
FUNC REAL next_open(Stream* s) { return (REAL)open_f32(next_bits(s)); }
FUNC REAL next_normal(Stream* s) {
  const float radius = sqrt_f32(-2.0f * log_f32(open_f32(next_bits(s))));
  return (REAL)(radius * cos_turn_f32(unit_f32(next_bits(s))));
}

// log k! - (k log k - k + log(2 pi k) / 2) for k > 0
FUNC REAL stirling_tail(REAL k) {
  const REAL z = 1 / (k * k);
  return (1 - z * ((REAL)1 / 30 - z * ((REAL)1 / 105 - z * ((REAL)1 / 140)))) / (12 * k);
}

// log of the Poisson weight of k; (rate - k) / k is small where it matters, which keeps float32 exact enough.
FUNC REAL log_poisson(REAL k, REAL rate) {
  if (k < 1) return -rate;
  const REAL d = (rate - k) / k;
  return k * (log1p(d) - d) - (REAL)0.5 * log((REAL)6.283185307f * k) - stirling_tail(k);
}

FUNC REAL sample_poisson(Stream* s, REAL rate, REAL unused) {
  if (!(rate > 0)) return rate == 0 ? 0 : (REAL)NAN;
  if (rate < 10) {  // multiply uniforms until they fall below exp(-rate) (Knuth)
    const REAL limit = exp(-rate);
    REAL product = next_open(s), k = 0;
    while (product > limit) product *= next_open(s), k += 1;
    return k;
  }
  // Transformed rejection, PTRS (Hoermann, 1993)
  const REAL root = sqrt(rate), b = (REAL)0.931f + (REAL)2.53f * root, a = (REAL)-0.059f + (REAL)0.02483f * b;
  const REAL inverse = (REAL)1.1239f + (REAL)1.1328f / (b - (REAL)3.4f), squeeze = (REAL)0.9277f - (REAL)3.6224f / (b - 2);
  for (;;) {
    const REAL u = next_open(s) - (REAL)0.5f, v = next_open(s), us = (REAL)0.5f - fabs(u);
    const REAL k = floor((2 * a / us + b) * u + rate + (REAL)0.43f);
    if (us >= (REAL)0.07f && v <= squeeze) return k;
    if (k < 0 || (us < (REAL)0.013f && v > us)) continue;
    if (log(v * inverse / (a / (us * us) + b)) <= log_poisson(k, rate)) return k;
  }
}

// log of the binomial weight of k: two Poisson counts, given their sum. Nothing large cancels.
FUNC REAL log_binomial(REAL k, REAL count, REAL p) {
  return log_poisson(k, count * p) + log_poisson(count - k, count * (1 - p)) - log_poisson(count, count);
}

FUNC REAL sample_binomial(Stream* s, REAL count, REAL chance) {
  if (!(count >= 0 && chance >= 0 && chance <= 1)) return (REAL)NAN;
  count = floor(count);
  const REAL p = chance > (REAL)0.5f ? 1 - chance : chance;
  REAL k = 0;
  if (p == 0 || count == 0) {
    k = 0;
  } else if (count * p < 10) {  // add waiting times until they pass the count
    const REAL rate = 1 / log1p(-p);
    for (REAL sum = ceil(log(next_open(s)) * rate); sum <= count; sum += ceil(log(next_open(s)) * rate)) k += 1;
  } else {  // Transformed rejection, BTRS (Hoermann, 1993)
    const REAL dev = sqrt(count * p * (1 - p)), b = (REAL)1.15f + (REAL)2.53f * dev;
    const REAL a = (REAL)-0.0873f + (REAL)0.0248f * b + (REAL)0.01f * p, c = count * p + (REAL)0.5f;
    const REAL squeeze = (REAL)0.92f - (REAL)4.2f / b, alpha = ((REAL)2.83f + (REAL)5.1f / b) * dev;
    const REAL top = log_binomial(floor((count + 1) * p), count, p);
    for (;;) {
      const REAL u = next_open(s) - (REAL)0.5f, us = (REAL)0.5f - fabs(u);
      const REAL v = next_open(s);
      k = floor((2 * a / us + b) * u + c);
      if (us >= (REAL)0.07f && v <= squeeze) break;
      if (k < 0 || k > count) continue;
      if (log(v * alpha / (a / (us * us) + b)) <= log_binomial(k, count, p) - top) break;
    }
  }
  return chance > (REAL)0.5f ? count - k : k;
}

// Marsaglia and Tsang, "A simple method for generating gamma variables" (2000)
FUNC REAL sample_gamma(Stream* s, REAL alpha, REAL unused) {
  if (!(alpha > 0)) return alpha == 0 ? 0 : (REAL)NAN;
  REAL scale = 1;
  if (alpha < 1) {
    scale = pow(next_open(s), 1 / alpha);
    alpha += 1;
  }
  const REAL d = alpha - (REAL)1 / 3, c = 1 / sqrt(9 * d);
  for (;;) {
    const REAL x = next_normal(s), y = 1 + c * x;
    if (y <= 0) continue;
    const REAL v = y * y * y, u = next_open(s), xx = x * x;
    if (u < 1 - (REAL)0.0331f * xx * xx || log(u) < (REAL)0.5f * xx + d * (1 - v + log(v))) {
      const REAL sample = scale * d * v;
      return sample > (REAL)1.17549435e-38f ? sample : (REAL)1.17549435e-38f;
    }
  }
}

kernel sample(in T p, in T q, out T x, long n, long chunk, ulong seed, ulong offset) {
  const long first = GID0 * chunk, last = first + chunk < n ? first + chunk : n;
  for (long i = first; i < last; ++i) {
    Stream s;
    s.seed = seed, s.at = offset + (ulong)i, s.stream = 0, s.used = 4;
    x[i] = T_save(SAMPLE(&s, (REAL)T_load(p[i]), (REAL)T_load(q[i])));
  }
}
