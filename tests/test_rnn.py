"""Recurrent layers and cells: outputs and gradients against the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn
from torch.testing import assert_close

LAYERS = [nn.LSTM, nn.GRU, nn.RNN]
OPTIONS: dict[str, dict[str, Any]] = {
    "one": {},
    "stacked": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "no bias": {"bias": False},
}


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, rnn.PackedSequence):
        return [value.data]
    return [value] if isinstance(value, torch.Tensor) else [t for v in value for t in _tensors(v)]


def _run(module: nn.Module, run: Callable[..., Any], inputs: tuple[torch.Tensor, ...], device: Any) -> Any:
    module = copy.deepcopy(module).to(device)
    moved = [x.detach().to(device).requires_grad_() for x in inputs]
    results = _tensors(run(module, *moved))
    weights = [torch.linspace(-1, 1, r.numel()).view(r.shape).to(device, r.dtype) for r in results]
    torch.autograd.backward(results, weights)
    leaves = [*moved, *module.parameters()]
    return [r.detach().cpu() for r in results], [t.grad.cpu() for t in leaves if t.grad is not None]


def _same(module: nn.Module, *inputs: torch.Tensor, device: Any, run: Any = None, **tolerance: Any) -> None:
    run = run or (lambda m, *xs: m(*xs))
    want, found = (_run(module, run, inputs, d) for d in ("cpu", device))
    assert_close(found, want, **(tolerance or {"rtol": 1e-4, "atol": 1e-5}))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("options", OPTIONS)
def test_layer(layer: Any, options: str, device: torch.device) -> None:
    _same(layer(5, 7, **OPTIONS[options]), torch.randn(4, 3, 5), device=device)


@pytest.mark.parametrize("layer", LAYERS)
def test_initial_state_and_unbatched(layer: Any, device: torch.device) -> None:
    states = [torch.randn(1, 3, 7) for _ in range(2 if layer is nn.LSTM else 1)]

    def run(m: nn.Module, x: torch.Tensor, *h: torch.Tensor) -> Any:
        return m(x, h if len(h) > 1 else h[0])

    _same(layer(5, 7), torch.randn(4, 3, 5), *states, device=device, run=run)
    _same(layer(5, 7), torch.randn(4, 5), device=device)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("is_sorted", [True, False])
def test_packed(layer: Any, is_sorted: bool, device: torch.device) -> None:
    lengths = [4, 2, 1] if is_sorted else [2, 4, 1]

    def run(m: nn.Module, x: torch.Tensor) -> Any:
        out, state = m(rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=is_sorted))
        return rnn.pad_packed_sequence(out)[0], state

    _same(layer(5, 7, bidirectional=True), torch.randn(4, 3, 5), device=device, run=run)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-7), (torch.float16, 2e-2), (torch.bfloat16, 0.1)])
def test_dtypes(layer: Any, dtype: torch.dtype, tolerance: float, device: torch.device) -> None:
    module, x = layer(5, 7).to(dtype), torch.randn(3, 2, 5).to(dtype)
    _same(module, x, device=device, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("size", [1, 31, 33])
def test_cell(cell: Any, size: int, device: torch.device) -> None:
    _same(cell(5, size), torch.randn(3, 5), device=device)
    _same(cell(5, size, bias=False), torch.randn(5), device=device)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_projection_and_relu(device: torch.device) -> None:
    _same(nn.LSTM(5, 7, proj_size=3), torch.randn(4, 3, 5), device=device)
    _same(nn.RNN(5, 7, nonlinearity="relu"), torch.randn(4, 3, 5), device=device)


@pytest.mark.parametrize("layer", LAYERS)
def test_dropout_between_layers(layer: Any, device: torch.device) -> None:
    module = layer(5, 40, num_layers=2, dropout=0.5).to(device)
    x = torch.randn(4, 3, 5, device=device)
    torch.manual_seed(1)
    first = module(x)[0]
    torch.manual_seed(1)
    assert_close(module(x)[0], first)
    assert not torch.equal(module(x)[0].cpu(), first.cpu())
    _same(module.cpu().eval(), torch.randn(4, 3, 5), device=device)


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_one_state_only(layer: Any, device: torch.device) -> None:
    """A loss on the last cell state alone leaves the other gradient undefined."""

    def run(m: nn.Module, x: torch.Tensor) -> Any:
        state = m(x)[1]
        return state[1] if layer is nn.LSTM else state

    _same(layer(5, 7), torch.randn(4, 3, 5), device=device, run=run)


@pytest.mark.parametrize("layer", LAYERS)
def test_inference_mode(layer: Any, device: torch.device) -> None:
    module, x = layer(5, 7), torch.randn(4, 3, 5)
    want = module(x)[0].detach()
    with torch.inference_mode():
        assert_close(module.to(device)(x.to(device))[0].cpu(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell])
def test_double_backward(cell: Any, device: torch.device) -> None:
    module = cell(3, 4)

    def grads(where: Any) -> list[torch.Tensor]:
        m = copy.deepcopy(module).to(where)
        x = torch.linspace(-1, 1, 6).view(2, 3).to(where).requires_grad_()
        out = _tensors(m(x))[0]
        (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        first.pow(2).sum().backward()
        return [p.grad.cpu() for p in [x, *m.parameters()] if p.grad is not None]

    assert_close(grads(device), grads("cpu"), rtol=1e-4, atol=1e-5)
