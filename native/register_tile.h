// Register tiles: V is VL numbers of type ACC, MR the rows of a tile.
VECTOR(V, ACC, VL)
#define AT(p, i) (*(const GLOBAL V*)((p) + (i)))
#define HERE(p, i) (*(V*)((p) + (i)))
// A function with vector parameters: clang keeps to half-width registers where it sees none.
FUNC V madd(const ACC a, const V x, const V s) { return a * x + s; }

#if MR == 8
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#elif MR == 6
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)
#elif MR == 4
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3)
#else
#define EACH_ROW(DO) DO(0)
#endif
