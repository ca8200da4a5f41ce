"""What the benchmark measures of whole models: inference, training steps and decoding."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from .networks import GPT, ResNet18
from .timing import Case, Work

VOCABULARY = 8192
Batch = Callable[[torch.device], tuple[torch.Tensor, torch.Tensor]]


def new_gpt() -> GPT:
    """Six layers of width 384, 8192 tokens."""
    return GPT(6, 384, 6, VOCABULARY, 320)


def _images(n: int, size: int, classes: int) -> Batch:
    return lambda d: (torch.randn(n, 3, size, size).to(d), torch.randint(0, classes, (n,)).to(d))


def _tokens(n: int, length: int) -> Batch:
    return lambda d: tuple(torch.randint(0, VOCABULARY, (n, length)).to(d) for _ in range(2))  # type: ignore[return-value]


def _logits(found: torch.Tensor | tuple[torch.Tensor, object]) -> torch.Tensor:
    return found.flatten(0, -2) if isinstance(found, torch.Tensor) else found[0].flatten(0, 1)


def _inference(model: Callable[[], nn.Module], batch: Batch) -> Case:
    def make(device: torch.device) -> Work:
        net, (x, _) = model().to(device).eval(), batch(device)
        return lambda: net(x)

    return Case(make)


def training_step(model: Callable[[], nn.Module], batch: Batch) -> Case:
    """Cross entropy, backward and AdamW."""

    def make(device: torch.device) -> Work:
        net, (x, y) = model().to(device), batch(device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(_logits(net(x)), y.flatten()).backward()
            optimizer.step()

        return step

    return Case(make, grad=True)


def _decode(device: torch.device) -> Work:
    net, (x, _) = new_gpt().to(device).eval(), _tokens(1, 16)(device)
    return lambda: net.generate(x, 32)


MODELS = {
    "ResNet-18, 8 x 224x224, inference": _inference(ResNet18, _images(8, 224, 1000)),
    "ResNet-18, 8 x 224x224, training step": training_step(ResNet18, _images(8, 224, 1000)),
    "ResNet-18, 64 x 32x32, inference": _inference(lambda: ResNet18(10, small=True), _images(64, 32, 10)),
    "ResNet-18, 64 x 32x32, training step": training_step(lambda: ResNet18(10, small=True), _images(64, 32, 10)),
    "GPT 6 x 384, prefill 4x256": _inference(new_gpt, _tokens(4, 256)),
    "GPT 6 x 384, training step 4x128": training_step(new_gpt, _tokens(4, 128)),
    "GPT 6 x 384, greedy decode of 32 tokens": Case(_decode),
}
