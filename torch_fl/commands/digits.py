"""The demo's data and model: 1,797 scanned digits of 8x8 pixels from scikit-learn, and a small residual network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from ..errors import Error, message


@dataclass(frozen=True)
class Digits:
    """Images float32 [n, 1, 8, 8] with zero mean and unit variance, labels int64 [n]; held-out scans apart."""

    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor

    def batches(self, size: int, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The training scans in an order given by the seed, in batches of one size; the rest is left out."""
        order = torch.randperm(len(self.train_labels), generator=torch.Generator().manual_seed(seed))
        for start in range(0, len(order) - size + 1, size):
            chosen = order[start : start + size]
            yield self.train_images[chosen], self.train_labels[chosen]


def load(seed: int, held_out: float = 0.2) -> Digits:
    """scikit-learn's digits, split by the seed. Raises Error where scikit-learn is not installed."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise Error(
            message("the demo needs scikit-learn for its digits", hint='pip install "torch_fl[demo]"')
        ) from None
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8)
    targets = torch.tensor(labels, dtype=torch.int64)
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))
    images, targets = images[order], targets[order]
    kept = len(targets) - round(held_out * len(targets))
    std, mean = torch.std_mean(images[:kept])
    images = (images - mean) / std
    return Digits(images[:kept], targets[:kept], images[kept:], targets[kept:])


class Block(nn.Module):
    """Two 3x3 convolutions with batch normalization around a shortcut (He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, inputs, h, w] -> [n, outputs, h / stride, w / stride]."""
        y = self.norm1(self.conv1(x)).relu()
        y = self.norm2(self.conv2(y))
        return nn.functional.relu(y + self.shortcut(x))


class DigitNet(nn.Module):
    """A stem and three residual stages, at 8x8, 4x4 and 2x2 pixels, then the mean of each channel."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.stage1 = Block(width, width)
        self.stage2 = Block(width, 2 * width, stride=2)
        self.pool = nn.MaxPool2d(2)
        self.stage3 = Block(2 * width, 4 * width)
        self.head = nn.Linear(4 * width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """[n, 1, 8, 8] -> scores [n, 10]."""
        y = self.stage2(self.stage1(self.stem(images)))
        y = self.stage3(self.pool(y))
        y = nn.functional.adaptive_avg_pool2d(y, 1).flatten(1)
        return self.head(y)  # type: ignore[no-any-return]
