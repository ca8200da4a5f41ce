// p-norm distances between rows, and their gradients.
//
// T: element type; its compute type is that of sums. STEP(s, d): s joined with the distance d >= 0 in one coordinate;
// END(s): the distance. DERIV(d, g, r): part of a gradient for the difference d, the distance's gradient g and distance r.
// `p`: the norm's number where the macros need it.
#define A T_acc

// y[b][i][j] = distance of row i of x [P][M] and column j of z [M][R]; all row-major. A work-item owns `tile` columns of
// one row (`tiles` cover R), so that the inner loop runs over neighbours in memory.
kernel cdist(in T x, in T z, out T y, long P, long R, long M, long tiles, T_acc p) {
  const IDX tile = GID0 % tiles, row = GID0 / tiles, b = row / P;
  const IDX first = tile * TILE, n = R - first < TILE ? R - first : TILE;
  A s[TILE];
  for (IDX j = 0; j < TILE; ++j) s[j] = 0;
  for (IDX m = 0; m < M; ++m) {
    const A v = T_load(x[row * M + m]);
    GLOBAL const T* line = z + ((IDX)b * M + m) * R + first;
    for (IDX j = 0; j < n; ++j) {
      const A d = fabs(v - T_load(line[j]));
      s[j] = STEP(s[j], d);
    }
  }
  for (IDX j = 0; j < n; ++j) y[row * R + first + j] = T_save(END(s[j]));
}

// dx[b][i][m] = sum over j of DERIV; x and dx [P][M], z [R][M], g and r [P][R]. A work-item owns `TILE` coordinates of a row.
kernel cdist_backward(in T g, in T x, in T z, in T r, out T dx, long P, long R, long M, long tiles, T_acc p) {
  const IDX tile = GID0 % tiles, row = GID0 / tiles, b = row / P;
  const IDX first = tile * TILE, n = M - first < TILE ? M - first : TILE;
  A s[TILE];
  for (IDX m = 0; m < TILE; ++m) s[m] = 0;
  for (IDX j = 0; j < R; ++j) {
    const A grad = T_load(g[row * R + j]), dist = T_load(r[row * R + j]);
    GLOBAL const T* line = z + ((IDX)b * R + j) * M + first;
    for (IDX m = 0; m < n; ++m) {
      const A d = T_load(x[row * M + first + m]) - T_load(line[m]);
      s[m] += DERIV(d, grad, dist);
    }
  }
  for (IDX m = 0; m < n; ++m) dx[row * M + first + m] = T_save(s[m]);
}

// Where the pair (i, j), i < j, of n rows stands in the condensed list of pairs.
FUNC IDX pair_at(IDX i, IDX j, IDX n) { return i * (2 * n - i - 1) / 2 + j - i - 1; }

// Distances of row i to all later rows.
kernel pdist(in T x, out T y, long n, long M, T_acc p) {
  const IDX i = GID0;
  for (IDX j = i + 1; j < n; ++j) {
    A s = 0;
    for (IDX m = 0; m < M; ++m) {
      const A d = fabs(T_load(x[i * M + m]) - T_load(x[j * M + m]));
      s = STEP(s, d);
    }
    y[pair_at(i, j, n)] = T_save(END(s));
  }
}

// dx[i] = sum over the other rows j of DERIV; a work-item owns `TILE` coordinates of row i.
kernel pdist_backward(in T g, in T x, in T r, out T dx, long n, long M, long tiles, T_acc p) {
  const IDX tile = GID0 % tiles, i = GID0 / tiles;
  const IDX first = tile * TILE, width = M - first < TILE ? M - first : TILE;
  A s[TILE];
  for (IDX m = 0; m < TILE; ++m) s[m] = 0;
  for (IDX j = 0; j < n; ++j) {
    if (i == j) continue;
    const IDX k = i < j ? pair_at(i, j, n) : pair_at(j, i, n);
    const A grad = T_load(g[k]), dist = T_load(r[k]);
    for (IDX m = 0; m < width; ++m) {
      const A d = T_load(x[i * M + first + m]) - T_load(x[j * M + first + m]);
      s[m] += DERIV(d, grad, dist);
    }
  }
  for (IDX m = 0; m < width; ++m) dx[i * M + first + m] = T_save(s[m]);
}
