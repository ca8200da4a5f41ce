// Gradients of attention; the scores are computed again from lse. After attention.h. Lanes are keys.
#define QUERIES 32  // at a time

#if MASK == 1
// Bits of LANES keys for each of n queries, and how much of the tile is seen: 0 nothing, 1 some, 2 all.
FUNC int look(uint* restrict bits, const GLOBAL T_m* restrict mask, const IDX k_step, const IDX q_step, const int n,
              const int lanes) {
  ulong any = 0, all = ~(ulong)0;
  for (int i = 0; i < n; ++i) {
    const ulong b = seen_bits(mask + i * q_step, k_step, lanes);
    any |= b;
    all &= b;
    bits[i] = (uint)b;
  }
  return any == 0 ? 0 : 1 + (all == ((ulong)1 << lanes) - 1);
}
FUNC void apply_bits(ACC* restrict s, const uint* restrict bits, const int n) {
  for (int i = 0; i < n; ++i)
    for (int h = 0; h < LANES; h += VL)
      hide(s, i * LANES + h, ((SPLAT(W, (WORD)(bits[i] >> h)) >> ramp()) & 1) != 0);
}
#elif MASK == 2
// s[query][LANES] += mask[lane, query]
FUNC void add_mask(ACC* restrict s, const GLOBAL T_m* restrict mask, const IDX k_step, const IDX q_step, const int n,
                   const int lanes) {
  for (int i = 0; i < n; ++i) {
    const GLOBAL T_m* restrict row = mask + i * q_step;
    int l = 0;
    if (k_step == 1)
      for (; l + VL <= lanes; l += VL) HERE(s, i * LANES + l) += load_t(row + l);
    for (; l < lanes; ++l) s[i * LANES + l] += (ACC)T_m_load(row[l * k_step]);
  }
}
#endif

// y[o][width] += sum over i of x[o][i] * v[i][width] for `outer` rows o of LANES numbers; width is a multiple of VL.
FUNC void spread(GLOBAL ACC* restrict y, const ACC* restrict x, const ACC* restrict v, const int outer, const int inner,
                 const int width) {
  for (int o = 0; o < outer; o += MR)
    for (int c = 0; c < width; c += 2 * VL) {
      const int two = c + VL < width;
#define ROW(R)                                                                            \
  const ACC* restrict x##R = x + (o + R < outer ? o + R : outer - 1) * LANES;             \
  V s##R = SPLAT(V, 0), t##R = SPLAT(V, 0);
      EACH_ROW(ROW)
#undef ROW
      if (two)
        for (int i = 0; i < inner; ++i) {
          const V v0 = HERE(v, i * width + c), v1 = HERE(v, i * width + c + VL);
#define ROW(R)                   \
  s##R = madd(x##R[i], v0, s##R); \
  t##R = madd(x##R[i], v1, t##R);
          EACH_ROW(ROW)
#undef ROW
        }
      else
        for (int i = 0; i < inner; ++i) {
          const V v0 = HERE(v, i * width + c);
#define ROW(R) s##R = madd(x##R[i], v0, s##R);
          EACH_ROW(ROW)
#undef ROW
        }
#define ROW(R)                                   \
  if (o + R < outer) {                           \
    GLOBAL ACC* to = y + (o + R) * width + c;    \
    *(GLOBAL V*)to += s##R;                      \
    if (two) *(GLOBAL V*)(to + VL) += t##R;      \
  }
      EACH_ROW(ROW)
#undef ROW
    }
}

// rows[l][width] = factor * x[l, d]; 0 behind dim.
FUNC void take_rows(ACC* restrict rows, const GLOBAL T* restrict x, const IDX l_step, const IDX d_step, const int lanes,
                    const int dim, const int width, const ACC factor) {
  for (int l = 0; l < lanes; ++l) {
    int d = 0;
    if (d_step == 1)
      for (; d + VL <= dim; d += VL) HERE(rows, l * width + d) = load_t(x + l * l_step + d) * SPLAT(V, factor);
    for (; d < width; ++d) rows[l * width + d] = d < dim ? factor * (ACC)T_load(x[l * l_step + d * d_step]) : 0;
  }
}

