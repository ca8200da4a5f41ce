"""cuDNN's plans: built once for a problem and the switches it depends on, run many times on any stream of the card.

A handle belongs to one thread. It holds no memory between calls: a plan's room for work is a temporary of the caller's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from torch_fl.errors import Unsupported

from ._cudnn_graphs import Node, draw, new_graph

if TYPE_CHECKING:
    from ._cupy import CuPy

MOST = 1024
"""Plans that a card keeps."""
ALIGNED = 16
"""Bytes of which every address is a multiple, as plans expect."""


class Switches(NamedTuple):
    """torch.backends.cudnn's `enabled`; whether float32 may be TF32; whether the same call gives the same bits."""

    enabled: bool
    tf32: bool
    deterministic: bool


def switches() -> Switches:
    """As they are now."""
    c: Any = torch._C
    tf32 = c._get_fp32_precision_getter("cuda", "conv") == "tf32"
    return Switches(
        c._get_cudnn_enabled(), tf32, c._get_cudnn_deterministic() or c._get_deterministic_algorithms()
    )  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """A graph that can be run, and the bytes it needs for that."""

    graph: Any
    workspace: int


class _Here(threading.local):
    """This thread's handle, and the stream it is bound to."""

    handle: Any = None
    stream: int | None = None


class CuDNN:
    """The library on one card; `module` is PyPI's `cudnn`."""

    def __init__(self, backend: CuPy, module: Any) -> None:
        self.backend, self._module = backend, module
        self._here = _Here()
        self._plans: dict[tuple[Node, bool, bool], Plan | str] = {}
        self._lock = threading.Lock()
        self.calls = self.refusals = 0
        self.last_refusal = ""
        self._handle()

    def plan(self, node: Node, now: Switches) -> Plan:
        """The plan of a problem. Raises Unsupported where the library refuses it; it is asked once."""
        exact = node.dtype == torch.float32 and not now.tf32
        key = (node, exact, now.deterministic)
        with self._lock:
            found = self._plans.get(key)
            if found is None:
                if len(self._plans) >= MOST:
                    self._plans.clear()
                found = self._plans[key] = self._try(lambda: self._build(*key), node)
        if isinstance(found, str):
            raise Unsupported(f"cudnn: {found}")
        return found

    def _try(self, build: Callable[[], Plan], node: Node) -> Plan | str:
        """A plan, or why there is none."""
        try:
            with self.backend.card:
                return build()
        except self.backend.memory_errors:
            raise
        except Exception as error:  # noqa: BLE001 - graphs are refused in many ways; all mean: not this route
            return self.refused(node.method, error)

    def refused(self, what: str, error: Exception) -> str:
        """Keep in mind that something was refused; why, in one line."""
        lines = str(error).strip().splitlines() or [repr(error)]
        self.refusals, self.last_refusal = self.refusals + 1, f"{what}: {lines[0][:200]}"
        return self.last_refusal

    def _build(self, node: Node, exact: bool, deterministic: bool) -> Plan:
        modes, avoided = _engines(self._module, node, exact, deterministic)
        graph = new_graph(self._module, node.dtype, handle=self._handle())
        draw(self._module, graph, node)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans(modes)
        if avoided:
            graph.deselect_numeric_notes(avoided)
        graph.check_support()
        graph.build_plans()
        return Plan(graph, int(graph.get_workspace_size()))

    def run(self, plan: Plan, addresses: dict[int, int], workspace: int, stream: int) -> None:
        """Put a plan on a stream; the card is current. Raises whatever the library raises."""
        handle = self._handle()
        if self._here.stream != stream:
            self._module.set_stream(handle, stream)
            self._here.stream = stream
        plan.graph.execute(addresses, workspace, handle)
        self.calls += 1

    def _handle(self) -> Any:
        here = self._here
        if here.handle is None:
            with self.backend.card:
                here.handle = self._module.create_handle()
        return here.handle

    def note(self) -> str:
        """For whoever lists the devices."""
        version = f"cudnn {self._module.backend_version_string()} is used for convolutions and attention"
        return f"{version}; it refused {self.refusals}, at last {self.last_refusal}" if self.refusals else version


def _engines(cudnn: Any, node: Node, exact: bool, deterministic: bool) -> tuple[list[Any], list[Any]]:
    """Whom to ask for engines, and which to leave out. Attention is told by an argument that it is to be deterministic.

    For exact float32 the heuristics may know tensor cores only (Hopper); what the fallback has then, ours outdo.
    """
    modes, notes = cudnn.heur_mode, cudnn.numerical_note
    if node.method.startswith("sdpa"):
        return [modes.A], []
    avoided = [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS] if exact else []
    avoided += [notes.NONDETERMINISTIC] if deterministic else []
    return [modes.A] if exact else [modes.A, modes.FALLBACK], avoided
