// Gradient of the negative log likelihood (the arguments are as in nll_forward.c); dx is zero on entry. MEAN says that
// the gradient is shared among the samples by weight.
kernel nll_backward(in T grad, in INDEX target, in WT weight, in S sum, inout U dx, long total, long chunk, IDX classes, IDX step, long ignore, Layout3 m) {
  const IDX stop = (IDX)(total - GID0 * chunk < chunk ? total : GID0 * chunk + chunk);
  for (IDX i = (IDX)(GID0 * chunk); i < stop; ++i) {
    IDX rest = i, at_g = 0, at_t = 0, at_x = 0;
    for (IDX d = 0; d < m.rank; ++d) {
      const IDX q = rest % m.size[d];
      rest /= m.size[d];
      at_g += q * m.stride[0][d];
      at_t += q * m.stride[1][d];
      at_x += q * m.stride[2][d];
    }
    const long t = (long)target[at_t];
    if (t == ignore || t < 0 || t >= (long)classes) continue;
    const ACC g = T_load(grad[at_g]) * (ACC)WEIGHT(WT_load(weight[t]));
    dx[at_x + (IDX)t * step] = U_save(-g / (MEAN ? S_load(sum[0]) : (ACC)1));
  }
}
