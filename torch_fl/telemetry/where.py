"""Where an op comes from: the user's source line, and the path of the nn.Module that is running.

Ops of the backward pass run in torch's own threads without a Python frame of the user's. Their module is that of the
forward op with the same autograd sequence number; their line is that of the `backward()` call that waits for them.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
import weakref
from types import FrameType
from typing import Any

import torch
from torch.nn.modules import module as _module

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_COMMANDS = os.path.join(_PACKAGE, "commands") + os.sep
_OWN = tuple(
    os.path.abspath(p) + os.sep
    for p in (_PACKAGE, os.path.join(os.path.dirname(_PACKAGE), "backends"), os.path.dirname(torch.__file__))
)
MAX_NODES = 200_000
"""Forward ops remembered for their backward pass."""


def user_line() -> str:
    """ "file:line" of the innermost Python frame outside torch and this package, or ""."""
    found = _outside(sys._getframe(1))
    if found:
        return found
    waiting = [f for f in map(_in_engine, sys._current_frames().values()) if f is not None]
    return _outside(waiting[0]) if len(waiting) == 1 else ""


def warn(text: str, category: type[Warning]) -> None:
    """A warning that names the user's line, where there is one."""
    file, _, line = user_line().rpartition(":")
    if file:
        warnings.warn_explicit(text, category, file, int(line))
    else:
        warnings.warn(text, category, stacklevel=4)


def _outside(frame: FrameType | None) -> str:
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(("<frozen", "<string>")) and (name.startswith(_COMMANDS) or not name.startswith(_OWN)):
            return "" if _is_thread_start(name) else f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _is_thread_start(name: str) -> bool:
    return os.path.basename(name) == "threading.py"


def _in_engine(frame: FrameType | None) -> FrameType | None:
    """The frame that waits in torch's autograd engine, if this stack has one."""
    while frame is not None and frame.f_code.co_name != "_engine_run_backward":
        frame = frame.f_back
    return frame


class _Modules(threading.local):
    """What one thread is running; left over from an earlier watch if `watch` is not the present one."""

    def __init__(self) -> None:
        self.running: list[tuple[int, str]] = []
        self.names: dict[int, str] = {}
        self.watch = 0


_modules = _Modules()
_names: weakref.WeakKeyDictionary[torch.nn.Module, dict[int, str]] = weakref.WeakKeyDictionary()
_nodes: dict[int, tuple[int, str]] = {}
_hooks: list[Any] = []
_watches = [0]


def watch_modules(on: bool) -> None:
    """Follow which module is running, through torch's global module hooks; or stop and forget."""
    if on and not _hooks:
        _watches[0] += 1
        _hooks.append(_module.register_module_forward_pre_hook(_enter))
        _hooks.append(_module.register_module_forward_hook(_leave, always_call=True))
    elif not on:
        while _hooks:
            _hooks.pop().remove()
        _nodes.clear()
        _names.clear()


def module_path() -> str:
    """Path of the running module, as in "ResNet.layer1.0.conv1"; "" outside modules."""
    running = _modules.running if _modules.watch == _watches[0] else []
    node = torch._C._current_autograd_node()
    if node is not None and not running:
        return _nodes.get(node._sequence_nr(), (0, ""))[1]
    if not running:
        return ""
    path = running[-1][1]
    if torch.is_grad_enabled():
        _remember(path)
    return path


def _remember(path: str) -> None:
    """Note the module under the number of the autograd node that torch has just made for this op."""
    number = torch._C._autograd._get_sequence_nr() - 1
    known = _nodes.get(number)
    me = threading.get_ident()
    if known is None:
        if len(_nodes) >= MAX_NODES:
            _nodes.clear()
        _nodes[number] = (me, path)
    elif known[0] != me:  # numbers are per thread: two forward passes at once cannot be told apart
        _nodes[number] = (0, "")


def _enter(module: torch.nn.Module, args: Any) -> None:
    state = _modules
    if state.watch != _watches[0]:
        state.running, state.watch = [], _watches[0]
    if not state.running:
        state.names = _names_of(module)
    path = state.names.get(id(module))
    if path is None:
        outer = state.running[-1][1] if state.running else ""
        path = f"{outer}.{type(module).__name__}".lstrip(".")
    state.running.append((id(module), path))


def _names_of(root: torch.nn.Module) -> dict[int, str]:
    found = _names.get(root)
    if found is None:
        top = type(root).__name__
        found = _names[root] = {id(m): f"{top}.{n}".rstrip(".") for n, m in root.named_modules()}
    return found


def _leave(module: torch.nn.Module, args: Any, output: Any) -> None:
    running = _modules.running
    if any(key == id(module) for key, _ in running):
        while running.pop()[0] != id(module):
            pass
