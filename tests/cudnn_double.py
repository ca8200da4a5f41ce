"""A stand-in for the calls of PyPI's `cudnn` that backends/_cudnn*.py makes, by torch's CPU; beside cupy_double.

It is strict where a card would only compute something wrong: a handle knows one card, one thread and the stream that it
was bound to, a plan wants its room for work, addresses are multiples of 16 bytes, and operands have one of the layouts
that the real library takes. A query that sees no key gives NaN. `refuse` names methods whose graphs are refused, and
`break_on_run` those that fail when they are run; `asked`, `built` and `broken` have what happened.
"""

from __future__ import annotations

import ctypes
import enum
import threading
from types import SimpleNamespace
from typing import Any

import torch
from cupy_double import Stream, _check, calls, getDevice
from cupy_double_arrays import later

__version__ = "a double"
refuse: set[str] = set()
break_on_run: set[str] = set()
asked: list[pygraph] = []
built: list[pygraph] = []
broken: list[str] = []
WORKSPACE = 1000


class cudnnGraphNotSupportedError(RuntimeError):
    """A graph that no engine takes."""


data_type = enum.Enum("data_type", "NOT_SET FLOAT HALF BFLOAT16 DOUBLE BOOLEAN")
heur_mode = enum.Enum("heur_mode", "A B FALLBACK")
numerical_note = enum.Enum("numerical_note", "TENSOR_CORE DOWN_CONVERT_INPUTS NONDETERMINISTIC")
_DTYPES = {data_type.FLOAT: torch.float32, data_type.HALF: torch.float16, data_type.BFLOAT16: torch.bfloat16}


def backend_version_string() -> str:
    return "9.99.0"


# -- handles -----------------------------------------------------------------------------------------------------------
_handles: list[SimpleNamespace] = []


def create_handle() -> int:
    _check("cudnnCreate")
    _handles.append(SimpleNamespace(card=getDevice(), thread=threading.get_ident(), stream=0))
    return len(_handles)


def set_stream(handle: int, stream: int) -> None:
    assert _handles[handle - 1].card == getDevice()
    _handles[handle - 1].stream = stream


def _use(handle: int) -> None:
    found = _handles[handle - 1]
    assert (found.card, found.thread) == (getDevice(), threading.get_ident())
    assert found.stream == Stream._stack()[-1].ptr


# -- graphs ------------------------------------------------------------------------------------------------------------
class tensor:
    """What a graph knows of a tensor."""

    def __init__(self, **known: Any) -> None:
        self.known = {"uid": -1, "output": False, **known}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("set_"):
            raise AttributeError(name)
        return lambda value: self.known.__setitem__(name[4:], value) or self

    @property
    def dtype(self) -> torch.dtype:
        return _DTYPES[self.known["data_type"]]

    def at(self, address: int) -> torch.Tensor:
        """The memory at an address as this tensor."""
        assert address % 16 == 0
        dim, stride = self.known["dim"], self.known["stride"]
        reach = 1 + sum((n - 1) * s for n, s in zip(dim, stride))
        memory = (ctypes.c_char * (reach * self.dtype.itemsize)).from_address(address)
        return torch.frombuffer(memory, dtype=self.dtype).as_strided(dim, stride)


