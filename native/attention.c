// Attention without the score matrix in memory: softmax(scale * q k^T + mask) v and its gradients, block by block.
// Lanes of the vectors are rows of the output (queries, or keys for their gradients), so that maxima, sums and exp
// work on whole vectors, and everything else is a matrix product of a few rows by a private panel of lanes.
// DIM: a bound of the head dimensions. MASK: 0 none, 1 bool (false: masked), 2 added. Layout dimensions are
// (dim, length, head, batch), those of the mask (key, query, head, batch). Source of the method: Dao et al.,
// FlashAttention (2022).
#define LANES (2 * VL)
#define KEYS 64     // keys at a time, forward
#define OTHERS 32   // keys or queries at a time, backward
#define D_ 0
#define L_ 1
#define H_ 2
#define B_ 3
VECTOR(W, int, VL)

#if VEXP  // float: exp of a whole vector; arguments below the smallest normal result give 0
FUNC V vexp(const V x) {
  const V t = madd(1.44269504f, x, SPLAT(V, 12582912.0f)), n = t - SPLAT(V, 12582912.0f);
  const V r = madd(2.12194440e-4f, n, madd(-0.693359375f, n, x));
  V p = SPLAT(V, 1.98412698e-4f);
  p = p * r + SPLAT(V, 1.38888889e-3f);
  p = p * r + SPLAT(V, 8.33333333e-3f);
  p = p * r + SPLAT(V, 4.16666667e-2f);
  p = p * r + SPLAT(V, 1.66666667e-1f);
  p = p * r + SPLAT(V, 0.5f);
  p = p * r + SPLAT(V, 1.0f);
  p = p * r + SPLAT(V, 1.0f);
  const W small = x < SPLAT(V, -87.0f);
  const W bits = (*(W*)&p + (*(const W*)&t << 23)) & ~small;
  return *(V*)&bits;
}
FUNC V vmax(const V a, const V b) {
  const W larger = a > b;
  const W bits = (*(const W*)&a & larger) | (*(const W*)&b & ~larger);
  return *(V*)&bits;
}
#else
FUNC V vexp(const V x) {
  V y = x;
  ACC* e = (ACC*)&y;
  for (int j = 0; j < VL; ++j) e[j] = exp(e[j]);
  return y;
}
FUNC V vmax(const V a, const V b) {
  V y = a;
  ACC* e = (ACC*)&y;
  const ACC* f = (const ACC*)&b;
  for (int j = 0; j < VL; ++j) e[j] = e[j] > f[j] ? e[j] : f[j];
  return y;
}
#endif

// y[o][LANES] = (add ? y : 0) + sum over i of x[o, i] * v[i][LANES], for `outer` o and `inner` i.
FUNC void product(const GLOBAL T* restrict x, const IDX o_step, const IDX i_step, const int outer, const int inner,
                  const ACC* restrict v, ACC* restrict y, const int add) {
  for (int o = 0; o < outer; o += MR) {
#define ROW(R)                                                                            \
  const GLOBAL T* restrict x##R = x + (o + R < outer ? o + R : outer - 1) * o_step;       \
  V s##R = SPLAT(V, 0), t##R = SPLAT(V, 0);
    EACH_ROW(ROW)
#undef ROW
    for (int i = 0; i < inner; ++i) {
      const V v0 = HERE(v, i * LANES), v1 = HERE(v, i * LANES + VL);
#define ROW(R)                                  \
  const ACC c##R = T_load(x##R[i * i_step]);    \
  s##R = madd(c##R, v0, s##R);                  \
  t##R = madd(c##R, v1, t##R);
      EACH_ROW(ROW)
#undef ROW
    }
#define ROW(R)                              \
  if (o + R < outer) {                      \
    ACC* to = y + (o + R) * LANES;          \
    if (add) s##R += HERE(to, 0);           \
    if (add) t##R += HERE(to, VL);          \
    HERE(to, 0) = s##R;                     \
    HERE(to, VL) = t##R;                    \
  }
    EACH_ROW(ROW)
#undef ROW
  }
}

