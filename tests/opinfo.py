"""OpInfo on a device: what a node checks, and worker processes that check many.

A node is one entry of torch's op database in one dtype and one group of checks. Everything is compared with the CPU at
OpInfo's own tolerances. `python tests/opinfo.py --help` runs any part of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TORCH_FL_BACKENDS", "opencl")

import torch
from torch._prims_common import check_significant_strides
from torch.testing._comparison import default_tolerances

from torch_fl import fallback
from torch_fl.commands.samples import DTYPES, Copies, entries, samples_of, supports, tensors_in

DEVICE = torch.device("npu", 0)
CPU = torch.device("cpu")
SAMPLES = {"forward": 12, "gradient": 8, "inplace": 6, "out": 4}
"""Samples per node."""
TOLERANT_TESTS = (
    "test_compare_cpu",
    "test_numpy_ref",
    "test_noncontiguous_samples",
    "test_variant_consistency_eager",
    "test_out",
    "test_python_ref",
    "test_python_ref_executor",
)


class Node(NamedTuple):
    """One unit of checking."""

    group: str
    dtype: str
    name: str


@cache
def expected() -> dict[str, Any]:
    """The declared failures and the entries whose values are undefined, with reasons."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("opinfo_expected.json").read_text(encoding="utf-8"))
    return found


def rounding(node: Node) -> str:
    """Why a node is held against the results in float64 where it differs from the CPU, or ""."""
    return _reason("rounding", node)


def declared(node: Node) -> str:
    """Why a node is expected to fail, or ""."""
    return _reason("failures", node)


def _reason(table: str, node: Node) -> str:
    for dtypes, names in expected()[table].get(node.group, {}).items():
        if node.dtype in dtypes.split() and node.name in names:
            return str(names[node.name])
    return ""


def nodes(group: str, dtype: str) -> Iterator[Node]:
    """All nodes of a group that the database has in a dtype."""
    for name, entry in entries().items():
        if supports(entry, dtype) and HAS[group](entry):
            yield Node(group, dtype, name)


HAS: Mapping[str, Callable[[Any], bool]] = {
    "forward": lambda entry: True,
    "gradient": lambda entry: entry.supports_autograd,
    "inplace": lambda entry: entry.get_inplace() is not None,
    "out": lambda entry: entry.supports_out,
}


def check(node: Node, count: int | None = None) -> int:
    """Run a node's samples; returns how many were compared. Raises AssertionError, or what the device raised."""
    entry = entries()[node.name]
    defined = node.name not in expected()["undefined"]
    ties = node.name in expected()["ties"] and node.group != "gradient"
    checked = 0
    for sample in samples_of(entry, node.dtype, count or SAMPLES[node.group], node.group == "gradient"):
        values = defined and not sample.kwargs.get("dropout_p")
        compare = Comparison(tolerance(entry, node.dtype), node.dtype, values, bool(rounding(node)), ties)
        for twin in _twins(sample):
            checked += CHECKS[node.group](entry, twin, compare)
    return checked


