// Attention without the score matrix in memory: softmax(scale * q k^T + mask) v, block by block. After attention.h.
#define KEYS 64  // keys at a time
#define OFF_KV(K) (batch * g.stride[K][B_] + head / group * g.stride[K][H_])

#if MASK == 1
// Bits of n keys for each lane, in words of 32, and how much of the tile is seen: 0 nothing, 1 some, 2 all.
FUNC int look(WORD* restrict bits, const GLOBAL T_m* restrict mask, const IDX k_step, const IDX q_step, const int n,
              const int lanes) {
  ulong any = 0, all = ~(ulong)0, b = 0;
  for (int l = 0; l < LANES; ++l) {
    if (l < lanes && (l == 0 || q_step != 0)) b = seen_bits(mask + l * q_step, k_step, n);
    any |= b;
    all &= b;
    bits[l] = (WORD)(uint)b;
    bits[LANES + l] = (WORD)(uint)(b >> 32);
  }
  return any == 0 ? 0 : 1 + (n < 64 ? all == ((ulong)1 << n) - 1 : all == ~(ulong)0);
}
FUNC void apply_bits(ACC* restrict s, const WORD* restrict bits, const int n) {
  for (int j = 0; j < n; ++j)
    for (int h = 0; h < LANES; h += VL) {
      const W word = *(const W*)(bits + (j < 32 ? 0 : LANES) + h);
      hide(s, j * LANES + h, (word >> (j % 32) & 1) != 0);
    }
}
#elif MASK == 2
// s[key][LANES] += mask[key, lane]
FUNC void add_mask(ACC* restrict s, const GLOBAL T_m* restrict mask, const IDX k_step, const IDX q_step, const int n,
                   const int lanes) {
  int j = 0;
  if (q_step == 0) {
    for (; j < n; ++j)
      for (int h = 0; h < LANES; h += VL) HERE(s, j * LANES + h) += SPLAT(V, (ACC)T_m_load(mask[j * k_step]));
    return;
  }
  if (k_step == 1)
    for (; j + VL <= n; j += VL)
      for (int h = 0; h < lanes; h += VL) {
        V r[VL];
        for (int l = 0; l < VL; ++l) {
          r[l] = SPLAT(V, 0);
          if (h + l < lanes) r[l] = load_t(mask + (h + l) * q_step + j);
        }
        turn(r);
        for (int i = 0; i < VL; ++i) HERE(s, (j + i) * LANES + h) += r[i];
      }
  for (; j < n; ++j)
    for (int l = 0; l < lanes; ++l) s[j * LANES + l] += (ACC)T_m_load(mask[j * k_step + l * q_step]);
}
#endif

// One block of LANES queries of one head. lse: log of the sum of exp of a row's scores, +inf where all are masked.
kernel attention_forward(in T q, in T k, in T v, in T_m mask, out T o, out ACC lse, ACC scale, int causal, int lq, int lk, int e, int ev, int group, Layout5 g) {
  // Causal blocks differ in work: a long one after each short one, for any even split of the grid.
  const IDX at = (IDX)GID0, block = causal && (at & 1) ? (IDX)GSIZE0 - 1 - at / 2 : causal ? at / 2 : at;
  const IDX head = (IDX)GID1, batch = (IDX)GID2, i0 = block * LANES;
  const int lanes = lq - i0 < LANES ? lq - i0 : LANES, last = causal && i0 + lanes < lk ? i0 + lanes : lk;
  const int narrow = lanes <= VL, wide = narrow ? VL : LANES;
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
#if MASK == 1
    WORD bits[2 * LANES];
    const int seen = look(bits, mp + j0 * g.stride[4][D_], g.stride[4][D_], g.stride[4][L_], n, lanes);
    if (seen == 0) continue;
#endif
    product(kp + j0 * g.stride[1][L_], g.stride[1][L_], g.stride[1][D_], n, e, qt, s, 0, narrow);
#if MASK == 1
    if (seen == 1) apply_bits(s, bits, n);
#elif MASK == 2
    add_mask(s, mp + j0 * g.stride[4][D_], g.stride[4][D_], g.stride[4][L_], n, lanes);
#endif
    if (causal && j0 + n > i0)
      for (int j = 0; j < n; ++j)
        for (int h = 0; h < wide; h += VL) hide(s, j * LANES + h, ramp() >= SPLAT(W, (WORD)(j0 + j - i0 - h)));
    for (int h = 0; h < wide; h += VL) {
      const V before = HERE(top, h);
      V m = before, total = SPLAT(V, 0);
      for (int j = 0; j < n; ++j) m = vmax(HERE(s, j * LANES + h), m);
      HERE(top, h) = m;
      // a row of nothing but -inf: exp(-inf - 0) is the 0 that exp(-inf + inf) is not
      const V by = pick(m == SPLAT(V, -INFINITY), SPLAT(V, 0), m), fade = vexp(before - by);
      for (int j = 0; j < n; ++j) {
        const V p = vexp(HERE(s, j * LANES + h) - by);
        HERE(s, j * LANES + h) = p;
        total += p;
      }
      HERE(sum, h) = HERE(sum, h) * fade + total;
      for (int d = 0; d < ev; ++d) HERE(ot, d * LANES + h) = HERE(ot, d * LANES + h) * fade;
    }
    product(vp + j0 * g.stride[2][L_], g.stride[2][D_], g.stride[2][L_], ev, n, s, ot, 1, narrow);
  }
  for (int l = 0; l < LANES; ++l) {
    if (l < lanes) lse[(batch * GSIZE1 + head) * lq + i0 + l] = sum[l] == 0 ? INFINITY : top[l] + log(sum[l]);
    sum[l] = sum[l] == 0 ? 0 : 1 / sum[l];
  }
  for (int d = 0; d < ev; ++d)
    for (int h = 0; h < wide; h += VL) HERE(ot, d * LANES + h) = HERE(ot, d * LANES + h) * HERE(sum, h);
  give(o + OFF(3) + i0 * g.stride[3][L_], g.stride[3][L_], g.stride[3][D_], lanes, ev, ot, 1);
}