// panel[d][LANES] = factor * x[lane, d]; lanes past the end are 0.
FUNC void take(ACC* restrict panel, const GLOBAL T* restrict x, const IDX l_step, const IDX d_step, const int lanes,
               const int dim, const ACC factor) {
  for (int d = 0; d < dim; ++d)
    for (int l = 0; l < LANES; ++l) panel[d * LANES + l] = l < lanes ? factor * (ACC)T_load(x[l * l_step + d * d_step]) : 0;
}

// x[lane, d] = factor * panel[d][LANES]
FUNC void give(GLOBAL T* restrict x, const IDX l_step, const IDX d_step, const int lanes, const int dim,
               const ACC* restrict panel, const ACC factor) {
  for (int l = 0; l < lanes; ++l)
    for (int d = 0; d < dim; ++d) x[l * l_step + d * d_step] = T_save(factor * panel[d * LANES + l]);
}

FUNC void clear(ACC* restrict panel, const int n) {
  for (int i = 0; i < n * LANES; i += VL) HERE(panel, i) = SPLAT(V, 0);
}

// s[row][LANES] with the mask and causality applied; element (row, lane) is mask[row * r_step + lane * l_step].
// `ahead`: lane - row of the first element where row is a key and lane a query; `sign` -1 where it is the reverse.
FUNC void apply_mask(ACC* restrict s, const GLOBAL T_m* restrict mask, const IDX r_step, const IDX l_step, const int rows,
                     const int lanes, const int causal, const IDX ahead, const int sign) {
#if MASK == 1
  for (int r = 0; r < rows; ++r)
    for (int l = 0; l < lanes; ++l)
      if (!T_m_load(mask[r * r_step + l * l_step])) s[r * LANES + l] = -INFINITY;
#elif MASK == 2
  for (int r = 0; r < rows; ++r)
    for (int l = 0; l < lanes; ++l) s[r * LANES + l] += (ACC)T_m_load(mask[r * r_step + l * l_step]);
#endif
  if (causal)
    for (int r = 0; r < rows; ++r)
      for (int l = 0; l < lanes; ++l)
        if (ahead + sign * (l - r) < 0) s[r * LANES + l] = -INFINITY;
}

#define OFF(K) (batch * g.stride[K][B_] + head * g.stride[K][H_])
#define OFF_KV(K) (batch * g.stride[K][B_] + head / group * g.stride[K][H_])

