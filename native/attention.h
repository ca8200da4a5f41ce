// What the attention kernels share, forward and backward. Lanes of the vectors are rows of one operand (queries, or
// keys for the gradients), so that maxima, sums and exp work on whole vectors, and everything else is a matrix product
// of a few rows by a private panel of lanes.
// DIM: a bound of the head dimensions. MASK: 0 none, 1 bool (false: masked), 2 added. Layout dimensions are
// (dim, length, head, batch), those of the mask (key, query, head, batch). Source of the method: Dao et al.,
// FlashAttention (2022).
#define LANES (2 * VL)
#define D_ 0
#define L_ 1
#define H_ 2
#define B_ 3
#define OFF(K) (batch * g.stride[K][B_] + head * g.stride[K][H_])
VECTOR(W, WORD, VL)  // WORD: the integer as wide as ACC
DEFINE_LOAD(load_t, T, T_load, HALF)
FUNC V pick(const W wanted, const V a, const V b) {
  const W bits = (*(const W*)&a & wanted) | (*(const W*)&b & ~wanted);
  return *(V*)&bits;
}
FUNC V vmax(const V a, const V b) { return pick(a > b, a, b); }

// exp of a whole vector: x = n ln(2) + r, Taylor series of exp(r); below the smallest normal result 0.
#if DIGITS == 23  // bits of the fraction of ACC
#define ROUND 12582912.0f  // the adder rounds; the low bits of the sum are the integer
#define LN2_HIGH 0.693359375f
#define LN2_LOW (-2.12194440e-4f)
#define LEAST -87.0f
#else
#define ROUND 6755399441055744.0
#define LN2_HIGH 6.93147180369123816490e-01
#define LN2_LOW 1.90821492927058770002e-10
#define LEAST -708.0
#endif
#define TERM(C) p = p * r + SPLAT(V, (ACC)(C));
#define TERMS TERM(1.3888888888888889e-3) TERM(8.3333333333333333e-3) TERM(4.1666666666666667e-2) \
  TERM(1.6666666666666667e-1) TERM(0.5) TERM(1) TERM(1)
FUNC V vexp(const V x) {
  const V t = madd((ACC)1.4426950408889634, x, SPLAT(V, ROUND)), n = t - SPLAT(V, ROUND);
  const V r = madd(-LN2_LOW, n, madd(-LN2_HIGH, n, x));
#if DIGITS == 23
  V p = SPLAT(V, 1.98412698e-4f);
#else
  V p = SPLAT(V, 1.6059043836821615e-10);
  TERM(2.0876756987868099e-9) TERM(2.5052108385441719e-8) TERM(2.7557319223985891e-7) TERM(2.7557319223985891e-6)
  TERM(2.4801587301587302e-5) TERM(1.9841269841269841e-4)
#endif
  TERMS
  const W bits = *(W*)&p + (*(const W*)&t << DIGITS);
  return pick(x < SPLAT(V, LEAST), SPLAT(V, 0), *(V*)&bits);
}

// The lower and the upper halves of two vectors, lane by lane in turn.
#if VL == 16
#define LOW_ 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_ 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif VL == 8
#define LOW_ 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_ 4, 12, 5, 13, 6, 14, 7, 15
#elif VL == 4
#define LOW_ 0, 4, 1, 5
#define HIGH_ 2, 6, 3, 7
#else
#define LOW_ 0, 2
#define HIGH_ 1, 3
#endif
#ifdef __clang__
#define ZIP(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define ZIP(a, b, ...) __builtin_shuffle(a, b, (W){__VA_ARGS__})
#endif
FUNC void zip(const V* r, V* t) {
  for (int i = 0; i < VL / 2; ++i) {
    t[2 * i] = ZIP(r[i], r[i + VL / 2], LOW_);
    t[2 * i + 1] = ZIP(r[i], r[i + VL / 2], HIGH_);
  }
}
// r becomes its transpose.
FUNC void turn(V* r) {
  V t[VL];
  for (int n = VL; n > 1; n /= 4) {
    zip(r, t);
    if (n > 2) zip(t, r);
    else
      for (int i = 0; i < VL; ++i) r[i] = t[i];
  }
}
// Lane i: the sum of the lanes of r[i]. r is spoiled.
FUNC V totals(V* r) {
  for (int n = VL / 2; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) r[i] = ZIP(r[i], r[i + n], LOW_) + ZIP(r[i], r[i + n], HIGH_);
  return r[0];
}