// -- few queries -----------------------------------------------------------------------------------------------------
// Lanes are dimensions of the head instead, which must be dense in q, k, v and out. A work-item has up to ROWS rows (the
// queries of the heads that share a key head), so that each key is read once, and one of GSIZE0 parts of the keys.
#define ROWS 8
#define WIDE 4  // vectors of a row of v at a time

// s[j] = q . k[j] for n keys, at least; and -inf up to the next multiple of VL.
FUNC void dots(ACC* restrict s, const ACC* restrict q, const GLOBAL T* restrict k, const IDX k_step, const int n, const int e) {
  for (int j0 = 0; j0 < n; j0 += VL) {
    V r[VL];
    const int whole = e / VL * VL;
    for (int j = 0; j < VL; ++j) {
      const GLOBAL T* restrict row = k + (j0 + j < n ? j0 + j : n - 1) * k_step;
      V sum = SPLAT(V, 0);
      for (int d = 0; d < whole; d += VL) sum += HERE(q, d) * load_t(row + d);
      for (int d = whole; d < e; ++d) ((ACC*)&sum)[0] += q[d] * (ACC)T_load(row[d]);
      r[j] = sum;
    }
    HERE(s, j0) = totals(r);
    if (j0 + VL > n) hide(s, j0, ramp() < SPLAT(W, (WORD)(n - j0)));
  }
}

// y = fade * y + sum over n keys of s[j] * v[j]
FUNC void mix(ACC* restrict y, const ACC fade, const ACC* restrict s, const GLOBAL T* restrict v, const IDX v_step, const int n, const int ev) {
  int d = 0;
  for (; d + WIDE * VL <= ev; d += WIDE * VL) {
    V f[WIDE];
    for (int i = 0; i < WIDE; ++i) f[i] = HERE(y, d + i * VL) * SPLAT(V, fade);
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < WIDE; ++i) f[i] = madd(s[j], load_t(v + j * v_step + d + i * VL), f[i]);
    for (int i = 0; i < WIDE; ++i) HERE(y, d + i * VL) = f[i];
  }
  for (; d + VL <= ev; d += VL) {
    V f = HERE(y, d) * SPLAT(V, fade), f1 = SPLAT(V, 0);
    int j = 0;
    for (; j + 2 <= n; j += 2) {
      f = madd(s[j], load_t(v + j * v_step + d), f);
      f1 = madd(s[j + 1], load_t(v + (j + 1) * v_step + d), f1);
    }
    if (j < n) f = madd(s[j], load_t(v + j * v_step + d), f);
    HERE(y, d) = f + f1;
  }
  for (; d < ev; ++d) {
    y[d] *= fade;
    for (int j = 0; j < n; ++j) y[d] += s[j] * (ACC)T_load(v[j * v_step + d]);
  }
}

