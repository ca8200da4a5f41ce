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
