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

// The innermost reduced dimension is the closest in memory: walk it, with many accumulators at once.
kernel reduce_rows(in T x, in Z other, in S shift, out U y, long outs, long chunk, long count, long part, long part_stride, EXTRA e, Layout4 kept, Layout2 red) {
  const IDX first = (IDX)(GID1 * part), last = (IDX)LOWER(first + part, count), span = red.size[0], tall = kept.size[0];
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, outs);
  IDX o = (IDX)(GID0 * chunk);
  while (o < stop) {
    IDX rest = o / tall, at_x = 0, at_z = 0, at_s = 0, at_y = (IDX)(GID1 * part_stride);
    const IDX j0 = o - rest * tall, n = LOWER(tall - j0, stop - o);
    for (IDX d = 1; d < kept.rank; ++d) {
      const IDX q = rest % kept.size[d];
      rest /= kept.size[d];
      at_x += q * kept.stride[0][d];
      at_y += q * kept.stride[1][d];
      at_s += q * kept.stride[2][d];
      at_z += q * kept.stride[3][d];
    }
    for (IDX j = j0; j < j0 + n; ++j) {
      const IDX row = at_x + j * kept.stride[0][0], row_z = at_z + j * kept.stride[3][0];
      const SVAL s = SHIFT(shift[at_s + j * kept.stride[2][0]]);
      ACC acc = INIT;
      for (IDX r = first; r < last;) {
        IDX up = r / span, from = row, from_z = row_z;
        const IDX i0 = r - up * span, left = LOWER(span - i0, last - r), m = LOWER(left, BLOCK);
        for (IDX d = 1; d < red.rank; ++d) {
          const IDX q = up % red.size[d];
          up /= red.size[d];
          from += q * red.stride[0][d];
          from_z += q * red.stride[1][d];
        }
        from += i0 * STEP;
        from_z += i0 * STEP_Z;
        IDX i = 0;
        ACC tail = INIT;
        if (m >= LANES) {
          ACC lane[LANES];
          for (int l = 0; l < LANES; ++l) lane[l] = INIT;
          for (; i + LANES <= m; i += LANES)
            for (int l = 0; l < LANES; ++l)
              lane[l] = join(lane[l], map_one(T_load(x[from + (i + l) * STEP]), OTHER(other[from_z + (i + l) * STEP_Z]), s, r + i + l, e));
          for (int l = 0; l < LANES / 2; ++l) lane[l] = join(lane[l], lane[l + LANES / 2]);
          for (int l = 0; l < LANES / 4; ++l) lane[l] = join(lane[l], lane[l + LANES / 4]);
          for (int l = 0; l < LANES / 4; ++l) tail = join(tail, lane[l]);
        }
        for (; i < m; ++i) tail = join(tail, map_one(T_load(x[from + i * STEP]), OTHER(other[from_z + i * STEP_Z]), s, r + i, e));
        acc = join(acc, tail);
        r += m;
      }
      y[at_y + j * kept.stride[1][0]] = U_save(end_one(acc, s, e, count));
    }
    o += n;
  }
}

// The innermost kept dimension is the closest in memory: keep a tile of outputs and add row after row to it.
kernel reduce_columns(in T x, in Z other, in S shift, out U y, long tiles, long chunk, long count, long part, long part_stride, EXTRA e, Layout4 kept, Layout2 red) {
  const IDX first = (IDX)(GID1 * part), last = (IDX)LOWER(first + part, count), tall = kept.size[0], step = STEP, step_z = STEP_Z;
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, tiles), across = (tall + TILE - 1) / TILE;
  for (IDX tile = (IDX)(GID0 * chunk); tile < stop; ++tile) {
    IDX rest = tile / across, at_x = 0, at_z = 0, at_s = 0, at_y = (IDX)(GID1 * part_stride);
    const IDX j0 = (tile - rest * across) * TILE, n = LOWER(tall - j0, TILE);
    for (IDX d = 1; d < kept.rank; ++d) {
      const IDX q = rest % kept.size[d];
      rest /= kept.size[d];
      at_x += q * kept.stride[0][d];
      at_y += q * kept.stride[1][d];
      at_s += q * kept.stride[2][d];
      at_z += q * kept.stride[3][d];
    }
    at_x += j0 * step;
    at_z += j0 * step_z;
    at_y += j0 * kept.stride[1][0];
    at_s += j0 * kept.stride[2][0];
    ACC acc[TILE], sums[TILE];
    SVAL s[TILE];
    for (IDX j = 0; j < n; ++j) {
      sums[j] = INIT;
      s[j] = SHIFT(shift[at_s + j * kept.stride[2][0]]);
    }
    for (IDX r0 = first; r0 < last; r0 += ROWS) {
      for (IDX j = 0; j < n; ++j) acc[j] = INIT;
      for (IDX r = r0; r < LOWER(r0 + ROWS, last); ++r) {
        IDX up = r, from = at_x, from_z = at_z;
        for (IDX d = 0; d < red.rank; ++d) {
          const IDX q = up % red.size[d];
          up /= red.size[d];
          from += q * red.stride[0][d];
          from_z += q * red.stride[1][d];
        }
        for (IDX j = 0; j < n; ++j) acc[j] = join(acc[j], map_one(T_load(x[from + j * STEP]), OTHER(other[from_z + j * STEP_Z]), s[j], r, e));
      }
      for (IDX j = 0; j < n; ++j) sums[j] = join(sums[j], acc[j]);
    }
    for (IDX j = 0; j < n; ++j) y[at_y + j * kept.stride[1][0]] = U_save(end_one(sums[j], s[j], e, count));
  }
}
