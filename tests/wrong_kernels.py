"""Kernels that are wrong on purpose, each in one of the ways that are easy to overlook."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

import torch

from torch_fl import dispatch, kernel_plan, ops, registry, routes
from torch_fl.infer import Out
from torch_fl.ops.rows import Row
from torch_fl.spec import Spec, spec_of


@contextmanager
def wrong(name: str) -> Iterator[None]:
    """A block in which the kernels that the function `name` of this file changes are wrong."""
    ops.load()
    table, infer, infer_known = registry.registered(), routes.infer, kernel_plan.infer_known
    before = {func: dict(kernels) for func, kernels in table.items()}
    WRONG[name]()
    dispatch.forget_plans()
    try:
        yield
    finally:
        table.update(before)
        routes.infer, kernel_plan.infer_known = infer, infer_known
        dispatch.forget_plans()


def _replace_kernel(name: str, function: Callable[..., None]) -> None:
    """Put another function in the place of an op's portable kernel."""
    table = registry.registered()[registry.find_overload(name)]
    table[""] = replace(table[""], function=function)


def _kernel_of(name: str) -> Callable[..., None]:
    """The portable kernel function of an op."""
    return registry.registered()[registry.find_overload(name)][""].function


def _change_results(name: str, change: Callable[[Spec], Spec]) -> None:
    """Let the results of an op have another layout than torch infers."""
    _change_outs(name, lambda out: replace(out, spec=change(out.spec)))


def _change_outs(name: str, change: Callable[[Out], Out]) -> None:
    """Let the results of an op be elsewhere, or laid out otherwise, than torch infers."""

    def changing(right: Callable[..., Any]) -> Callable[..., Any]:
        def changed(func: Any, *args: Any) -> Any:
            found = right(func, *args)
            if func.name() != name:
                return found
            return replace(found, outs=tuple(change(o) for o in found.outs))

        return changed

    routes.infer, kernel_plan.infer_known = changing(routes.infer), changing(kernel_plan.infer_known)


def add_without_alpha() -> None:
    """a + b where a + alpha * b was asked for."""
    _replace_kernel("aten::add.Tensor", Row("self + other", "default", ("self", "other"), ""))


def sum_without_last() -> None:
    """Sums that leave the last element of the last dimension out."""
    right = _kernel_of("aten::sum.dim_IntList")

    def short_sum(b: Any, self: Any, dim: Any = None, **kwargs: Any) -> None:
        short = self.as_strided((*self.shape[:-1], max(1, self.shape[-1] - 1)), self.strides) if self.ndim else self
        right(b, short, dim, **kwargs)

    _replace_kernel("aten::sum.dim_IntList", short_sum)


def transpose_with_wrong_stride() -> None:
    """Views whose strides were not swapped with the sizes."""

    def unswapped(spec: Spec) -> Spec:
        return spec_of(spec.shape, spec.strides[::-1], spec.dtype, spec.device)

    _change_results("aten::t", unswapped)
    _change_results("aten::transpose.int", unswapped)


def exp_over_its_input() -> None:
    """A result that is also written into the input."""

    def writing(b: Any, self: Any) -> None:
        right(b, self=self)
        b.copy(self, b.out())

    right = _kernel_of("aten::exp")
    _replace_kernel("aten::exp", writing)


def negative_of_absolute() -> None:
    """neg that is right for positive numbers only."""
    _replace_kernel("aten::neg", Row("-fabs(self)", "default", ("self",), ""))


def bools_as_bytes() -> None:
    """A comparison that gives bytes where torch gives bools: the same numbers."""
    _change_results("aten::eq.Tensor", lambda spec: spec_of(spec.shape, spec.strides, torch.uint8, spec.device))


def column_major_results() -> None:
    """The right numbers in another order of memory."""

    def turned(spec: Spec) -> Spec:
        strides = [prod(spec.shape[:d]) for d in range(len(spec.shape))]
        return spec_of(spec.shape, tuple(strides), spec.dtype, spec.device)

    _change_results("aten::add.Tensor", turned)


def clone_in_the_same_memory() -> None:
    """A copy that is a view."""
    _change_outs("aten::clone", lambda out: replace(out, arg=0))


def result_beside_out() -> None:
    """out= is left as it was, the result is another tensor."""
    _change_outs("aten::neg.out", lambda out: replace(out, arg=None, is_arg=False))


WRONG: Mapping[str, Callable[[], None]] = {
    f.__name__: f
    for f in (
        add_without_alpha,
        sum_without_last,
        transpose_with_wrong_stride,
        exp_over_its_input,
        negative_of_absolute,
        bools_as_bytes,
        column_major_results,
        clone_in_the_same_memory,
        result_beside_out,
    )
}
