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
        for (int l = 0; l < LANES; ++l) lane[l] += EXP(T_load(x[at_x + (i + l) * AT(step_x)]) - top);
      FOLD(lane, PLUS, total)
    }
    for (; i < n; ++i) total += EXP(T_load(x[at_x + i * AT(step_x)]) - top);
    if (LOGARITHM) {
      const ACC scale = log(total);
      for (i = 0; i < n; ++i) y[at_y + i * AT(step_y)] = U_save(T_load(x[at_x + i * AT(step_x)]) - top - scale);
    } else {
      const ACC scale = 1 / total;
      for (i = 0; i < n; ++i) y[at_y + i * AT(step_y)] = U_save(EXP(T_load(x[at_x + i * AT(step_x)]) - top) * scale);
    }
  }
}

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
