// One pass of a Fourier transform along a dimension of n elements: n/r transforms of r elements each, for every line.
//
// After passes with radices whose product is `ns`, the next one of radix r takes elements n/r apart and puts results ns
// apart, so that the last pass leaves everything in order. Source of the method: Stockham's autosort algorithm as
// written by Govindaraju et al., High Performance Discrete Fourier Transforms on Graphics Processors (2008).
//
// w[k] = exp(-2 pi i k / n); sign -1 conjugates it. `m` walks the other dimensions (strides of y and x); sy, sx: strides
// of the dimension itself. INPUT: 0 complex numbers, 1 real ones, 2 the first half of a Hermitian line. OUTPUT: 0 complex
// numbers, of which the first `limit` are written, 1 their real parts. RADIX 4 has code of its own, 0 means any up to
// MAX_RADIX.
typedef struct { REAL re, im; } Pair;

FUNC Pair pair(REAL re, REAL im) {
  Pair z;
  z.re = re;
  z.im = im;
  return z;
}
FUNC Pair plus(Pair a, Pair b) { return pair(a.re + b.re, a.im + b.im); }
FUNC Pair minus(Pair a, Pair b) { return pair(a.re - b.re, a.im - b.im); }
FUNC Pair turned(Pair a, Pair w, REAL sign) {
  return pair(a.re * w.re - sign * a.im * w.im, sign * a.re * w.im + a.im * w.re);
}

#if INPUT == 0
#define ELEMENT(k) x[ax + (k) * sx]
#elif INPUT == 1
#define ELEMENT(k) pair(X_load(x[ax + (k) * sx]), 0)
#else
FUNC Pair mirrored(Pair z, int conjugate) { return conjugate ? pair(z.re, -z.im) : z; }
#define ELEMENT(k) mirrored(x[ax + (2 * (k) > n ? n - (k) : (k)) * sx], 2 * (k) > n)
#endif
#if OUTPUT == 0
#define STORE(k, z) if ((k) < limit) y[ay + (k) * sy] = pair((z).re * scale, (z).im * scale)
#else
#define STORE(k, z) y[ay + (k) * sy] = Y_save((z).re * scale)
#endif

kernel fft_pass(in X x, out Y y, in Pair w, long total, long chunk, long length, long done, long radix, long lines, long limit_, int across, REAL sign, REAL scale, Layout2 m, long sx_, long sy_) {
  const IDX n = (IDX)length, ns = (IDX)done, r = (IDX)radix, apart = n / r, turn = apart / ns, limit = (IDX)limit_;
  const IDX sx = (IDX)sx_, sy = (IDX)sy_, first = (IDX)(GID0 * chunk), last = first + chunk < total ? first + chunk : total;
  for (IDX i = first; i < last; ++i) {
    IDX row = across ? i % lines : i / apart, ax = 0, ay = 0;
    const IDX j = across ? i / lines : i - row * apart, at = j % ns, to = (j / ns) * ns * r + at;
    for (IDX d = 0; d < m.rank; ++d) {
      const IDX q = row % m.size[d];
      row /= m.size[d];
      ay += q * m.stride[0][d];
      ax += q * m.stride[1][d];
    }
#if RADIX == 4
    const Pair a = ELEMENT(j), b = turned(ELEMENT(j + apart), w[at * turn], sign);
    const Pair c = turned(ELEMENT(j + 2 * apart), w[2 * at * turn], sign);
    const Pair d = turned(ELEMENT(j + 3 * apart), w[3 * at * turn], sign);
    const Pair ac = plus(a, c), a_c = minus(a, c), bd = plus(b, d), b_d = minus(b, d), i_bd = pair(sign * b_d.im, -sign * b_d.re);
    STORE(to, plus(ac, bd));
    STORE(to + ns, plus(a_c, i_bd));
    STORE(to + 2 * ns, minus(ac, bd));
    STORE(to + 3 * ns, minus(a_c, i_bd));
#else
    Pair v[MAX_RADIX];
    for (IDX q = 0; q < r; ++q) v[q] = turned(ELEMENT(j + q * apart), w[q * at * turn], sign);
    for (IDX k = 0; k < r; ++k) {
      Pair sum = v[0];
      IDX p = 0;
      for (IDX q = 1; q < r; ++q) {
        p = p + k < r ? p + k : p + k - r;
        sum = plus(sum, turned(v[q], w[p * apart], sign));
      }
      STORE(to + k * ns, sum);
    }
#endif
  }
}
