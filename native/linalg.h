// Vectors of numbers in memory, for the kernels of dense linear algebra. Matrices are column-major and dense, one after
// the other; LANES: numbers handled together (1 where the chip's work-items are its lanes). ACC: type of single sums.
#if LANES > 1
VECTOR(V, T, LANES)
#define AT(p, i) (*(const GLOBAL V*)((p) + (i)))
#define HERE(p, i) (*(GLOBAL V*)((p) + (i)))
FUNC ACC total_of(const V v) {
  T lanes[LANES];
  ACC sum = 0;
  *(V*)lanes = v;
  for (int j = 0; j < LANES; ++j) sum += lanes[j];
  return sum;
}
#else
typedef T V;
#define AT(p, i) ((p)[i])
#define HERE(p, i) ((p)[i])
#undef SPLAT
#define SPLAT(V, x) (x)
#define total_of(v) (v)
#endif

FUNC T dot(GLOBAL const T* x, GLOBAL const T* y, IDX n) {
  V a = SPLAT(V, (T)0), b = a;
  IDX i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) {
    a += AT(x, i) * AT(y, i);
    b += AT(x, i + LANES) * AT(y, i + LANES);
  }
  for (; i + LANES <= n; i += LANES) a += AT(x, i) * AT(y, i);
  ACC sum = total_of(a + b);
  for (; i < n; ++i) sum += (ACC)x[i] * y[i];
  return (T)sum;
}

// y += s x
FUNC void add_scaled(GLOBAL T* y, const T s, GLOBAL const T* x, IDX n) {
  IDX i = 0;
  for (; i + LANES <= n; i += LANES) HERE(y, i) = AT(y, i) + s * AT(x, i);
  for (; i < n; ++i) y[i] += s * x[i];
}

FUNC void scale_by(GLOBAL T* x, const T s, IDX n) {
  for (IDX i = 0; i < n; ++i) x[i] *= s;
}

// (x, y) = (c x - s y, s x + c y)
FUNC void rotate_pair(GLOBAL T* x, GLOBAL T* y, const T c, const T s, IDX n) {
  IDX i = 0;
  for (; i + LANES <= n; i += LANES) {
    const V p = AT(x, i), q = AT(y, i);
    HERE(x, i) = c * p - s * q;
    HERE(y, i) = s * p + c * q;
  }
  for (; i < n; ++i) {
    const T p = x[i], q = y[i];
    x[i] = c * p - s * q;
    y[i] = s * p + c * q;
  }
}

FUNC void exchange(GLOBAL T* x, GLOBAL T* y, IDX n) {
  for (IDX i = 0; i < n; ++i) {
    const T v = x[i];
    x[i] = y[i];
    y[i] = v;
  }
}

FUNC T largest(GLOBAL const T* x, IDX n) {
  T most = 0;
  for (IDX i = 0; i < n; ++i) {
    const T v = fabs(x[i]);
    most = v > most || v != v ? v : most;
  }
  return most;
}

// The length of x, without overflow or underflow of the squares.
FUNC T length_of(GLOBAL const T* x, IDX n) {
  const T most = largest(x, n);
  if (most == 0 || most * 0 != 0) return most;
  if (most > (T)1e-12 && most < (T)1e12) return sqrt(dot(x, x, n));
  T sum = 0;
  for (IDX i = 0; i < n; ++i) sum += (x[i] / most) * (x[i] / most);
  return most * sqrt(sum);
}

// The reflection I - tau v v^T, v[0] = 1, that takes x to a multiple of the first axis. x becomes (multiple, v[1:]).
FUNC T reflector(GLOBAL T* x, IDX n) {
  const T rest = length_of(x + 1, n - 1), first = x[0];
  if (rest == 0) return 0;
  const T size = hypot(first, rest), multiple = first > 0 ? -size : size;
  for (IDX i = 1; i < n; ++i) x[i] /= first - multiple;
  x[0] = multiple;
  return (multiple - first) / multiple;
}

// x -= tau v (v^T x), where v[0] = 1 is not stored.
FUNC void reflect_one(GLOBAL T* x, GLOBAL const T* v, const T tau, IDX n) {
  const T s = tau * (x[0] + dot(x + 1, v + 1, n - 1));
  x[0] -= s;
  add_scaled(x + 1, -s, v + 1, n - 1);
}
