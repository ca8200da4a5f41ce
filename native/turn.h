// Blocks of VL x VL numbers turned in registers, and the totals of many vectors at once.
#if VL == 16
#define LOW_PAIRS 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_PAIRS 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif VL == 8
#define LOW_PAIRS 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_PAIRS 4, 12, 5, 13, 6, 14, 7, 15
#elif VL == 4
#define LOW_PAIRS 0, 4, 1, 5
#define HIGH_PAIRS 2, 6, 3, 7
#else
#define LOW_PAIRS 0, 2
#define HIGH_PAIRS 1, 3
#endif
// Lanes of a and b in turn, from the first or the second halves of both.
#if defined(__clang__) || __GNUC__ >= 12
#define LOW(a, b) __builtin_shufflevector(a, b, LOW_PAIRS)
#define HIGH(a, b) __builtin_shufflevector(a, b, HIGH_PAIRS)
#else
#define LOW(a, b) __builtin_shuffle(a, b, (__typeof__((a) < (b))){LOW_PAIRS})
#define HIGH(a, b) __builtin_shuffle(a, b, (__typeof__((a) < (b))){HIGH_PAIRS})
#endif
#ifdef __clang__
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif

// One step of log2(VL): the bits of (row, lane) move up by one place, round and round, until they have changed places.
FUNC void turn_step(const V* r, V* t) {
  UNROLLED for (int i = 0; i < VL / 2; ++i) {
    t[2 * i] = LOW(r[i], r[i + VL / 2]);
    t[2 * i + 1] = HIGH(r[i], r[i + VL / 2]);
  }
}

// Rows become lanes.
FUNC void turn(V* r) {
  V t[VL];
  turn_step(r, t);
#if VL == 16 || VL == 4
  if (VL == 16) {
    turn_step(t, r);
    turn_step(r, t);
  }
  turn_step(t, r);
#else
  if (VL == 8) {
    turn_step(t, r);
    turn_step(r, t);
  }
  UNROLLED for (int i = 0; i < VL; ++i) r[i] = t[i];
#endif
}

// totals[i]: the sum of the lanes of s[i], for 16 vectors, which are lost.
FUNC void totals_of(V* s, ACC* totals) {
#define HALVE(COUNT) UNROLLED for (int i = 0; i < COUNT; ++i) s[i] = LOW(s[i], s[i + COUNT]) + HIGH(s[i], s[i + COUNT]);
  HALVE(8)
#if VL > 2
  HALVE(4)
#endif
#if VL > 4
  HALVE(2)
#endif
#if VL > 8
  HALVE(1)
#endif
#undef HALVE
  ACC lanes[16];
  UNROLLED for (int i = 0; i < 16 / VL; ++i) HERE(lanes, i * VL) = s[i];
  UNROLLED for (int i = 0; i < 16; ++i) totals[i] = lanes[i % (16 / VL) * VL + i / (16 / VL)];
}
