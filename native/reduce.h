// Reductions: y[kept] = END(JOIN over the reduced dimensions of MAP(x)).
//
// ACC is the type it accumulates in. In the macros: v the element, z the same element of `other`, s the number of this
// output in `shift`, r the row-major index among the reduced elements, a and b partial results, e a number given at
// launch, count the number of reduced elements. Their types are VAL, ZVAL, SVAL, IDX, ACC, EXTRA. GID1 is a part of the
// reduced elements; parts lie `part_stride` apart in y.
#define LANES 32
#define BLOCK 4096  // elements per accumulator level: partial results of blocks are joined, so rounding errors stay small
#define LOWER(a, b) ((a) < (b) ? (a) : (b))

FUNC ACC map_one(VAL v, ZVAL z, SVAL s, IDX r, EXTRA e) { return (ACC)(MAP); }
FUNC ACC join(ACC a, ACC b) { return JOIN; }
FUNC ACC end_one(ACC a, SVAL s, EXTRA e, long count) { return END; }