def _twins(sample: Any) -> Iterator[Any]:
    """The sample, and the same with tensors that have holes."""
    yield sample
    try:
        yield sample.noncontiguous()
    except (RuntimeError, ValueError, NotImplementedError):  # torch's own maker of twins cannot take every sample
        return


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
        rounding: bool = False,
        ties: bool = False,
    ) -> None:
        self.tolerances = tolerances
        self.dtype = getattr(torch, dtype)
        self.values = values
        self.rounding = rounding
        self.ties = ties

    def exact(self, sample: Any, run: Callable[[Any, Any], Any]) -> Any:
        """The sample's results in float64 on the CPU, or None where the CPU's own are to be met."""
        if not self.rounding:
            return None
        wide = _doubled(sample)
        return run(wide, Copies(CPU)(((wide.input, *wide.args), wide.kwargs)))

    def same(self, got: Any, want: Any, exact: Any = None, what: str = "result", strides: bool = True) -> None:
        """Type, shape, dtype, strides and values of nested results; raises AssertionError.

        `exact`: the results in float64, for entries where the CPU's own rounding uses up its tolerance. The device may
        then be off from them by the tolerance and as much as the CPU is.
        """
        if isinstance(want, torch.Tensor):
            self._same_layout(got, want, what, strides)
            if self.values:
                self._same_values(
                    got.detach().to("cpu"), want.detach(), None if exact is None else exact.detach(), what
                )
        elif isinstance(want, (list, tuple)):
            if self.ties:  # the first result says which value was found, the second which of its equals
                got, want = got[:1], want[:1]
            assert len(got) == len(want), f"{what}: {len(got)} items instead of {len(want)}"
            for i, (g, w) in enumerate(zip(got, want)):
                self.same(g, w, exact and exact[i], f"{what} {i}", strides)
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
        if strides and not check_significant_strides(got, want)[0]:
            raise AssertionError(f"{what}: strides {got.stride()} instead of {want.stride()} of {tuple(want.shape)}")

    def _same_values(self, got: torch.Tensor, want: torch.Tensor, exact: torch.Tensor | None, what: str) -> None:
        try:
            self.close(got, want, what)
        except AssertionError as far:
            if exact is None:
                raise
            ours, cpus = _distance(got, exact), _distance(want, exact)
            allowed = torch.where(cpus.isfinite(), cpus, 0).max()
            rtol, atol = self.tolerances
            if not torch.all(ours <= allowed + atol + rtol * exact.detach().abs().nan_to_num()):
                raise AssertionError(f"{far}\nfrom float64: {ours.max():.3g}, the CPU: {allowed:.3g}") from None

    def close(self, got: torch.Tensor, want: torch.Tensor, what: str) -> None:
        """Values at this node's tolerances."""
        rtol, atol = self.tolerances if want.dtype == self.dtype else (None, None)
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


