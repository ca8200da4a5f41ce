"""Networks train on the device as they train on the CPU: same weights, same batches, same loss curve, no fallback."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_fl
from torch_fl.bench.networks import GPT, Recurrent, ResNet18

pytestmark = pytest.mark.model

Loss = Callable[[nn.Module, int], torch.Tensor]


def _follow(model: nn.Module, loss: Loss, device: torch.device, steps: int, rtol: float, **options: object) -> None:
    """Train two copies, one on the CPU and one on `device`, and compare the loss of every step."""
    reference, model = model, torch_fl.virtualize(copy.deepcopy(model), device)
    curves = []
    for network in (reference, model):
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, **options)
        curve = []
        for step in range(steps):
            optimizer.zero_grad()
            value = loss(network, step)
            value.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            curve.append(value.detach().cpu())
        curves.append(torch.stack(curve))
    torch.testing.assert_close(curves[1], curves[0], rtol=rtol, atol=1e-4)
    assert curves[0][-1] < curves[0][0]


def _device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _images(model: nn.Module, size: int, batch: int) -> torch.Tensor:
    torch.manual_seed(1)
    x, y = torch.randn(batch, 3, size, size), torch.arange(batch) % 10
    return F.cross_entropy(model(x.to(_device_of(model))), y.to(_device_of(model)))


def _tokens(model: nn.Module, batch: int, length: int, vocabulary: int) -> torch.Tensor:
    torch.manual_seed(1)
    x = torch.randint(0, vocabulary, (batch, length + 1)).to(_device_of(model))
    out = model(x[:, :-1])
    logits = out[0] if isinstance(out, tuple) else out
    return F.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())


def test_resnet18_follows_the_cpu(device: torch.device) -> None:
    torch.manual_seed(0)
    _follow(ResNet18(10, small=True), lambda m, _: _images(m, 16, 4), device, 20, 2e-2)


def test_resnet18_stem_and_evaluation(device: torch.device) -> None:
    torch.manual_seed(0)
    model = ResNet18(10)
    _follow(model, lambda m, _: _images(m, 64, 2), device, 3, 2e-2)
    model.eval()
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        want = model(x)
        got = copy.deepcopy(model).to(device)(x.to(device))
    torch.testing.assert_close(got.cpu(), want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=["loop", "foreach", "fused"])
def test_gpt_follows_the_cpu(device: torch.device, options: dict[str, bool]) -> None:
    torch.manual_seed(0)
    _follow(GPT(), lambda m, _: _tokens(m, 4, 32, 256), device, 20, 1e-3, **options)


def test_gpt_decodes_the_same_tokens(device: torch.device) -> None:
    torch.manual_seed(0)
    model = GPT().eval()
    prompt = torch.randint(0, 256, (2, 8))
    want = model.generate(prompt, 16)
    got = copy.deepcopy(model).to(device).generate(prompt.to(device), 16)
    torch.testing.assert_close(got.cpu(), want)


def test_recurrent_follows_the_cpu(device: torch.device) -> None:
    torch.manual_seed(0)
    _follow(Recurrent(), lambda m, _: _tokens(m, 3, 7, 32), device, 10, 1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inference_is_close_to_the_cpu(device: torch.device, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = GPT().eval().to(dtype)
    prompt = torch.randint(0, 256, (2, 8))
    with torch.no_grad():
        want, _ = model(prompt)
        got, _ = copy.deepcopy(model).to(device)(prompt.to(device))
    torch.testing.assert_close(got.cpu(), want, rtol=5e-2, atol=5e-2)


def test_bert_encoder_follows_the_cpu(device: torch.device) -> None:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    tokens = torch.randint(0, 99, (3, 12))
    mask = torch.ones(3, 12, dtype=torch.int64)
    mask[1, 7:] = 0

    def loss(model: nn.Module, _: int) -> torch.Tensor:
        where = _device_of(model)
        out = model(input_ids=tokens.to(where), attention_mask=mask.to(where))
        return (out.pooler_output - 0.5).pow(2).mean() + out.last_hidden_state.pow(2).mean()

    _follow(BertModel(config), loss, device, 10, 1e-3)