// y[o][LANES] = (add ? y : 0) + sum over i of x[o, i] * v[i][LANES], for `outer` o and `inner` i; `narrow`: only the
// first half of the lanes.
FUNC void product(const GLOBAL T* restrict x, const IDX o_step, const IDX i_step, const int outer, const int inner,
                  const ACC* restrict v, ACC* restrict y, const int add, const int narrow) {
  for (int o = 0; o < outer; o += MR) {
#define ROW(R)                                                                            \
  const GLOBAL T* restrict x##R = x + (o + R < outer ? o + R : outer - 1) * o_step;       \
  V s##R = SPLAT(V, 0), t##R = SPLAT(V, 0);
    EACH_ROW(ROW)
#undef ROW
    if (narrow) {
      for (int i = 0; i < inner; ++i) {
        const V v0 = HERE(v, i * LANES);
#define ROW(R) s##R = madd(T_load(x##R[i * i_step]), v0, s##R);
        EACH_ROW(ROW)
#undef ROW
      }
    } else {
      for (int i = 0; i < inner; ++i) {
        const V v0 = HERE(v, i * LANES), v1 = HERE(v, i * LANES + VL);
#define ROW(R)                                  \
  const ACC c##R = T_load(x##R[i * i_step]);    \
  s##R = madd(c##R, v0, s##R);                  \
  t##R = madd(c##R, v1, t##R);
        EACH_ROW(ROW)
#undef ROW
      }
    }
#define ROW(R)                              \
  if (o + R < outer) {                      \
    ACC* to = y + (o + R) * LANES;          \
    if (add) s##R += HERE(to, 0);           \
    HERE(to, 0) = s##R;                     \
    if (add) t##R += HERE(to, VL);          \
    HERE(to, VL) = t##R;                    \
  }
    EACH_ROW(ROW)
#undef ROW
  }
}

// panel[d][LANES] = factor * x[lane, d]; lanes past the end are 0.
FUNC void take(ACC* restrict panel, const GLOBAL T* restrict x, const IDX l_step, const IDX d_step, const int lanes,
               const int dim, const ACC factor) {
  int d = 0;
  if (d_step == 1)
    for (; d + VL <= dim; d += VL)
      for (int l0 = 0; l0 < LANES; l0 += VL) {
        V r[VL];
        for (int l = 0; l < VL; ++l) {
          r[l] = SPLAT(V, 0);
          if (l0 + l < lanes) r[l] = load_t(x + (l0 + l) * l_step + d) * SPLAT(V, factor);
        }
        turn(r);
        for (int j = 0; j < VL; ++j) HERE(panel, (d + j) * LANES + l0) = r[j];
      }
  for (; d < dim; ++d)
    for (int l = 0; l < LANES; ++l) panel[d * LANES + l] = l < lanes ? factor * (ACC)T_load(x[l * l_step + d * d_step]) : 0;
}

// x[lane, d] = factor * panel[d][LANES]
FUNC void give(GLOBAL T* restrict x, const IDX l_step, const IDX d_step, const int lanes, const int dim,
               const ACC* restrict panel, const ACC factor) {
  int d = 0;
  if (d_step == 1)
    for (; d + VL <= dim; d += VL)
      for (int l0 = 0; l0 < lanes; l0 += VL) {
        V r[VL];
        for (int j = 0; j < VL; ++j) r[j] = HERE(panel, (d + j) * LANES + l0) * SPLAT(V, factor);
        turn(r);
        for (int l = 0; l < VL && l0 + l < lanes; ++l) {
          GLOBAL T* restrict to = x + (l0 + l) * l_step + d;
          for (int j = 0; j < VL; ++j) to[j] = T_save(((const ACC*)&r[l])[j]);
        }
      }
  for (; d < dim; ++d)
    for (int l = 0; l < lanes; ++l) x[l * l_step + d * d_step] = T_save(factor * panel[d * LANES + l]);
}

FUNC void clear(ACC* restrict panel, const int n) {
  for (int i = 0; i < n * LANES; i += VL) HERE(panel, i) = SPLAT(V, 0);
}

// s[at] and the lanes behind it become -inf where not `seen`.
FUNC void hide(ACC* restrict s, const int at, const W seen) { HERE(s, at) = pick(seen, HERE(s, at), SPLAT(V, -INFINITY)); }
FUNC W ramp(void) {
  W r;
  for (int l = 0; l < VL; ++l) ((WORD*)&r)[l] = l;
  return r;
}

#if MASK == 1
// Bit j: whether the query whose row of the mask this is sees key j of n <= 64.
typedef ulong Bytes __attribute__((aligned(1), may_alias));
FUNC ulong seen_bits(const GLOBAL T_m* restrict row, const IDX step, const int n) {
  const ulong all = n < 64 ? ((ulong)1 << n) - 1 : ~(ulong)0;
  if (step == 0) return T_m_load(row[0]) ? all : 0;
  ulong bits = 0;
  int j = 0;
  if (step == 1)
    for (; j + 8 <= n; j += 8) {
      ulong b = *(const GLOBAL Bytes*)(row + j);
      b = ((b & 0x7f7f7f7f7f7f7f7fUL) + 0x7f7f7f7f7f7f7f7fUL | b) >> 7 & 0x0101010101010101UL;
      bits |= (b * 0x0102040810204080UL >> 56) << j;
    }
  for (; j < n; ++j) bits |= (ulong)(T_m_load(row[j * step]) ? 1 : 0) << j;
  return bits;
}
#endif
