// Waves of 32 work-items and one instruction for 16 x 16 x 16 halves (RDNA 3), for native/tiles.h.
//
// Of either operand work-item l holds line l % 16, all 16 numbers, so that everything is held twice; of the result column
// l % 16, in rows 2 e + l / 16. The unit is made transposed, and lines of the right side go in as 0, 8, 1, 9 ...: what
// a work-item gets are then 8 adjacent columns of one row.
#define WAVE 32
#define HAS_ROWS 1
#define HAS_COLS 8
#define LANE_ROW(lane, r) ((lane) % 16)
#define LANE_COL(lane) ((lane) / 16 * 8)
typedef ushort Eight __attribute__((vector_size(16), may_alias));
typedef float Sums __attribute__((vector_size(32), aligned(4), may_alias));
typedef struct { Eight low, high; } Left;
typedef Left Right;
#if BFLOAT
typedef short Operand __attribute__((vector_size(32)));
#define UNIT(a, x, sum) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, x, sum)
#else
typedef _Float16 Operand __attribute__((vector_size(32)));
#define UNIT(a, x, sum) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, x, sum)
#endif
FUNC Left line_at(const LOCAL ushort* line) {
  Left r;
  r.low = *(const LOCAL Eight*)line, r.high = *(const LOCAL Eight*)(line + 8);
  return r;
}
FUNC Left left_of(const LOCAL ushort* unit, const int step, const int lane) { return line_at(unit + lane % 16 * step); }
FUNC Right right_of(const LOCAL ushort* unit, const int step, const int lane) {
  return line_at(unit + (lane % 2 * 8 + lane % 16 / 2) * step);
}
FUNC void multiply(ACC* sum, const int step, const Left a, const Right x) {
  *(Sums*)sum = UNIT(__builtin_bit_cast(Operand, x), __builtin_bit_cast(Operand, a), *(Sums*)sum);
}