// One block of LANES queries of one head. lse: log of the sum of exp of a row's scores, +inf where all are masked.
kernel attention_forward(in T q, in T k, in T v, in T_m mask, out T o, out ACC lse, ACC scale, int causal, int lq, int lk, int e, int ev, int group, Layout5 g) {
  const IDX head = (IDX)GID1, batch = (IDX)GID2, i0 = (IDX)GID0 * LANES;
  const int lanes = lq - i0 < LANES ? lq - i0 : LANES, last = causal && i0 + lanes < lk ? i0 + lanes : lk;
  const GLOBAL T* restrict kp = k + OFF_KV(1);
  const GLOBAL T* restrict vp = v + OFF_KV(2);
  const GLOBAL T_m* restrict mp = mask + OFF(4) + i0 * g.stride[4][L_];
  ACC qt[DIM * LANES], ot[DIM * LANES], s[KEYS * LANES], top[LANES], sum[LANES];
  take(qt, q + OFF(0) + i0 * g.stride[0][L_], g.stride[0][L_], g.stride[0][D_], lanes, e, scale);
  clear(ot, ev);
  for (int l = 0; l < LANES; ++l) {
    top[l] = -INFINITY;
    sum[l] = 0;
  }
  for (int j0 = 0; j0 < last; j0 += KEYS) {
    const int n = last - j0 < KEYS ? last - j0 : KEYS;
    product(kp + j0 * g.stride[1][L_], g.stride[1][L_], g.stride[1][D_], n, e, qt, s, 0);
    apply_mask(s, mp + j0 * g.stride[4][D_], g.stride[4][D_], g.stride[4][L_], n, lanes, causal && j0 + n > i0, i0 - j0, 1);
    for (int h = 0; h < LANES; h += VL) {
      const V before = HERE(top, h);
      V m = before, total = SPLAT(V, 0);
      for (int j = 0; j < n; ++j) m = vmax(HERE(s, j * LANES + h), m);
      HERE(top, h) = m;
      ACC shift[VL];  // a row of nothing but -inf: exp(-inf - 0) is the 0 that exp(-inf + inf) is not
      for (int l = 0; l < VL; ++l) shift[l] = top[h + l] == -INFINITY ? 0 : top[h + l];
      const V by = *(V*)shift, fade = vexp(before - by);
      for (int j = 0; j < n; ++j) {
        const V p = vexp(HERE(s, j * LANES + h) - by);
        HERE(s, j * LANES + h) = p;
        total += p;
      }
      HERE(sum, h) = HERE(sum, h) * fade + total;
      for (int d = 0; d < ev; ++d) HERE(ot, d * LANES + h) = HERE(ot, d * LANES + h) * fade;
    }
    product(vp + j0 * g.stride[2][L_], g.stride[2][D_], g.stride[2][L_], ev, n, s, ot, 1);
  }
  for (int l = 0; l < LANES; ++l) {
    if (l < lanes) lse[(batch * GSIZE1 + head) * lq + i0 + l] = sum[l] == 0 ? INFINITY : top[l] + log(sum[l]);
    sum[l] = sum[l] == 0 ? 0 : 1 / sum[l];
  }
  for (int d = 0; d < ev; ++d)
    for (int h = 0; h < LANES; h += VL) HERE(ot, d * LANES + h) = HERE(ot, d * LANES + h) * HERE(sum, h);
  give(o + OFF(3) + i0 * g.stride[3][L_], g.stride[3][L_], g.stride[3][D_], lanes, ev, ot, 1);
}

// One query: lanes are dimensions of the head instead, which must be dense in q, k, v and out.
DEFINE_LOAD(load_t, T, T_load, HALF)
kernel attention_row(in T q, in T k, in T v, in T_m mask, out T o, out ACC lse, ACC scale, int causal, int lq, int lk, int e, int ev, int group, Layout5 g) {
  const IDX head = (IDX)GID1, batch = (IDX)GID2, i = (IDX)GID0;
  const int last = causal && i + 1 < lk ? i + 1 : lk;
  const GLOBAL T* restrict qp = q + OFF(0) + i * g.stride[0][L_];
  const GLOBAL T* restrict kp = k + OFF_KV(1);
  const GLOBAL T* restrict vp = v + OFF_KV(2);
  const GLOBAL T_m* restrict mp = mask + OFF(4) + i * g.stride[4][L_];
  const IDX k_l = g.stride[1][L_], v_l = g.stride[2][L_];
  ACC qs[DIM], found[DIM], s[KEYS], top = -INFINITY, sum = 0;
  for (int d = 0; d < e; ++d) qs[d] = scale * (ACC)T_load(qp[d]);
  for (int d = 0; d < ev; ++d) found[d] = 0;
  for (int j0 = 0; j0 < last; j0 += KEYS) {
    const int n = last - j0 < KEYS ? last - j0 : KEYS;
    ACC most = top;
    for (int j = 0; j < n; ++j) {
      const GLOBAL T* restrict row = kp + (j0 + j) * k_l;
      V dot_ = SPLAT(V, 0);
      int d = 0;
      for (; d + VL <= e; d += VL) dot_ += HERE(qs, d) * load_t(row + d);
      ACC score = total_of(dot_);
      for (; d < e; ++d) score += qs[d] * (ACC)T_load(row[d]);
#if MASK == 1
      if (!T_m_load(mp[(j0 + j) * g.stride[4][D_]])) score = -INFINITY;
#elif MASK == 2
      score += (ACC)T_m_load(mp[(j0 + j) * g.stride[4][D_]]);
#endif
      s[j] = score;
      most = score > most ? score : most;
    }
    for (int j = n; j < KEYS; ++j) s[j] = -INFINITY;
    const ACC by = most == -INFINITY ? 0 : most;
    V total = SPLAT(V, 0);
    for (int j = 0; j < KEYS; j += VL) {
      HERE(s, j) = vexp(HERE(s, j) - SPLAT(V, by));
      total += HERE(s, j);
    }
    const ACC fade = top == -INFINITY ? 0 : exp(top - by);
    sum = sum * fade + total_of(total);
    top = most;
    int d = 0;
    for (; d + VL <= ev; d += VL) {
      V f = HERE(found, d) * SPLAT(V, fade);
      for (int j = 0; j < n; ++j) f = madd(s[j], load_t(vp + (j0 + j) * v_l + d), f);
      HERE(found, d) = f;
    }
    for (; d < ev; ++d) {
      found[d] *= fade;
      for (int j = 0; j < n; ++j) found[d] += s[j] * (ACC)T_load(vp[(j0 + j) * v_l + d]);
    }
  }
  GLOBAL T* restrict op = o + OFF(3) + i * g.stride[3][L_];
  const ACC share = sum == 0 ? 0 : 1 / sum;
  for (int d = 0; d < ev; ++d) op[d] = T_save(found[d] * share);
  lse[(batch * GSIZE1 + head) * lq + i] = sum == 0 ? INFINITY : top + log(sum);
}

