"""Ops that torch would take apart before they reach the device, kept whole in training (`register.WHOLE`).

torch's derivative formulas for them lack three things that its compositions have: derivatives of some gradients,
forward-mode derivatives, and complex numbers. The gradient ops get a kernel at the autograd key, which composes them
where their own derivatives are wanted. While a level of forward-mode AD is open, and once there are complex tensors,
the ops themselves get one that composes them as torch does. A kernel in Python at the autograd key costs less than
`__torch_dispatch__`, which the gradient ops save by it; the ops themselves would have both, so theirs is not permanent.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from . import spec
from .compat.untraced import untraced
from .decomposition import composed_by
from .dispatch import boxed
from .register import WHOLE, overload
from .tensor import Tensor

_KEY = "AutogradPrivateUse1"
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_FORMULA = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradPrivateUse2) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.Python
)
"""Where torch's formulas are for a second device that has kernels of the ops, and what comes after them."""
_library: Any = torch.library.Library("aten", "IMPL")
_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
_wants_grad: Callable[[], bool] = torch.is_grad_enabled


# -- gradients -------------------------------------------------------------------------------------------------------
def gradient(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register how the gradient op `name`, of three tensors and a mask, is composed of ops that have derivatives.

    Composed it is where that matters, under vmap, under modes that look at ops, and where there is no kernel.
    """

    def register(composed: Callable[..., Any]) -> Callable[..., Any]:
        func = overload(name)
        composed_by(func, composed)
        _library.impl(name, untraced(_directly(func, composed)), _KEY)
        _library.impl(name, composed, "FuncTorchBatchedDecomposition")
        return composed

    return register


def _directly(func: Any, composed: Callable[..., Any]) -> Callable[..., Any]:
    """The op's kernel at the autograd key."""

    def kernel(a: Any, b: Any, c: Any, mask: Any) -> Any:
        wanted = _wants_grad() and (a.requires_grad or b.requires_grad or c.requires_grad)
        ours = type(a) is type(b) is type(c) is Tensor
        if wanted or not ours or looked_at() or (_odd and _bias_shape() not in (None, c.shape[:-1])):
            return composed(a, b, c, mask)
        return boxed(func, a, b, c, mask)

    return kernel


_odd: list[bool] = []
"""Not empty once a linear had a bias of an odd shape, which its gradient op is not told."""


def odd_bias() -> None:
    """A bias that is not one number for each column was seen: from now on backward nodes are asked for its shape."""
    _odd[:] = [True]


def bias_gradient(grad: torch.Tensor, columns: int) -> torch.Tensor:
    """The gradient of the bias of a linear with `columns` dimensions of columns (0 or 1), in the bias's shape."""
    return grad.sum_to_size(_bias_shape() or grad.shape[grad.dim() - columns :])


def _bias_shape() -> tuple[int, ...] | None:
    """The shape of the bias of the linear whose backward node runs now, if it may be an odd one."""
    node = torch._C._current_autograd_node() if _odd else None
    if node is None or node.name() != "LinearBackward0":
        return None
    function, index = node.next_functions[2]
    return None if function is None else tuple(function._input_metadata[index].shape)


# -- what the formulas do not know -----------------------------------------------------------------------------------
_levels: list[int] = []
"""One entry for each open level of forward-mode AD."""
_complex: list[bool] = []
"""Not empty once a device had a complex tensor, for which torch refuses to use the formulas."""
_apart: list[Any] = []
"""The library of kernels that take the ops apart, while there is a reason for them."""
_lock = threading.Lock()


def differentiable(*tensors: torch.Tensor | None) -> bool:
    """Whether autograd will want the gradient of a call with these tensors."""
    return _wants_grad() and any(t is not None and t.requires_grad for t in tensors)


def looked_at() -> bool:
    """Whether forward-mode derivatives or a mode may need the pieces that an op is composed of."""
    return bool(_levels) or _modes() > 0


def _choose() -> None:
    """Have the kernels that take ops apart exactly while somebody may need them."""
    if bool(_apart) == bool(_levels or _complex):
        return
    if _apart:
        _apart.pop()._destroy()
        return
    library: Any = torch.library.Library("aten", "IMPL")
    for name in WHOLE:
        library.impl(name, untraced(_taking_apart(overload(name))), _KEY)
        library.impl(name, _never, "PrivateUse2")
    _apart.append(library)


def _never(*args: Any, **kwargs: Any) -> None:
    """What makes torch use its formulas for that device, which does not exist."""


def _taking_apart(func: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        if _levels or kwargs or not all(t is None or (type(t) is Tensor and not t.is_complex()) for t in args):
            return func._op_dk(_COMPOSITE, *args, **kwargs)
        return func.redispatch(_FORMULA, *args)

    return kernel


def _entering(enter: Callable[..., Any]) -> Callable[..., Any]:
    def enter_dual_level() -> Any:
        level = enter()
        with _lock:
            _levels.append(level)
            _choose()
        return level

    return functools.wraps(enter)(enter_dual_level)


def _leaving(leave: Callable[..., Any]) -> Callable[..., Any]:
    def exit_dual_level(*, level: Any = None) -> None:
        leave(level=level)
        with _lock:
            del _levels[-1:]
            _choose()

    return functools.wraps(leave)(exit_dual_level)


def _saw_complex() -> None:
    with _lock:
        _complex[:] = [True]
        _choose()


def install() -> None:
    """Be told of forward-mode AD and of complex numbers; once."""
    if not hasattr(forward_ad.enter_dual_level, "__wrapped__"):
        forward_ad.enter_dual_level = _entering(forward_ad.enter_dual_level)
        forward_ad.exit_dual_level = _leaving(forward_ad.exit_dual_level)
        spec.on_complex(_saw_complex)
