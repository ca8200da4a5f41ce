// What HIP's own headers declare, as far as kernels use it: enough for clang to compile them for a card without ROCm.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(n, blocks) __attribute__((amdgpu_flat_work_group_size(1, n)))
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
#define TWO(F) __device__ float F(float, float); __device__ double F(double, double);
#define IS(F) __device__ bool F(float); __device__ bool F(double);
ONE(sin) ONE(cos) ONE(tan) ONE(asin) ONE(acos) ONE(atan) ONE(sinh) ONE(cosh) ONE(tanh) ONE(asinh) ONE(acosh) ONE(atanh)
ONE(exp) ONE(exp2) ONE(expm1) ONE(log) ONE(log2) ONE(log10) ONE(log1p) ONE(sqrt) ONE(cbrt) ONE(erf) ONE(erfc)
ONE(lgamma) ONE(tgamma) ONE(floor) ONE(ceil) ONE(trunc) ONE(rint) ONE(round) ONE(fabs) ONE(rsqrt)
TWO(pow) TWO(fmod) TWO(atan2) TWO(hypot) TWO(copysign) TWO(nextafter) TWO(fmin) TWO(fmax) TWO(remainder)
IS(isnan) IS(isinf) IS(isfinite)
__device__ float fma(float, float, float);
__device__ double fma(double, double, double);
__device__ float ldexp(float, int);
__device__ double ldexp(double, int);
__device__ float frexp(float, int*);
__device__ double frexp(double, int*);
__device__ int abs(int);
__device__ long abs(long);
