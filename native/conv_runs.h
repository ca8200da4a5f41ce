// What convolutions on CPU-type devices share: where the positions of a tile lie, and the product of a tile.
#define NR (2 * VL)
#define ON_LINE __attribute__((aligned(64)))

// Lanes lane[r] up to lane[r + 1] of a tile, VL at most, are the positions at[r], at[r] + step, ... of a tensor.
typedef struct { int count; int lane[NR + 1]; IDX at[NR]; } Runs;

// The runs of positions p up to p + lanes. size: w, h, d, n; step: elements from one position to the next in each.
FUNC void find_runs(Runs* runs, const IDX p, const int lanes, const IDX* size, const IDX* step) {
  IDX w = p % size[0], h = p / size[0] % size[1], d = p / size[0] / size[1] % size[2], n = p / size[0] / size[1] / size[2];
  int done = 0, r = 0;
  for (; done < lanes; ++r) {
    const int most = lanes - done < VL ? lanes - done : VL, run = size[0] - w < most ? (int)(size[0] - w) : most;
    runs->lane[r] = done;
    runs->at[r] = w * step[0] + h * step[1] + d * step[2] + n * step[3];
    done += run;
    w += run;
    if (w == size[0]) {
      w = 0;
      if (++h == size[1]) {
        h = 0;
        if (++d == size[2]) {
          d = 0;
          ++n;
        }
      }
    }
  }
  runs->lane[r] = lanes;
  runs->count = r;
}

// sum[MR][NR] = start (the bias) or sum + a[depth][MR] * x[depth][NR]; each call sums from 0: sums of sums lose less.
FUNC void multiply(ACC* restrict sum, const GLOBAL ACC* restrict a, const ACC* restrict x, const int depth,
                   const GLOBAL ACC* restrict start, const int first) {
#define ROW(R) V s##R = SPLAT(V, 0), t##R = s##R;
  EACH_ROW(ROW)
#undef ROW
  for (int k = 0; k < depth; ++k) {
    const V x0 = HERE(x, k * NR), x1 = HERE(x, k * NR + VL);
#define ROW(R) s##R = madd(a[R], x0, s##R); t##R = madd(a[R], x1, t##R);
    EACH_ROW(ROW)
#undef ROW
    a += MR;
  }
  if (first) {
#define ROW(R) s##R += SPLAT(V, start[R]); t##R += SPLAT(V, start[R]);
    EACH_ROW(ROW)
#undef ROW
  } else {
#define ROW(R) s##R += HERE(sum, R * NR); t##R += HERE(sum, R * NR + VL);
    EACH_ROW(ROW)
#undef ROW
  }
#define ROW(R) HERE(sum, R * NR) = s##R; HERE(sum, R * NR + VL) = t##R;
  EACH_ROW(ROW)
#undef ROW
}
