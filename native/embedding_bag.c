// Bags of embeddings: sum, mean or maximum of the rows that an index list names; and rows limited to a norm.
//
// T: element of the table, TI: index, TO: offset, TB: number of a bag. MODE: SUM, MEAN or MAX; WEIGHTED: each row has a factor.
#define SUM 0
#define MEAN 1
#define MAX 2

// The range of indices that bag b owns; offsets that lie outside the list are cut.
#define BAG_RANGE                                               \
  const long low = offsets[b], high = b + 1 < bags ? (long)offsets[b + 1] : n; \
  const IDX first = low < 0 ? 0 : low > n ? n : low, last = high < first ? first : high > n ? n : high;

// bag_of[k]: the bag of index k; sizes[b]: indices of bag b that are not `skip`. Offsets, of which there are `places`, that
// do not start at 0 or leave the list are noted.
kernel bags(in TI idx, in TO offsets, out TB bag_of, out TB sizes, inout long seen, long n, long bags, long places,
            long skip, int code, int start, int end) {
  const IDX b = GID0;
  BAG_RANGE
  if (b == bags - 1 && offsets[places - 1] > n) checked(offsets[places - 1], n, 0, seen, end);
  if (b == 0) checked(low, 1, 0, seen, start);
  else checked(low, n + 1, 0, seen, code);
  IDX count = 0;
  for (IDX k = first; k < last; ++k) {
    bag_of[k] = (TB)b;
    count += idx[k] != skip;
  }
  sizes[b] = (TB)count;
}

// y[b] = MODE of the rows of bag b; w row-major [rows][width]. A work-item owns TILE columns of a bag. best: row of each maximum.
kernel embedding_bag(in T w, in TI idx, in TO offsets, in T factor, out T y, out TB best, inout long seen, long n,
                     long bags, long rows, long width, long tiles, long skip, int code) {
  const IDX b = GID0 / tiles, column = GID0 % tiles * TILE;
  const IDX left = width - column, m = left < TILE ? left : TILE;
  BAG_RANGE
  T_acc s[TILE];
  IDX found[TILE], count = 0;
  for (IDX j = 0; j < TILE; ++j) s[j] = 0, found[j] = 0;
  for (IDX k = first; k < last; ++k) {
    if (idx[k] == skip) continue;
    const long at = checked(idx[k], rows, 0, seen, code);
    if (at < 0) continue;
    GLOBAL const T* row = w + (IDX)at * width + column;
    const T_acc scale = WEIGHTED ? T_load(factor[k]) : 1;
    if (MODE == MAX) {
      for (IDX j = 0; j < m; ++j) {
        const T_acc v = T_load(row[j]);
        if (count == 0 || v > s[j]) s[j] = v, found[j] = at;
      }
    } else {
      for (IDX j = 0; j < m; ++j) s[j] += scale * T_load(row[j]);
    }
    ++count;
  }
  for (IDX j = 0; j < m; ++j) {
    y[b * width + column + j] = T_save(MODE == MEAN && count ? s[j] / count : s[j]);
    if (MODE == MAX) best[b * width + column + j] = (TB)found[j];
  }
}

// Rows that are marked and whose p-norm exceeds `limit` are scaled down to it. NORM(s, d), END(s): the norm of sizes d.
kernel renorm(inout T w, in int marked, long width, long step, long gap, T_acc limit, T_acc p) {
  GLOBAL T* row = w + (IDX)(GID0 * step);
  if (!marked[GID0]) return;
  T_acc s = 0;
  for (IDX j = 0; j < width; ++j) {
    const T_acc d = fabs(T_load(row[j * gap]));
    s = NORM(s, d);
  }
  const T_acc norm = END(s);
  if (!(norm > limit)) return;
  const T_acc scale = limit / (norm + (T_acc)1e-7);
  for (IDX j = 0; j < width; ++j) row[j * gap] = T_save(T_load(row[j * gap]) * scale);
}
