"""Keeps torch.compile out of code that runs below the dispatcher.

A call that torch.compile left eager (after a graph break) runs our Python under its frame hook, which would compile
that too. `torch._dynamo.disable` says so as well, but imports the compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch._C._dynamo import eval_frame

_Function = TypeVar("_Function", bound=Callable[..., Any])


def untraced(function: _Function) -> _Function:
    """The function itself; neither its frames nor those that it calls are ever compiled."""
    skip = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)
    eval_frame.set_code_exec_strategy(function.__code__, skip)
    return function
