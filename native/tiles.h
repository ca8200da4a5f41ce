// Products on chips with local memory: GROUP = 256 work-items make a tile of 64 or 128 rows and columns.
//
// A step of the product is TK of the depth: operands in local memory, the next ones on their way in registers. What
// differs between plain work-items and matrix instructions stands in the two halves below; kernels see OPERAND, PUT_STEP,
// MULTIPLY_STEP, and that a work-item has RM x RN of the results, ROW_OF(i), COL_OF(j): columns come by adjacent fours.
#ifndef WAVE
// Plain: operands lie as [depth][rows] and [depth][columns], so that a work-item reads four numbers at once; as 16 x 16
// they have the results in pieces of 4 x 4 that lie 64 apart.
#define HELD ACC
#define HELD_OF(LOAD) LOAD
#define DEPTH_INSIDE 0
#define TK 16
#define PAD 4
#define RM (TM / 16)
#define RN (TN / 16)
#define TROW (LID / 16)
#define TCOL (LID % 16)
#define ROW_OF(i) ((i) / 4 * 64 + TROW * 4 + (i) % 4)
#define COL_OF(j) ((j) / 4 * 64 + TCOL * 4 + (j) % 4)
#define OPERAND(name, width) NUMBERS(name, TK * ((width) + PAD))
#define PLACE(name, width, deep, across) name[(deep) * ((width) + PAD) + (across)]
#define MULTIPLY_STEP(sum, left, right) MULTIPLY(sum, RM, RN, left, TM + PAD, right, TN + PAD, TK)
#else
// Matrix instructions (a native/matrix_*.h stands before): waves of WAVE work-items make units of 16 x 16 x 16. Operands
// lie as they are in memory, halves in rows of the depth, for a work-item wants several along it. TK is a multiple of 16
// and a define; rows are 2 TK + 16 bytes apart, so that eight of them meet every bank of local memory once. A work-item
// has HAS_ROWS x HAS_COLS of a unit.
#define HELD ushort
#define HELD_OF(LOAD) AS_IT_IS
#define AS_IT_IS(v) (v)
#define DEPTH_INSIDE 1
#define PAD 8
#define DOWN (GROUP / WAVE / 2) /* waves below each other; two stand side by side */
#define LANE (LID % WAVE)
#define WAVE_ROW (LID / WAVE / 2 * (TM / DOWN))
#define WAVE_COL (LID / WAVE % 2 * (TN / 2))
#define RM (TM / DOWN / 16 * HAS_ROWS)
#define RN (TN / 2 / 16 * HAS_COLS)
#define ROW_OF(i) (WAVE_ROW + (i) / HAS_ROWS * 16 + LANE_ROW(LANE, (i) % HAS_ROWS))
#define COL_OF(j) (WAVE_COL + (j) / HAS_COLS * 16 + LANE_COL(LANE) + (j) % HAS_COLS)
FOUR(Bank, uint);
#define OPERAND(name, width)                            \
  SHARED(Bank, name##_banks, (width) * (TK + PAD) / 8); \
  LOCAL ushort* name = (LOCAL ushort*)name##_banks
#define PLACE(name, width, deep, across) name[(across) * (TK + PAD) + (deep)]
#define MULTIPLY_STEP(sum, left, right)                                                                               \
  UNROLL for (int k_ = 0; k_ < TK; k_ += 16) {                                                                        \
    Left a_[RM / HAS_ROWS];                                                                                           \
    UNROLL for (int i_ = 0; i_ < RM / HAS_ROWS; ++i_) a_[i_] = left_of(&PLACE(left, TM, k_, WAVE_ROW + i_ * 16), TK + PAD, LANE); \
    UNROLL for (int j_ = 0; j_ < RN / HAS_COLS; ++j_) {                                                               \
      const Right x_ = right_of(&PLACE(right, TN, k_, WAVE_COL + j_ * 16), TK + PAD, LANE);                           \
      UNROLL for (int i_ = 0; i_ < RM / HAS_ROWS; ++i_) multiply(&sum[i_ * HAS_ROWS][j_ * HAS_COLS], RN, a_[i_], x_); \
    }                                                                                                                 \
  }
#endif
// A step of an operand comes in fours, along the depth or across it: number p of a work-item is at DEEP_OF, ACROSS_OF.
// Those across it that lie in rows of the depth are taken by eights beside each other and four below each other, which
// writes to more banks at once than whole rows would.
#define FOURS(width) ((width) * TK / 4 / 256)
#define PIECE(p) (LID + (p) * 256)
#define ACROSS_OF(p, along, width)                                     \
  ((along)        ? PIECE(p) / (TK / 4)                                \
   : DEPTH_INSIDE ? (PIECE(p) / 32 % ((width) / 32) * 8 + LID % 8) * 4 \
                  : PIECE(p) % ((width) / 4) * 4)
#define DEEP_OF(p, along, width)                                            \
  ((along)        ? LID % (TK / 4) * 4                                      \
   : DEPTH_INSIDE ? LID / 8 % 4 * (TK / 4) + PIECE(p) / 32 / ((width) / 32) \
                  : PIECE(p) / ((width) / 4))
#define PUT_STEP(name, width, next, along)                                                               \
  UNROLL for (int p_ = 0; p_ < FOURS(width); ++p_) {                                                 \
    const int deep_ = DEEP_OF(p_, along, width), across_ = ACROSS_OF(p_, along, width);              \
    if ((along) == DEPTH_INSIDE) {                                                                   \
      PUT(&PLACE(name, width, deep_, across_), next[p_])                                             \
    } else {                                                                                         \
      UNROLL for (int c_ = 0; c_ < 4; ++c_)                                                          \
        PLACE(name, width, deep_ + ((along) ? c_ : 0), across_ + ((along) ? 0 : c_)) = next[p_][c_]; \
    }                                                                                                \
  }
FOUR(Quad, HELD);
#define LOWER(a, b) ((a) < (b) ? (a) : (b))
#define NUMBERS(name, n) /* an array of the group that is read and written by fours */ \
  SHARED(Quad, name##_four, ((n) + 3) / 4);                                            \
  LOCAL ACC* name = (LOCAL ACC*)name##_four
#define TAKE(to, from)                                              \
  {                                                                 \
    const Quad q_ = *(const LOCAL Quad*)(from);                     \
    (to)[0] = q_.x, (to)[1] = q_.y, (to)[2] = q_.z, (to)[3] = q_.w; \
  }
#define PUT(to, from)                                                       \
  {                                                                         \
    Quad q_;                                                                \
    q_.x = (from)[0], q_.y = (from)[1], q_.z = (from)[2], q_.w = (from)[3]; \
    *(LOCAL Quad*)(to) = q_;                                                \
  }
// sum[rm][rn] += left[k][rows] * right[k][columns] over k < depth.
#define MULTIPLY(sum, rm, rn, left, left_step, right, right_step, depth)                            \
  for (int k_ = 0; k_ < (depth); ++k_) {                                                            \
    ACC a_[rm], x_[rn];                                                                             \
    UNROLL for (int i_ = 0; i_ < rm; i_ += 4) TAKE(a_ + i_, left + k_ * (left_step) + ROW_OF(i_))   \
    UNROLL for (int j_ = 0; j_ < rn; j_ += 4) TAKE(x_ + j_, right + k_ * (right_step) + COL_OF(j_)) \
    UNROLL for (int i_ = 0; i_ < rm; ++i_) {                                                        \
      UNROLL for (int j_ = 0; j_ < rn; ++j_) sum[i_][j_] += a_[i_] * x_[j_];                        \
    }                                                                                               \
  }
#define CLEAR(sum, rm, rn) \
  UNROLL for (int i_ = 0; i_ < rm; ++i_) { UNROLL for (int j_ = 0; j_ < rn; ++j_) sum[i_][j_] = 0; }
// q[0..3] = four elements from p on, `step` apart; what is past `n` of them is 0. `wide`: they lie together and aligned.
#define FETCH(q, V, LOAD, p, step, n, wide)                                                \
  if ((wide) && (n) >= 4) {                                                                \
    const V v_ = *(const GLOBAL V*)(p);                                                    \
    (q)[0] = LOAD(v_.x), (q)[1] = LOAD(v_.y), (q)[2] = LOAD(v_.z), (q)[3] = LOAD(v_.w);    \
  } else {                                                                                 \
    UNROLL for (int c_ = 0; c_ < 4; ++c_) (q)[c_] = c_ < (n) ? LOAD((p)[c_ * (step)]) : 0; \
  }
