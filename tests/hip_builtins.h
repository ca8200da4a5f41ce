// What HIP's own headers declare, as far as kernels use it: enough for clang to compile them for a card without ROCm.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(n, waves) __attribute__((amdgpu_flat_work_group_size(1, n), amdgpu_waves_per_eu(waves)))
#define __syncthreads() (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"), __builtin_amdgcn_s_barrier())
#define blockIdx (Three{__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), 0})
#define threadIdx (Three{__builtin_amdgcn_workitem_id_x(), 0, 0})
#define blockDim (Three{__builtin_amdgcn_workgroup_size_x(), 1, 1})
#define gridDim (Three{__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(), 1, 1})
struct Three { unsigned x, y, z; };
static __device__ inline float __int_as_float(int v) { return __builtin_bit_cast(float, v); }
static __device__ inline float __uint_as_float(unsigned v) { return __builtin_bit_cast(float, v); }
static __device__ inline unsigned __float_as_uint(float v) { return __builtin_bit_cast(unsigned, v); }
__device__ unsigned atomicCAS(unsigned* p, unsigned seen, unsigned wanted);
#define ONE(F) __device__ float F(float); __device__ double F(double);
#define BUILT_IN(F) static __device__ inline float F(float x) { return __builtin_##F##f(x); } __device__ double F(double);
#define BUILT_IN2(F) static __device__ inline float F(float x, float y) { return __builtin_##F##f(x, y); } \
  static __device__ inline double F(double x, double y) { return __builtin_##F(x, y); }
#define TWO(F) __device__ float F(float, float); __device__ double F(double, double);
#define IS(F) __device__ bool F(float); __device__ bool F(double);
ONE(sin) ONE(cos) ONE(tan) ONE(asin) ONE(acos) ONE(atan) ONE(sinh) ONE(cosh) ONE(tanh) ONE(asinh) ONE(acosh) ONE(atanh)
BUILT_IN(exp) BUILT_IN(exp2) BUILT_IN(log) BUILT_IN(log2) BUILT_IN(log10) BUILT_IN(floor) BUILT_IN(ceil)
BUILT_IN(trunc) BUILT_IN(rint) BUILT_IN(round) BUILT_IN(fabs)
static __device__ inline float sqrt(float x) { return __builtin_sqrtf(x); }
static __device__ inline double sqrt(double x) { return __builtin_sqrt(x); }
static __device__ inline float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
static __device__ inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
ONE(expm1) ONE(log1p) ONE(cbrt) ONE(erf) ONE(erfc) ONE(lgamma) ONE(tgamma)
BUILT_IN2(copysign) BUILT_IN2(fmin) BUILT_IN2(fmax)
TWO(pow) TWO(fmod) TWO(atan2) TWO(hypot) TWO(nextafter) TWO(remainder)
IS(isnan) IS(isinf) IS(isfinite)
static __device__ inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static __device__ inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
__device__ float ldexp(float, int);
__device__ double ldexp(double, int);
__device__ float frexp(float, int*);
__device__ double frexp(double, int*);
__device__ int abs(int);
__device__ long abs(long);