def _distance(values: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """How far values are from exact ones; 0 where both are the same infinity or NaN."""
    wide, exact = values.double(), exact.detach()
    same = (wide == exact) | (wide.isnan() & exact.isnan())
    return (wide - exact).abs().masked_fill(same, 0)


def _bits(flat: torch.Tensor) -> torch.Tensor:
    return flat.contiguous().view(torch.uint8)


def _doubled(sample: Any) -> Any:
    """The sample with float64 in the place of every float dtype."""

    def double(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.detach().double().requires_grad_(value.requires_grad)
        return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value

    return sample.transform(double)


def _run(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    torch.manual_seed(0)
    return call(*args, **kwargs)


def _both(sample: Any) -> tuple[Copies, Any, Copies, Any]:
    here, there = Copies(CPU), Copies(DEVICE)
    call = ((sample.input, *sample.args), sample.kwargs)
    return here, here(call), there, there(call)


def check_forward(entry: Any, sample: Any, compare: Comparison) -> int:
    """Results of one call, and its inputs afterwards."""
    here, cpu, there, device = _both(sample)
    try:
        want = _run(entry, *cpu)
    except Exception:  # noqa: BLE001 - the CPU cannot do it: nothing to compare with
        return 0
    compare.same(_run(entry, *device), want, compare.exact(sample, lambda s, args: _run(entry, *args)))
    compare.same_memory(here, there)
    return 1


def check_gradient(entry: Any, sample: Any, compare: Comparison) -> int:
    """Gradients of all inputs for a fixed gradient of the results."""
    _, cpu, _, device = _both(sample)
    try:
        want = _gradients(entry, sample, *cpu)
    except Exception:  # noqa: BLE001 - the CPU cannot do it
        return 0
    exact = compare.exact(sample, lambda s, args: _gradients(entry, s, *args))
    compare.same(_gradients(entry, sample, *device), want, exact, "gradient", strides=False)
    return 1


def _gradients(entry: Any, sample: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    result = sample.output_process_fn_grad(_run(entry, args, kwargs))
    roots = [t for t in tensors_in(result) if t.requires_grad]
    leaves = [t for t in tensors_in((args, kwargs)) if t.requires_grad]
    if not roots:
        return []
    seeds = [_seed(t).to(t.device) for t in roots]
    found = torch.autograd.grad(roots, leaves, seeds, allow_unused=True)
    return [t for t in found if t is not None]


def _seed(root: torch.Tensor) -> torch.Tensor:
    return torch.linspace(-1, 1, root.numel()).reshape(root.shape).to(root.dtype)


def check_inplace(entry: Any, sample: Any, compare: Comparison) -> int:
    """The method with an underscore: it returns its tensor, and writes nothing but that."""
    if sample.broadcasts_input:  # the result does not fit into the input
        return 0
    here, cpu, there, device = _both(sample)
    try:
        want = _run(entry.get_inplace(), *cpu)
    except Exception:  # noqa: BLE001 - as for a result that does not fit into the input
        return 0
    got = _run(entry.get_inplace(), *device)
    assert (got is device[0][0]) == (want is cpu[0][0]), "another tensor was returned"
    compare.same(got, want)
    compare.same_memory(here, there)
    return 1


def check_out(entry: Any, sample: Any, compare: Comparison) -> int:
    """out= with tensors of the result's layout, with holes, and of the wrong size."""
    checked = 0
    for make in (torch.empty_like, _with_holes, lambda t: t.new_empty(0)):
        here, cpu, there, device = _both(sample)
        try:
            outs = _outs(_run(entry, *_both(sample)[1]), make)
            want = _run(entry, cpu[0], {**cpu[1], "out": here(outs)})
        except Exception:  # noqa: BLE001 - the CPU cannot do it
            continue
        got = _run(entry, device[0], {**device[1], "out": there(outs)})
        compare.same(got, want)
        if not compare.ties:
            compare.same_memory(here, there)
        checked += 1
    return checked


def _outs(result: Any, make: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(result, torch.Tensor):
        made = make(result)
        return made.fill_(1) if made.numel() else made
    return tuple(_outs(r, make) for r in result)


def _with_holes(tensor: torch.Tensor) -> torch.Tensor:
    shape = (*tensor.shape[:-1], 2 * tensor.shape[-1]) if tensor.dim() else (2,)
    wide = torch.zeros(shape, dtype=tensor.dtype)
    return wide[..., ::2] if tensor.dim() else wide[1]


CHECKS: Mapping[str, Callable[[Any, Any, Comparison], int]] = {
    "forward": check_forward,
    "gradient": check_gradient,
    "inplace": check_inplace,
    "out": check_out,
}


def outcome(node: Node, count: int | None = None) -> dict[str, Any]:
    """A node's result as plain data."""
    start, before = time.perf_counter(), fallback.counts()[0]
    error, where, checked = "", "", 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            checked = check(node, count)
    except Exception as raised:  # noqa: BLE001 - every way to fail is a result
        error = f"{type(raised).__name__}: {str(raised).strip()}"
        where = "".join(traceback.format_tb(raised.__traceback__)[-3:])
    return {
        "node": list(node),
        "error": error[:1500],
        "where": where,
        "checked": checked,
        "fallbacks": fallback.counts()[0] - before,
        "seconds": round(time.perf_counter() - start, 3),
        "compiled": compiled(),
    }


def compiled() -> int:
    """Programs built by this process so far."""
    from torch_fl.runtime import devices

    return sum(d.compiled for d in devices.devices())


def serve() -> None:
    """A worker: nodes in as JSON lines, results out as JSON lines."""
    torch.set_num_threads(1)
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what ops print must not mix with the results
    fallback.set_fallback("allow")
    for line in sys.stdin:
        request = json.loads(line)
        results.write(json.dumps(outcome(Node(*request["node"]), request["count"])) + "\n")
        results.flush()


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        serve()
    else:
        from opinfo_run import main

        sys.exit(main(DTYPES))
