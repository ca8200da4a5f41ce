"""The choice: `emit_best` records the way that was measured best for a problem, else the first that can.

A way is taken by measurement only where somebody asked for measuring: a problem without a kept winner costs one look
into a dict. Under `init(tune=True)` it is measured here, while its plan is made, by one thread at a time; the others,
and ways inside a way that is being tried, take what is known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import RegistryError, Unsupported, dtype_name
from ..refs import Ref, Value
from ..runtime import settings
from ..runtime.device import Device
from . import winners
from .timing import fastest

if TYPE_CHECKING:
    from ..builder import Builder

Emit = Callable[..., None]
LAZY = 0.2
"""Seconds for measuring one problem at its first use. Kernels that must be compiled for it come on top."""


@dataclass(frozen=True)
class Way:
    """One way to compute a kind of problem: `emit(b, *args)` records it, or raises Unsupported."""

    name: str
    emit: Emit


@dataclass
class _State:
    """`kept`: whether winners are looked up. `budget`: seconds to measure a problem that has none; None: not at all.

    `again`: also problems that have one. `told`: whom to tell what was measured.
    """

    kept: bool = True
    budget: float | None = None
    again: bool = False
    told: Callable[[Device, str, winners.Entry], None] | None = None


state = _State(settings.tune() is not False, LAZY if settings.tune() else None)
_measuring = threading.Lock()
_tried: set[tuple[int, str]] = set()
"""Problems of this process that could not be measured."""
_offered: dict[tuple[str, str], list[Way]] = {}
"""By kind of problem and adapter or family."""

KINDS = ("product", "convolution", "convolution weight gradient")
"""What `candidate` takes; their arguments are those of `emit_gemm`, and of kernels/conv.py's functions."""


def candidate(kind: str, *, name: str, backend: str) -> Callable[[Emit], Emit]:
    """Offer a function as one more way for a kind of problem on an adapter's chips (or those of a family).

    It is called as `fn(b, *args)` and raises Unsupported for what it cannot do. It must give what the other ways give,
    and is taken for problems for which it was measured to be the fastest. Kinds and their arguments:

    "product": `out, a, x, c, alpha, beta, sum_batch` as `kernels.gemm.emit_gemm` has them; c may be None.
    "convolution": `y, x, w, bias, window`, and "convolution weight gradient": `gw, gy, x, window`, of kernels/conv.py.

    Raises RegistryError for an unknown kind, or a name that is taken.
    """
    if kind not in KINDS:
        raise RegistryError(f"there is no kind of problem {kind!r}; known: {', '.join(KINDS)}")
    ways = _offered.setdefault((kind, backend), [])
    if any(way.name == name for way in ways):
        raise RegistryError(f"{backend} already has a way {name!r} for a {kind}")

    def register(function: Emit) -> Emit:
        ways.append(Way(name, function))
        return function

    return register


def emit_best(b: Builder, kind: str, args: Sequence[Any], ways: Iterable[Way]) -> None:
    """Record one of `ways` (the first is what rules say), or one that the chip's adapter offers.

    `args`: Refs, Values, numbers and plain objects; everything that the ways read. Ways that raise Unsupported are
    passed over; where all do, the last one's is raised. Where nothing was measured, no more of `ways` are made than are
    tried.
    """
    if _may_choose(b.device):
        ways = list(ways)
        offered = [w for who in {b.device.backend.name, b.device.backend.family} for w in _offered.get((kind, who), ())]
        every = [*ways, *offered]
        best = _measured(b.device, kind, args, every) if len(every) > 1 else None
        if best is not None and best is not ways[0] and _done(b, best, args):
            return
    refused = Unsupported(f"there is no way for a {kind}")
    for way in ways:
        mark = b.mark()
        try:
            way.emit(b, *args)
            return
        except Unsupported as error:
            b.take_back(mark)
            refused = error
    raise refused


def _may_choose(device: Device) -> bool:
    """Whether anything but the rules may decide."""
    return state.kept and (state.budget is not None or winners.any_for(device))


def _done(b: Builder, way: Way, args: Sequence[Any]) -> bool:
    """Whether a measured way could be recorded: it may be from another process, or from somebody else."""
    mark = b.mark()
    try:
        way.emit(b, *args)
    except Exception:  # noqa: BLE001 - the rules' way remains
        b.take_back(mark)
        return False
    return True


def _measured(device: Device, kind: str, args: Sequence[Any], ways: Sequence[Way]) -> Way | None:
    """The kept winner, after measuring where that is wanted; None: none is known."""
    key = key_of(kind, args)
    by_name = {way.name: way for way in ways}
    entry = winners.find(device, key)
    if state.budget is not None and (state.again or entry is None or entry["way"] not in by_name):
        entry = _measure(device, key, args, by_name, state.budget) or entry
    return None if entry is None else by_name.get(entry["way"])


def _measure(
    device: Device, key: str, args: Sequence[Any], ways: dict[str, Way], budget: float
) -> winners.Entry | None:
    if (device.index, key) in _tried or not _measuring.acquire(blocking=False):
        return None
    try:
        entry = _try(device, args, ways, budget)
        if entry is None or state.again:
            _tried.add((device.index, key))
    finally:
        _measuring.release()
    if entry is not None:
        winners.add(device, key, entry)
        if state.told is not None:
            state.told(device, key, entry)
    return entry


def _try(device: Device, args: Sequence[Any], ways: dict[str, Way], budget: float) -> winners.Entry | None:
    """Run the ways on tensors of their own; None where that says nothing."""
    from .trial import Scratch

    try:
        scratch = Scratch.of(device, args)
        runs = {}
        for name, way in ways.items():
            try:
                runs[name] = scratch.run_of(way)
            except Exception:  # noqa: BLE001 - a way that fails is no way
                continue
        device.backend.synchronize()
        found = fastest(runs, budget) if runs else None
    except Exception:  # noqa: BLE001 - measuring is never what a call fails of
        return None
    if found is None:
        return None
    return {
        "way": found.winner, "default": next(iter(runs)), "seconds": found.seconds,
        "default_seconds": found.default_seconds, "ways": list(runs),
    }  # fmt: skip


def key_of(kind: str, args: Sequence[Any]) -> str:
    """A problem in words: what plans of it have in common."""
    return f"{kind} " + " ".join(map(_told, args))


def _told(arg: Any) -> str:
    if isinstance(arg, Ref):
        sizes = "x".join(map(str, arg.shape))
        steps = "" if arg.is_contiguous else ":" + ",".join(map(str, arg.strides))
        return f"{dtype_name(arg.dtype)}[{sizes}{steps}]"
    if isinstance(arg, Value):
        return arg.kind.__name__
    return "-" if arg is None else str(arg)


def switch(tune: bool) -> None:
    """Measure problems at their first use from now on, or no longer. Plans are made anew."""
    from .. import dispatch

    state.budget = LAZY if tune else None
    state.kept = state.kept or tune
    dispatch.forget_plans()


class Everything:
    """Within it every problem is measured again, with `budget` seconds each; `told` hears of each."""

    def __init__(self, budget: float, told: Callable[[Device, str, winners.Entry], None]) -> None:
        self.new = _State(True, budget, True, told)

    def __enter__(self) -> None:
        from .. import dispatch

        self.before = dict(vars(state))
        vars(state).update(vars(self.new))
        _tried.clear()
        dispatch.forget_plans()

    def __exit__(self, *error: object) -> None:
        from .. import dispatch

        vars(state).update(self.before)
        _tried.clear()
        dispatch.forget_plans()
