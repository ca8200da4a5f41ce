"""Networks that tests train and the benchmark measures: ResNet-18, a GPT decoder with KV cache, a small MLP."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

Pair = tuple[torch.Tensor, torch.Tensor]
Cache = list[Pair]


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch norm, and a 1x1 shortcut where the shape changes."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        same = stride == 1 and channels == out
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18; `small` replaces the 7x7 stem and its pooling by a 3x3 convolution, as for 32x32 images."""

    def __init__(self, classes: int = 1000, small: bool = False) -> None:
        super().__init__()
        stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False)] if small else [nn.Conv2d(3, 64, 7, 2, 3, bias=False)]
        pool = [] if small else [nn.MaxPool2d(3, 2, 1)]
        layers: list[nn.Module] = [*stem, nn.BatchNorm2d(64), nn.ReLU(), *pool]
        channels = 64
        for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [ResidualBlock(channels, out, stride), ResidualBlock(out, out, 1)]
            channels = out
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classify = nn.Linear(512, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classify(self.features(x))  # type: ignore[no-any-return]


class DecoderBlock(nn.Module):
    """Pre-norm attention and a GELU feed-forward layer; keys and values can be appended to a cache."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, past: Pair | None = None) -> tuple[torch.Tensor, Pair]:
        b, t, d = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norm1(x)).split(d, 2))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x)))), (k, v)


class GPT(nn.Module):
    """A GPT decoder. `generate` decodes greedily, by a growing cache or by slices of a preallocated one."""

    def __init__(
        self, layers: int = 2, width: int = 64, heads: int = 4, vocabulary: int = 256, context: int = 64
    ) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(DecoderBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, 0, 0.02)

    def forward(self, tokens: torch.Tensor, past: Cache | None = None) -> tuple[torch.Tensor, Cache]:
        start = past[0][0].shape[2] if past else 0
        x = self.token(tokens) + self.position(torch.arange(start, start + tokens.shape[1], device=tokens.device))
        cache = []
        for i, block in enumerate(self.blocks):
            x, kept = block(x, past[i] if past else None)
            cache.append(kept)
        return self.head(self.norm(x)), cache

    @torch.no_grad()
    def generate(self, tokens: torch.Tensor, steps: int) -> torch.Tensor:
        logits, cache = self(tokens)
        found = []
        for _ in range(steps):
            found.append(logits[:, -1].argmax(-1, keepdim=True))
            logits, cache = self(found[-1], cache)
        return torch.cat(found, 1)


class MLP(nn.Module):
    """Three linear layers of one width."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    """An LSTM and a GRU over embedded tokens, with dropout off so that runs can be compared."""

    def __init__(self, vocabulary: int = 32, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(2 * width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x, _ = self.lstm(self.embed(tokens))
        x, _ = self.gru(x)
        return self.head(x)  # type: ignore[no-any-return]
