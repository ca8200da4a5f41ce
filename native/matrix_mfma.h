// Waves of 64 work-items and one instruction for 16 x 16 x 16 halves (CDNA 2 and 3), for native/tiles.h.
//
// Of either operand work-item l holds numbers 4 (l / 16) to 4 (l / 16) + 3 of line l % 16; of the result column l % 16, in
// rows 4 (l / 16) + e. The unit is made transposed, so that a work-item gets 4 adjacent columns of one row.
#define WAVE 64
#define HAS_ROWS 1
#define HAS_COLS 4
#define LANE_ROW(lane, r) ((lane) % 16)
#define LANE_COL(lane) ((lane) / 16 * 4)
typedef ushort Left __attribute__((vector_size(8), may_alias));
typedef Left Right;
typedef float Sums __attribute__((vector_size(16), aligned(4), may_alias));
#if BFLOAT
typedef short Operand __attribute__((vector_size(8)));
#define UNIT(a, x, sum) __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, x, sum, 0, 0, 0)
#else
typedef _Float16 Operand __attribute__((vector_size(8)));
#define UNIT(a, x, sum) __builtin_amdgcn_mfma_f32_16x16x16f16(a, x, sum, 0, 0, 0)
#endif
FUNC Left left_of(const LOCAL ushort* unit, const int step, const int lane) {
  return *(const LOCAL Left*)(unit + lane % 16 * step + lane / 16 * 4);
}
FUNC Right right_of(const LOCAL ushort* unit, const int step, const int lane) { return left_of(unit, step, lane); }
FUNC void multiply(ACC* sum, const int step, const Left a, const Right x) {
  *(Sums*)sum = UNIT(__builtin_bit_cast(Operand, x), __builtin_bit_cast(Operand, a), *(Sums*)sum);
}
