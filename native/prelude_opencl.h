// OpenCL C dialect.
#if __OPENCL_VERSION__ < 200 && defined(cl_khr_fp64)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif
#pragma OPENCL FP_CONTRACT ON
#define GLOBAL global
#define FUNC static inline
#define CONSTANT constant
#define GID0 ((long)get_global_id(0))
#define GID1 ((long)get_global_id(1))
#define GID2 ((long)get_global_id(2))
#define GSIZE0 grid0_
#define GSIZE1 ((long)get_global_size(1))
#define GSIZE2 ((long)get_global_size(2))
#define LOCAL local
#define LID ((int)get_local_id(0))
#define GROUP0 ((long)get_group_id(0))
#define GROUP1 ((long)get_group_id(1))
#define GROUP2 ((long)get_group_id(2))
#define GROUPS0 ((long)get_num_groups(0))
#define GROUPS1 ((long)get_num_groups(1))
#define GROUPS2 ((long)get_num_groups(2))
#define SHARED(T, name, n) local T name[n]
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define UNROLL _Pragma("unroll")
// FOUR(V, float): V has four floats x, y, z, w, at an address that is a multiple of its size.
#define FOUR(V, T) FOUR_(V, T)
#define FOUR_(V, T) typedef T##4 V
FUNC float bits_to_f32(uint v) { return as_float(v); }
FUNC uint f32_to_bits(float v) { return as_uint(v); }
// One compare-and-swap of 32 bits: the base of every atomic here.
FUNC uint cas32(volatile global uint* p, uint seen, uint wanted) { return atomic_cmpxchg(p, seen, wanted); }
// The first read of a compare-and-swap loop: a stale number costs a round, no more. Oclgrind calls a plain read a race.
#ifdef PYOPENCL_USING_OCLGRIND
#define READ32(p) atomic_or(p, 0u)
#else
#define READ32(p) (*(p))
#endif
// VECTOR(V, float, 16): V is 16 floats, readable at any float's address. SPLAT(V, x): x in every lane. Not OpenCL's
// own vector types with vload: some drivers leave those builtins as calls.
#define VECTOR(V, T, LANES) typedef T V __attribute__((ext_vector_type(LANES), aligned(sizeof(T))));
#define SPLAT(V, x) ((V)(x))
