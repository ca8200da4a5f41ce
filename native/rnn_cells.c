// The pointwise part of LSTM and GRU cells: gates [rows, K * n] to states [rows, n], all row-major.
// GID0: piece of a row (length `piece`), GID1: row. Workspaces hold what the backward pass needs.
// Source of the formulas: Hochreiter and Schmidhuber 1997; Cho et al. 2014 in torch's variant.

FUNC T_acc sigmoid(T_acc v) { return 1 / (1 + exp(-v)); }
#define PIECE_BEGIN                                                                \
  const IDX row = (IDX)GID1, from = (IDX)GID0 * piece, to = from + piece < n ? from + piece : n; \
  for (IDX j = from; j < to; ++j) {                                                \
    const IDX at = row * n + j;
#define PIECE_END }
#define GATE(x, k) T_load(x[(row * gates + k) * n + j])
#if HAS_BIAS
#define BIAS(x, k) T_load(x[k * n + j])
#else
#define BIAS(x, k) 0
#endif
#define SUM(k) (GATE(input, k) + GATE(hidden, k) + BIAS(input_bias, k) + BIAS(hidden_bias, k))
#define SAVE(x, k, v) x[(row * gates + k) * n + j] = T_save(v)

kernel lstm(in T input, in T hidden, in T cx, in T input_bias, in T hidden_bias, out T hy, out T cy, out T work, int n,
            int piece) {
  const IDX gates = 4;
  PIECE_BEGIN
    const T_acc i = sigmoid(SUM(0)), f = sigmoid(SUM(1)), g = tanh(SUM(2)), o = sigmoid(SUM(3));
    const T_acc c = f * T_load(cx[at]) + i * g;
    cy[at] = T_save(c);
    hy[at] = T_save(o * tanh(c));
    SAVE(work, 0, i);
    SAVE(work, 1, f);
    SAVE(work, 2, g);
    SAVE(work, 3, o);
  PIECE_END
}

kernel lstm_backward(in T grad_hy, in T grad_cy, in T cx, in T cy, in T work, out T grad_gates, out T grad_cx, int n,
                     int piece) {
  const IDX gates = 4;
  PIECE_BEGIN
    const T_acc i = GATE(work, 0), f = GATE(work, 1), g = GATE(work, 2), o = GATE(work, 3);
    const T_acc c = tanh(T_load(cy[at])), gh = T_load(grad_hy[at]);
    const T_acc gc = gh * o * (1 - c * c) + T_load(grad_cy[at]);
    SAVE(grad_gates, 0, gc * g * i * (1 - i));
    SAVE(grad_gates, 1, gc * T_load(cx[at]) * f * (1 - f));
    SAVE(grad_gates, 2, gc * i * (1 - g * g));
    SAVE(grad_gates, 3, gh * c * o * (1 - o));
    grad_cx[at] = T_save(gc * f);
  PIECE_END
}

kernel gru(in T input, in T hidden, in T hx, in T input_bias, in T hidden_bias, out T hy, out T work, int n, int piece) {
  const IDX gates = 3;
  PIECE_BEGIN
    const T_acc r = sigmoid(SUM(0)), z = sigmoid(SUM(1)), h = T_load(hx[at]);
    const T_acc candidate = GATE(hidden, 2) + BIAS(hidden_bias, 2);
    const T_acc new_gate = tanh(GATE(input, 2) + BIAS(input_bias, 2) + r * candidate);
    hy[at] = T_save(new_gate + z * (h - new_gate));
    const IDX base = row * 5 * n + j;
    work[base] = T_save(r);
    work[base + n] = T_save(z);
    work[base + 2 * n] = T_save(new_gate);
    work[base + 3 * n] = T_save(h);
    work[base + 4 * n] = T_save(candidate);
  PIECE_END
}

kernel gru_backward(in T grad_hy, in T work, out T grad_input, out T grad_hidden, out T grad_hx, int n, int piece) {
  const IDX gates = 3;
  PIECE_BEGIN
    const IDX base = row * 5 * n + j;
    const T_acc r = T_load(work[base]), z = T_load(work[base + n]), m = T_load(work[base + 2 * n]);
    const T_acc h = T_load(work[base + 3 * n]), candidate = T_load(work[base + 4 * n]), g = T_load(grad_hy[at]);
    const T_acc gz = g * (h - m) * z * (1 - z), gm = g * (1 - z) * (1 - m * m), gr = gm * candidate * r * (1 - r);
    SAVE(grad_input, 0, gr);
    SAVE(grad_input, 1, gz);
    SAVE(grad_input, 2, gm);
    SAVE(grad_hidden, 0, gr);
    SAVE(grad_hidden, 1, gz);
    SAVE(grad_hidden, 2, gm * r);
    grad_hx[at] = T_save(g * z);
  PIECE_END
}
