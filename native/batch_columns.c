// Statistics in one pass over memory, and what is made of them.
//
// Rows are taken in blocks, each centered on its own first row: with that row among its n numbers a block's sum of squares
// exceeds the one around its mean at most n times, whatever the data. Blocks join as Chan, Golub and LeVeque (1979) do.
// Part k of column c leaves its mean in `mean` and its squares around that in `squares`, both [parts, width].
#define BLOCK 16

kernel column_moments(in T x, out ACC mean, out ACC squares, long rows, long part, IDX width) {
  const IDX first = FIRST, stop = STOP, n = COLUMNS;
  const GLOBAL T* from = x + BEGIN;
  GLOBAL ACC* to_mean = mean + GID1 * width + BEGIN;
  GLOBAL ACC* to_squares = squares + GID1 * width + BEGIN;
  ACC zero[TILE], sum[TILE], square[TILE];
  for (IDX j = 0; j < n; ++j) to_mean[j] = to_squares[j] = 0;
  for (IDX r0 = first; r0 < stop; r0 += BLOCK) {
    const IDX r1 = LOWER(r0 + BLOCK, stop);
    for (IDX j = 0; j < n; ++j) {
      const ACC v = T_load(from[r0 * width + j]);
      zero[j] = v - v == 0 ? v : 0;
      square[j] = (v - zero[j]) * (v - zero[j]);
      sum[j] = v - zero[j];
    }
    IDX r = r0 + 1;
    for (; r + 3 <= r1; r += 3) {  // sums are loaded and stored once for three rows
      const GLOBAL T *row = from + r * width, *next = row + width, *last = next + width;
      EACH(const V z = HERE(zero, j); const V a = T_at(row + j) - z; const V b = T_at(next + j) - z;
           const V c = T_at(last + j) - z; HERE(sum, j) += a + b + c; HERE(square, j) += a * a + b * b + c * c;
           , const ACC z = zero[j]; const ACC a = T_load(row[j]) - z; const ACC b = T_load(next[j]) - z;
           const ACC c = T_load(last[j]) - z; sum[j] += a + b + c; square[j] += a * a + b * b + c * c;)
    }
    for (; r < r1; ++r) {
      const GLOBAL T* row = from + r * width;
      EACH(const V d = T_at(row + j) - HERE(zero, j); HERE(sum, j) += d; HERE(square, j) += d * d;
           , const ACC d = T_load(row[j]) - zero[j]; sum[j] += d; square[j] += d * d;)
    }
    const ACC share = 1 / (ACC)(r1 - r0), old = (ACC)(r0 - first) / (ACC)(r1 - first), fresh = (ACC)(r1 - r0) / (ACC)(r1 - first);
    const ACC both = fresh * (ACC)(r0 - first);
    for (IDX j = 0; j < n; ++j) {
      const ACC step = sum[j] * share, here = zero[j] + step, d = here - to_mean[j];
      to_mean[j] = to_mean[j] * old + here * fresh;
      to_squares[j] += (square[j] - sum[j] * step) + d * d * both;
    }
  }
}

kernel column_statistics(in ACC mean, in ACC squares, out M save_mean, out M save_rstd, inout RT running_mean, inout RT running_var, long channels, long chunk, long rows, long part, long parts, IDX span, ACC eps, ACC momentum, ACC unbias) {
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, channels), width = (IDX)channels * span;
  for (IDX c = (IDX)(GID0 * chunk); c < stop; ++c) {
    const ACC v = mean[c * span], zero = v - v == 0 ? v : 0, count = (ACC)rows * (ACC)span;
    ACC sum = 0, square = 0;
    for (IDX k = 0; k < parts; ++k) {
      const ACC weight = (ACC)LOWER(part, rows - k * part);
      for (IDX j = c * span; j < c * span + span; ++j) sum += weight * (mean[k * width + j] - zero);
    }
    const ACC m = zero + sum / count;
    for (IDX k = 0; k < parts; ++k) {
      const ACC weight = (ACC)LOWER(part, rows - k * part);
      for (IDX j = c * span; j < c * span + span; ++j) {
        const ACC d = mean[k * width + j] - m;
        square += squares[k * width + j] + weight * d * d;
      }
    }
    const ACC var = square / count;
    save_mean[c] = M_save(m);
    save_rstd[c] = M_save(1 / sqrt(var + eps));
    if (RUNNING) {
      running_mean[c] = RT_save(RT_load(running_mean[c]) * (1 - momentum) + momentum * m);
      running_var[c] = RT_save(RT_load(running_var[c]) * (1 - momentum) + momentum * var * unbias);
    }
  }
}

kernel column_normalize(in T x, in M mean, in M rstd, in WT weight, in WT bias, out T y, long rows, long part, IDX width, IDX span) {
  const IDX stop = STOP, n = COLUMNS;
  ACC m[TILE], s[TILE], t[TILE];
  for (IDX j = 0; j < n; ++j) {
    const IDX c = (BEGIN + j) / span;
    m[j] = M_load(mean[c]);
    s[j] = M_load(rstd[c]) * SCALE(c);
    t[j] = HAS_B ? WT_load(bias[c]) : (ACC)0;
  }
  for (IDX r = FIRST; r < stop; ++r) {
    const GLOBAL T* from = x + r * width + BEGIN;
    GLOBAL T* to = y + r * width + BEGIN;
    EACH(T_put(to + j, (T_at(from + j) - HERE(m, j)) * HERE(s, j) + HERE(t, j));
         , to[j] = T_save((T_load(from[j]) - m[j]) * s[j] + t[j]);)
  }
}
