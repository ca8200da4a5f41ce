"""What all checks against OpInfo share: a sample on both devices, and the comparison of results with the CPU's.

Everything is compared at OpInfo's own tolerances. Which float32 results the CPU gives depends on its vector width and
libraries; what misses them is held against float64, and the run lists it.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cache, partial
from typing import Any

import torch
from torch._prims_common import check_significant_strides
from torch.testing._comparison import default_tolerances

from torch_fl.commands.samples import Copies, tensors_in

DEVICE = torch.device("npu", 0)
CPU = torch.device("cpu")
MARGIN = 2
"""Two ways to add up the same numbers are off by as much as each other, give or take this factor."""

Exact = Callable[[], Any]

TOLERANT_TESTS = (
    "test_compare_cpu",
    "test_numpy_ref",
    "test_noncontiguous_samples",
    "test_variant_consistency_eager",
    "test_out",
    "test_python_ref",
    "test_python_ref_executor",
)


def tolerance(entry: Any, dtype: str) -> tuple[float, float]:
    """(rtol, atol) of a dtype: assert_close's, or the entry's own where torch gives it wider ones for its tests."""
    rtol, atol = default_tolerances(getattr(torch, dtype))
    for test in TOLERANT_TESTS:
        for decorator in entry.get_decorators("TestCommon", test, "cpu", getattr(torch, dtype), {}):
            override = getattr(decorator, "d", {}).get(getattr(torch, dtype))
            if override is not None:  # a tol, or only an atol
                rtol, atol = max(rtol, getattr(override, "rtol", 0.0)), max(atol, getattr(override, "atol", override))
    return rtol, atol


class Comparison:
    """Compares a result on the device with the CPU's."""

    def __init__(
        self,
        tolerances: tuple[float, float],
        dtype: str,
        values: bool = True,
        ties: bool = False,
        signs: bool = False,
    ) -> None:
        self.tolerances = tolerances
        self.dtypes = {getattr(torch, dtype)}
        self.values = values
        self.rounded = False
        self.ties = ties
        self.signs = signs

    def of_layout(self) -> Comparison:
        """The same without values."""
        bare = copy(self)
        bare.values = False
        return bare

    def of_widened(self) -> Comparison:
        """The same for results that were rounded to the node's dtype before they were stored in float64."""
        wider = copy(self)
        wider.dtypes = {*self.dtypes, torch.float64, torch.complex128}
        return wider

    def exact(self, sample: Any, run: Callable[[Any, Any], Any]) -> Exact:
        """The sample's results in float64 on the CPU, computed where they are asked for."""

        @cache
        def found() -> Any:
            wide = _doubled(sample)
            return run(wide, Copies(CPU)(((wide.input, *wide.args), wide.kwargs)))

        return found

    def same(self, got: Any, want: Any, exact: Exact | None = None, what: str = "result", strides: bool = True) -> None:
        """Type, shape, dtype, strides and values of nested results; raises AssertionError.

        Values that miss the CPU's by more than the tolerance are held against `exact`, where there is one: the device
        may be off from it by the tolerance and MARGIN times as much as the CPU is. Its use is noted in `rounded`.
        """
        if isinstance(want, torch.Tensor):
            self._same_layout(got, want, what, strides)
            if self.values:
                self._same_values(got.detach().to("cpu"), want.detach(), exact, what)
        elif isinstance(want, (list, tuple)):
            if self.ties:  # the first result says which value was found, the second which of its equals
                got, want = got[:1], want[:1]
            assert len(got) == len(want), f"{what}: {len(got)} items instead of {len(want)}"
            for i, (g, w) in enumerate(zip(got, want)):
                self.same(g, w, exact and partial(_item, exact, i), f"{what} {i}", strides)
        elif isinstance(want, (float, complex)):
            if self.values:
                self.close(torch.tensor(got), torch.tensor(want), what)
        elif not isinstance(want, torch.device):
            assert got == want or not self.values, f"{what}: {got!r} instead of {want!r}"

    def _same_layout(self, got: Any, want: torch.Tensor, what: str, strides: bool) -> None:
        assert isinstance(got, torch.Tensor), f"{what}: {got!r} instead of a tensor"
        assert got.device.type == "npu", f"{what}: on {got.device}"
        for name in ("dtype", "shape"):
            assert getattr(got, name) == getattr(want, name), (
                f"{what}: {name} {getattr(got, name)} instead of {getattr(want, name)}"
            )
        if strides and not check_significant_strides(got, want, only_cuda=False)[0]:
            raise AssertionError(f"{what}: strides {got.stride()} instead of {want.stride()} of {tuple(want.shape)}")

    def _same_values(self, got: torch.Tensor, want: torch.Tensor, exact: Exact | None, what: str) -> None:
        try:
            self.close(got, want, what)
        except AssertionError as far:
            true = _wide(exact)
            if true is None or true.shape != want.shape:
                raise
            ours, cpus = _distance(got, true), _distance(want, true)
            allowed = torch.where(cpus.isfinite(), cpus, 0).max()
            rtol, atol = self.tolerances
            if not torch.all(ours <= MARGIN * allowed + atol + rtol * true.abs().nan_to_num()):
                raise AssertionError(f"{far}\nfrom float64: {ours.max():.3g}, the CPU: {allowed:.3g}") from None
            self.rounded = True

    def close(self, got: torch.Tensor, want: torch.Tensor, what: str) -> None:
        """Values at this node's tolerances."""
        rtol, atol = self.tolerances if want.dtype in self.dtypes else (None, None)
        torch.testing.assert_close(
            got, want.resolve_conj().resolve_neg(), rtol=rtol, atol=atol, equal_nan=True, check_stride=False,
            msg=lambda text: f"{what}: {text}",
        )  # fmt: skip

    def same_memory(self, here: Copies, there: Copies) -> None:
        """What the CPU left as it was must be so bit by bit; what it wrote must be close, holes included."""
        for (cpu, original), (device, _) in zip(here.bases, there.bases):
            found, size = device.to("cpu"), original.numel()
            if torch.equal(_bits(cpu[:size]), _bits(original)):
                assert torch.equal(_bits(found[:size]), _bits(original)), "an input was changed"
            elif self.values:
                self.close(found[:size], cpu[:size], "memory of an input")


