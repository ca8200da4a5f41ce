"""Optimizers choose their foreach and fused forms only for tensor classes on two lists of torch's; ours joins them.

Those with a fused form take that (compat/optim_steps.py). Another
foreach form makes temporaries as large as all the parameters it is given. It treats each parameter by itself, so
it gets them in groups: the same values, and a temporary as large as a group.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.optim.optimizer import _foreach_supported_types as _of_optimizers
from torch.utils._foreach_utils import _foreach_supported_types as _of_utilities

from .optim_steps import STEPS, Run

SHARE = 8
"""A group holds at most this part of all bytes, or GROUP_BYTES where that is more, or one parameter."""
GROUP_BYTES = 1 << 20


def allow_foreach(kind: Any) -> None:
    """Let optimizers and clip_grad_norm_ take lists of tensors of class `kind`; done once."""
    for supported in (_of_optimizers, _of_utilities):
        if kind not in supported:
            supported.append(kind)
    for module in [m for name, m in list(sys.modules.items()) if name.startswith("torch.optim.")]:
        for name, run in list(vars(module).items()):
            if name.startswith("_multi_tensor_") and not hasattr(run, "__wrapped__"):
                setattr(module, name, _in_groups(run, kind, STEPS.get(name)))


def _in_groups(run: Callable[..., None], kind: Any, step: Run | None) -> Callable[..., None]:
    @functools.wraps(run)
    def multi_tensor(params: list[torch.Tensor], *args: Any, **kwargs: Any) -> None:
        if step is not None and params and type(params[0]) is kind and step(kind, params, *args, **kwargs):
            return None
        groups = list(_groups(params)) if params and type(params[0]) is kind else []
        if len(groups) < 2:
            return run(params, *args, **kwargs)
        for part in groups:
            given = [_cut(v, part, len(params)) for v in args]
            run(params[part], *given, **{k: _cut(v, part, len(params)) for k, v in kwargs.items()})
            for whole, piece in zip(args, given):
                if whole is not piece:
                    whole[part] = piece  # SGD puts its first momentum buffers into the list
        return None

    return multi_tensor


def _cut(value: Any, part: slice, count: int) -> Any:
    """The part of a list that runs along the parameters; everything else as it is."""
    return value[part] if isinstance(value, list) and len(value) == count else value


def _groups(params: Sequence[torch.Tensor]) -> Iterator[slice]:
    """Neighbouring parameters of about the same bytes."""
    sizes = [p.numel() * p.element_size() for p in params]
    most, start, held = max(sum(sizes) // SHARE, GROUP_BYTES), 0, 0
    for i, size in enumerate(sizes):
        if i > start and held + size > most:
            yield slice(start, i)
            start, held = i, 0
        held += size
    yield slice(start, len(params))
