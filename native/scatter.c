// Elements put at places found by index: y[place] = OP(y[place], x).
// The loop has two parts. `par` walks dimensions in which different steps reach different places (strides of y, x,
// index); work-items share it out. `ser` walks the others in order (strides of x, index), so that places that occur
// twice are combined in a fixed order without atomics.
// OP(a, v): the combination, in the compute type of T; SCALE(v): v times `alpha`, or v. SY, SX: inner strides of y and x
// along `par`. inside.h comes first.

#ifdef ATOMIC
// Elements of 32 bits, any order: for chips with too many work-items to leave a dimension to one of them.
FUNC void put(GLOBAL T* y, T_acc v) {
  volatile GLOBAL uint* cell = (volatile GLOBAL uint*)y;
  uint seen = READ32(cell), was;
  do {
    was = seen;
    const T_acc a = FROM_BITS(was);
    seen = cas32(cell, was, TO_BITS(OP(a, v)));
  } while (seen != was);
}
#else
FUNC void put(GLOBAL T* y, T_acc v) {
  const T_acc a = T_load(*y);
  *y = T_save(OP(a, v));
}
#endif

// Elements that each have an index: y[place] = OP(y[place], x) in order; all places are inside.
FUNC void scatter_some(GLOBAL T* y, GLOBAL const T* x, GLOBAL const TI* idx, const IDX sx, const IDX si, const IDX n, const IDX stride, const IDX below, const long skip, const T_acc alpha) {
  for (IDX k = 0; k < n; ++k) {
    const IDX i = (IDX)idx[k * si];
    if (idx[k * si] == skip) continue;
    const T_acc v = T_load(x[k * sx]);
    put(y + (i < 0 ? i + below : i) * stride, SCALE(v));
  }
}

kernel scatter(inout T y, in T x, in TI idx, inout long seen, long total, long chunk, long steps, Layout3 par, Layout2 ser, long size, long stride, int wrap, int code, long skip, T_acc alpha) {
  const IDX inner = par.size[0], si = par.stride[2][0], run = ser.size[0];
  IDX start = (IDX)(GID0 * chunk);
  const IDX end = start + chunk < total ? start + chunk : total;
  while (start < end) {
    IDX row = start / inner;
    const IDX j0 = start - row * inner, left = inner - j0, n = left < end - start ? left : end - start;
    IDX ay = j0 * SY, ax = j0 * SX, ai = j0 * si;
    for (IDX d = 1; d < par.rank; ++d) {
      const IDX q = row % par.size[d];
      row /= par.size[d];
      ay += q * par.stride[0][d];
      ax += q * par.stride[1][d];
      ai += q * par.stride[2][d];
    }
    // One index for a whole run: the run is the inner loop. Else each element walks `ser` by itself.
    const IDX width = si == 0 ? n : 1;
    for (IDX j = 0; j < n; j += width) {
      for (IDX s = 0; s < steps; s += run) {
        IDX r = s / run, bx = ax + j * SX, bi = ai + j * si;
        for (IDX d = 1; d < ser.rank; ++d) {
          const IDX q = r % ser.size[d];
          r /= ser.size[d];
          bx += q * ser.stride[0][d];
          bi += q * ser.stride[1][d];
        }
        IDX k = 0;
        const IDX s0 = ser.stride[0][0], s1 = ser.stride[1][0];
        for (; si != 0 && k < run; k += BLOCK) {  // `skip` may be anything: it is one of the places, or none is it
          const IDX w = run - k < BLOCK ? run - k : BLOCK;
          if (!inside(idx + bi + k * s1, s1, w, size, wrap)) break;
          if (s0 == 1 && s1 == 1) scatter_some(y + ay + j * SY, x + bx + k, idx + bi + k, 1, 1, w, (IDX)stride, (IDX)size, skip, alpha);
          else scatter_some(y + ay + j * SY, x + bx + k * s0, idx + bi + k * s1, s0, s1, w, (IDX)stride, (IDX)size, skip, alpha);
        }
        for (; k < run; ++k) {
          const long i = idx[bi + k * s1];
          if (i == skip) continue;
          const long at = checked(i, size, wrap, seen, code);
          if (at < 0) continue;
          const IDX to = ay + j * SY + (IDX)(at * stride), from = bx + k * s0;
          for (IDX w = 0; w < width; ++w) {
            const T_acc v = T_load(x[from + w * SX]);
            put(y + to + w * SY, SCALE(v));
          }
        }
      }
    }
    start += n;
  }
}
