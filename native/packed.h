// An element and its index as one comparable thing, E: no two are equal, so every order found is the stable one.
// WIDE: keys of 64 bits.
#if WIDE
typedef struct { long key, at; } E;
#define LESS(a, b) ((a).key < (b).key || ((a).key == (b).key && (a).at < (b).at))
#define AT(e) ((IDX)(e).at)
#else
typedef long E;
#define LESS(a, b) ((a) < (b))
#define AT(e) ((IDX)((e) & 0xffffffffL))
#endif
