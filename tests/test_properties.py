"""Random chains of views, in-place writes and ops: the device does exactly what the CPU does, and touches nothing else.

Ops come from the tables below; `twins.World.run` says what is compared. To run it long by hand:
`PROPERTY_EXAMPLES=5000 pytest tests/test_properties.py -m device`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twins import FLOATS, INTEGERS, Impossible, Step, Twin, World, shapes, values

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # the CPU's own: expanded tensors written, var() of one
ALL = (*FLOATS, *INTEGERS, torch.bool)
EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "150"))
Maker = Callable[[World], Step]


def _dim(w: World, t: Twin) -> int:
    if not t.shape:
        raise Impossible
    return w.draw(st.integers(-len(t.shape), len(t.shape) - 1))  # type: ignore[no-any-return]


def _number(w: World, dtype: torch.dtype) -> Any:
    if dtype.is_floating_point:
        return w.draw(st.sampled_from([0, 1, -2, 0.5, 2.25, True]))
    return w.draw(st.sampled_from([True, False] if dtype == torch.bool else [0, 1, 3, True]))


# -- views ---------------------------------------------------------------------------------------------------------
def _slice(t: torch.Tensor, dim: int, start: int, stop: int, step: int) -> torch.Tensor:
    return t[(slice(None),) * (dim % t.ndim) + (slice(start, stop, step),)]


def _slicing(w: World) -> Step:
    t = w.pick()
    dim, n = _dim(w, t), max(t.shape)
    start, stop = w.draw(st.integers(-n, n)), w.draw(st.integers(-n, n + 1))
    return Step("slice", _slice, (t, dim, start, stop, w.draw(st.integers(1, 3))))


def _strided(w: World) -> Step:
    t = w.pick(lambda t: t.cpu.numel() > 0)
    shape = w.draw(st.lists(st.integers(1, 3), max_size=3))
    strides = [w.draw(st.integers(0, 2)) for _ in shape]
    return Step("as_strided", torch.as_strided, (t, shape, strides, t.cpu.storage_offset()))


def _on_dims(name: str, count: int) -> Maker:
    def make(w: World) -> Step:
        t = w.pick()
        return Step(name, getattr(torch.Tensor, name), (t, *(_dim(w, t) for _ in range(count))))

    return make


def _permute(w: World) -> Step:
    t = w.pick()
    return Step("permute", torch.permute, (t, tuple(w.draw(st.permutations(range(len(t.shape)))))))


def _select(w: World) -> Step:
    t = w.pick()
    dim = _dim(w, t)
    return Step("select", torch.select, (t, dim, w.draw(st.integers(-t.shape[dim] - 1, t.shape[dim]))))


def _expand(w: World) -> Step:
    t = w.pick(lambda t: len(t.shape) < 8)
    lead = [w.draw(st.integers(0, 3))] if w.draw(st.booleans()) else []
    return Step("expand", torch.Tensor.expand, (t, [*lead, *(3 if n == 1 else n for n in t.shape)]))


def _reshape(w: World) -> Step:
    t = w.pick()
    sizes = [t.cpu.numel()]
    for n in (2, 3, 5):
        if sizes[-1] % n == 0 and w.draw(st.booleans()):
            sizes[-1:] = [n, sizes[-1] // n]
    name = w.draw(st.sampled_from(["reshape", "view"]))
    return Step(name, getattr(torch.Tensor, name), (t, w.draw(st.permutations(sizes))))


def _pieces(w: World) -> Step:
    t = w.pick()
    name = w.draw(st.sampled_from(["chunk", "split", "unbind", "tensor_split"]))
    extra = () if name == "unbind" else (w.draw(st.integers(1, 3)),)
    return Step(name, getattr(torch, name), (t, *extra, _dim(w, t)))


def _bits_as(w: World) -> Step:
    dtype = w.draw(st.sampled_from([torch.uint8, torch.int16, torch.int32]))
    return Step("view.dtype", torch.Tensor.view, (w.pick(), dtype))


VIEWS: dict[str, Maker] = {
    "slice": _slicing,
    "as_strided": _strided,
    "permute": _permute,
    "select": _select,
    "expand": _expand,
    "reshape": _reshape,
    "pieces": _pieces,
    "view_dtype": _bits_as,
    "transpose": _on_dims("transpose", 2),
    "unsqueeze": _on_dims("unsqueeze", 1),
    "squeeze": _on_dims("squeeze", 1),
    "movedim": _on_dims("movedim", 2),
    "diagonal": lambda w: Step(
        "diagonal", torch.diagonal, (w.pick(lambda t: len(t.shape) > 1), w.draw(st.integers(-1, 1)), -1, 0)
    ),
    "unfold": lambda w: Step("unfold", torch.Tensor.unfold, (w.pick(), -1, 2, w.draw(st.integers(1, 2)))),
    "contiguous": _on_dims("contiguous", 0),
    "flatten": _on_dims("flatten", 0),
    "detach": _on_dims("detach", 0),
}


# -- in place ------------------------------------------------------------------------------------------------------
def _inplace(name: str, exact: bool = False, dtypes: tuple[torch.dtype, ...] = ALL) -> Maker:
    """`t.name_(other)` with a tensor or a number."""

    def make(w: World) -> Step:
        t = w.pick(lambda t: t.dtype in dtypes)
        other = w.partner(t.shape) if w.draw(st.booleans()) else _number(w, t.dtype)
        return Step(name, getattr(torch.Tensor, name), (t, other), (t,), exact)

    return make


def _copy(w: World) -> Step:
    t = w.pick()
    return Step("copy_", torch.Tensor.copy_, (t, _castable(w, w.partner(t.shape), t.dtype)), (t,), exact=True)


def _castable(w: World, t: Twin, dtype: torch.dtype) -> Twin:
    """`t`, if C defines what its numbers are in `dtype`."""
    if t.dtype.is_floating_point and not dtype.is_floating_point and dtype != torch.bool:
        low = 0 if dtype == torch.uint8 else -100
        if not bool(((t.cpu >= low) & (t.cpu <= 100)).all()):
            raise Impossible
    return t


def _plain_inplace(name: str, dtypes: tuple[torch.dtype, ...] = ALL, *extra: Any) -> Maker:
    def make(w: World) -> Step:
        t = w.pick(lambda t: t.dtype in dtypes)
        return Step(name, getattr(torch.Tensor, name), (t, *extra), (t,), True)

    return make


def _masked_fill(w: World) -> Step:
    t = w.pick()
    return Step(
        "masked_fill_", torch.Tensor.masked_fill_,
        (t, w.partner(t.shape, [torch.bool]), _number(w, t.dtype)), (t,), True,
    )  # fmt: skip


def _set_slice(t: torch.Tensor, dim: int, start: int, step: int, value: Any) -> None:
    t[(slice(None),) * (dim % t.ndim) + (slice(start, None, step),)] = value


def _assign_slice(w: World) -> Step:
    t = w.pick()
    dim = _dim(w, t)
    start, step = w.draw(st.integers(0, 2)), w.draw(st.integers(1, 3))
    return Step("setitem", _set_slice, (t, dim, start, step, _number(w, t.dtype)), (t,), True)


def _index(w: World, n: int, count: int) -> Twin:
    if n == 0:
        raise Impossible
    numbers = w.draw(st.lists(st.integers(-n, n - 1), min_size=count, max_size=count))
    return w.new([count], torch.int64, torch.tensor(numbers))


def _assign_index(w: World) -> Step:
    t = w.pick(lambda t: len(t.shape) > 0)
    at = _index(w, t.shape[0], w.draw(st.integers(1, 3)))
    return Step("index_put_", torch.Tensor.index_put_, (t, (at,), w.new([1], t.dtype), w.draw(st.booleans())), (t,))


def _assign_mask(w: World) -> Step:
    t = w.pick()
    mask = w.new(t.shape, torch.bool, values(w.draw, t.cpu.numel(), torch.bool))
    return Step("setitem mask", torch.Tensor.__setitem__, (t, mask, w.new([], t.dtype)), (t,), True)


def _index_write(name: str) -> Maker:
    """index_fill_, index_copy_, index_add_ along a dimension."""

    def make(w: World) -> Step:
        t = w.pick(lambda t: len(t.shape) > 0 and 0 not in t.shape)
        dim = _dim(w, t)
        n = t.shape[dim]
        order = torch.tensor(w.draw(st.permutations(range(n)))[: w.draw(st.integers(1, n))])
        at = w.new([len(order)], torch.int64, order)
        shape = list(t.shape)
        shape[dim] = len(order)
        source = _number(w, t.dtype) if name == "index_fill_" else w.new(shape, t.dtype)
        return Step(name, getattr(torch.Tensor, name), (t, dim, at, source), (t,))

    return make


def _scatter(name: str) -> Maker:
    def make(w: World) -> Step:
        t = w.pick(lambda t: len(t.shape) > 0 and 0 not in t.shape and t.dtype != torch.bool)
        dim = _dim(w, t)
        numbers = torch.arange(t.cpu.numel()).reshape(t.shape).argsort(dim)  # a permutation: no two writes to one place
        at = w.new(t.shape, torch.int64, numbers)
        return Step(name, getattr(torch.Tensor, name), (t, dim, at, w.new(t.shape, t.dtype)), (t,))

    return make


_SIGNED = tuple(d for d in ALL if d not in (torch.uint8, torch.bool))
_NUMBERS = tuple(d for d in ALL if d != torch.bool)
_INT = (*INTEGERS, torch.bool)

INPLACE: dict[str, Maker] = {
    "add_": _inplace("add_"),
    "sub_": _inplace("sub_", dtypes=_NUMBERS),
    "mul_": _inplace("mul_"),
    "div_": _inplace("div_", dtypes=FLOATS),
    "bitwise_xor_": _inplace("bitwise_xor_", True, _INT),
    "logical_and_": _inplace("logical_and_", True),
    "eq_": _inplace("eq_", True),
    "lt_": _inplace("lt_", True),
    "copysign_": _inplace("copysign_", True, FLOATS),
    "copy_": _copy,
    "zero_": _plain_inplace("zero_"),
    "fill_": _plain_inplace("fill_", ALL, 1),
    "neg_": _plain_inplace("neg_", _SIGNED),
    "abs_": _plain_inplace("abs_"),
    "floor_": _plain_inplace("floor_", _NUMBERS),
    "clamp_": _plain_inplace("clamp_", _NUMBERS, 0, 2),
    "logical_not_": _plain_inplace("logical_not_"),
    "relu_": _plain_inplace("relu_", _NUMBERS),
    "tril_": _plain_inplace("tril_"),
    "masked_fill_": _masked_fill,
    "setitem": _assign_slice,
    "index_put_": _assign_index,
    "index_put_mask": _assign_mask,
    "index_fill_": _index_write("index_fill_"),
    "index_copy_": _index_write("index_copy_"),
    "index_add_": _index_write("index_add_"),
    "scatter_": _scatter("scatter_"),
    "scatter_add_": _scatter("scatter_add_"),
    "cumsum_": lambda w: Step("cumsum_", torch.Tensor.cumsum_, (t := w.pick(lambda t: len(t.shape) > 0), 0), (t,)),
    "squeeze": _on_dims("squeeze", 1),
}


# -- out of place --------------------------------------------------------------------------------------------------
def _unary(name: str, dtypes: tuple[torch.dtype, ...] = ALL, exact: bool = False, *extra: Any) -> Maker:
    return lambda w: Step(name, getattr(torch, name), (w.pick(lambda t: t.dtype in dtypes), *extra), (), exact)


def _binary(name: str, dtypes: tuple[torch.dtype, ...] = ALL, exact: bool = False) -> Maker:
    def make(w: World) -> Step:
        t = w.pick(lambda t: t.dtype in dtypes)
        other = w.partner(t.shape, dtypes) if w.draw(st.integers(0, 3)) else _number(w, t.dtype)
        swap = isinstance(other, Twin) and w.draw(st.booleans())
        return Step(name, getattr(torch, name), (other, t) if swap else (t, other), (), exact)

    return make


def _into(name: str) -> Maker:
    """The out= form, into a tensor of the pool: often one that shares a storage with the operands."""

    def make(w: World) -> Step:
        t = w.pick()
        out = w.pick(lambda o: o.shape == t.shape)
        fn = getattr(torch, name)
        return Step(f"{name}.out", lambda a, b, o: fn(a, b, out=o), (t, w.partner(t.shape), out), (out,))

    return make


def _reduce(name: str, dtypes: tuple[torch.dtype, ...] = ALL, exact: bool = False) -> Maker:
    def make(w: World) -> Step:
        t = w.pick(lambda t: t.dtype in dtypes)
        if not t.shape or w.draw(st.booleans()):
            return Step(name, getattr(torch, name), (t,), (), exact)
        return Step(f"{name}.dim", getattr(torch, name), (t, _dim(w, t), w.draw(st.booleans())), (), exact)

    return make


def _along(name: str, dtypes: tuple[torch.dtype, ...] = ALL, *extra: Any, exact: bool = False) -> Maker:
    def make(w: World) -> Step:
        t = w.pick(lambda t: t.dtype in dtypes)
        return Step(name, getattr(torch, name), (t, _dim(w, t), *extra), (), exact)

    return make


def _cast(w: World) -> Step:
    dtype = w.draw(st.sampled_from(ALL))
    return Step("to", torch.Tensor.to, (_castable(w, w.pick(), dtype), dtype), (), True)


def _where(w: World) -> Step:
    t = w.pick()
    return Step("where", torch.where, (w.partner(t.shape, [torch.bool]), t, w.partner(t.shape)), (), True)


def _joining(name: str) -> Maker:
    def make(w: World) -> Step:
        t = w.pick()
        others = [w.new(t.shape) if w.draw(st.booleans()) else w.pick(lambda o: o.shape == t.shape) for _ in range(2)]
        return Step(name, getattr(torch, name), ([t, *others], _dim(w, t)), (), True)

    return make


def _lookup(w: World) -> Step:
    t = w.pick(lambda t: len(t.shape) > 0)
    first = _index(w, t.shape[0], 2)
    if len(t.shape) > 1 and w.draw(st.booleans()):
        return Step("index", lambda t, a, b: t[a[:, None], ..., b], (t, first, _index(w, t.shape[-1], 2)), (), True)
    return Step("index", lambda t, a: t[a], (t, first), (), True)


def _masked(w: World) -> Step:
    t = w.pick()
    return Step("masked_select", torch.masked_select, (t, w.partner(t.shape, [torch.bool])), (), True)


def _index_select(w: World) -> Step:
    t = w.pick(lambda t: len(t.shape) > 0)
    dim = _dim(w, t)
    at = _index(w, t.shape[dim], 3)
    return Step("index_select", lambda t, i: torch.index_select(t, dim, i.abs() % t.shape[dim]), (t, at), (), True)


def _gather(w: World) -> Step:
    t = w.pick(lambda t: len(t.shape) > 0 and 0 not in t.shape)
    dim = _dim(w, t)
    at = w.new(t.shape, torch.int64, torch.arange(t.cpu.numel()) % t.shape[dim])
    return Step("gather", torch.gather, (t, dim, at), (), True)


def _matmul(w: World) -> Step:
    t = w.pick(lambda t: 0 < len(t.shape) <= 4)
    columns = w.draw(st.lists(st.integers(0, 4), max_size=1))
    return Step("matmul", torch.matmul, (t, w.new([t.shape[-1], *columns], t.dtype)))


def _topk(w: World) -> Step:
    # Ties may come in any order: numbers that differ.
    n = w.draw(st.integers(1, 40))
    t = w.new([2, n], torch.float32, torch.stack([torch.randperm(n), torch.randperm(n)]).float())
    return Step("topk", torch.topk, (t, w.draw(st.integers(1, n)), -1, w.draw(st.booleans())), (), True)


def _stable(t: torch.Tensor, dim: int, descending: bool) -> Any:
    return torch.sort(t, dim=dim, stable=True, descending=descending)


def _sort(w: World) -> Step:
    t = w.pick(lambda t: len(t.shape) > 0)
    return Step("sort", _stable, (t, _dim(w, t), w.draw(st.booleans())))


def _addcmul(w: World) -> Step:
    t = w.pick(lambda t: t.dtype in FLOATS)
    return Step("addcmul", torch.addcmul, (t, w.new(t.shape, t.dtype), t))


PURE: dict[str, Maker] = {
    **{n: _binary(n) for n in ("add", "mul", "atan2")},
    **{n: _binary(n, exact=True) for n in ("eq", "ne", "gt", "logical_xor")},
    **{n: _binary(n, _NUMBERS) for n in ("sub", "div", "true_divide")},
    **{n: _binary(n, ALL, True) for n in ("maximum", "minimum")},
    **{n: _binary(n, FLOATS) for n in ("remainder", "fmod", "floor_divide")},
    **{n: _binary(n, _INT, True) for n in ("bitwise_and", "bitwise_or")},
    **{n: _unary(n, _SIGNED, True) for n in ("neg", "sign", "abs")},
    **{n: _unary(n, FLOATS, True) for n in ("isnan", "signbit", "round", "nan_to_num")},
    **{n: _unary(n, _NUMBERS) for n in ("square", "exp", "tanh", "sqrt", "sigmoid")},
    **{n: _unary(n, ALL, True) for n in ("clone", "zeros_like", "logical_not", "nonzero", "t_copy", "ravel")},
    **{n: _reduce(n) for n in ("sum", "prod", "nansum")},
    **{n: _reduce(n, FLOATS) for n in ("mean",)},
    **{n: _reduce(n, ALL, True) for n in ("amax", "amin", "any", "all", "max", "min")},
    **{n: _reduce(n, _NUMBERS, True) for n in ("argmax", "argmin")},
    **{n: _along(n) for n in ("cumsum", "cumprod")},
    **{n: _along(n, FLOATS) for n in ("softmax", "log_softmax")},
    "logsumexp": _along("logsumexp", FLOATS[:2]),  # the CPU rounds halves after every step of it
    **{n: _along(n, _NUMBERS, exact=True) for n in ("cummax", "cummin", "median")},
    "mode": _along("mode", _INT, exact=True),  # the CPU sorts NaN by an order that is none
    "count_nonzero": _along("count_nonzero", exact=True),
    "var": _along("var", (torch.float32, torch.float64)),
    "add.out": _into("add"),
    "mul.out": _into("mul"),
    "maximum.out": _into("maximum"),
    "to": _cast,
    "where": _where,
    "cat": _joining("cat"),
    "stack": _joining("stack"),
    "index": _lookup,
    "masked_select": _masked,
    "index_select": _index_select,
    "gather": _gather,
    "matmul": _matmul,
    "sort": _sort,
    "topk": _topk,
    "flip": lambda w: Step("flip", torch.flip, (t := w.pick(), [0] if t.shape else []), (), True),
    "roll": lambda w: Step("roll", torch.roll, (t := w.pick(), 2, 0 if t.shape else ()), (), True),
    "repeat": lambda w: Step("repeat", lambda t: t.repeat(2, *t.shape[:0], *(1,) * t.ndim), (w.pick(),), (), True),
    "tril": lambda w: Step("tril", torch.tril, (w.pick(lambda t: len(t.shape) > 1), -1), (), True),
    "unique": lambda w: Step("unique", torch.unique, (w.pick(),), (), True),
    "clamp": lambda w: Step("clamp", torch.clamp, (w.pick(lambda t: t.dtype in _NUMBERS), 0, 1.5), (), True),
    "pow": lambda w: Step("pow", torch.pow, (w.pick(lambda t: t.dtype in _NUMBERS), w.draw(st.integers(0, 3)))),
    "addcmul": _addcmul,
}

FEW = ("slice", "permute", "expand", "reshape", "add_", "copy_", "setitem", "add", "sum", "cat", "index", "to", "clone")
"""Ops of the fast test: each layout and dtype of an op is a kernel to compile."""


def _makers(names: tuple[str, ...] | None) -> list[list[Maker]]:
    tables = [VIEWS, INPLACE, PURE]
    return [[m for n, m in t.items() if names is None or n in names] for t in tables]


def _chain(data: Any, device: torch.device, dtypes: tuple[torch.dtype, ...], makers: list[list[Maker]]) -> None:
    """One example: a tensor of any shape and layout, then steps on it and on what they return."""
    w = World(data.draw, device, dtypes, special=data.draw(st.integers(0, 2)) == 0)
    if w.special:
        w.dtypes = tuple(d for d in dtypes if d.is_floating_point)
    w.pool.append(w.new(shapes(data.draw)))
    for _ in range(data.draw(st.integers(2, 7))):
        try:
            step = data.draw(st.sampled_from(data.draw(st.sampled_from(makers))))(w)
        except Impossible:
            continue
        w.run(step)
        del w.pool[1:-6]


_settings = settings(
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


@given(data=st.data())
@settings(_settings, max_examples=8)
def test_a_few_chains(data: Any, device: torch.device, allow_fallback: None) -> None:
    _chain(data, device, (torch.float32, torch.int64), _makers(FEW))


@pytest.mark.device
@given(data=st.data())
@settings(_settings, max_examples=EXAMPLES)
def test_chains(data: Any, device: torch.device, allow_fallback: None) -> None:
    _chain(data, device, ALL, _makers(None))