// delta[i]: the sum of grad * out of query i.
FUNC void sum_products(GLOBAL ACC* restrict delta, const GLOBAL T* restrict o, const IDX o_l, const IDX o_d,
                       const GLOBAL T* restrict grad, const IDX grad_l, const IDX grad_d, const int lq, const int ev) {
  const int whole = o_d == 1 && grad_d == 1 ? ev / VL * VL : 0;
  for (int i = 0; i < lq; ++i) {
    V sum = SPLAT(V, 0);
    for (int d = 0; d < whole; d += VL) sum += load_t(o + i * o_l + d) * load_t(grad + i * grad_l + d);
    ACC rest = total_of(sum);
    for (int d = whole; d < ev; ++d) rest += (ACC)T_load(o[i * o_l + d * o_d]) * (ACC)T_load(grad[i * grad_l + d * grad_d]);
    delta[i] = rest;
  }
}

// x[i, d] = the sum of the parts of sums[part][i][width]
FUNC void give_rows(GLOBAL T* restrict x, const IDX l_step, const IDX d_step, const GLOBAL ACC* restrict sums, const int parts,
                    const IDX part, const int n, const int dim, const int width) {
  for (int i = 0; i < n; ++i)
    for (int d = 0; d < dim; ++d) {
      ACC sum = sums[i * width + d];
      for (int p = 1; p < parts; ++p) sum += sums[p * part + i * width + d];
      x[i * l_step + d * d_step] = T_save(sum);
    }
}

