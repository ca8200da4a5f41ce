// Waves of 32 work-items and two instructions of 16 x 8 x 16 halves for a unit (NVIDIA's, from sm_80), for native/tiles.h.
//
// Work-item l, with g = l / 4 and t = l % 4, holds of the left lines g and g + 8, of the right line g, and there numbers
// 2 t, 2 t + 1, 2 t + 8 and 2 t + 9; of the result rows g and g + 8 in columns 2 t and 2 t + 1. The order of the depth is
// free, so these are numbers 4 t to 4 t + 3 here; the two instructions share columns so that a work-item gets 4 adjacent.
#define WAVE 32
#define HAS_ROWS 2
#define HAS_COLS 4
#define LANE_ROW(lane, r) ((lane) / 4 + (r) * 8)
#define LANE_COL(lane) ((lane) % 4 * 4)
typedef struct __attribute__((aligned(8))) { uint low, high; } Line;
typedef struct { Line upper, lower; } Left;
typedef struct { Line columns[2]; } Right;
#if BFLOAT
#define MMA_TYPES "bf16.bf16"
#else
#define MMA_TYPES "f16.f16"
#endif
#ifndef MMA  // a test has its own
#define MMA(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1)                                                                   \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." MMA_TYPES ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)                                                               \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#endif
FUNC Line line_at(const LOCAL ushort* unit, const int step, const int line, const int lane) {
  return *(const LOCAL Line*)(unit + line * step + lane % 4 * 4);
}
FUNC Left left_of(const LOCAL ushort* unit, const int step, const int lane) {
  Left r;
  r.upper = line_at(unit, step, lane / 4, lane), r.lower = line_at(unit, step, lane / 4 + 8, lane);
  return r;
}
FUNC Right right_of(const LOCAL ushort* unit, const int step, const int lane) {
  Right r;
  UNROLL for (int f = 0; f < 2; ++f) r.columns[f] = line_at(unit, step, lane / 8 * 4 + f * 2 + lane / 4 % 2, lane);
  return r;
}
FUNC void multiply(ACC* sum, const int step, const Left a, const Right x) {
  UNROLL for (int f = 0; f < 2; ++f) {
    ACC* upper = sum + f * 2;
    ACC* lower = sum + step + f * 2;
    MMA(upper[0], upper[1], lower[0], lower[1], a.upper.low, a.lower.low, a.upper.high, a.lower.high, x.columns[f].low, x.columns[f].high);
  }
}
