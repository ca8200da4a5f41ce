// Plain C dialect (gcc or clang), run by the host adapter.
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <tgmath.h>
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
#define GLOBAL
#define FUNC static inline
#define CONSTANT static const
// Groups (native/groups_c.h): an array of the group is one of the thread that runs it.
#define LOCAL
#define SHARED(T, name, n) static __thread T name[n]
#define BARRIER FIBER_BARRIER
#define UNROLL
// FOUR(V, float): V has four floats x, y, z, w, at an address that is a multiple of its size.
#define FOUR(V, T) typedef struct { T x, y, z, w; } __attribute__((aligned(4 * sizeof(T)), may_alias)) V
#ifdef _OPENMP
#define PARALLEL_FOR _Pragma("omp parallel for schedule(static) if (n > 1)")
#else
#define PARALLEL_FOR
#endif
FUNC float bits_to_f32(uint v) { float f; memcpy(&f, &v, 4); return f; }
FUNC uint f32_to_bits(float f) { uint v; memcpy(&v, &f, 4); return v; }
FUNC uint cas32(volatile uint* p, uint seen, uint wanted) { return __sync_val_compare_and_swap(p, seen, wanted); }
#define READ32(p) (*(p))
#define rsqrt(x) (1 / sqrt(x))
#define min(a, b) ({ __auto_type a_ = (a); __auto_type b_ = (b); a_ < b_ ? a_ : b_; })
#define max(a, b) ({ __auto_type a_ = (a); __auto_type b_ = (b); a_ > b_ ? a_ : b_; })
// VECTOR(V, float, 16): V is 16 floats, readable at any float's address. SPLAT(V, x): x in every lane.
#define VECTOR(V, T, LANES) typedef T V __attribute__((vector_size(LANES * sizeof(T)), aligned(sizeof(T)), may_alias));
#define SPLAT(V, x) ((x) - (V){0})
