// softmax and log_softmax of rows, and their gradients, a group of work-items per row: see native/softmax.h for the
// macros. A row that is not kept is read twice forward: its maximum and its sum are found in one pass (Milakov and
// Gimelshein, Online normalizer calculation for softmax, 2018).
#define TERM(g, y) (LOGARITHM ? (g) : (g) * (y))
#define GRAD(g, y, total) (LOGARITHM ? (g) - EXP(y) * (total) : (y) * ((g) - (total)))
#if UNIT
#define AT(step) 1
#else
#define AT(step) step
#endif
#define X(i) T_load(x[at_x + (i) * AT(step_x)])
#define G(i) T_load(g[at_g + (i) * AT(step_g)])
#define Y(i) S_load(y[at_y + (i) * AT(step_y)])

kernel forward_groups(in T x, out U y, long rows, IDX n, IDX step_x, IDX step_y, Layout2 kept) groups(GROUP) {
  SHARED(ACC, scratch, GROUP);
  const IDX count = ROW < rows ? n : 0;
  IDX rest = ROW < rows ? (IDX)ROW : 0, at_x = 0, at_y = 0;
  for (IDX d = 0; d < kept.rank; ++d) {
    const IDX q = rest % kept.size[d];
    rest /= kept.size[d];
    at_x += q * kept.stride[0][d];
    at_y += q * kept.stride[1][d];
  }
  ACC top = -INFINITY, total = 0;
#if KEEP
  ACC keep[KEEP];
  EACH(i, k, count) {
    keep[k] = X(i);
    top = LARGER(top, keep[k]);
  }
  ACROSS(top, LARGER)
  EACH(i, k, count) total += EXP(keep[k] - top);
#else
  ACC here = -INFINITY;
  EACH(i, k, count) {
    const ACC v = X(i);
    if (v > here) {
      total = total * EXP(here - v) + (1 + (v - v));  // an infinity makes NaN of the sum
      here = v;
    } else if (!(v == here && v - v != 0)) {
      total += EXP(v - here);
    } else if (v > 0) {
      total += v - v;
    }
  }
  top = here;
  ACROSS(top, LARGER)
  if (here < top) total *= EXP(here - top);
#endif
  ACROSS(total, PLUS)
  const ACC scale = LOGARITHM ? log(total) : 1 / total;
#if KEEP
#define OF_ROW(i, k) keep[k]
#else
#define OF_ROW(i, k) X(i)
#endif
  EACH(i, k, count) {
    const ACC v = OF_ROW(i, k) - top;
    y[at_y + i * AT(step_y)] = U_save(LOGARITHM ? v - scale : EXP(v) * scale);
  }
}

kernel backward_groups(in T g, in S y, out U dx, long rows, IDX n, IDX step_g, IDX step_y, IDX step_x, Layout3 kept) groups(GROUP) {
  SHARED(ACC, scratch, GROUP);
  const IDX count = ROW < rows ? n : 0;
  IDX rest = ROW < rows ? (IDX)ROW : 0, at_g = 0, at_y = 0, at_x = 0;
  for (IDX d = 0; d < kept.rank; ++d) {
    const IDX q = rest % kept.size[d];
    rest /= kept.size[d];
    at_g += q * kept.stride[0][d];
    at_y += q * kept.stride[1][d];
    at_x += q * kept.stride[2][d];
  }
  ACC total = 0;
#if KEEP
  ACC keep_g[KEEP], keep_y[KEEP];
  EACH(i, k, count) {
    keep_g[k] = G(i);
    keep_y[k] = Y(i);
    total += TERM(keep_g[k], keep_y[k]);
  }
  ACROSS(total, PLUS)
  EACH(i, k, count) dx[at_x + i * AT(step_x)] = U_save(GRAD(keep_g[k], keep_y[k], total));
#else
  EACH(i, k, count) total += TERM(G(i), Y(i));
  ACROSS(total, PLUS)
  EACH(i, k, count) {
    const ACC u = G(i), v = Y(i);
    dx[at_x + i * AT(step_x)] = U_save(GRAD(u, v, total));
  }
#endif
}