class pygraph:
    """A graph of one operation."""

    def __init__(self, *, io_data_type: Any, intermediate_data_type: Any, compute_data_type: Any, handle: int) -> None:
        assert intermediate_data_type == compute_data_type == data_type.FLOAT
        self.handle, self.done, self.avoided = handle, ["new"], []
        _use_card(handle)

    def tensor(self, *, name: str, dim: list[int], stride: list[int], data_type: Any, uid: int) -> tensor:
        assert len(dim) == len(stride)
        return tensor(name=name, dim=dim, stride=stride, data_type=data_type, uid=uid)

    def _node(self, method: str, reads: dict[str, Any], outputs: int, **numbers: Any) -> list[tensor]:
        self.method, self.numbers = method, numbers
        self.reads = {k: t for k, t in reads.items() if t is not None}
        self.writes = [tensor() for _ in range(outputs)]
        return self.writes

    def conv_fprop(self, *, image: tensor, weight: tensor, padding: Any, stride: Any, dilation: Any) -> tensor:
        return self._node("conv_fprop", {"x": image, "w": weight}, 1, p=padding, s=stride, d=dilation)[0]

    def conv_dgrad(self, *, loss: tensor, filter: tensor, padding: Any, stride: Any, dilation: Any) -> tensor:
        return self._node("conv_dgrad", {"g": loss, "w": filter}, 1, p=padding, s=stride, d=dilation)[0]

    def conv_wgrad(self, *, image: tensor, loss: tensor, padding: Any, stride: Any, dilation: Any) -> tensor:
        return self._node("conv_wgrad", {"x": image, "g": loss}, 1, p=padding, s=stride, d=dilation)[0]

    def sdpa(
        self, *, q: tensor, k: tensor, v: tensor, is_inference: bool, attn_scale: float, bias: tensor | None = None,
        use_causal_mask: bool = False,
    ) -> list[tensor]:  # fmt: skip
        assert is_inference is False
        reads = {"q": q, "k": k, "v": v, "bias": bias}
        return self._node("sdpa", reads, 2, scale=attn_scale, causal=use_causal_mask)

    def sdpa_backward(
        self, *, q: tensor, k: tensor, v: tensor, o: tensor, dO: tensor, stats: tensor, attn_scale: float,
        bias: tensor | None = None, use_causal_mask: bool = False, use_deterministic_algorithm: bool = False,
    ) -> list[tensor]:  # fmt: skip
        reads = {"q": q, "k": k, "v": v, "o": o, "dO": dO, "stats": stats, "bias": bias}
        numbers = {"scale": attn_scale, "causal": use_causal_mask, "same": use_deterministic_algorithm}
        return self._node("sdpa_backward", reads, 3, **numbers)

    # -- from a graph to a plan ----------------------------------------------------------------------------------------
    def _step(self, name: str, after: str) -> None:
        assert self.done[-1] == after
        self.done.append(name)

    def validate(self) -> None:
        self._step("validated", "new")
        every = [*self.reads.values(), *self.writes]
        assert sorted(t.known["uid"] for t in every) == list(range(1, 1 + len(every)))
        assert all(t.known["output"] for t in self.writes)
        (_check_convolution if self.method.startswith("conv") else _check_attention)(self.reads, self.writes)

    def build_operation_graph(self) -> None:
        self._step("graph", "validated")

    def create_execution_plans(self, modes: list[Any]) -> None:
        self._step("plans", "graph")
        self.modes = modes

    def deselect_numeric_notes(self, notes: list[Any]) -> None:
        assert self.done[-1] == "plans"
        self.avoided = notes

    def check_support(self) -> None:
        self._step("supported", "plans")
        asked.append(self)
        if self.method in refuse:
            raise cudnnGraphNotSupportedError("No valid engine configs\nand much more")

    def build_plans(self) -> None:
        self._step("built", "supported")
        built.append(self)

    def get_workspace_size(self) -> int:
        return WORKSPACE

    def execute(self, addresses: dict[int, int], workspace: int, handle: int) -> None:
        assert self.done[-1] == "built"
        _use(handle)
        if self.method in break_on_run:
            broken.append(self.method)
            raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")
        calls.append((self.method, self.numbers))
        reads = [t.at(addresses.pop(t.known["uid"])) for t in self.reads.values()]
        writes = [t.at(addresses.pop(t.known["uid"])) for t in self.writes]
        assert not addresses
        ctypes.memset(workspace, 0xFF, WORKSPACE)
        compute = {"conv": _convolve, "sdpa": _attend}[self.method[:4]]

        def run() -> None:
            found = compute(self.method, dict(zip(self.reads, (r.float() for r in reads))), writes, **self.numbers)
            for target, result in zip(writes, found):
                target.copy_(result)

        later(run)


def _use_card(handle: int) -> None:
    assert _handles[handle - 1].card == getDevice()


# -- which graphs are taken ------------------------------------------------------------------------------------------
def _packed(t: tensor, last: bool) -> bool:
    dim = t.known["dim"]
    order = [0, *range(2, len(dim)), 1] if last else list(range(len(dim)))
    want, step = [0] * len(dim), 1
    for d in reversed(order):
        want[d], step = step, step * dim[d]
    return want == t.known["stride"]


def _check_convolution(reads: dict[str, tensor], writes: list[tensor]) -> None:
    every = [*reads.values(), *writes]
    assert len({t.dtype for t in every}) == 1
    assert {len(t.known["dim"]) for t in every} <= {4, 5}
    assert any(all(_packed(t, last) for t in every) for last in (False, True))


def _check_attention(reads: dict[str, tensor], writes: list[tensor]) -> None:
    for name, t in [*reads.items(), *((str(k), t) for k, t in enumerate(writes))]:
        dim, stride = t.known["dim"], t.known["stride"]
        assert len(dim) == 4
        if dim[3] == 1 and name in ("stats", "1") and t.dtype == torch.float32:
            continue
        assert t.dtype in (torch.float16, torch.bfloat16)
        assert stride[3] == 1
        assert all(s % 8 == 0 and s > 0 for n, s in zip(dim[:3], stride) if n > 1)
        assert name == "bias" or dim[3] % 8 == 0


# -- what they compute -----------------------------------------------------------------------------------------------
def _convolve(method: str, t: dict[str, torch.Tensor], writes: list[torch.Tensor], p: Any, s: Any, d: Any) -> Any:
    x = t["x"] if "x" in t else torch.empty(writes[0].shape)
    w = t["w"] if "w" in t else torch.empty(writes[0].shape)
    groups, nothing = x.shape[1] // w.shape[1], [0] * len(p)
    if method == "conv_fprop":
        return [torch.ops.aten.convolution(x, w, None, s, p, d, False, nothing, groups)]
    wanted = [method == "conv_dgrad", method == "conv_wgrad", False]
    found = torch.ops.aten.convolution_backward(t["g"], x, w, None, s, p, d, False, nothing, groups, wanted)
    return [g for g in found if g is not None]


def _attend(
    method: str, t: dict[str, torch.Tensor], writes: Any, scale: float, causal: bool, same: bool = False
) -> Any:
    q, (k, v) = t["q"], (t[n].repeat_interleave(t["q"].shape[1] // t[n].shape[1], 1) for n in "kv")
    scores = scale * q @ k.mT
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[2:], dtype=torch.bool).triu(1), -torch.inf)
    if "bias" in t:
        scores = scores + t["bias"]
    if method == "sdpa":
        return [scores.softmax(-1) @ v, scores.logsumexp(-1, keepdim=True)]
    p = (scores - t["stats"]).exp()
    ds = scale * p * (t["dO"] @ v.mT - (t["dO"] * t["o"]).sum(-1, keepdim=True))
    heads = t["k"].shape[:2]
    return [ds @ k, *(g.unflatten(1, (heads[1], -1)).sum(2) for g in (ds.mT @ q, p.mT @ t["dO"]))]
