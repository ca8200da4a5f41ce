// Sums of g and of g (x - mean) in one pass, what is made of them, and the gradient of x.
#define BLOCK 128  // partial sums of blocks are joined, so rounding errors stay small

kernel column_sums(in T g, in T x, in M mean, out ACC plain, out ACC along, long rows, long part, IDX width, IDX span) {
  const IDX first = FIRST, stop = STOP, n = COLUMNS;
  GLOBAL ACC* to_plain = plain + GID1 * width + BEGIN;
  GLOBAL ACC* to_along = along + GID1 * width + BEGIN;
  ACC m[TILE], p[TILE], q[TILE];
  for (IDX j = 0; j < n; ++j) {
    m[j] = M_load(mean[(BEGIN + j) / span]);
    to_plain[j] = to_along[j] = 0;
  }
  for (IDX r0 = first; r0 < stop; r0 += BLOCK) {
    for (IDX j = 0; j < n; ++j) p[j] = q[j] = 0;
    for (IDX r = r0; r < LOWER(r0 + BLOCK, stop); ++r) {
      const GLOBAL T* u = g + r * width + BEGIN;
      const GLOBAL T* v = x + r * width + BEGIN;
      EACH(const V w = T_at(u + j); HERE(p, j) += w; HERE(q, j) += w * (T_at(v + j) - HERE(m, j));
           , const ACC w = T_load(u[j]); p[j] += w; q[j] += w * (T_load(v[j]) - m[j]);)
    }
    for (IDX j = 0; j < n; ++j) {
      to_plain[j] += p[j];
      to_along[j] += q[j];
    }
  }
}

kernel column_gradients(in ACC plain, in ACC along, in M rstd, out ACC p, out ACC q, out WT dw, out WT db, long channels, long chunk, long parts, IDX span) {
  const IDX stop = (IDX)LOWER(GID0 * chunk + chunk, channels), width = (IDX)channels * span;
  for (IDX c = (IDX)(GID0 * chunk); c < stop; ++c) {
    ACC a = 0, b = 0;
    for (IDX k = 0; k < parts; ++k)
      for (IDX j = c * span; j < c * span + span; ++j) {
        a += plain[k * width + j];
        b += along[k * width + j];
      }
    p[c] = a;
    q[c] = b;
    if (SUM_W) dw[c] = WT_save(b * M_load(rstd[c]));
    if (SUM_B) db[c] = WT_save(a);
  }
}

kernel column_dx(in T g, in T x, in M mean, in M rstd, in ACC p, in ACC q, in WT weight, out T dx, long rows, long part, IDX width, IDX span, ACC share) {
  const IDX stop = STOP, n = COLUMNS;
  ACC m[TILE], s[TILE], a[TILE], b[TILE];
  for (IDX j = 0; j < n; ++j) {
    const IDX c = (BEGIN + j) / span;
    const ACC r = M_load(rstd[c]);
    m[j] = M_load(mean[c]);
    s[j] = r * SCALE(c);
    a[j] = p[c] * share;
    b[j] = r * r * q[c] * share;
  }
  for (IDX r = FIRST; r < stop; ++r) {
    const GLOBAL T* u = g + r * width + BEGIN;
    const GLOBAL T* v = x + r * width + BEGIN;
    GLOBAL T* to = dx + r * width + BEGIN;
    EACH(T_put(to + j, HERE(s, j) * (T_at(u + j) - HERE(a, j) - (T_at(v + j) - HERE(m, j)) * HERE(b, j)));
         , to[j] = T_save(s[j] * (T_load(u[j]) - a[j] - (T_load(v[j]) - m[j]) * b[j]));)
  }
}
