"""virtualize and the other ways to put a module on a device: identity, ties, optimizers, undo."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import torch_fl

pytestmark = pytest.mark.usefixtures("allow_fallback")


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.embed(tokens)))


def _tokens() -> torch.Tensor:
    return torch.tensor([0, 3, 6, 3, 1])


def _step(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(_tokens()), torch.tensor([1, 0, 2, 6, 3]).to(model.head.weight.device))
    loss.backward()
    optimizer.step()
    return loss.item()


def _move_back_and_forth(model: nn.Module, how: str, device: torch.device) -> None:
    if how == "virtualize":
        assert torch_fl.virtualize(model, device) is model
    else:
        model.to(device)


@pytest.mark.parametrize("how", ["virtualize", "to"])
def test_identity_ties_and_attributes_survive(device: torch.device, how: str) -> None:
    model = Tied()
    model.head.weight.note = "kept"
    before = {n: id(p) for n, p in model.named_parameters()}
    buffers = {n: id(b) for n, b in model.named_buffers()}
    _move_back_and_forth(model, how, device)
    assert {n: id(p) for n, p in model.named_parameters()} == before
    assert model.head.weight is model.embed.weight
    assert model.head.weight.device == device
    assert isinstance(model.head.weight, nn.Parameter)
    assert model.head.weight.note == "kept"
    if how == "virtualize":
        assert {n: id(b) for n, b in model.named_buffers()} == buffers
    model.cpu()
    assert {n: id(p) for n, p in model.named_parameters()} == before
    assert type(model.head.weight) is nn.Parameter


@pytest.mark.parametrize("made", ["before", "after", "stepped"])
def test_optimizers_made_at_any_time_train_alike(device: torch.device, made: str) -> None:
    torch.manual_seed(0)
    reference = Tied()
    model = copy.deepcopy(reference)
    want_optimizer = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) if made != "after" else None
    if made == "stepped":
        assert _step(model, optimizer) == pytest.approx(_step(reference, want_optimizer))
    torch_fl.virtualize(model, device)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        assert _step(model, optimizer) == pytest.approx(_step(reference, want_optimizer), rel=1e-4)
    torch_fl.devirtualize(model)
    assert _step(model, optimizer) == pytest.approx(_step(reference, want_optimizer), rel=1e-4)


@pytest.mark.parametrize("how", ["virtualize", "to"])
def test_weakly_referenced_parameters_keep_identity(device: torch.device, how: str) -> None:
    model = nn.LSTM(3, 4)  # keeps weak references to its weights
    before = [id(p) for p in model.parameters()]
    _move_back_and_forth(model, how, device)
    assert [id(p) for p in model.parameters()] == before
    assert model(torch.ones(2, 1, 3).to(device))[0].device == device


def test_backward_through_a_graph_older_than_the_move_is_refused(device: torch.device) -> None:
    model = nn.Linear(2, 1)
    loss = model(torch.ones(1, 2)).sum()
    torch_fl.virtualize(model, device)
    with pytest.raises(RuntimeError, match="made before its parameter moved"):
        loss.backward()
    model(torch.ones(1, 2)).sum().backward()
    assert model.weight.grad.device == device


def test_twice_is_once_and_undone_by_devirtualize(device: torch.device) -> None:
    model = nn.Linear(2, 2)
    torch_fl.virtualize(torch_fl.virtualize(model, device), device)
    assert len(model._forward_pre_hooks) == 1
    assert model(torch.ones(1, 2)).device == device
    torch_fl.devirtualize(model)
    assert not model._forward_pre_hooks
    assert model(torch.ones(1, 2)).device.type == "cpu"


def test_inputs_in_containers_are_moved(device: torch.device) -> None:
    class Takes(nn.Module):
        def forward(self, pair: Any, *, extra: Any) -> Any:
            return pair[0].device, pair[1]["a"].device, extra.device, pair[1]["b"]

    model = torch_fl.virtualize(Takes(), device)
    got = model((torch.ones(1), {"a": torch.ones(1), "b": 3}), extra=torch.ones(1))
    assert got == (device, device, device, 3)


def test_gradients_move_along(device: torch.device) -> None:
    model = nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    torch_fl.virtualize(model, device)
    torch.testing.assert_close(model.weight.grad.cpu(), torch.ones(1, 2))
    assert model.weight.grad.device == device


def test_a_graph_that_holds_the_parameter_is_named(device: torch.device) -> None:
    model = nn.Linear(2, 1)
    loss = (model.weight * model.weight).sum()
    with pytest.raises(torch_fl.Error, match="weight cannot be moved"):
        torch_fl.virtualize(model, device)
    loss.backward()
    assert model.weight.device.type == "cpu"
    assert model.weight.grad is not None


def test_a_wrong_device_is_refused() -> None:
    with pytest.raises(ValueError, match="npu device"):
        torch_fl.virtualize(nn.Linear(1, 1), "cpu")
    with pytest.raises(torch_fl.DeviceError, match="does not exist"):
        torch_fl.virtualize(nn.Linear(1, 1), "npu:99")


def test_default_device_and_context(device: torch.device) -> None:
    with device:
        assert torch.zeros(2).device == device
        assert nn.Linear(2, 2).weight.device == device
    torch.set_default_device(device)
    try:
        assert torch.ones(3).device == device
    finally:
        torch.set_default_device(None)


def test_deepcopy_stays_pickle_leaves(device: torch.device) -> None:
    model = nn.Linear(2, 2).to(device)
    model.weight.note = [1]
    twin = copy.deepcopy(model)
    assert twin.weight.device == device
    assert twin.weight.note == [1]
    twin.weight.data.zero_()
    assert model.weight.abs().sum().item() > 0
    loaded = pickle.loads(pickle.dumps(model.weight))
    assert type(loaded) is nn.Parameter
    assert loaded.device.type == "cpu"
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    torch.testing.assert_close(torch.load(file)["weight"], model.weight.detach().cpu())


def _lazy(device: Any = None) -> nn.Module:
    layers = [nn.LazyConv2d(3, 3, device=device), nn.LazyBatchNorm2d(device=device), nn.Flatten()]
    return nn.Sequential(*layers, nn.LazyLinear(2, device=device))


@pytest.mark.parametrize("how", ["to", "virtualize", "made there", "made there by default"])
def test_lazy_modules(device: torch.device, how: str) -> None:
    if how == "to":
        model = _lazy().to(device)
    elif how == "virtualize":
        model = torch_fl.virtualize(_lazy(), device)
    elif how == "made there":
        model = _lazy(device)
    else:
        with device:
            model = _lazy()
    first = next(model.parameters())
    x = torch.randn(2, 5, 6, 6)
    model(x.to(device)).sum().backward()
    assert next(model.parameters()) is first
    assert {t.device for t in (*model.parameters(), *model.buffers())} == {device}
    assert first.grad is not None
    assert isinstance(first, nn.Parameter)
    plain = _lazy()
    plain.load_state_dict({k: v.cpu() for k, v in model.state_dict().items()})
    torch.testing.assert_close(model.eval()(x.to(device)).cpu(), plain.eval()(x), rtol=1e-4, atol=1e-5)


def test_lazy_modules_go_back_and_change_their_dtype(device: torch.device) -> None:
    model = _lazy().to(device).double().to("cpu")
    assert model(torch.randn(2, 5, 6, 6, dtype=torch.float64)).dtype == torch.float64
    assert {t.device.type for t in (*model.parameters(), *model.buffers())} == {"cpu"}
