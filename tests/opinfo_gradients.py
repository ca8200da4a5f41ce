"""Groups `gradient` and `double_backward`: first and second derivatives for fixed gradients of the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from opinfo_compare import Comparison, both, run_call

from torch_fl.commands.samples import tensors_in


def check_gradient(entry: Any, sample: Any, compare: Comparison) -> int:
    """Gradients of all inputs for a fixed gradient of the results."""
    return _check(gradients, entry, sample, compare)


def check_double_backward(entry: Any, sample: Any, compare: Comparison) -> int:
    """Second gradients: of all inputs and of the gradients that came in, for fixed weights of the first gradients."""
    return _check(second_gradients, entry, sample, compare)


def _check(derive: Callable[..., Any], entry: Any, sample: Any, compare: Comparison) -> int:
    _, cpu, _, device = both(sample)
    try:
        want = derive(entry, sample, *cpu)
    except Exception:  # noqa: BLE001 - the CPU cannot do it
        return 0
    exact = compare.exact(sample, lambda s, args: derive(entry, s, *args))
    compare.same(derive(entry, sample, *device), want, exact, "gradient", strides=False)
    return int(bool(want))


def gradients(entry: Any, sample: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """First gradients of the leaves among the arguments."""
    roots, leaves = _graph(entry, sample, args, kwargs)
    return _grad(roots, leaves, [_seed(t) for t in roots])


def second_gradients(entry: Any, sample: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """Gradients of the weighted sum of first gradients, with respect to the leaves and to the gradients put in."""
    roots, leaves = _graph(entry, sample, args, kwargs)
    seeds = [_seed(t).requires_grad_() for t in roots]
    first = [t for t in _grad(roots, leaves, seeds, create_graph=True) if t.requires_grad]
    return _grad(first, [*leaves, *seeds], [_seed(t) for t in first])


def _graph(entry: Any, sample: Any, args: Any, kwargs: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Results that a gradient can start from, and the leaves it goes to."""
    result = sample.output_process_fn_grad(run_call(entry, args, kwargs))
    roots, leaves = ([t for t in tensors_in(v) if t.requires_grad] for v in (result, (args, kwargs)))
    return roots, leaves


def _grad(roots: list[torch.Tensor], leaves: list[torch.Tensor], seeds: Any, **kwargs: Any) -> list[torch.Tensor]:
    if not roots:
        return []
    found = torch.autograd.grad(roots, leaves, seeds, allow_unused=True, **kwargs)
    return [t for t in found if t is not None]


def _seed(root: torch.Tensor) -> torch.Tensor:
    """Numbers from -1 to 1, another one for every element."""
    return torch.linspace(-1, 1, root.numel()).reshape(root.shape).to(root.dtype).to(root.device)
