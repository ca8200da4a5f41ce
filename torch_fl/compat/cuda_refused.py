"""What only CUDA has: switches and marks for NVIDIA's tools do nothing, the rest raises and says what to do instead."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd import profiler as autograd_profiler
from torch.cuda import graphs, memory, nvtx, profiler

from ..errors import Error, message
from .patches import Patch

_GRAPHS = "run the code without a graph; launches are replayed from plans already"
_POOLS = "leave it out: memory is pooled already, torch.cuda.empty_cache() gives it back"
_SENSORS = "the vendor's own tool"
_KERNEL = "torch functions, or torch_fl.pointwise for a kernel of one line"
_GLOO = "torch.distributed with the backend gloo"
_HISTORY = "torch.cuda.memory_summary() and torch.cuda.memory_snapshot(), or torch_fl.memory"
_RUNTIME = "torch.cuda.synchronize(), torch.cuda.mem_get_info() or another function of torch.cuda"

REFUSED: dict[str, str] = {
    "CUDAGraph": _GRAPHS,
    "graph": _GRAPHS,
    "graph_pool_handle": _GRAPHS,
    "make_graphed_callables": _GRAPHS,
    "CUDAPluggableAllocator": _POOLS,
    "MemPool": _POOLS,
    "caching_allocator_alloc": _POOLS,
    "caching_allocator_delete": _POOLS,
    "caching_allocator_disabled": _POOLS,
    "caching_allocator_enable": _POOLS,
    "change_current_allocator": _POOLS,
    "use_mem_pool": _POOLS,
    "ExternalStream": "torch.cuda.Stream()",
    "GreenContext": "torch.cuda.Stream()",
    "get_stream_from_external": "torch.cuda.Stream()",
    "clock_rate": _SENSORS,
    "memory_usage": _SENSORS,
    "power_draw": _SENSORS,
    "temperature": _SENSORS,
    "list_gpu_processes": _SENSORS,
    "current_blas_handle": "torch.mm and torch.linalg",
    "current_solver_handle": "torch.linalg",
}
"""Name in torch.cuda -> what to do instead."""

BELOW: dict[str, dict[str, str]] = {
    "jiterator": dict.fromkeys(("_create_jit_fn", "_create_multi_output_jit_fn"), _KERNEL),
    "nccl": dict.fromkeys(("all_gather", "all_reduce", "broadcast", "init_rank", "reduce", "reduce_scatter"), _GLOO)
    | dict.fromkeys(("unique_id", "version"), _GLOO),
    "memory": dict.fromkeys(("_dump_snapshot", "_record_memory_history", "_snapshot"), _HISTORY),
}
"""The same in modules below torch.cuda."""


def _error(name: str, hint: str) -> Error:
    because = "'cuda' means a virtual device here"
    return Error(message(f"torch.cuda.{name} exists on real CUDA only", because=because, hint=hint))


def _refusing(name: str, original: Any, hint: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise _error(name, hint)

    if not isinstance(original, type):
        refuse.__name__ = name
        return refuse
    # Still a class: scripts ask isinstance.
    return type(name, (), {"__new__": refuse, "__module__": original.__module__, "__doc__": original.__doc__})


class _Runtime:
    """torch.cuda.cudart(): a profiler may be started and stopped, nothing else is there."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name in ("cudaProfilerStart", "cudaProfilerStop"):
            return lambda *args: 0
        raise AttributeError(str(_error(f"cudart().{name}", _RUNTIME)))


class _Marks:
    """What torch.cuda.nvtx calls: every mark is accepted, ranges know how deep they are."""

    def __init__(self) -> None:
        self.depth = 0

    def rangePushA(self, text: str) -> int:
        """Depth of the new range."""
        self.depth += 1
        return self.depth - 1

    def rangePop(self) -> int:
        """Depth of the range that ended."""
        self.depth = max(self.depth - 1, 0)
        return self.depth

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *args: 0


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass


def _without_cuda(original: Any) -> Any:
    """profile(use_device="cuda") as torch has it without CUDA: it times the host, where launches are."""

    @functools.wraps(original)
    def __init__(self: Any, enabled: bool = True, *, use_cuda: bool = False, **options: Any) -> None:
        if options.get("use_device") == "cuda":
            options["use_device"] = None
        original(self, enabled, **options)

    return __init__


def _never(original: Any) -> Any:
    """emit_nvtx() that emits nothing: C++ has nobody to emit to."""

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, enabled=False)

    return __init__


def _refused() -> Iterator[Patch]:
    for name, hint in REFUSED.items():
        for module in (torch.cuda, graphs, memory):
            if name in vars(module):
                yield Patch(module, name, _refusing(name, vars(module)[name], hint))
    for below, table in BELOW.items():
        module = getattr(torch.cuda, below)
        for name, hint in table.items():
            yield Patch(module, name, _refusing(f"{below}.{name}", vars(module)[name], hint))


def patches() -> Iterator[Patch]:
    """torch.cuda, its modules, and what NVIDIA's tools are told."""
    yield from _refused()
    yield Patch(torch.cuda, "cudart", _Runtime)
    yield Patch(torch.cuda, "_sleep", _nothing)
    yield Patch(memory, "_set_allocator_settings", _nothing)
    yield Patch(nvtx, "_nvtx", _Marks())
    yield Patch(autograd_profiler.profile, "__init__", _without_cuda(autograd_profiler.profile.__init__))
    yield Patch(autograd_profiler.emit_nvtx, "__init__", _never(autograd_profiler.emit_nvtx.__init__))
    for name in ("init", "start", "stop"):
        if hasattr(profiler, name):
            yield Patch(profiler, name, _nothing)
