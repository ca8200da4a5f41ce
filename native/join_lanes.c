// Sums of partial results over the work-items that made them: a[j] = sum of x[k, j], b[j] = sum of z[k, j] over k < parts.
DEFINE_ROW(ACC, 0)
DEFINE_ROW(R, R_KIND)

kernel join_lanes(in ACC x, in ACC z, out R a, out R b, long n, long chunk, long parts) {
  const IDX stop = (IDX)(GID0 * chunk + chunk < n ? GID0 * chunk + chunk : n);
  IDX i = (IDX)(GID0 * chunk);
  for (; i + VL <= stop; i += VL) {
    V p = ALL(0), q = p;
    for (IDX k = 0; k < parts; ++k) {
      if (JOIN_X) p += ACC_at(x + k * n + i);
      if (JOIN_Z) q += ACC_at(z + k * n + i);
    }
    if (JOIN_X) R_put(a + i, p);
    if (JOIN_Z) R_put(b + i, q);
  }
  for (; i < stop; ++i) {
    ACC p = 0, q = 0;
    for (IDX k = 0; k < parts; ++k) {
      if (JOIN_X) p += x[k * n + i];
      if (JOIN_Z) q += z[k * n + i];
    }
    if (JOIN_X) a[i] = R_save(p);
    if (JOIN_Z) b[i] = R_save(q);
  }
}
