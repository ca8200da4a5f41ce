"""Gradients, modules, optimizers."""

from __future__ import annotations

from typing import Any

import torch

from faults.base import case, grads, ints, rnd

F = torch.nn.functional


@case
def writes_into_what_has_history(d: Any) -> Any:
    x = rnd(d, 3, 4).requires_grad_()
    y = x * 2
    y[:, 2:] = 0
    y[0].mul_(x[1])
    y.t()[1].add_(x[:, 0])
    y[x.detach() > 1] = 5
    (part, rest) = y.split(2, 1)
    return grads(torch.cat([part.exp(), rest], 1), x)


@case
def linear_output_partly_overwritten(d: Any) -> Any:
    w, x = rnd(d, 8, 4).requires_grad_(), rnd(d, 3, 4, seed=1)
    y = F.linear(x, w)
    y[:, :6] = 0
    return grads(y, w), w.grad


@case
def data_and_views(d: Any) -> Any:
    """x.data op= y writes for all views; x.data = z gives x other memory and leaves old views alone."""
    x = torch.zeros(6).to(d)
    seen = x.view(2, 3)
    x.data.add_(1.0)
    x.data += 1.0
    first = seen.clone()
    x.data = x.data + 5
    y = torch.zeros(8).to(d)
    y.data = torch.ones(2, 3).to(d)
    z = torch.arange(8.0).to(d)
    z.data = z.data[2:5]
    z.detach().mul_(2)
    return first, seen, x, y, z


@case
def gradients_add_up(d: Any) -> Any:
    w = rnd(d, 3).requires_grad_()
    loss = (w * w).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    (w[1:] * 3).sum().backward()
    first = w.grad.clone()
    held = w.grad
    w.grad.zero_()
    (w**3).sum().backward()
    return first, w.grad, w.grad is held


@case
def hooks_and_functions(d: Any) -> Any:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            (x,) = ctx.saved_tensors
            return g * 2 + x * 0

    x = rnd(d, 2, 3).requires_grad_()
    seen: list[torch.Tensor] = []
    y = Double.apply(x)
    y.register_hook(lambda g: seen.append(g) or g * 10)
    y.retain_grad()
    y.sum().backward()
    return x.grad, y.grad, seen


@case
def higher_derivatives(d: Any) -> Any:
    x = rnd(d, 2, 3).requires_grad_()
    (g,) = torch.autograd.grad((x.sin() * x.exp()).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.square().sum(), x)

    def f(t: torch.Tensor) -> torch.Tensor:
        return (t**3).sum() + t[0].prod()

    v = rnd(d, 3)
    one = torch.func.jvp(lambda t: t * t.sum(), (v,), (torch.ones_like(v),))
    return g.detach(), h, torch.func.hessian(f)(rnd(d, 1, 3)), torch.func.jacrev(lambda t: t * t.sum())(v), one


@case
def modules_share_parameters(d: Any) -> Any:
    torch.manual_seed(3)
    m = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.Linear(4, 5))
    m[1].weight = m[0].weight
    m.register_buffer("steps", torch.zeros((), dtype=torch.int64))
    m.to(d)
    m.steps += 1
    F.cross_entropy(m(ints(d, 1, 2, 2)), ints(d, 0, 1, 4)).backward()
    return (
        m[0].weight.grad,
        m[1].bias.grad,
        m[0].weight is m[1].weight,
        len(list(m.parameters())),
        m.steps,
        m.half().steps.dtype,
        m[0].weight.dtype,
    )


@case
def clipping(d: Any) -> Any:
    ps = [rnd(d, 3, 2).requires_grad_(), rnd(d, 4, seed=1).requires_grad_(), rnd(d, 1, seed=2).requires_grad_()]
    sum((p**3).sum() for p in ps[:2]).backward()
    total = torch.nn.utils.clip_grad_norm_(ps, 0.5)
    first = [p.grad.clone() for p in ps[:2]]
    torch.nn.utils.clip_grad_value_(ps, 0.1)
    return total, first, [p.grad for p in ps[:2]], torch.nn.utils.parameters_to_vector(ps).detach()


@case
def running_statistics(d: Any) -> Any:
    bn, lazy = torch.nn.BatchNorm1d(3).to(d), torch.nn.BatchNorm2d(2, momentum=None, affine=False).to(d)
    for k in range(3):
        bn(rnd(d, 5, 3, seed=k))
        lazy(rnd(d, 2, 2, 3, 3, seed=k).to(memory_format=torch.channels_last))
    y = bn.eval()(rnd(d, 2, 3))
    return bn.running_mean, bn.running_var, bn.num_batches_tracked, lazy.running_mean, lazy.running_var, y.detach()


