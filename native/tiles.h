// Products on chips with local memory: GROUP = 256 work-items, as 16 x 16, make a tile of 64 or 128 rows and columns.
//
// Operands of a product lie in local memory as [depth][rows] and [depth][columns], so that a work-item reads four
// numbers at once; it has RM x RN of the results in registers, in pieces of 4 x 4 that lie 64 apart.
FOUR(Quad, ACC);
#define PAD 4
#define TROW (LID / 16)
#define TCOL (LID % 16)
#define ROW_OF(i) ((i) / 4 * 64 + TROW * 4 + (i) % 4)
#define COL_OF(j) ((j) / 4 * 64 + TCOL * 4 + (j) % 4)
#define LOWER(a, b) ((a) < (b) ? (a) : (b))
#define NUMBERS(name, n) /* an array of the group that is read and written by fours */ \
  SHARED(Quad, name##_four, ((n) + 3) / 4);                                            \
  LOCAL ACC* name = (LOCAL ACC*)name##_four
#define TAKE(to, from)                                \
  {                                                   \
    const Quad q_ = *(const LOCAL Quad*)(from);       \
    (to)[0] = q_.x, (to)[1] = q_.y, (to)[2] = q_.z, (to)[3] = q_.w; \
  }
#define PUT(to, from)                                 \
  {                                                   \
    Quad q_;                                          \
    q_.x = (from)[0], q_.y = (from)[1], q_.z = (from)[2], q_.w = (from)[3]; \
    *(LOCAL Quad*)(to) = q_;                          \
  }
// sum[rm][rn] += left[k][rows] * right[k][columns] over k < depth.
#define MULTIPLY(sum, rm, rn, left, left_step, right, right_step, depth)                                        \
  for (int k_ = 0; k_ < (depth); ++k_) {                                                                        \
    ACC a_[rm], x_[rn];                                                                                         \
    UNROLL for (int i_ = 0; i_ < rm; i_ += 4) TAKE(a_ + i_, left + k_ * (left_step) + ROW_OF(i_))               \
    UNROLL for (int j_ = 0; j_ < rn; j_ += 4) TAKE(x_ + j_, right + k_ * (right_step) + COL_OF(j_))             \
    UNROLL for (int i_ = 0; i_ < rm; ++i_) {                                                                    \
      UNROLL for (int j_ = 0; j_ < rn; ++j_) sum[i_][j_] += a_[i_] * x_[j_];                                    \
    }                                                                                                           \
  }
#define CLEAR(sum, rm, rn) \
  UNROLL for (int i_ = 0; i_ < rm; ++i_) { UNROLL for (int j_ = 0; j_ < rn; ++j_) sum[i_][j_] = 0; }
// q[0..3] = four elements from p on, `step` apart; what is past `n` of them is 0. `wide`: they lie together and aligned.
#define FETCH(q, V, LOAD, p, step, n, wide)                                                \
  if ((wide) && (n) >= 4) {                                                                \
    const V v_ = *(const GLOBAL V*)(p);                                                    \
    (q)[0] = LOAD(v_.x), (q)[1] = LOAD(v_.y), (q)[2] = LOAD(v_.z), (q)[3] = LOAD(v_.w);     \
  } else {                                                                                 \
    UNROLL for (int c_ = 0; c_ < 4; ++c_) (q)[c_] = c_ < (n) ? LOAD((p)[c_ * (step)]) : 0; \
  }
