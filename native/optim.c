// Gradients divided by the loss scale; `found` becomes 1 where one of them is not finite.
kernel unscale(inout T g, in S scale, inout F found, long total, long chunk) {
  const float factor = S_load(scale[0]);
  IDX i = (IDX)(GID0 * chunk);
  const IDX end = total - i < chunk ? total : i + chunk;
  int bad = 0;
  for (; i < end; ++i) {
    const T_acc v = T_load(g[i]);
    bad |= v - v != 0;
    g[i] = T_save(v * factor);
  }
  if (bad) found[0] = F_save(1.0f);
}
