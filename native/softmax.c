// softmax and log_softmax along one dimension, and their gradients.
//
// `rows`: that dimension is the closest in memory, one row at a time. `columns`: another one is, a tile of columns at
// a time. The kept layouts hold every other dimension. LOGARITHM chooses log_softmax, KEEP says that exponentials are
// stored in y, in the type they are computed in, so that they need not be computed twice.
#define LANES 32
#if UNIT  // every innermost stride is 1: compilers vectorize what they can see
#define AT(step) 1
#else
#define AT(step) step
#endif
#define LOWER(a, b) ((a) < (b) ? (a) : (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define FOLD(lane, OP, result)                                                                  \
  for (int l = 0; l < LANES / 2; ++l) lane[l] = OP(lane[l], lane[l + LANES / 2]);               \
  for (int l = 0; l < LANES / 4; ++l) lane[l] = OP(lane[l], lane[l + LANES / 4]);               \
  for (int l = 0; l < LANES / 4; ++l) result = OP(result, lane[l]);
#define PLUS(a, b) ((a) + (b))

// NaN needs no care in the maximum: it comes back through x - top.
kernel forward_rows(in T x, out U y, long rows, long chunk, IDX n, IDX step_x, IDX step_y, Layout2 kept) {
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, rows);
  for (IDX row = (IDX)(GID0 * chunk); row < stop; ++row) {
    IDX rest = row, at_x = 0, at_y = 0;
    for (IDX d = 0; d < kept.rank; ++d) {
      const IDX q = rest % kept.size[d];
      rest /= kept.size[d];
      at_x += q * kept.stride[0][d];
      at_y += q * kept.stride[1][d];
    }
    ACC lane[LANES], top = -INFINITY, total = 0;
    IDX i = 0;
    if (n >= LANES) {
      for (int l = 0; l < LANES; ++l) lane[l] = -INFINITY;
      for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; ++l) {
          const ACC v = T_load(x[at_x + (i + l) * AT(step_x)]);
          lane[l] = LARGER(lane[l], v);
        }
      FOLD(lane, LARGER, top)
    }
    for (; i < n; ++i) {
      const ACC v = T_load(x[at_x + i * AT(step_x)]);
      top = LARGER(top, v);
    }
    i = 0;
    if (n >= LANES) {
      for (int l = 0; l < LANES; ++l) lane[l] = 0;
      for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; ++l) {
          const ACC v = EXP(T_load(x[at_x + (i + l) * AT(step_x)]) - top);
          if (KEEP) y[at_y + (i + l) * AT(step_y)] = U_save(v);
          lane[l] += v;
        }
      FOLD(lane, PLUS, total)
    }
    for (; i < n; ++i) {
      const ACC v = EXP(T_load(x[at_x + i * AT(step_x)]) - top);
      if (KEEP) y[at_y + i * AT(step_y)] = U_save(v);
      total += v;
    }
    if (LOGARITHM) {
      const ACC scale = log(total);
      for (i = 0; i < n; ++i) y[at_y + i * AT(step_y)] = U_save(T_load(x[at_x + i * AT(step_x)]) - top - scale);
    } else if (KEEP) {
      const ACC scale = 1 / total;
      for (i = 0; i < n; ++i) y[at_y + i * AT(step_y)] = U_save(U_load(y[at_y + i * AT(step_y)]) * scale);
    } else {
      const ACC scale = 1 / total;
      for (i = 0; i < n; ++i) y[at_y + i * AT(step_y)] = U_save(EXP(T_load(x[at_x + i * AT(step_x)]) - top) * scale);
    }
  }
}

kernel forward_columns(in T x, out U y, long tiles, long chunk, IDX n, IDX step_x, IDX step_y, Layout2 kept) {
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, tiles), tall = kept.size[0], across = (tall + TILE - 1) / TILE;
  for (IDX tile = (IDX)(GID0 * chunk); tile < stop; ++tile) {
    IDX rest = tile / across, at_x = 0, at_y = 0;
    const IDX j0 = (tile - rest * across) * TILE, wide = LOWER(tall - j0, TILE), run_x = kept.stride[0][0], run_y = kept.stride[1][0];
    for (IDX d = 1; d < kept.rank; ++d) {
      const IDX q = rest % kept.size[d];
      rest /= kept.size[d];
      at_x += q * kept.stride[0][d];
      at_y += q * kept.stride[1][d];
    }
    at_x += j0 * AT(run_x);
    at_y += j0 * AT(run_y);
    ACC top[TILE], total[TILE];
    for (IDX j = 0; j < wide; ++j) {
      top[j] = -INFINITY;
      total[j] = 0;
    }
    for (IDX i = 0; i < n; ++i)
      for (IDX j = 0; j < wide; ++j) {
        const ACC v = T_load(x[at_x + i * step_x + j * AT(run_x)]);
        top[j] = LARGER(top[j], v);
      }
    for (IDX i = 0; i < n; ++i)
      for (IDX j = 0; j < wide; ++j) total[j] += EXP(T_load(x[at_x + i * step_x + j * AT(run_x)]) - top[j]);
    for (IDX j = 0; j < wide; ++j) total[j] = LOGARITHM ? log(total[j]) : 1 / total[j];
    for (IDX i = 0; i < n; ++i)
      for (IDX j = 0; j < wide; ++j) {
        const ACC v = T_load(x[at_x + i * step_x + j * AT(run_x)]) - top[j];
        y[at_y + i * step_y + j * AT(run_y)] = U_save(LOGARITHM ? v - total[j] : EXP(v) * total[j]);
      }
  }
}

