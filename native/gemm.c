// Matrix products out[b, m, n] = alpha * sum over (s, k) of a[b, s, m, k] * x[b, s, k, n] + beta * c[b, m, n].
// The Layout holds sizes (n, m, k, b1, b0, s) and the strides of out, a, x, c for them; any stride may be 0.
#define N_ 0
#define M_ 1
#define K_ 2
#define B1_ 3
#define B0_ 4
#define S_ 5
#define TILE 4

// One work-item per 4x4 tile of the output: any strides, any chip.
kernel gemm_tile(out T_o o, in T_a a, in T_x x, in T_c c, ACC alpha, ACC beta, Layout4 g) {
  const IDX cols = (g.size[N_] + TILE - 1) / TILE, rows = (g.size[M_] + TILE - 1) / TILE;
  const IDX j0 = (IDX)(GID0 % cols) * TILE, i0 = (IDX)(GID0 / cols % rows) * TILE, batch = (IDX)(GID0 / cols / rows);
  const IDX b1 = batch % g.size[B1_], b0 = batch / g.size[B1_];
  ACC sum[TILE][TILE];
  IDX left[TILE], right[TILE];
  for (int t = 0; t < TILE; ++t) {  // rows and columns past the edge repeat the last one and are not written
    const IDX i = i0 + t < g.size[M_] ? i0 + t : g.size[M_] - 1, j = j0 + t < g.size[N_] ? j0 + t : g.size[N_] - 1;
    left[t] = b0 * g.stride[1][B0_] + b1 * g.stride[1][B1_] + i * g.stride[1][M_];
    right[t] = b0 * g.stride[2][B0_] + b1 * g.stride[2][B1_] + j * g.stride[2][N_];
    for (int u = 0; u < TILE; ++u) sum[t][u] = 0;
  }
  for (IDX s = 0; s < g.size[S_]; ++s) {
    for (IDX k = 0; k < g.size[K_]; ++k) {
      const IDX a_k = s * g.stride[1][S_] + k * g.stride[1][K_], x_k = s * g.stride[2][S_] + k * g.stride[2][K_];
      ACC av[TILE], xv[TILE];
      for (int t = 0; t < TILE; ++t) av[t] = T_a_load(a[left[t] + a_k]);
      for (int t = 0; t < TILE; ++t) xv[t] = T_x_load(x[right[t] + x_k]);
      for (int t = 0; t < TILE; ++t)
        for (int u = 0; u < TILE; ++u) sum[t][u] += av[t] * xv[u];
    }
  }
  for (int t = 0; t < TILE && i0 + t < g.size[M_]; ++t) {
    for (int u = 0; u < TILE && j0 + u < g.size[N_]; ++u) {
      const IDX i = i0 + t, j = j0 + u;
      ACC v = alpha * sum[t][u];
      if (beta != 0)
        v += beta * T_c_load(c[b0 * g.stride[3][B0_] + b1 * g.stride[3][B1_] + i * g.stride[3][M_] + j * g.stride[3][N_]]);
      o[b0 * g.stride[0][B0_] + b1 * g.stride[0][B1_] + i * g.stride[0][M_] + j * g.stride[0][N_]] = T_o_save(v);
    }
  }
}
