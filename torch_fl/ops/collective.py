"""torch.distributed's collectives on device tensors: over the CPU, where gloo's and MPI's transports read and write.

torch's own path would take them for ordinary ops: their schemas do not say what they write, and they return before they
have written it. Here each call gets CPU copies of its tensors, and what arrives is copied to the device when the
transport is done, before whoever waits on the `Work` goes on. Ranks may stand on chips of different vendors.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..errors import Error, describe_call, message
from ..fallback import download, upload
from ..infer import find_tensors, map_tensors
from ..registry import handler
from ..schema import bind_all, params_of
from ..tensor import Tensor

WRITTEN: dict[str, str] = {
    "allreduce_": "tensors",
    "allreduce_coalesced_": "tensors",
    "broadcast_": "tensors",
    "reduce_": "tensors",
    "recv_": "tensors",
    "recv_any_source_": "tensors",
    "allgather_": "output_tensors",
    "allgather_coalesced_": "output_lists",
    "allgather_into_tensor_coalesced_": "outputs",
    "_allgather_base_": "output_tensor",
    "gather_": "output_tensors",
    "scatter_": "output_tensors",
    "reduce_scatter_": "output_tensors",
    "reduce_scatter_tensor_coalesced_": "outputs",
    "_reduce_scatter_base_": "output_tensor",
    "alltoall_": "output_tensors",
    "alltoall_base_": "output",
    "send": "",
    "barrier": "",
}
"""Op in torch.ops.c10d -> the argument that it writes, which its schema does not say."""

FUNCTIONAL = (
    "all_reduce", "all_reduce_", "all_reduce_coalesced", "all_reduce_coalesced_", "broadcast", "broadcast_",
    "all_gather_into_tensor", "all_gather_into_tensor_out", "all_gather_into_tensor_coalesced",
    "reduce_scatter_tensor", "reduce_scatter_tensor_out", "reduce_scatter_tensor_coalesced", "all_to_all_single",
    "batch_p2p_ops",
)  # fmt: skip
"""Ops in torch.ops._c10d_functional that are waited for in the call: a tensor of the device is always there."""

REFUSED = ("isend", "irecv")
"""Functional ops that may only be done after a later call, which is too late for the one before."""


class _Copies:
    """CPU copies of the device tensors of one call, and the way back."""

    def __init__(self) -> None:
        self.of: dict[int, tuple[Tensor, torch.Tensor]] = {}

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        """The copy of a tensor, row-major as transports want it; a CPU tensor is itself."""
        if not isinstance(tensor, Tensor):
            return tensor
        if id(tensor) not in self.of:
            self.of[id(tensor)] = tensor, download(tensor).contiguous()
        return self.of[id(tensor)][1]

    def give_back(self, tensors: list[Tensor]) -> None:
        """Write the copies of these tensors into them; their versions count up."""
        with torch.no_grad():
            for tensor in tensors:
                tensor.copy_(self.of[id(tensor)][1])


def _collective(func: Any, *args: Any, written: str, **kwargs: Any) -> Any:
    bound = bind_all(func, args, kwargs)
    copies = _Copies()
    result = func(*(map_tensors(bound[p.name], copies.take) for p in params_of(func)))
    targets = find_tensors([bound[written]]) if written else []
    *values, work = result if isinstance(result, (list, tuple)) else (result,)
    work = _work(work, copies, targets) if targets and work is not None else work
    return (bound[written], work) if values else work


def _work(boxed: Any, copies: _Copies, targets: list[Tensor]) -> Any:
    """A `Work` that is done when the targets have what the transport brought."""
    c10d: Any = torch._C._distributed_c10d  # not in every build of torch
    work = c10d.Work.unbox(boxed)
    try:
        future = work.get_future()
    except RuntimeError:  # receiving has none
        return c10d.Work.boxed(c10d.PythonCallbackWork(_once(lambda timeout: work.wait(timeout), copies, targets)))

    def arrived(future: Any) -> list[Tensor]:
        future.value()  # raises what the transport raised
        copies.give_back(targets)
        return targets

    return c10d.Work.boxed(c10d._create_work_from_future(future.then(arrived)))


def _once(wait: Callable[[Any], Any], copies: _Copies, targets: list[Tensor]) -> Callable[[Any], bool]:
    """`wait`, after which the targets are written; a second wait writes nothing."""
    lock, left = threading.Lock(), [targets]

    def run(timeout: Any) -> bool:
        with lock:
            wait(timeout)
            copies.give_back(left.pop() if left else [])
        return True

    return run


def _functional(func: Any, *args: Any, **kwargs: Any) -> Any:
    bound = bind_all(func, args, kwargs)
    device = find_tensors(list(bound.values()))[0]._spec.device
    copies = _Copies()
    moved = {p.name: map_tensors(bound[p.name], copies.take) for p in params_of(func)}
    positional = [moved.pop(p.name) for p in params_of(func) if not p.keyword_only]
    result = map_tensors(func(*positional, **moved), torch.ops._c10d_functional.wait_tensor)
    written = find_tensors([bound[p.name] for p in params_of(func) if p.written])
    if not written:
        return map_tensors(result, lambda t: upload(t, device))
    copies.give_back(written)
    return written if isinstance(result, (list, tuple)) else written[0]


def _wait_tensor(tensor: Tensor) -> Tensor:
    return tensor


def _refuse(func: Any, *args: Any, **kwargs: Any) -> Any:
    raise Error(
        message(
            f"{func.name()} is not offered for device tensors",
            call=describe_call(func.name(), args, kwargs),
            because="what arrives is copied to the device by whoever waits for it, and this op has nobody who does",
            hint="torch.distributed.isend, irecv or batch_isend_irecv",
        )
    )


def _handlers() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, written in WRITTEN.items():
        yield f"c10d::{name}", functools.partial(_collective, written=written)
    for name in FUNCTIONAL:
        yield f"_c10d_functional::{name}", _functional
    for name in REFUSED:
        yield f"_c10d_functional::{name}", _refuse


def _register() -> None:
    """Versions of torch differ in what they have; a build without torch.distributed has none of it."""
    for name, serve in _handlers():
        namespace, _, base = name.partition("::")
        packet = getattr(getattr(torch.ops, namespace), base, None)
        if packet is not None:
            handler(name)(functools.partial(serve, packet.default))
    if getattr(torch.ops._c10d_functional, "wait_tensor", None) is not None:
        handler("_c10d_functional::wait_tensor")(_wait_tensor)


_register()
