"""Calls that torch's meta kernels let pass although the CPU refuses them.

A row says when a call of an op is suspicious; the CPU is then asked, and its exception raised. A row never decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .infer import find_tensors, to_meta
from .overlap import byte_range, meet
from .schema import params_of
from .tensor import Tensor

Bound = Mapping[str, Any]
"""Arguments by name."""

Row = Callable[[Bound], bool]


def suspicious(func: Any, bound: Bound) -> bool:
    """Whether the CPU may refuse a call that the meta kernel of `func` takes."""
    row = _ROWS.get(func._schema.name.removeprefix("aten::").rstrip("_"))
    return (row is not None and row(bound)) or _far_dim(bound) or _writes_what_it_reads(func, bound)


def _far_dim(bound: Bound) -> bool:
    tensor, dim = bound.get("self"), bound.get("dim")
    if not isinstance(tensor, torch.Tensor) or type(dim) is not int:
        return False
    n = max(1, tensor.dim())
    return not -n <= dim < n


def _writes_what_it_reads(func: Any, bound: Bound) -> bool:
    """Whether a written tensor overlaps itself or another argument; ops differ in what they allow."""
    for p in params_of(func):
        target = bound[p.name]
        if not p.written or not isinstance(target, Tensor):
            continue
        others = [t for t in find_tensors([v for n, v in bound.items() if n != p.name]) if t._buffer is target._buffer]
        start, end = byte_range(target)
        reach = (start, target._buffer.nbytes if p.is_out else end)  # an out= may grow
        if target._spec.overlaps_itself or any(meet(reach, byte_range(t)) for t in others):
            return True
    return False


def _far_output_padding(bound: Bound) -> bool:
    rank = bound["weight"].dim() - 2
    given = (bound[n] for n in ("output_padding", "stride", "dilation"))
    triples = zip(*(list(v) * rank if len(v) == 1 else v for v in given))
    return any(p < 0 or p >= max(s, d) for p, s, d in triples)


def _convolution(bound: Bound) -> bool:
    bias, weight = bound["bias"], bound["weight"]
    channels = weight.shape[1] * bound["groups"] if bound["transposed"] else weight.shape[0]
    numbers = min(bound["dilation"]) < 1 or min(bound["padding"]) < 0 or min(bound["stride"]) < 1
    numbers = numbers or bound["groups"] > weight.shape[0]
    return (
        numbers
        or _far_output_padding(bound)
        or (bias is not None and tuple(bias.shape) != (channels,))
        or _unlike("input", "weight")(bound)
    )


def _tensors(bound: Bound, names: Sequence[str]) -> list[torch.Tensor]:
    return [bound[n] for n in names if isinstance(bound.get(n), torch.Tensor)]


def _unlike(*names: str) -> Row:
    """Tensors among `names` have several dtypes."""
    return lambda bound: len({t.dtype for t in _tensors(bound, names)}) > 1


def _sized_unlike(*names: str) -> Row:
    """Tensors among `names` have several shapes."""
    return lambda bound: len({t.shape for t in _tensors(bound, names)}) > 1


def _more_dims(name: str, most: int) -> Row:
    """A tensor has more dimensions than `most`."""
    return lambda bound: bool(bound[name].dim() > most)


def _not_float(bound: Bound) -> bool:
    return not bound["self"].dtype.is_floating_point


def _has_bool(bound: Bound) -> bool:
    """An operand is bool, as a tensor or as a number."""
    return _is_bool(bound["self"]) or _is_bool(bound["other"])


def _is_bool(value: Any) -> bool:
    return getattr(value, "dtype", type(value)) in (bool, torch.bool)


def _is_complex(*names: str) -> Row:
    """A tensor among `names` is complex."""
    return lambda bound: any(t.dtype.is_complex for t in _tensors(bound, names))


def _either(*rows: Row) -> Row:
    return lambda bound: any(row(bound) for row in rows)


def _always(bound: Bound) -> bool:
    return True


def _index_add(bound: Bound) -> bool:
    tensor, source, dim = bound["self"], bound["source"], bound["dim"]
    if tensor.dtype != source.dtype or tensor.dim() != source.dim():
        return True
    rest = [(a, b) for d, (a, b) in enumerate(zip(tensor.shape, source.shape)) if d != dim % max(1, tensor.dim())]
    return any(a != b for a, b in rest)


def _rows(bound: Bound) -> bool:
    """Index lists that are no lists, and sources that do not have one slice for each of them."""
    index, source, dim = bound["index"], bound.get("source"), bound["dim"]
    count = None if source is None or not source.dim() else source.shape[dim]
    return index.dim() > 1 or (count is not None and count != index.numel())


def _per_channel(*names: str) -> Row:
    """Statistics and weights of a normalisation that are not one number for each channel, or of several dtypes."""

    def row(bound: Bound) -> bool:
        channels = bound["input"].shape[1:2]
        return any(t.shape != channels for t in _tensors(bound, names)) or _unlike("input", *names)(bound)

    return row


def _group_norm(bound: Bound) -> bool:
    shape, n, c = bound["input"].shape, bound["N"], bound["C"]
    sizes = len(shape) < 2 or (n, c) != tuple(shape[:2]) or n * c * bound["HxW"] != bound["input"].numel()
    return sizes or _per_channel("weight", "bias")(bound)


def _index_put(bound: Bound) -> bool:
    """Values of another dtype or shape; masks are left out, as only their values say what would fit."""
    values, indices = bound["values"], [i for i in bound["indices"] if isinstance(i, torch.Tensor)]
    if values.dtype != bound["self"].dtype:
        return True
    if values.numel() == 1 or any(i.dtype in (torch.bool, torch.uint8) for i in indices):
        return False
    places = [None if i is None else to_meta(i) for i in bound["indices"]]
    try:
        want = torch.ops.aten.index.Tensor(to_meta(bound["self"]), places).shape
        return bool(torch.broadcast_shapes(want, values.shape) != want)
    except (RuntimeError, IndexError):
        return True


def _put(bound: Bound) -> bool:
    index = bound["index"]
    return bool(index.dtype != torch.int64 or index.numel() != bound["source"].numel())


def _nll(bound: Bound) -> bool:
    x, target = bound["self"], bound["target"]
    return bool(x.dim() > 1 and (x.shape[0], *x.shape[2:]) != target.shape) or _unlike("self", "weight")(bound)


def _random(bound: Bound) -> bool:
    low, high = bound.get("from", 0), bound.get("to")
    return bool(high is not None and low >= high)


def _bool_by_number(bound: Bound) -> bool:
    """An in-place shift of truth values by something that is no truth value."""
    return bound["self"].dtype is torch.bool and not _is_bool(bound["other"])


def _shuffle(name: str, dims: Sequence[int]) -> Row:
    """A factor that does not divide the sizes."""

    def row(bound: Bound) -> bool:
        tensor, factor = bound["self"], bound[name]
        step = factor * factor if len(dims) == 1 else factor
        return bool(factor < 1 or tensor.dim() < 3 or any(tensor.shape[d] % step for d in dims))

    return row


_STATISTICS = ("weight", "bias", "running_mean", "running_var")
_VARIANCE = dict.fromkeys(("var", "std", "var_mean", "std_mean"), _not_float)
_SCATTERS = dict.fromkeys(("diagonal_scatter", "select_scatter", "slice_scatter", "as_strided_scatter"), _always)
_BATCH_NORMS = ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "_batch_norm_no_update")

_ROWS: Mapping[str, Row] = {
    "convolution": _convolution,
    "_convolution": _convolution,
    "complex": _either(_unlike("real", "imag"), lambda bound: bound.get("out") is not None),
    "polar": _either(_unlike("abs", "angle"), lambda bound: bound.get("out") is not None),
    "aminmax": _unlike("self", "min", "max"),
    "index_add": _either(_index_add, _rows),
    "index_copy": _either(_index_add, _rows),
    "index_reduce": _either(_index_add, _rows),
    "index_select": _rows,
    "index_put": _index_put,
    "_index_put_impl": _index_put,
    "_unsafe_index_put": _index_put,
    "index_fill": _either(_is_complex("value"), _rows),
    "put": _either(_unlike("self", "source"), _put),
    "bucketize": _more_dims("boundaries", 1),
    "searchsorted": lambda bound: bound["sorter"] is not None and bound["sorter"].dtype != torch.int64,
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _unlike("weight", "per_sample_weights")),
    "embedding_renorm": _either(_more_dims("self", 2), _not_float),
    "addmm": _more_dims("self", 2),
    "addmv": _more_dims("self", 1),
    "addbmm": _more_dims("self", 2),
    "baddbmm": _more_dims("self", 3),
    "cross": _unlike("self", "other"),
    "linalg_cross": _unlike("self", "other"),
    "heaviside": _unlike("self", "values"),
    "sub": _has_bool,
    "rsub": _has_bool,
    "__ilshift": _bool_by_number,
    "__irshift": _bool_by_number,
    "logspace": lambda bound: bool(bound["steps"] == 1),  # a power that the dtype may not hold
    "isin": _is_complex("elements", "test_elements"),
    "nansum": _is_complex("self"),
    "_softmax_backward_data": _either(_sized_unlike("grad_output", "output"), _unlike("grad_output", "output")),
    "_log_softmax_backward_data": _either(_sized_unlike("grad_output", "output"), _unlike("grad_output", "output")),
    "native_group_norm": _group_norm,
    "lu_unpack": lambda bound: bool(bound["LU_pivots"].dtype != torch.int32),
    "native_layer_norm": _unlike("input", "weight", "bias"),
    "layer_norm": _unlike("input", "weight", "bias"),
    "soft_margin_loss": _sized_unlike("self", "target"),
    "multi_margin_loss": _unlike("self", "weight"),
    "smooth_l1_loss": lambda bound: bound["beta"] < 0,
    "huber_loss": _unlike("self", "target"),
    "binary_cross_entropy": _either(_unlike("self", "target", "weight"), _sized_unlike("self", "target", "weight")),
    "binary_cross_entropy_with_logits": _is_complex("self", "target", "weight", "pos_weight"),
    "grid_sampler_2d": _unlike("input", "grid"),
    "grid_sampler_3d": _unlike("input", "grid"),
    "nll_loss_forward": _nll,
    "nll_loss2d_forward": _nll,
    "random": _random,
    "pixel_shuffle": _shuffle("upscale_factor", (-3,)),
    "pixel_unshuffle": _shuffle("downscale_factor", (-2, -1)),
    **_VARIANCE,
    **_SCATTERS,
    **dict.fromkeys(_BATCH_NORMS, _per_channel(*_STATISTICS)),
}
"""Op without overload, namespace and underscore -> whether a call looks wrong."""
