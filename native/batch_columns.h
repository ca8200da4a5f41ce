// Batch norm of columns: [rows, width] where column c is of channel c / span, a part of the rows and a tile of the columns
// to a work-item. Explicit vectors for all whole vectors of a tile, then its last columns one by one.
#define LOWER(a, b) ((a) < (b) ? (a) : (b))
#define TILE 1024
DEFINE_ROW(T, T_KIND)
DEFINE_ROW(ACC, 0)
#define FIRST ((IDX)(GID1 * part))
#define STOP ((IDX)LOWER(FIRST + part, rows))
#define BEGIN ((IDX)GID0 * TILE)
#define COLUMNS LOWER(width - BEGIN, TILE)
#define EACH(VECTORS, ONE)                        \
  {                                               \
    IDX j = 0;                                    \
    for (; j + VL <= n; j += VL) { VECTORS }      \
    for (; j < n; ++j) { ONE }                    \
  }
#define SCALE(c) (HAS_W ? WT_load(weight[c]) : (ACC)1)
