"""Distinct elements: sort, mark where a run of equals starts, and keep those places. Waits for the device."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import Unsupported
from ..registry import handler
from ..tensor import Tensor
from .nonzero import flat_places

_ATEN = torch.ops.aten
MOST_COLUMNS = 64
"""unique along a dimension sorts once per column: wider slices go to the CPU."""


def _nothing(like: torch.Tensor) -> torch.Tensor:
    return _ATEN.new_empty.default(like, [0], dtype=torch.int64)  # type: ignore[no-any-return]


def _starts(rows: torch.Tensor) -> Any:
    """Whether each row of [n, ...] differs from the one before: bool [n]."""
    n = rows.shape[0]
    changed = _ATEN.ne.Tensor(rows[1:], rows[:-1])
    if rows.dim() > 1:
        changed = _ATEN.any.dim(_ATEN.reshape.default(changed, (n - 1, -1)), 1)
    return _ATEN.cat.default([_ATEN.new_ones.default(rows, [1], dtype=torch.bool), changed])


def _runs(starts: Any, want_group: bool, want_counts: bool) -> tuple[Any, Any, Any]:
    """Of marked runs: where each starts, the run each element is in, and their lengths."""
    places = flat_places(starts)
    group = _ATEN.cumsum.default(starts, 0) - 1 if want_group else None
    counts = None
    if want_counts:
        ends = _ATEN.cat.default([places[1:], _ATEN.new_full.default(places, [1], starts.shape[0])])
        counts = ends - places
    return places, group, counts


def _placed(group: Any, order: Any, shape: Any) -> Any:
    """The group of each element before it was sorted."""
    return _ATEN.view.default(_ATEN.scatter.src(_ATEN.empty_like.default(group), 0, order, group), shape)


def _unique(self: Tensor, inverse: bool, counts: bool) -> tuple[Any, Any, Any]:
    flat = _ATEN.reshape.default(self, (-1,))
    if flat.numel() == 0:
        empty = _ATEN.new_empty.default(self, [0])
        groups = _ATEN.new_empty.default(self, self.shape, dtype=torch.int64) if inverse else _nothing(self)
        return empty, groups, _nothing(self)
    values, order = _ATEN.sort.stable(flat, stable=True)
    places, group, lengths = _runs(_starts(values), inverse, counts)
    found = _ATEN.index_select.default(values, 0, places)
    groups = _placed(group, order, self.shape) if inverse else _nothing(self)
    return found, groups, lengths if counts else _nothing(self)


@handler("aten::_unique2")
def unique2(
    self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Any, Any, Any]:
    """(distinct elements in order, for each element the index of its value, counts)."""
    return _unique(self, return_inverse, return_counts)


@handler("aten::_unique")
def unique(self: Tensor, sorted: bool = True, return_inverse: bool = False) -> tuple[Any, Any]:
    """(distinct elements in order, for each element the index of its value)."""
    return _unique(self, return_inverse, False)[:2]


@handler("aten::unique_consecutive")
def unique_consecutive(
    self: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The first of each run of equal elements (or slices along `dim`); inverse and counts as for unique."""
    if self.numel() == 0 or (dim is not None and self.dim() == 0):
        return _on_cpu("unique_consecutive", (self, return_inverse, return_counts, dim))
    rows = _ATEN.reshape.default(self, (-1,)) if dim is None else _ATEN.movedim.int(self, dim, 0).contiguous()
    places, group, lengths = _runs(_starts(rows), return_inverse, return_counts)
    found = _ATEN.movedim.int(_ATEN.index_select.default(rows, 0, places), 0, dim or 0)
    shape = self.shape if dim is None else [self.shape[dim]]
    groups = _ATEN.view.default(group, shape) if return_inverse else _nothing(self)
    return found, groups, lengths if return_counts else _nothing(self)


@handler("aten::unique_dim")
def unique_dim(
    self: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    """Distinct slices along `dim` in lexicographic order; inverse and counts as for unique."""
    if self.dim() == 0 or self.numel() == 0 or self.numel() // self.shape[dim] > MOST_COLUMNS:
        return _on_cpu("unique_dim", (self, dim, sorted, return_inverse, return_counts))
    slices = _ATEN.movedim.int(self, dim, 0).contiguous()
    rows = _ATEN.view.default(slices, (self.shape[dim], -1))
    order = None
    for column in reversed(range(rows.shape[1])):
        values = rows[:, column] if order is None else _ATEN.index_select.default(rows[:, column], 0, order)
        step = _ATEN.sort.stable(values, stable=True)[1]
        order = step if order is None else _ATEN.index_select.default(order, 0, step)
    places, group, lengths = _runs(_starts(_ATEN.index_select.default(rows, 0, order)), True, True)
    first = _ATEN.index_select.default(order, 0, places)
    found = _ATEN.movedim.int(_ATEN.index_select.default(slices, 0, first), 0, dim)
    return found, _placed(group, order, [self.shape[dim]]), lengths


def _on_cpu(name: str, args: tuple[Any, ...]) -> Any:
    from .. import fallback

    reason = str(Unsupported("empty, 0-dim or wide slices"))
    return fallback.run(getattr(_ATEN, name).default, args, {}, args[0]._spec.device, reason)
