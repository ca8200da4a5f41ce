// Connectionist temporal classification: the forward and backward recurrences over a target with blanks between its
// labels (Graves et al., 2006), in logarithms. A work-item owns one sequence of the batch.
//
// T: element type (float or double). lengths: rows of input lengths, target lengths and places in `targets`, [3][N].
#define MINUS_INF (-(T)INFINITY)

// Label number s of the sequence blank, l1, blank, l2 ... blank; one that does not exist counts as blank and is noted.
FUNC long label_at(GLOBAL const TI* targets, long at, long stride, IDX s, long blank, long classes, GLOBAL long* seen,
                   int code) {
  if (s % 2 == 0) return blank;
  const long label = checked(targets[at + s / 2 * stride], classes, 0, seen, code);
  return label < 0 ? blank : label;
}
#define LABEL(s) label_at(targets, at, stride, s, blank, classes, seen, code)

FUNC T log_add(T a, T b) {
  const T top = a > b ? a : b, low = a > b ? b : a;
  return top == MINUS_INF ? top : top + log1p(exp(low - top));
}

// A row of logarithms relative to its largest, which is returned: long sums of logarithms would lose their last digits.
FUNC T level_out(GLOBAL T* row, IDX n) {
  T top = MINUS_INF;
  for (IDX s = 0; s < n; ++s) top = row[s] > top ? row[s] : top;
  if (top == MINUS_INF) return 0;
  for (IDX s = 0; s < n; ++s) row[s] -= top;
  return top;
}

#define SEQUENCE                                                                            \
  const IDX n = GID0, times = lengths[n], labels = lengths[batch + n], last = 2 * labels;   \
  const long at = lengths[2 * batch + n];

// alpha[n][t][s]: log of the weight of all paths that are at label s at time t, relative to the largest of that time;
// x [time][N][classes]. Row width: `width`.
kernel ctc_forward(in T x, in TI targets, in long lengths, out T loss, inout T alpha, inout long seen, long batch,
                   long time, long classes, long width, long stride, long blank, int code) {
  SEQUENCE
  GLOBAL T* row = alpha + n * (IDX)(time * width);
  if (times == 0) {
    loss[n] = labels == 0 ? (T)0 : (T)INFINITY;
    return;
  }
  for (IDX s = 0; s <= last; ++s) row[s] = s < 2 ? x[n * classes + LABEL(s)] : MINUS_INF;
  T weight = level_out(row, last + 1), rest = 0;
  for (IDX t = 1; t < times; ++t) {
    GLOBAL const T* before = row;
    row += width;
    for (IDX s = 0; s <= last; ++s) {
      const long label = LABEL(s);
      T sum = before[s];
      if (s > 0) sum = log_add(sum, before[s - 1]);
      if (s > 1 && label != LABEL(s - 2)) sum = log_add(sum, before[s - 2]);
      row[s] = sum + x[(t * batch + n) * classes + label];
    }
    const T step = level_out(row, last + 1) - rest, sum = weight + step;  // Kahan's sum
    rest = (sum - weight) - step;
    weight = sum;
  }
  const T end = labels ? log_add(row[last], row[last - 1]) : row[last];
  loss[n] = -(weight + end);
}

// dx [time][N][classes] = (exp(x) - weight of the paths through a class) * grad; beta: two rows of `width` for each n.
kernel ctc_backward(in T grad, in T x, in TI targets, in long lengths, in T loss, in T alpha, inout T beta, out T dx,
                    inout long seen, long batch, long time, long classes, long width, long stride, long blank,
                    int zero_infinity, int grad_step, int code) {
  SEQUENCE
  const T g = grad[n * grad_step], total = loss[n];
  const int none = zero_infinity && total == (T)INFINITY;
  for (IDX t = none ? 0 : times; t < time; ++t)
    for (IDX c = 0; c < classes; ++c) dx[(t * batch + n) * classes + c] = 0;
  if (none) return;
  for (IDX t = times - 1; t >= 0; --t) {
    GLOBAL T* line = dx + (t * batch + n) * (IDX)classes;
    GLOBAL const T* logs = x + (t * batch + n) * (IDX)classes;
    GLOBAL T* row = beta + (n * 2 + t % 2) * (IDX)width;
    GLOBAL const T* after = beta + (n * 2 + (t + 1) % 2) * (IDX)width;
    for (IDX c = 0; c < classes; ++c) line[c] = MINUS_INF;
    for (IDX s = last; s >= 0; --s) {
      const long label = LABEL(s);
      T sum = s > last - 2 && t == times - 1 ? (T)0 : MINUS_INF;
      if (t < times - 1) {
        sum = after[s];
        if (s < last) sum = log_add(sum, after[s + 1]);
        if (s < last - 1 && label != LABEL(s + 2)) sum = log_add(sum, after[s + 2]);
      }
      row[s] = sum + logs[label];
      line[label] = log_add(line[label], sum + alpha[(n * time + t) * (IDX)width + s]);
    }
    level_out(row, last + 1);
    T all = MINUS_INF;  // at every time the weights of all labels add up to the weight of all paths
    for (IDX c = 0; c < classes; ++c) all = log_add(all, line[c]);
    for (IDX c = 0; c < classes; ++c) line[c] = (exp(logs[c]) - exp(line[c] - all)) * g;
  }
}
