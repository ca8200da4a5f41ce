// Margin losses: one sample of C classes per work-item; all row-major.
// T: element type; P: the power of multi_margin_loss, 1 or 2.

// dx[n][c] for hinges max(0, margin - x[y] + x[c])^P / C; grad_step: 0 where all samples share a gradient.
kernel multi_margin_backward(in T grad, in T x, in long target, in T weight, out T dx, inout long seen, long classes,
                             int grad_step, int weighted, T_acc margin, T_acc share, int code) {
  const IDX row = (IDX)GID0 * classes;
  const long y = checked(target[GID0], classes, 0, seen, code);
  T_acc sum = 0;
  const T_acc g = T_load(grad[GID0 * grad_step]) * share * (weighted && y >= 0 ? T_load(weight[y]) : 1);
  for (IDX c = 0; c < classes; ++c) {
    const T_acc z = y < 0 ? 0 : margin - T_load(x[row + y]) + T_load(x[row + c]);
    const T_acc h = c != y && z > 0 ? (P == 1 ? g : 2 * g * z) : 0;
    sum += h;
    dx[row + c] = T_save(h);
  }
  if (y >= 0) dx[row + y] = T_save(-sum);
}

// loss[n] = sum of max(0, 1 - x[y] + x[c]) / C over targets y (until the first -1) and classes c that are none.
kernel multilabel_margin(in T x, in long target, out T_acc loss, out T is_target, inout long seen, long classes,
                         int code) {
  const IDX row = (IDX)GID0 * classes;
  for (IDX c = 0; c < classes; ++c) is_target[row + c] = T_save(0);
  IDX n = 0;
  for (; n < classes && target[row + n] != -1; ++n) {
    const long y = checked(target[row + n], classes, 0, seen, code);
    if (y >= 0) is_target[row + y] = T_save(1);
  }
  T_acc sum = 0;
  for (IDX k = 0; k < n; ++k) {
    const long y = target[row + k];
    if (y < 0 || y >= classes) continue;
    const T_acc level = 1 - T_load(x[row + y]);
    for (IDX c = 0; c < classes; ++c) {
      const T_acc z = level + T_load(x[row + c]);
      sum += T_load(is_target[row + c]) == 0 && z > 0 ? z : 0;
    }
  }
  loss[GID0] = sum / classes;
}

// dx[n][c] for hinges max(0, 1 - x[y] + x[c]) / C of all targets y (until the first -1) and all c that are none.
kernel multilabel_margin_backward(in T grad, in T x, in long target, in T is_target, inout T_acc dx, inout long seen,
                                  long classes, int grad_step, T_acc share, int code) {
  const IDX row = (IDX)GID0 * classes;
  const T_acc g = T_load(grad[GID0 * grad_step]) * share;
  for (IDX c = 0; c < classes; ++c) dx[row + c] = 0;
  for (IDX k = 0; k < classes && target[row + k] != -1; ++k) {
    const long y = checked(target[row + k], classes, 0, seen, code);
    if (y < 0) continue;
    const T_acc level = 1 - T_load(x[row + y]);
    for (IDX c = 0; c < classes; ++c) {
      if (T_load(is_target[row + c]) != 0 || !(level + T_load(x[row + c]) > 0)) continue;
      dx[row + c] += g;
      dx[row + y] -= g;
    }
  }
}