// The gradient from the result y: y (g - sum(g y)), and for the logarithm g - exp(y) sum(g).
#define TERM(g, y) (LOGARITHM ? (g) : (g) * (y))
#define GRAD(g, y, total) (LOGARITHM ? (g) - EXP(y) * (total) : (y) * ((g) - (total)))

kernel backward_rows(in T g, in S y, out U dx, long rows, long chunk, IDX n, IDX step_g, IDX step_y, IDX step_x, Layout3 kept) {
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, rows);
  for (IDX row = (IDX)(GID0 * chunk); row < stop; ++row) {
    IDX rest = row, at_g = 0, at_y = 0, at_x = 0;
    for (IDX d = 0; d < kept.rank; ++d) {
      const IDX q = rest % kept.size[d];
      rest /= kept.size[d];
      at_g += q * kept.stride[0][d];
      at_y += q * kept.stride[1][d];
      at_x += q * kept.stride[2][d];
    }
    ACC lane[LANES], total = 0;
    IDX i = 0;
    if (n >= LANES) {
      for (int l = 0; l < LANES; ++l) lane[l] = 0;
      for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; ++l)
          lane[l] += TERM(T_load(g[at_g + (i + l) * AT(step_g)]), S_load(y[at_y + (i + l) * AT(step_y)]));
      FOLD(lane, PLUS, total)
    }
    for (; i < n; ++i) total += TERM(T_load(g[at_g + i * AT(step_g)]), S_load(y[at_y + i * AT(step_y)]));
    for (i = 0; i < n; ++i) {
      const ACC v = S_load(y[at_y + i * AT(step_y)]), u = T_load(g[at_g + i * AT(step_g)]);
      dx[at_x + i * AT(step_x)] = U_save(GRAD(u, v, total));
    }
  }
}

kernel backward_columns(in T g, in S y, out U dx, long tiles, long chunk, IDX n, IDX step_g, IDX step_y, IDX step_x, Layout3 kept) {
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, tiles), tall = kept.size[0], across = (tall + TILE - 1) / TILE;
  for (IDX tile = (IDX)(GID0 * chunk); tile < stop; ++tile) {
    IDX rest = tile / across, at_g = 0, at_y = 0, at_x = 0;
    const IDX j0 = (tile - rest * across) * TILE, wide = LOWER(tall - j0, TILE);
    const IDX run_g = kept.stride[0][0], run_y = kept.stride[1][0], run_x = kept.stride[2][0];
    for (IDX d = 1; d < kept.rank; ++d) {
      const IDX q = rest % kept.size[d];
      rest /= kept.size[d];
      at_g += q * kept.stride[0][d];
      at_y += q * kept.stride[1][d];
      at_x += q * kept.stride[2][d];
    }
    at_g += j0 * AT(run_g);
    at_y += j0 * AT(run_y);
    at_x += j0 * AT(run_x);
    ACC total[TILE];
    for (IDX j = 0; j < wide; ++j) total[j] = 0;
    for (IDX i = 0; i < n; ++i)
      for (IDX j = 0; j < wide; ++j)
        total[j] += TERM(T_load(g[at_g + i * step_g + j * AT(run_g)]), S_load(y[at_y + i * step_y + j * AT(run_y)]));
    for (IDX i = 0; i < n; ++i)
      for (IDX j = 0; j < wide; ++j) {
        const ACC v = S_load(y[at_y + i * step_y + j * AT(run_y)]), u = T_load(g[at_g + i * step_g + j * AT(run_g)]);
        dx[at_x + i * step_x + j * AT(run_x)] = U_save(GRAD(u, v, total[j]));
      }
  }
}