// Gradient of LANES queries. delta: the sum of grad * out of each query, which attention_grad_kv needs.
kernel attention_grad_q(in T q, in T k, in T v, in T_m mask, in T o, in T grad, in ACC lse, out T gq, out ACC delta, ACC scale, int causal, int lq, int lk, int e, int ev, int group, Layout7 g) {
  const IDX head = (IDX)GID1, batch = (IDX)GID2, i0 = (IDX)GID0 * LANES, row0 = (batch * GSIZE1 + head) * lq + i0;
  const int lanes = lq - i0 < LANES ? lq - i0 : LANES, last = causal && i0 + lanes < lk ? i0 + lanes : lk;
  const GLOBAL T* restrict kp = k + OFF_KV(1);
  const GLOBAL T* restrict vp = v + OFF_KV(2);
  const GLOBAL T_m* restrict mp = mask + OFF(3) + i0 * g.stride[3][L_];
  ACC qt[DIM * LANES], gt[DIM * LANES], gqt[DIM * LANES], s[OTHERS * LANES], dp[OTHERS * LANES];
  ACC norm[LANES], dot_[LANES];
  take(qt, q + OFF(0) + i0 * g.stride[0][L_], g.stride[0][L_], g.stride[0][D_], lanes, e, scale);
  take(gqt, o + OFF(4) + i0 * g.stride[4][L_], g.stride[4][L_], g.stride[4][D_], lanes, ev, 1);
  take(gt, grad + OFF(5) + i0 * g.stride[5][L_], g.stride[5][L_], g.stride[5][D_], lanes, ev, 1);
  for (int h = 0; h < LANES; h += VL) {
    V sum = SPLAT(V, 0);
    for (int d = 0; d < ev; ++d) sum += HERE(gt, d * LANES + h) * HERE(gqt, d * LANES + h);
    HERE(dot_, h) = sum;
  }
  for (int l = 0; l < LANES; ++l) {
    norm[l] = l < lanes ? lse[row0 + l] : INFINITY;
    if (l < lanes) delta[row0 + l] = dot_[l];
  }
  clear(gqt, e);
  for (int j0 = 0; j0 < last; j0 += OTHERS) {
    const int n = last - j0 < OTHERS ? last - j0 : OTHERS;
    product(kp + j0 * g.stride[1][L_], g.stride[1][L_], g.stride[1][D_], n, e, qt, s, 0);
    apply_mask(s, mp + j0 * g.stride[3][D_], g.stride[3][D_], g.stride[3][L_], n, lanes, causal && j0 + n > i0, i0 - j0, 1);
    product(vp + j0 * g.stride[2][L_], g.stride[2][L_], g.stride[2][D_], n, ev, gt, dp, 0);
    for (int i = 0; i < n * LANES; i += VL) {
      const int h = i % LANES;
      HERE(s, i) = vexp(HERE(s, i) - HERE(norm, h)) * (HERE(dp, i) - HERE(dot_, h));
    }
    product(kp + j0 * g.stride[1][L_], g.stride[1][D_], g.stride[1][L_], e, n, s, gqt, 1);
  }
  give(gq + OFF(6) + i0 * g.stride[6][L_], g.stride[6][L_], g.stride[6][D_], lanes, e, gqt, scale);
}