// partial: [part, batch, head, query][ev + 2] with the maximum and the sum at the end, used with more than one part.
kernel attention_row(in T q, in T k, in T v, in T_m mask, out T o, out ACC lse, inout ACC partial, ACC scale, int causal, int lq, int lk, int e, int ev, int group, int blocks, Layout5 g) {
  const IDX kv_head = (IDX)GID1 / blocks, batch = (IDX)GID2, heads = (IDX)GSIZE1 / blocks * group;
  const int r0 = GID1 % blocks * ROWS, rows = group * lq - r0 < ROWS ? group * lq - r0 : ROWS;
  const int share = ((lk + GSIZE0 - 1) / GSIZE0 + KEYS - 1) / KEYS * KEYS, from = GID0 * share;
  const int to = from + share < lk ? from + share : lk;
  const GLOBAL T* restrict kp = k + batch * g.stride[1][B_] + kv_head * g.stride[1][H_];
  const GLOBAL T* restrict vp = v + batch * g.stride[2][B_] + kv_head * g.stride[2][H_];
  const IDX k_l = g.stride[1][L_], v_l = g.stride[2][L_];
  ACC qs[ROWS * DIM], found[ROWS * DIM], s[KEYS], top[ROWS], sum[ROWS];
  for (int r = 0; r < rows; ++r) {
    const IDX head = kv_head * group + (r0 + r) / lq, i = (r0 + r) % lq;
    const GLOBAL T* restrict qp = q + OFF(0) + i * g.stride[0][L_];
    for (int d = 0; d < e; ++d) qs[r * DIM + d] = scale * (ACC)T_load(qp[d]);
    for (int d = 0; d < ev; ++d) found[r * DIM + d] = 0;
    top[r] = -INFINITY;
    sum[r] = 0;
  }
  for (int j0 = from; j0 < to; j0 += KEYS)
    for (int r = 0; r < rows; ++r) {
      const IDX head = kv_head * group + (r0 + r) / lq, i = (r0 + r) % lq;
      const int last = causal && i + 1 < to ? i + 1 : to, n = last - j0 < KEYS ? last - j0 : KEYS;
      if (n <= 0) continue;
      dots(s, qs + r * DIM, kp + j0 * k_l, k_l, n, e);
#if MASK
      const GLOBAL T_m* restrict mp = mask + OFF(4) + i * g.stride[4][L_] + j0 * g.stride[4][D_];
#endif
#if MASK == 1
      for (int j = 0; j < n; ++j) s[j] = T_m_load(mp[j * g.stride[4][D_]]) ? s[j] : -INFINITY;
#elif MASK == 2
      for (int j = 0; j < n; ++j) s[j] += (ACC)T_m_load(mp[j * g.stride[4][D_]]);
#endif
      V m = HERE(s, 0), total = SPLAT(V, 0);
      for (int j = VL; j < n; j += VL) m = vmax(HERE(s, j), m);
      ACC most = top[r];
      for (int l = 0; l < VL; ++l) {
        const ACC other = ((const ACC*)&m)[l];
        most = other > most ? other : most;
      }
      const ACC by = most == -INFINITY ? 0 : most;
      for (int j = 0; j < n; j += VL) {
        const V p = vexp(HERE(s, j) - SPLAT(V, by));
        HERE(s, j) = p;
        total += p;
      }
      const ACC fade = top[r] == -INFINITY ? 0 : exp(top[r] - by);
      sum[r] = sum[r] * fade + total_of(total);
      top[r] = most;
      mix(found + r * DIM, fade, s, vp + j0 * v_l, v_l, n, ev);
    }
  for (int r = 0; r < rows; ++r) {
    const IDX head = kv_head * group + (r0 + r) / lq, i = (r0 + r) % lq, row = (batch * heads + head) * lq + i;
    if (GSIZE0 > 1) {
      GLOBAL ACC* restrict to_ = partial + (GID0 * GSIZE2 * heads * lq + row) * (ev + 2);
      for (int d = 0; d < ev; ++d) to_[d] = found[r * DIM + d];
      to_[ev] = top[r];
      to_[ev + 1] = sum[r];
      continue;
    }
    GLOBAL T* restrict op = o + OFF(3) + i * g.stride[3][L_];
    const ACC part = sum[r] == 0 ? 0 : 1 / sum[r];
    for (int d = 0; d < ev; ++d) op[d] = T_save(found[r * DIM + d] * part);
    lse[row] = sum[r] == 0 ? INFINITY : top[r] + log(sum[r]);
  }
}

// One query from its parts. Layout: out [batch, head, query, dim].
kernel attention_join(in ACC partial, out T o, out ACC lse, int parts, int lq, int ev, Layout1 g) {
  const IDX i = (IDX)GID0, head = (IDX)GID1, batch = (IDX)GID2, rows = (IDX)GSIZE2 * GSIZE1 * lq;
  const IDX row = (batch * GSIZE1 + head) * lq + i;
  ACC most = -INFINITY, sum = 0, found[DIM];
  for (int p = 0; p < parts; ++p) {
    const ACC top = partial[(p * rows + row) * (ev + 2) + ev];
    most = top > most ? top : most;
  }
  for (int d = 0; d < ev; ++d) found[d] = 0;
  for (int p = 0; p < parts; ++p) {
    const GLOBAL ACC* restrict from = partial + (p * rows + row) * (ev + 2);
    const ACC fade = from[ev] == -INFINITY ? 0 : exp(from[ev] - most);
    sum += fade * from[ev + 1];
    for (int d = 0; d < ev; ++d) found[d] += fade * from[d];
  }
  for (int d = 0; d < ev; ++d) o[OFF(0) + i * g.stride[0][L_] + d * g.stride[0][D_]] = T_save(sum == 0 ? 0 : found[d] / sum);
  lse[row] = sum == 0 ? INFINITY : most + log(sum);
}
