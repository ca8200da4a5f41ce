// Euclidean norms of up to MOST dense tensors of floats: squares summed by work-item and tensor, then by tensor.
// S: type of the sums. Within a block of elements they are kept in float, in 16 lanes.
#define BLOCK 1024
VECTOR(V, float, 16)
typedef struct { ulong at[MOST]; } Tensors;
typedef struct { long at[MOST]; } Ends;

FUNC float squares_of(GLOBAL const float* restrict x, const int n) {
  V sums = SPLAT(V, 0.0f);
  float lanes[16], sum = 0.0f;
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    const V v = *(GLOBAL const V*)(x + i);
    sums += v * v;
  }
  *(V*)lanes = sums;
  for (; i < n; ++i) sum += x[i] * x[i];
  for (int j = 0; j < 16; ++j) sum += lanes[j];
  return sum;
}

// sums[work-item][tensor]; `ends`: where each tensor ends in the run of all elements, which work-items share out.
kernel squares(Tensors tensors, Ends ends, out S sums, int count, long chunk) {
  const long first = GID0 * chunk, end = first + chunk;
  for (int k = 0; k < count; ++k) {
    const long base = k ? ends.at[k - 1] : 0, stop = ends.at[k] < end ? ends.at[k] : end;
    GLOBAL const float* x = (GLOBAL const float*)tensors.at[k] - base;
    S sum = 0;
    for (long i = first > base ? first : base; i < stop; i += BLOCK) sum += squares_of(x + i, stop - i < BLOCK ? (int)(stop - i) : BLOCK);
    sums[GID0 * count + k] = sum;
  }
}

kernel roots(in S sums, Tensors norms, int count, int items) {
  for (int k = 0; k < count; ++k) {
    S sum = 0;
    for (int i = 0; i < items; ++i) sum += sums[i * count + k];
    *(GLOBAL float*)norms.at[k] = (float)sqrt(sum);
  }
}