// Gradients of LANES keys and values of one key head: the sum over all queries of the `group` heads that share it.
kernel attention_grad_kv(in T q, in T k, in T v, in T_m mask, in T grad, in ACC lse, in ACC delta, out T gk, out T gv, ACC scale, int causal, int lq, int lk, int e, int ev, int group, Layout7 g) {
  const IDX kv_head = (IDX)GID1, batch = (IDX)GID2, j0 = (IDX)GID0 * LANES;
  const int lanes = lk - j0 < LANES ? lk - j0 : LANES;
  ACC kt[DIM * LANES], vt[DIM * LANES], gkt[DIM * LANES], gvt[DIM * LANES], s[OTHERS * LANES], dp[OTHERS * LANES];
  const IDX k_from = batch * g.stride[1][B_] + kv_head * g.stride[1][H_] + j0 * g.stride[1][L_];
  const IDX v_from = batch * g.stride[2][B_] + kv_head * g.stride[2][H_] + j0 * g.stride[2][L_];
  take(kt, k + k_from, g.stride[1][L_], g.stride[1][D_], lanes, e, scale);
  take(vt, v + v_from, g.stride[2][L_], g.stride[2][D_], lanes, ev, 1);
  clear(gkt, e);
  clear(gvt, ev);
  for (IDX head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const GLOBAL T* restrict qp = q + OFF(0);
    const GLOBAL T* restrict gp = grad + OFF(4);
    const GLOBAL T_m* restrict mp = mask + OFF(3) + j0 * g.stride[3][D_];
    const IDX row0 = (batch * GSIZE1 * group + head) * lq;
    for (int i0 = causal ? j0 : 0; i0 < lq; i0 += OTHERS) {
      const int n = lq - i0 < OTHERS ? lq - i0 : OTHERS;
      product(qp + i0 * g.stride[0][L_], g.stride[0][L_], g.stride[0][D_], n, e, kt, s, 0);
      apply_mask(s, mp + i0 * g.stride[3][L_], g.stride[3][L_], g.stride[3][D_], n, lanes, causal && i0 < j0 + lanes, i0 - j0, -1);
      product(gp + i0 * g.stride[4][L_], g.stride[4][L_], g.stride[4][D_], n, ev, vt, dp, 0);
      for (int i = 0; i < n; ++i) {
        const V norm = SPLAT(V, lse[row0 + i0 + i]), dot_ = SPLAT(V, delta[row0 + i0 + i]);
        for (int h = 0; h < LANES; h += VL) {
          const V p = vexp(HERE(s, i * LANES + h) - norm);
          HERE(s, i * LANES + h) = p;
          HERE(dp, i * LANES + h) = p * (HERE(dp, i * LANES + h) - dot_);
        }
      }
      product(gp + i0 * g.stride[4][L_], g.stride[4][D_], g.stride[4][L_], ev, n, s, gvt, 1);
      product(qp + i0 * g.stride[0][L_], g.stride[0][D_], g.stride[0][L_], e, n, dp, gkt, 1);
    }
  }
  const IDX gk_from = batch * g.stride[5][B_] + kv_head * g.stride[5][H_] + j0 * g.stride[5][L_];
  const IDX gv_from = batch * g.stride[6][B_] + kv_head * g.stride[6][H_] + j0 * g.stride[6][L_];
  give(gk + gk_from, g.stride[5][L_], g.stride[5][D_], lanes, e, gkt, scale);
  give(gv + gv_from, g.stride[6][L_], g.stride[6][D_], lanes, ev, gvt, 1);
}
