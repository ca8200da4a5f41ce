// What CUDA C++ has built in, in plain C++ without any header: kernels rendered for CUDA then compile with g++.
#define __global__
#define __device__
struct Three { unsigned x, y, z; };
static thread_local Three blockIdx, threadIdx, blockDim, gridDim;
// Local memory is the thread's: the work-items of a block are fibers of one thread (tests/groups_on_cpu.c).
#define __shared__ static thread_local
#define __launch_bounds__(n, blocks)
extern "C" void group_barrier();
extern "C" void group_run(int size, void (*body)(void**, const long*, int), void** args, const long* place);
static inline void __syncthreads() {
  __asm__ volatile("" ::: "memory");
  group_barrier();
  __asm__ volatile("" ::: "memory");
}
static inline float __int_as_float(int v) { return *(float*)&v; }
static inline float __uint_as_float(unsigned v) { return *(float*)&v; }
static inline unsigned __float_as_uint(float v) { return *(unsigned*)&v; }
static inline unsigned atomicCAS(unsigned* p, unsigned seen, unsigned wanted) {
  return __sync_val_compare_and_swap(p, seen, wanted);
}
#define ONE(F)                                                \
  static inline float F(float x) { return __builtin_##F##f(x); } \
  static inline double F(double x) { return __builtin_##F(x); }
#define TWO(F)                                                               \
  static inline float F(float x, float y) { return __builtin_##F##f(x, y); } \
  static inline double F(double x, double y) { return __builtin_##F(x, y); }
#define IS(F)                                                \
  static inline bool F(float x) { return __builtin_##F(x); } \
  static inline bool F(double x) { return __builtin_##F(x); }
ONE(sin) ONE(cos) ONE(tan) ONE(asin) ONE(acos) ONE(atan) ONE(sinh) ONE(cosh) ONE(tanh) ONE(asinh) ONE(acosh) ONE(atanh)
ONE(exp) ONE(exp2) ONE(expm1) ONE(log) ONE(log2) ONE(log10) ONE(log1p) ONE(sqrt) ONE(cbrt) ONE(erf) ONE(erfc)
ONE(lgamma) ONE(tgamma) ONE(floor) ONE(ceil) ONE(trunc) ONE(rint) ONE(round) ONE(fabs)
TWO(pow) TWO(fmod) TWO(atan2) TWO(hypot) TWO(copysign) TWO(nextafter) TWO(fmin) TWO(fmax) TWO(remainder)
IS(isnan) IS(isinf) IS(isfinite)
static inline float rsqrt(float x) { return 1 / sqrt(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
static inline float ldexp(float x, int n) { return __builtin_ldexpf(x, n); }
static inline double ldexp(double x, int n) { return __builtin_ldexp(x, n); }
static inline float frexp(float x, int* n) { return __builtin_frexpf(x, n); }
static inline double frexp(double x, int* n) { return __builtin_frexp(x, n); }
static inline int abs(int x) { return x < 0 ? -x : x; }
static inline long abs(long x) { return x < 0 ? -x : x; }