def same_aliases(got: Any, want: Any, here: Copies, there: Copies) -> None:
    """A result shares its memory with the inputs that it shares it with on the CPU, but for lazy conjugates."""
    for ours, cpus in zip(tensors_in([got]), tensors_in([want])):
        if cpus.numel() and not cpus.is_conj():
            expected = [i for i, (base, _) in enumerate(here.bases) if _storage(base) == _storage(cpus)]
            found = [i for i, (base, _) in enumerate(there.bases) if base._buffer is ours._buffer]  # type: ignore[attr-defined]
            assert found == expected, f"the result shares its memory with inputs {found} instead of {expected}"


def _storage(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage()._cdata


def _item(exact: Exact, i: int) -> Any:
    return exact()[i]


def _wide(exact: Exact | None) -> torch.Tensor | None:
    """The results in float64; None where there are none or the call cannot be made in float64."""
    try:
        found = None if exact is None else exact()
    except Exception:  # noqa: BLE001 - an entry without float64
        return None
    return found.detach() if isinstance(found, torch.Tensor) and found.dtype in _DOUBLE.values() else None


def _distance(values: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """How far values are from exact ones; 0 where both are the same infinity or NaN."""
    wide = values.to(exact.dtype)
    same = (wide == exact) | (wide.isnan() & exact.isnan())
    return (wide - exact).abs().masked_fill(same, 0)


def _bits(flat: torch.Tensor) -> torch.Tensor:
    return flat.contiguous().view(torch.uint8)


_DOUBLE = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32, torch.float64), torch.float64),
    **dict.fromkeys((torch.complex32, torch.complex64, torch.complex128), torch.complex128),
}


def _doubled(sample: Any) -> Any:
    """The sample with float64 in the place of every float dtype, and complex128 of every complex one."""

    def double(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in _DOUBLE:
            return value.detach().to(_DOUBLE[value.dtype]).requires_grad_(value.requires_grad)
        return _DOUBLE.get(value, value) if isinstance(value, torch.dtype) else value

    return sample.transform(double)


def run_call(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    torch.manual_seed(0)
    return call(*args, **kwargs)


def both(sample: Any) -> tuple[Copies, Any, Copies, Any]:
    here, there = Copies(CPU), Copies(DEVICE)
    call = ((sample.input, *sample.args), sample.kwargs)
    return here, here(call), there, there(call)
