"""Mixed precision: what `torch.autocast("npu")` casts, in tables, after torch's policy for CUDA.

Each listed op gets a kernel at the autocast dispatch key that casts its arguments and calls the op again without that
key; all others fall through. The casts are differentiable, so gradients arrive in the dtype of the parameter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..names import is_ours
from ..register import overload
from ..tensor import Tensor
from .untraced import untraced

_KEY = "AutocastPrivateUse1"
_ALONE = torch._C.DispatchKeySet(torch._C._dispatch_key_parse(_KEY))

LOWER = (
    "_convolution", "_convolution.deprecated", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d.input", "conv_transpose3d.input", "convolution", "prelu", "addmm", "addmv", "addr", "matmul",
    "einsum", "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot",
    "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
    "_scaled_dot_product_flash_attention", "scaled_dot_product_attention",
)  # fmt: skip
"""Computed in the autocast dtype."""

FLOAT32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh",
    "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm",
    "rms_norm", "group_norm", "frobenius_norm.dim", "nuclear_norm", "nuclear_norm.dim", "cosine_similarity",
    "poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div", "l1_loss",
    "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss",
    "triplet_margin_loss", "multi_margin_loss", "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm",
    "logsumexp", "upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_nearest2d", "_upsample_nearest_exact2d",
    "upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "_upsample_bilinear2d_aa", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bicubic2d_aa",
)  # fmt: skip
"""Computed in float32."""

FLOAT32_RESULT = (
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm",
    "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum", "sum.dim_IntList",
)  # fmt: skip
"""Asked for a float32 result where the caller names no dtype."""

FLOAT32_OVERLOAD = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}
"""The same, through the overload that takes a dtype."""

WIDEST = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot",
    "scatter_add",
)  # fmt: skip
"""Computed in the widest dtype among the arguments."""

BANNED = {
    "binary_cross_entropy": "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: "
    "probabilities in half precision round to 0 and 1. Leave out the sigmoid before it and use "
    "torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, which are safe"
}
"""Refused, with the reason."""


def eligible(value: Any) -> bool:
    """Whether autocast may cast a value: a floating-point tensor of the device, float64 excepted."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dtype is torch.float64:
        return False
    return type(value) is Tensor or is_ours(value.device)


# -- casts of parameters, kept until the outermost autocast region ends -------------------------------------------
_lock = threading.Lock()
_casts: dict[Any, tuple[torch.Tensor, Any, int, torch.Tensor]] = {}
"""(id, dtype, grad mode) -> parameter, the buffer and version that were cast, the cast."""


def forget_casts() -> None:
    """Drop all kept casts."""
    with _lock:
        _casts.clear()


def _grad_mode() -> int:
    # A cast made without grad has no graph, and one made in inference mode must not leave it.
    return 2 if torch.is_inference_mode_enabled() else int(torch.is_grad_enabled())


def _is_parameter(value: Any, dtype: torch.dtype) -> bool:
    """Whether a cast is worth keeping, by torch's rule: float32 leaves that require grad, to the autocast dtype."""
    return (
        value.requires_grad
        and value.dtype is torch.float32
        and value.is_leaf
        and isinstance(value, Tensor)
        and not value._is_view()
        and not value.is_inference()  # has no version to compare
        and torch.is_autocast_cache_enabled()
        and dtype is torch.get_autocast_dtype("npu")
    )


def _kept(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """The kept cast of a parameter, made anew where the parameter was written or replaced since."""
    key = (id(value), dtype, _grad_mode())
    found = _casts.get(key)
    if found is not None and found[1] is value._buffer and found[2] == value._version and found[0] is value:
        return found[3]
    made: torch.Tensor = value.to(dtype)
    with _lock:
        _casts[key] = (value, value._buffer, value._version, made)
    return made


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """A value with its tensors, also those in lists, in `dtype` where autocast may cast them."""
    if isinstance(value, (list, tuple)):
        return [_cast(v, dtype) for v in value]
    if not eligible(value) or value.dtype is dtype:
        return value
    return _kept(value, dtype) if _is_parameter(value, dtype) else value.to(dtype)


# -- the policies: each makes the kernel of one op ------------------------------------------------------------------
Kernel = Callable[..., Any]


def _casting(func: Any, dtype_of: Callable[[Any, Any], torch.dtype]) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_ALONE):
            dtype = dtype_of(args, kwargs)
            return func(*[_cast(a, dtype) for a in args], **{k: _cast(v, dtype) for k, v in kwargs.items()})

    return kernel


def _lower(func: Any) -> Kernel:
    return _casting(func, lambda args, kwargs: torch.get_autocast_dtype("npu"))


def _float32(func: Any) -> Kernel:
    return _casting(func, lambda args, kwargs: torch.float32)


def _widest(func: Any) -> Kernel:
    def widest(args: Any, kwargs: Any) -> torch.dtype:
        lower = torch.get_autocast_dtype("npu")
        found = {t.dtype for t in _tensors((args, tuple(kwargs.values()))) if eligible(t)}
        if torch.float32 in found:
            return torch.float32
        if found - {lower}:
            raise RuntimeError(f"autocast to {lower} cannot promote a mix of {', '.join(map(str, found))}")
        return lower

    return _casting(func, widest)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _tensors(v)


def _float32_result(func: Any) -> Kernel:
    place = [a.name for a in func._schema.arguments].index("dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        named = kwargs.get("dtype") is not None or (len(args) > place and args[place] is not None)
        with torch._C._ExcludeDispatchKeyGuard(_ALONE):
            if named or not eligible(args[0]):
                return func(*args, **kwargs)
            return func(*args[:place], **{**kwargs, "dtype": torch.float32})

    return kernel


def _float32_overload(func: Any) -> Kernel:
    typed = overload(FLOAT32_OVERLOAD[func._schema.name.removeprefix("aten::") + "." + func._overloadname])
    rest = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    names = [a.name for a in func._schema.arguments]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = {**rest, **dict(zip(names, args)), **kwargs}
        first = given["self"]
        with torch._C._ExcludeDispatchKeyGuard(_ALONE):
            return typed(**given, dtype=torch.float32 if eligible(first) else first.dtype)

    return kernel


def _banned(func: Any) -> Kernel:
    why = BANNED[func._schema.name.removeprefix("aten::")]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(why)

    return kernel


POLICIES: tuple[tuple[Any, Callable[[Any], Kernel]], ...] = (
    (LOWER, _lower),
    (FLOAT32, _float32),
    (FLOAT32_RESULT, _float32_result),
    (FLOAT32_OVERLOAD, _float32_overload),
    (WIDEST, _widest),
    (BANNED, _banned),
)


_libraries: list[Any] = []


def install() -> None:
    """Register the kernels, and have casts dropped where torch drops its own; done once, at the first device use."""
    if _libraries:
        return
    library = torch.library.Library("aten", "IMPL", _KEY)
    _libraries.append(library)
    for names, policy in POLICIES:
        for name in names:
            library.impl(name, untraced(policy(overload(name))))
    theirs = torch.clear_autocast_cache

    def clear_autocast_cache() -> None:
        theirs()
        forget_casts()

    torch.clear_autocast_cache = clear_autocast_cache