// All queries, and every GSIZE0th block of keys, of one key head. sums [part, batch, head, query][width] gathers the
// gradient of q, in this work-item's part of it: key blocks run one after the other. With one part it goes to gq here.
kernel attention_backward(in T q, in T k, in T v, in T_m mask, in T o, in T grad, in ACC lse, inout ACC delta, inout ACC sums, out T gq, out T gk, out T gv, ACC scale, int causal, int lq, int lk, int e, int ev, int group, int width, Layout6 g, Layout3 to) {
  const IDX kv_head = (IDX)GID1, batch = (IDX)GID2, heads = (IDX)GSIZE1 * group;
  const IDX own = (IDX)GID0 * GSIZE2 * heads * lq;
  ACC kt[DIM * LANES], vt[DIM * LANES], kr[DIM * LANES], gkt[DIM * LANES], gvt[DIM * LANES];
  ACC s[QUERIES * LANES], dp[QUERIES * LANES];
  for (IDX head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const IDX row0 = own + (batch * heads + head) * lq;
    sum_products(delta + row0, o + OFF(4), g.stride[4][L_], g.stride[4][D_], grad + OFF(5), g.stride[5][L_], g.stride[5][D_], lq, ev);
    for (IDX i = row0 * width; i < (row0 + lq) * width; i += VL) *(GLOBAL V*)(sums + i) = SPLAT(V, 0);
  }
  for (IDX j0 = (IDX)GID0 * LANES; j0 < lk; j0 += (IDX)GSIZE0 * LANES) {
    const int lanes = lk - j0 < LANES ? lk - j0 : LANES, narrow = lanes <= VL;
    const GLOBAL T* restrict kp = k + batch * g.stride[1][B_] + kv_head * g.stride[1][H_] + j0 * g.stride[1][L_];
    const GLOBAL T* restrict vp = v + batch * g.stride[2][B_] + kv_head * g.stride[2][H_] + j0 * g.stride[2][L_];
    take(kt, kp, g.stride[1][L_], g.stride[1][D_], lanes, e, scale);
    take(vt, vp, g.stride[2][L_], g.stride[2][D_], lanes, ev, 1);
    take_rows(kr, kp, g.stride[1][L_], g.stride[1][D_], lanes, e, width, scale);
    clear(gkt, e);
    clear(gvt, ev);
    for (IDX head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const GLOBAL T* restrict qp = q + OFF(0);
      const GLOBAL T* restrict gp = grad + OFF(5);
      const IDX row0 = (batch * heads + head) * lq;
      for (IDX i0 = causal ? j0 : 0; i0 < lq; i0 += QUERIES) {
        const int n = lq - i0 < QUERIES ? lq - i0 : QUERIES;
#if MASK
        const GLOBAL T_m* restrict mp = mask + OFF(3) + j0 * g.stride[3][D_] + i0 * g.stride[3][L_];
#endif
#if MASK == 1
        uint bits[QUERIES];
        const int seen = look(bits, mp, g.stride[3][D_], g.stride[3][L_], n, lanes);
        if (seen == 0) continue;
#endif
        product(qp + i0 * g.stride[0][L_], g.stride[0][L_], g.stride[0][D_], n, e, kt, s, 0, narrow);
#if MASK == 1
        if (seen == 1) apply_bits(s, bits, n);
#elif MASK == 2
        add_mask(s, mp, g.stride[3][D_], g.stride[3][L_], n, lanes);
#endif
        if (causal && i0 < j0 + lanes)
          for (int i = 0; i < n; ++i)
            for (int h = 0; h < LANES; h += VL) hide(s, i * LANES + h, ramp() <= SPLAT(W, (WORD)(i0 + i - j0 - h)));
        product(gp + i0 * g.stride[5][L_], g.stride[5][L_], g.stride[5][D_], n, ev, vt, dp, 0, narrow);
        for (int i = 0; i < n; ++i) {
          const V norm = SPLAT(V, lse[row0 + i0 + i]), dot_ = SPLAT(V, delta[own + row0 + i0 + i]);
          for (int h = 0; h < (narrow ? VL : LANES); h += VL) {
            const V p = vexp(HERE(s, i * LANES + h) - norm);
            HERE(s, i * LANES + h) = p;
            HERE(dp, i * LANES + h) = p * (HERE(dp, i * LANES + h) - dot_);
          }
        }
        product(gp + i0 * g.stride[5][L_], g.stride[5][D_], g.stride[5][L_], ev, n, s, gvt, 1, narrow);
        product(qp + i0 * g.stride[0][L_], g.stride[0][D_], g.stride[0][L_], e, n, dp, gkt, 1, narrow);
        spread(sums + (own + row0 + i0) * width, dp, kr, n, lanes, width);
      }
    }
    give(gk + batch * to.stride[1][B_] + kv_head * to.stride[1][H_] + j0 * to.stride[1][L_], to.stride[1][L_], to.stride[1][D_], lanes, e, gkt, scale);
    give(gv + batch * to.stride[2][B_] + kv_head * to.stride[2][H_] + j0 * to.stride[2][L_], to.stride[2][L_], to.stride[2][D_], lanes, ev, gvt, 1);
  }
  if (GSIZE0 > 1) return;
  for (IDX head = kv_head * group; head < (kv_head + 1) * group; ++head)
    give_rows(gq + batch * to.stride[0][B_] + head * to.stride[0][H_], to.stride[0][L_], to.stride[0][D_], sums + (batch * heads + head) * lq * width, 1, 0, lq, e, width);
}

// The gradient of q from its parts, for one head.
kernel attention_join_q(in ACC sums, out T gq, int parts, int lq, int e, int width, Layout1 g) {
  const IDX head = (IDX)GID0, batch = (IDX)GID1, row0 = (batch * GSIZE0 + head) * lq;
  give_rows(gq + OFF(0), g.stride[0][L_], g.stride[0][D_], sums + row0 * width, parts, (IDX)GSIZE1 * GSIZE0 * lq * width, lq, e, width);
}