@case
def sequences_of_several_lengths(d: Any) -> Any:
    torch.manual_seed(5)
    rnn = torch.nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True).to(d)
    x, lengths = rnd(d, 3, 5, 3).requires_grad_(), torch.tensor([5, 2, 3])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    y, (h, c) = rnn(packed)
    full, sizes = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
    return grads(full, x), h.detach(), c.detach(), sizes


@case
def attention_masks(d: Any) -> Any:
    q = rnd(d, 2, 2, 5, 4).requires_grad_()
    mask = torch.ones(5, 5, dtype=torch.bool).tril().to(d)
    key = ints(d, True, True, False, True, False).expand(2, 1, 1, 5)
    k, v = q[:, :1].expand(2, 2, 5, 4), q.transpose(1, 2).transpose(1, 2)
    att = F.scaled_dot_product_attention
    return (
        grads(att(q, q, q, mask), q),
        grads(att(q, k, v, is_causal=True), q),
        grads(att(q, q, q, key), q),
        att(q, q[:, :, :3], q[:, :, :3], scale=0.3).detach(),
    )


@case
def transformer_layer(d: Any) -> Any:
    torch.manual_seed(6)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).to(d)
    x = rnd(d, 2, 4, 8).requires_grad_()
    pad = torch.tensor([[False, False, False, True], [False, True, True, True]]).to(d)
    trained = grads(layer(x, src_key_padding_mask=pad)[0], x)
    with torch.no_grad():
        return trained, layer.eval()(x, src_key_padding_mask=pad)[0]


@case
def dropout_that_drops_all_or_nothing(d: Any) -> Any:
    x = rnd(d, 3, 4).requires_grad_()
    return [grads(F.dropout(x, p, training), x) for p, training in ((0.0, True), (1.0, True), (0.7, False))]


@case
def optimizers_from_a_checkpoint(d: Any) -> Any:
    out = []
    for make in (torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad):
        w = torch.linspace(-1, 1, 6).view(2, 3).to(d).requires_grad_()
        extra = {"momentum": 0.9, "nesterov": True} if make is torch.optim.SGD else {}
        opt = make([w], lr=0.1, weight_decay=0.01, **extra)
        for _ in range(3):
            (w**4).sum().backward()
            opt.step()
            opt.zero_grad()
            state = opt.state_dict()
            opt = make([w], lr=9.0)
            opt.load_state_dict(state)
        out.append(w.detach())
    return out


@case
def schedules_and_averages(d: Any) -> Any:
    w = torch.ones(3).to(d).requires_grad_()
    m = torch.nn.ParameterList([w])
    opt = torch.optim.Adam(m.parameters(), lr=torch.tensor(0.1), amsgrad=True)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5)
    mean = torch.optim.swa_utils.AveragedModel(m)
    for _ in range(4):
        opt.zero_grad()
        (m[0] ** 2).sum().backward()
        opt.step(), plan.step(), mean.update_parameters(m)
    return m[0].detach(), mean.module[0].detach(), float(opt.param_groups[0]["lr"])


@case
def checkpointed_and_accumulated(d: Any) -> Any:
    torch.manual_seed(7)
    m = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2)).to(d)
    x = rnd(d, 4, 3).requires_grad_()
    y = torch.utils.checkpoint.checkpoint(m, x, use_reentrant=False)
    return grads(y, x, *m.parameters())


@case
def parametrizations(d: Any) -> Any:
    torch.manual_seed(8)
    m = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 4)).to(d)
    x = rnd(d, 2, 3)
    m(x).sum().backward()
    return m.weight.detach(), [p.grad for p in m.parameters()]


@case
def batched_functions(d: Any) -> Any:
    x, w = rnd(d, 4, 3), rnd(d, 3, 2, seed=1)
    per = torch.func.vmap(torch.func.grad(lambda w, x: (x @ w).square().sum()), (None, 0))(w, x)
    return (
        per,
        torch.vmap(lambda a, b: a.dot(b))(x, x),
        torch.vmap(torch.sort)(x),
        torch.func.functional_call(torch.nn.Linear(3, 2).to(d), {"weight": w.t(), "bias": w[0]}, (x,)).detach(),
    )
