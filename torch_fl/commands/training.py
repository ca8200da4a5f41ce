"""One training of the demo's network, the same on every device: same seed, weights, batches and schedule."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import nn

from .digits import DigitNet, Digits

PEAK_RATE = 0.1
BATCH = 64


@dataclass
class Result:
    """What a training gave. Times in seconds."""

    device: str
    accuracy: float = 0.0
    losses: list[float] = field(default_factory=list)
    epoch_seconds: list[float] = field(default_factory=list)
    steps_per_epoch: int = 0
    fallbacks: int = 0
    peak_bytes: int | None = None

    @property
    def step_seconds(self) -> float:
        """Time per training step: median over the timed epochs, in which everything is compiled and nobody listens."""
        timed = self.epoch_seconds[watched_epochs(len(self.epoch_seconds)) :]
        return median(timed or self.epoch_seconds) / max(self.steps_per_epoch, 1)


def watched_epochs(epochs: int) -> int:
    """How many epochs run under the placement table. Watching costs time: the last epochs run without and are timed."""
    return epochs - epochs // 4 if epochs > 3 else 1


def new_model(seed: int) -> DigitNet:
    """The network with weights given by the seed, on the CPU."""
    torch.manual_seed(seed)
    return DigitNet()


class Training:
    """SGD with Nesterov momentum and one learning rate cycle, on the device where `model` is; fills in `result`."""

    def __init__(self, model: nn.Module, digits: Digits, epochs: int, seed: int, result: Result) -> None:
        self.model, self.digits, self.seed, self.result = model, digits, seed, result
        self.device = next(model.parameters()).device
        result.steps_per_epoch = len(digits.train_labels) // BATCH
        steps = epochs * result.steps_per_epoch
        self.optimizer = torch.optim.SGD(model.parameters(), PEAK_RATE, momentum=0.9, nesterov=True, weight_decay=5e-4)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, PEAK_RATE, total_steps=steps)

    def run_epoch(self, epoch: int, on_step: Callable[[], None]) -> None:
        """One pass over the training scans. The loss is read back once: each read waits for the device."""
        start = time.perf_counter()
        total = torch.zeros((), device=self.device)
        for images, labels in self.digits.batches(BATCH, self.seed + epoch):
            total += self._step(images.to(self.device), labels.to(self.device))
            on_step()
        self.result.losses.append(total.item() / self.result.steps_per_epoch)
        self.result.epoch_seconds.append(time.perf_counter() - start)

    def _step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()

    def evaluate(self) -> None:
        """Note the part of the held-out scans that the model names right, 0 to 1."""
        self.model.eval()
        with torch.no_grad():
            named = self.model(self.digits.test_images.to(self.device)).argmax(1).cpu()
        self.result.accuracy = (named == self.digits.test_labels).float().mean().item()
