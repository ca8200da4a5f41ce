"""What nn.DataParallel and torch.cuda.comm ask of C++: tensors cut up, copied and put together over several devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .. import names
from .patches import Patch

_Tensors = Sequence[torch.Tensor]


def _device(index: int | None) -> torch.device:
    return torch.device("cpu") if index is None or index < 0 else torch.device(names.OWN, index)


def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    """The tensor on every device."""
    return [tensor.to(_device(i)) for i in devices]


def broadcast_coalesced(tensors: _Tensors, devices: Sequence[int], buffer_size: int) -> list[list[torch.Tensor]]:
    """All tensors on every device: one list per device."""
    return [[t.to(_device(i)) for t in tensors] for i in devices]


def broadcast_out(tensor: torch.Tensor, out: _Tensors) -> list[torch.Tensor]:
    """The tensor copied into every one of `out`."""
    return [t.copy_(tensor) for t in out]


def scatter(
    tensor: torch.Tensor, devices: Sequence[int], chunk_sizes: Sequence[int] | None, dim: int, streams: Any = None
) -> list[torch.Tensor]:
    """Pieces along `dim`, one per device; fewer where the tensor is too short."""
    pieces = tensor.split(list(chunk_sizes), dim) if chunk_sizes is not None else tensor.chunk(len(devices), dim)
    return [piece.to(_device(i)) for piece, i in zip(pieces, devices)]


def scatter_out(tensor: torch.Tensor, out: _Tensors, dim: int, streams: Any = None) -> list[torch.Tensor]:
    """Pieces of the sizes of `out`, copied into them."""
    return [t.copy_(piece) for t, piece in zip(out, tensor.split([t.size(dim) for t in out], dim))]


def gather(tensors: _Tensors, dim: int, destination: int | None) -> torch.Tensor:
    """The tensors joined along `dim` on one device; -1 is the CPU, None the device of the first."""
    where = tensors[0].device if destination is None else _device(destination)
    return torch.cat([t.to(where) for t in tensors], dim)


def gather_out(tensors: _Tensors, out: torch.Tensor, dim: int) -> torch.Tensor:
    """The tensors joined along `dim` into `out`."""
    return out.copy_(torch.cat([t.to(out.device) for t in tensors], dim))


def patches() -> Iterator[Patch]:
    """Functions of torch._C; a torch without CUDA has none of them."""
    for function in (broadcast, broadcast_coalesced, broadcast_out, scatter, scatter_out, gather, gather_out):
        yield Patch(torch._C, f"_{function.__name__}", function)
