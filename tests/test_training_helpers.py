"""What training scripts take from torch around a model: reparametrizations, averages, accumulation, clipping."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

Wrap = Callable[[nn.Module], nn.Module]


def _trained(model: nn.Module, device: torch.device | str, steps: int = 3) -> nn.Module:
    torch.manual_seed(1)
    batches = torch.randn(steps, 5, 4)
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in batches:
        optimizer.zero_grad()
        model(batch.to(device)).square().mean().backward()
        optimizer.step()
    return model


def _same_parameters(got: nn.Module, want: nn.Module) -> None:
    mine, theirs = got.state_dict(), want.state_dict()
    assert mine.keys() == theirs.keys()
    for name, value in theirs.items():
        torch.testing.assert_close(mine[name].cpu(), value, msg=lambda text, n=name: f"{n}: {text}")


class _Symmetric(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.triu() + x.triu(1).mT


WRAPS: dict[str, Wrap] = {
    "weight_norm": nn.utils.parametrizations.weight_norm,
    "spectral_norm": nn.utils.parametrizations.spectral_norm,
    "orthogonal": nn.utils.parametrizations.orthogonal,
    "symmetric": lambda m: nn.utils.parametrize.register_parametrization(m, "weight", _Symmetric()),
    "pruned": lambda m: prune.l1_unstructured(m, "weight", amount=0.5),
}


@pytest.mark.parametrize("name", WRAPS)
def test_reparametrized_weights_train_as_on_the_cpu(name: str, device: torch.device) -> None:
    model = WRAPS[name](nn.Linear(4, 4))
    if name == "pruned":  # its deepcopy needs leaves, as torch says
        model.weight = model.weight.detach()
    want, got = _trained(model, "cpu"), _trained(model, device)
    _same_parameters(got, want)
    torch.testing.assert_close(got.weight.cpu(), want.weight)


@pytest.mark.parametrize("average", [None, torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)], ids=["SWA", "EMA"])
def test_averaged_models(average: Callable[..., None] | None, device: torch.device) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    found = []
    for where in ("cpu", device):
        averaged = torch.optim.swa_utils.AveragedModel(copy.deepcopy(model).to(where), multi_avg_fn=average)
        for steps in (1, 2, 3):
            averaged.update_parameters(_trained(model, where, steps))
        torch.manual_seed(2)
        torch.optim.swa_utils.update_bn(list(torch.randn(3, 5, 4)), averaged, device=where)
        found.append(averaged)
    _same_parameters(found[1], found[0])


def test_accumulated_gradients_are_those_of_the_whole_batch(device: torch.device) -> None:
    model, x = nn.Linear(4, 3).to(device), torch.randn(8, 4, device=device)
    model(x).square().mean().backward()
    whole = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    for part in x.chunk(4):
        (model(part).square().mean() / 4).backward()
    for p, grad in zip(model.parameters(), whole):
        torch.testing.assert_close(p.grad, grad)


@pytest.mark.parametrize("foreach", [None, True, False])
def test_clipping(foreach: bool | None, device: torch.device) -> None:
    model = nn.Linear(4, 3)
    norms = []
    for where in ("cpu", device):
        there = copy.deepcopy(model).to(where)
        there(torch.ones(2, 4, device=where)).square().sum().backward()
        norms.append(nn.utils.clip_grad_norm_(there.parameters(), 0.5, foreach=foreach).cpu())
        assert torch.stack([p.grad.norm() for p in there.parameters()]).norm().item() == pytest.approx(0.5, rel=1e-4)
        nn.utils.clip_grad_value_(there.parameters(), 0.1, foreach=foreach)
        assert max(p.grad.abs().max().item() for p in there.parameters()) <= 0.1 + 1e-6
    torch.testing.assert_close(norms[1], norms[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.5, total_steps=5),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 3),
        lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0),
    ],
    ids=["one cycle", "cosine", "plateau"],
)
def test_schedules(make: Callable[..., object], device: torch.device) -> None:
    rates = []
    for where in ("cpu", device):
        torch.manual_seed(3)
        model = nn.Linear(4, 2).to(where)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = make(optimizer)
        for _ in range(4):
            loss = model(torch.ones(1, 4, device=where)).square().sum()
            loss.backward()
            optimizer.step()
            plateau = isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau)
            schedule.step(loss.item() + 1) if plateau else schedule.step()  # type: ignore[attr-defined]
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[0] == pytest.approx(rates[1])


def test_parameters_as_one_vector(device: torch.device) -> None:
    model = nn.Linear(4, 3).to(device)
    vector = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(vector * 2, model.parameters())
    torch.testing.assert_close(nn.utils.parameters_to_vector(model.parameters()), vector * 2)
    assert vector.device == device


def test_packed_sequences(device: torch.device) -> None:
    model, x, lengths = nn.GRU(4, 3, batch_first=True), torch.randn(3, 5, 4), torch.tensor([5, 2, 3])
    found = []
    for where in ("cpu", device):
        packed = nn.utils.rnn.pack_padded_sequence(x.to(where), lengths, batch_first=True, enforce_sorted=False)
        out, hidden = copy.deepcopy(model).to(where)(packed)
        padded, counts = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        assert counts.tolist() == [5, 2, 3]
        found.append((padded.cpu(), hidden.cpu()))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
