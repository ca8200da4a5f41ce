// CUDA C++ dialect, which HIP shares: NVRTC, nvcc, hipRTC or clang.
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef LONG_MAX
#define LONG_MAX 0x7fffffffffffffffL
#define LONG_MIN (-LONG_MAX - 1)
#define ULONG_MAX 0xffffffffffffffffUL
#endif
#ifndef INT_MAX
#define INT_MAX 0x7fffffff
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 0xffffffffU
#endif
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
static_assert(sizeof(long) == 8, "long has 64 bits in kernels");
#define GLOBAL
#define FUNC static __device__ inline
#define CONSTANT static __device__ const
#define restrict __restrict__
// Blocks stand in lines, so that no side of CUDA's grid is too short; the last block may reach past the end.
#define ENTER(a)                                                                                      \
  const long GSIZE0 = (a).grid0_, GSIZE1 = (a).grid1_, GSIZE2 = (a).grid2_, line_ = GSIZE1 * GSIZE2;  \
  const long item_ = ((long)blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;          \
  if (item_ >= GSIZE0 * line_) return;                                                                \
  const long GID0 = line_ == 1 ? item_ : item_ % GSIZE0, rest_ = line_ == 1 ? 0 : item_ / GSIZE0;     \
  const long GID1 = rest_ % GSIZE1, GID2 = rest_ / GSIZE1;
// The same for groups: a block is a group.
#define ENTER_GROUP(a)                                                                                   \
  const long GROUPS0 = (a).grid0_, GROUPS1 = (a).grid1_, GROUPS2 = (a).grid2_;                           \
  const long group_ = (long)blockIdx.y * gridDim.x + blockIdx.x;                                         \
  if (group_ >= GROUPS0 * GROUPS1 * GROUPS2) return;                                                     \
  const long GROUP0 = group_ % GROUPS0, GROUP1 = group_ / GROUPS0 % GROUPS1, GROUP2 = group_ / GROUPS0 / GROUPS1; \
  const int LID = threadIdx.x;
#define LOCAL
#define SHARED(T, name, n) __shared__ T name[n]
#define BARRIER __syncthreads()
#define UNROLL _Pragma("unroll")
// FOUR(V, float): V has four floats x, y, z, w, at an address that is a multiple of its size: one load of 16 bytes.
#define FOUR(V, T) typedef struct __attribute__((aligned(4 * sizeof(T)))) { T x, y, z, w; } V
FUNC float bits_to_f32(uint v) { return __uint_as_float(v); }
FUNC uint f32_to_bits(float v) { return __float_as_uint(v); }
FUNC uint cas32(volatile uint* p, uint seen, uint wanted) { return atomicCAS((uint*)p, seen, wanted); }
#define READ32(p) (*(p))
// CUDA's own take no mixed types. Template parameters end in an underscore: defines of a kernel come before them.
template <class A_, class B_> FUNC auto least(A_ a, B_ b) -> decltype(a < b ? a : b) { return a < b ? a : b; }
template <class A_, class B_> FUNC auto most(A_ a, B_ b) -> decltype(a > b ? a : b) { return a > b ? a : b; }
#define min(a, b) least(a, b)
#define max(a, b) most(a, b)
// VECTOR(V, float, 16): V is 16 floats, readable at any float's address. SPLAT(V, x): x in every lane.
template <class T_, int N_> struct lanes {
  T_ lane[N_];
  FUNC lanes splat(T_ x) { lanes r; for (int i = 0; i < N_; ++i) r.lane[i] = x; return r; }
};
#define VECTOR(V, T, LANES) typedef lanes<T, LANES> V;
#define SPLAT(V, x) V::splat(x)
#define EACH_LANE(OP)                                                                                    \
  template <class T_, int N_> FUNC lanes<T_, N_> operator OP(lanes<T_, N_> x, const lanes<T_, N_>& y) {  \
    for (int i = 0; i < N_; ++i) x.lane[i] = x.lane[i] OP y.lane[i];                                     \
    return x;                                                                                            \
  }
EACH_LANE(+) EACH_LANE(-) EACH_LANE(*)
template <class T_, int N_> FUNC lanes<T_, N_> operator*(T_ a, lanes<T_, N_> x) {
  for (int i = 0; i < N_; ++i) x.lane[i] = a * x.lane[i];
  return x;
}
