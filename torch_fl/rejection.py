"""Calls that torch refuses: the exception its CPU kernels raise, in their type and words.

Shapes and dtypes are judged by torch's meta kernels and decompositions, whose errors differ from the CPU's in text and
sometimes in type. Once such an error was raised, and only then, the same call is made on the CPU with the same values:
what that raises is what users see. Calls that the meta kernels let pass although the CPU refuses them are named in
`lenient.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from . import fallback, lenient
from .errors import Error, KernelError, LateError
from .infer import map_tensors
from .schema import bind_all
from .tensor import Tensor

MOST_BYTES = 2**28
"""Calls with more bytes of arguments keep the error they have."""

_SAID = "_torch_fl_said"
"""Attribute of exceptions that came from the CPU: the op that was asked about, which need not be asked again."""


class Answer(NamedTuple):
    """What the CPU said to a call: whether it was asked, and what it raised."""

    asked: bool
    error: Exception | None = None


def as_on_cpu(error: Exception, func: Any, args: Any, kwargs: Any) -> Exception:
    """The CPU's exception for a call that raised `error`; `error` itself where the CPU has none or cannot be asked."""
    ours = isinstance(error, (Error, LateError)) and not isinstance(error, KernelError)  # int where float was meant
    if not isinstance(error, _ASKABLE) or ours or getattr(error, _SAID, None) is func:
        return error
    return ask(func, args, kwargs).error or error


_ASKABLE = (RuntimeError, ValueError, TypeError, IndexError, AssertionError, ArithmeticError)


def ask(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Answer:
    """Make a call on the CPU with copies of its arguments. Only torch's own ops are tried."""
    if not _may_ask(func, args, kwargs):
        return Answer(False)
    copied_args, copied_kwargs = fallback.copies(args, kwargs)
    if "generator" in copied_kwargs:
        copied_kwargs["generator"] = None
    state = torch.get_rng_state()
    try:
        fallback.call_on_cpu(func, copied_args, copied_kwargs)
    except NotImplementedError:
        return Answer(False)
    except Exception as error:  # noqa: BLE001 - whatever the CPU raises is the answer
        setattr(error, _SAID, func)
        return Answer(True, error.with_traceback(None))
    finally:
        torch.set_rng_state(state)
    return Answer(True)


def _may_ask(func: Any, args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Not for ops of others, for calls that mix devices, or for much memory."""
    tensors: list[torch.Tensor] = []
    map_tensors([*args, *kwargs.values()], tensors.append)
    foreign = any(not isinstance(t, Tensor) and (t.dim() or t.device.type != "cpu") for t in tensors)
    sizes = {id(t._buffer): t._buffer.nbytes for t in tensors if isinstance(t, Tensor)}
    return func.namespace == "aten" and not foreign and sum(sizes.values()) <= MOST_BYTES


def check(func: Any, args: Any, kwargs: Any) -> None:
    """Raise the CPU's exception for a call that the op's meta kernel would let pass."""
    if not lenient.suspicious(func, bind_all(func, args, kwargs)):
        return
    check_out(func, args, kwargs)


def check_out(func: Any, args: Any, kwargs: Any) -> bool:
    """Raise the CPU's exception if it refuses the call, as for an out= of another dtype: every op has its own rule.

    Returns whether it could be asked.
    """
    answer = ask(func, args, kwargs)
    if answer.error is not None:
        raise answer.error
    return answer.asked
