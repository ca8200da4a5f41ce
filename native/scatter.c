// Elements put at places found by index: y[place] = OP(y[place], x).
// The loop has two parts. `par` walks dimensions in which different steps reach different places (strides of y, x,
// index); work-items share it out. `ser` walks the others in order (strides of x, index), so that places that occur
// twice are combined in a fixed order without atomics.
// OP(a, v): the combination, in the compute type of T. SY, SX: inner strides of y and x along `par`.

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

kernel scatter(inout T y, in T x, in TI idx, inout long seen, long total, long chunk, long steps, Layout3 par, Layout2 ser, long size, long stride, int wrap, int code, long skip) {
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
        for (IDX k = 0; k < run; ++k) {
          const long i = idx[bi + k * ser.stride[1][0]];
          if (i == skip) continue;
          const long at = checked(i, size, wrap, seen, code);
          if (at < 0) continue;
          const IDX to = ay + j * SY + (IDX)(at * stride), from = bx + k * ser.stride[0][0];
          for (IDX w = 0; w < width; ++w) put(y + to + w * SY, T_load(x[from + w * SX]));
        }
      }
    }
    start += n;
  }
}
