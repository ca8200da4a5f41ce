"""The choice of a way by measurement: who wins, what is kept, and that nothing of it reaches the caller."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same
from subprocesses import output_of

import torch_fl
from torch_fl import cli, dispatch
from torch_fl.bench.ops import forward
from torch_fl.errors import RegistryError, Unsupported
from torch_fl.refs import Ref
from torch_fl.runtime import devices
from torch_fl.tuning import problems, timing, ways, winners
from torch_fl.tuning.timing import Outcome, fastest
from torch_fl.tuning.trial import Scratch


# -- who wins --------------------------------------------------------------------------------------------------------
class Clock:
    """A clock that runs advance, each by its own seconds in turn."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def run(self, *seconds: float, fails_at: int = -1) -> timing.Run:
        done = 0

        def work(calls: int) -> None:
            nonlocal done
            if done == fails_at:
                raise RuntimeError("broken")
            self.now += calls * seconds[done % len(seconds)]
            done += 1

        return work


@pytest.mark.parametrize(("other", "winner"), [(0.005, "b"), (0.0094, "b"), (0.0097, "a"), (0.02, "a"), (0.1, "a")])
def test_a_winner_must_be_better_by_five_percent(other: float, winner: str) -> None:
    clock = Clock()
    found = fastest({"a": clock.run(0.01), "b": clock.run(other)}, 1.0, clock)
    assert found is not None
    assert found.winner == winner
    assert found.default_seconds == pytest.approx(0.01)
    assert found.seconds == pytest.approx(other if winner == "b" else 0.01)


def test_the_best_of_many() -> None:
    clock = Clock()
    runs = {n: clock.run(s) for n, s in zip("abcd", (0.01, 0.008, 0.006, 0.007))}
    assert fastest(runs, 2.0, clock) == Outcome("c", pytest.approx(0.006), pytest.approx(0.01))


def test_disturbed_rounds_make_no_winner() -> None:
    clock = Clock()
    runs = {"a": clock.run(0.01, 0.01, 0.02, 0.03, 0.02), "b": clock.run(0.01)}
    found = fastest(runs, 1.0, clock)
    assert found is not None
    assert found.winner == "a"


@pytest.mark.parametrize("at", [0, 1, 2, 4, 9])
def test_who_fails_is_left_out(at: int) -> None:
    clock = Clock()
    runs = {"a": clock.run(0.01), "b": clock.run(0.001, fails_at=at), "c": clock.run(0.005)}
    found = fastest(runs, 2.0, clock)
    assert found is not None
    assert found.winner in ("a", "c")


@pytest.mark.parametrize("at", [0, 1, 3, 9])
def test_nothing_is_said_without_the_rules_way(at: int) -> None:
    clock = Clock()
    found = fastest({"a": clock.run(0.01, fails_at=at), "b": clock.run(0.005)}, 2.0, clock)
    assert found is None or found.winner == "a"


def test_the_budget_is_kept() -> None:
    clock = Clock()
    assert fastest({n: clock.run(0.02) for n in "abcdefgh"}, 0.2, clock) is not None
    assert clock.now < 0.4
    clock.now = 0
    assert fastest({n: clock.run(0.1) for n in "ab"}, 0.2, clock) is None
    assert clock.now < 0.3


# -- what is kept ----------------------------------------------------------------------------------------------------
ENTRY = {"way": "b", "default": "a", "seconds": 0.5, "default_seconds": 1.0}


def chip(name: str = "chip", driver: str = "1.0") -> Any:
    properties = SimpleNamespace(name=name, driver=driver, kind="gpu", compute_units=4)
    return SimpleNamespace(backend=SimpleNamespace(name="fake"), properties=properties, index=0)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for what is kept."""
    monkeypatch.setattr(winners, "folder", lambda: tmp_path / "tuned")
    winners.reread()
    yield tmp_path / "tuned"
    winners.reread()


def test_entries_last_for_the_same_chip_and_driver(kept: Path) -> None:
    winners.add(chip(), "p", ENTRY)
    winners.reread()
    assert winners.find(chip(), "p") == ENTRY
    assert winners.find(chip(), "q") is None
    assert winners.find(chip("other"), "p") is None
    assert winners.find(chip(driver="1.1"), "p") is None
    assert [e for _, e in winners.files()] == [{"p": ENTRY}]
    assert winners.forget() == 1
    assert winners.find(chip(), "p") is None
    assert not list(kept.iterdir())


DAMAGED = {
    "empty": "",
    "cut": '{"for": {"format": 1}, "problems": {"p": {"wa',
    "list": "[1, 2]",
    "older": json.dumps({"for": {"format": 0}, "problems": {"p": ENTRY}}),
    "no problems": json.dumps({"for": {"format": 1}}),
    "wrong entries": json.dumps({"for": {"format": 1}, "problems": {"p": {"way": 3}, "r": None}}),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_or_older_file_is_empty(text: str, kept: Path) -> None:
    kept.mkdir()
    winners.path_of(chip()).write_text(text)
    assert winners.find(chip(), "p") is None
    assert winners.files() == []
    winners.add(chip(), "q", ENTRY)
    winners.reread()
    assert winners.find(chip(), "q") == ENTRY
    assert winners.find(chip(), "p") is None


def test_bytes_that_are_no_text_are_empty(kept: Path) -> None:
    kept.mkdir()
    winners.path_of(chip()).write_bytes(b"\xff\xfe\x00{")
    assert winners.find(chip(), "p") is None


def test_a_folder_that_cannot_be_written_harms_nobody(kept: Path) -> None:
    kept.write_text("a file, not a folder")
    winners.add(chip(), "p", ENTRY)
    assert winners.find(chip(), "p") == ENTRY


TWO = """
import subprocess, sys
from pathlib import Path
code = '''
import sys
sys.path.insert(0, {here!r})
from test_tuning import ENTRY, chip, winners
for n in range(30):
    winners.add(chip(), sys.argv[1] + str(n), ENTRY)
'''
both = [subprocess.Popen([sys.executable, "-c", code, name]) for name in "xy"]
assert [p.wait() for p in both] == [0, 0]
"""


def test_two_processes_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output_of(TWO.replace("{here!r}", repr(str(Path(__file__).parent))), TORCH_FL_CACHE=str(tmp_path))
    monkeypatch.setenv("TORCH_FL_CACHE", str(tmp_path))
    assert len(winners.read(winners.path_of(chip()))) == 60
    assert not list((tmp_path / "tuned").glob("*.new"))


# -- a way of somebody else --------------------------------------------------------------------------------------------
@pytest.fixture
def measured(kept: Path, new_plans: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Measuring is on, and the named way wins wherever it is one; returns what was measured."""
    monkeypatch.setattr(ways, "state", ways._State(True, 0.2))
    monkeypatch.setattr(ways, "_tried", set())
    monkeypatch.setattr(ways, "_offered", {})
    seen: list[str] = []

    def choose(name: str) -> list[str]:
        def decide(runs: dict[str, timing.Run], budget: float) -> Outcome:
            seen.extend(runs)
            for run in runs.values():
                run(2)
            return Outcome(name if name in runs else next(iter(runs)), 0.5, 1.0)

        monkeypatch.setattr(ways, "fastest", decide)
        return seen

    return choose


def offer(device: torch.device, function: Callable[..., None]) -> None:
    backend = devices.devices()[device.index].backend
    ways.candidate("product", name="mine", backend=backend.name)(function)


def twos(b: Any, out: Any, a: Any, x: Any, c: Any, alpha: Any, beta: Any, sum_batch: bool) -> None:
    """No product at all, so that one sees who made it."""
    if out.shape == (7, 7):
        raise Unsupported("seven")
    b.fill(out, 2)


def test_an_adapters_own_way_is_measured_and_taken(device: torch.device, measured: Any) -> None:
    seen = measured("mine")
    offer(device, twos)
    a, x = torch.randn(6, 5).to(device), torch.randn(5, 9).to(device)
    before = a.cpu(), x.cpu(), a._version, x._version
    assert (a @ x == 2).all()
    assert "mine" in seen
    assert len(seen) > 2
    assert torch.equal(a.cpu(), before[0])
    assert torch.equal(x.cpu(), before[1])
    assert (a._version, x._version) == before[2:]
    assert_same(torch.mm, torch.randn(7, 3), torch.randn(3, 7), device=device)


def test_later_processes_measure_nothing(device: torch.device, measured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = measured("mine")
    offer(device, twos)
    a = torch.eye(6).to(device)
    assert (a @ a)[0, 0] == 2
    seen.clear()
    winners.reread()
    dispatch.forget_plans()
    monkeypatch.setattr(ways.state, "budget", None)
    assert (a @ a)[0, 0] == 2
    monkeypatch.setattr(ways.state, "kept", False)
    dispatch.forget_plans()
    assert (a @ a)[0, 0] == 1
    assert not seen


def test_a_way_that_fails_never_reaches_the_caller(device: torch.device, measured: Any) -> None:
    seen = measured("mine")

    def broken(b: Any, *args: Any) -> None:
        b.temp((3,), torch.float32)
        raise ZeroDivisionError

    offer(device, broken)
    assert_same(torch.mm, torch.randn(6, 5), torch.randn(5, 9), device=device)
    assert seen
    assert "mine" not in seen
    chip = devices.devices()[device.index]
    (_, entries), *_ = winners.files()
    for key, entry in entries.items():  # as if it had worked once
        winners.add(chip, key, {**entry, "way": "mine"})
    dispatch.forget_plans()
    assert_same(torch.mm, torch.randn(6, 5), torch.randn(5, 9), device=device)


def test_scratch_reaches_as_far_as_the_callers_tensors(device: torch.device) -> None:
    chip = devices.devices()[device.index]
    flipped = Ref(3, (2, 3, 4), (20, -4, -1), torch.float32, 11)
    empty = Ref(4, (0, 3), (3, 1), torch.int64, 5)
    scratch = Scratch.of(chip, (flipped, 7, flipped, empty, None))
    assert [r.offset for r in scratch.inputs] == [11, 0]
    assert [x.nbytes >= n for x, n in zip(scratch.buffers, (4 * (20 + 8 + 3 + 1), 8))] == [True, True]
    assert scratch.args == (scratch.inputs[0], 7, scratch.inputs[0], scratch.inputs[1], None)


def test_a_broken_measurement_never_reaches_the_caller(
    device: torch.device, measured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(ways, "fastest", broken)
    assert_same(torch.mm, torch.randn(6, 5), torch.randn(5, 9), device=device)
    assert winners.files() == []


def test_one_measures_at_a_time(device: torch.device, measured: Any) -> None:
    seen = measured("none")
    with ways._measuring:
        assert_same(torch.mm, torch.randn(6, 5), torch.randn(5, 9), device=device)
    assert not seen
    assert not ways._tried


def test_offers_are_checked() -> None:
    with pytest.raises(RegistryError, match="no kind of problem 'sum'"):
        torch_fl.candidate("sum", name="x", backend="y")


# -- every way of our own ----------------------------------------------------------------------------------------------
def done(b: Any, way: ways.Way, args: Any) -> bool:
    """As there, but only what is unsupported may fail."""
    mark = b.mark()
    try:
        way.emit(b, *args)
    except Unsupported:
        b.take_back(mark)
        return False
    return True


def every_way(monkeypatch: pytest.MonkeyPatch, check: Callable[[], None]) -> set[str]:
    """Run `check` with the first, second ... way wherever there are so many; the names of all."""
    names: set[str] = set()
    for index in range(100):
        more: list[str] = []

        def choose(device: Any, kind: str, args: Any, every: Any, at: int = index, more: list[str] = more) -> Any:
            more += [w.name for w in every[at : at + 1]]
            return every[at] if at < len(every) else None

        monkeypatch.setattr(ways, "_may_choose", lambda device: True)
        monkeypatch.setattr(ways, "_measured", choose)
        monkeypatch.setattr(ways, "_done", done)
        dispatch.forget_plans()
        check()
        if not more:
            return names
        names |= set(more)
    raise AssertionError("no end")


def products(device: torch.device) -> None:
    for m, k, n in [(1, 200, 70), (70, 130, 129), (9, 300, 20)]:
        a, x, c = torch.randn(m, k), torch.randn(k, n), torch.randn(n)
        assert_same(torch.addmm, c, a, x, beta=2, alpha=3, device=device, rtol=1e-4, atol=1e-4)
        assert_same(lambda a, x: (x.t() @ a.t()).t(), a, x, device=device, rtol=1e-4, atol=1e-4)
    assert_same(torch.bmm, torch.randn(3, 20, 30), torch.randn(3, 30, 40), device=device, rtol=1e-4, atol=1e-4)
    assert_same(torch.addbmm, torch.randn(2, 4), torch.randn(3, 2, 5), torch.randn(3, 5, 4), device=device)
    assert_same(torch.mm, torch.randn(5, 0), torch.randn(0, 4), device=device)


def test_every_way_of_a_product(device: torch.device, new_plans: None, monkeypatch: pytest.MonkeyPatch) -> None:
    names = every_way(monkeypatch, lambda: products(device))
    assert len(names) > 3


def test_every_way_of_a_product_on_a_card(card: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    names = every_way(monkeypatch, lambda: products(card))
    assert {"one row", "tiles 64 in 1", "tiles 128 in 1"} <= names


def convolutions(device: torch.device) -> None:
    for x, w, how in [
        ((2, 16, 9, 11), (130, 16, 3, 3), {"padding": 1}),
        ((2, 20, 9, 9), (9, 20, 1, 1), {}),
        ((2, 5, 9, 9), (3, 5, 1, 1), {}),
        ((2, 6, 12, 12), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
        ((1, 4, 20, 7), (10, 2, 3, 2), {"stride": 2, "groups": 2}),
    ]:
        leaves = [torch.randn(s).requires_grad_() for s in (x, w, w[:1])]
        assert_same(lambda *t, how=how: F.conv2d(*t, **how), *leaves, device=device, rtol=1e-4, atol=1e-4)
    turned = torch.randn(2, 9, 9, 20).permute(0, 3, 1, 2)
    assert_same(F.conv2d, turned, torch.randn(9, 20, 1, 1), device=device, rtol=1e-4, atol=1e-4)


def test_every_way_of_a_convolution(device: torch.device, new_plans: None, monkeypatch: pytest.MonkeyPatch) -> None:
    names = every_way(monkeypatch, lambda: convolutions(device))
    assert {"blocks", "framed", "product", "depthwise", "correlation"} <= names


def test_every_way_of_a_convolution_on_a_card(card: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    names = every_way(monkeypatch, lambda: convolutions(card))
    assert {"tiles 64x64 in 1", "tiles 64x128 in 1", "tiles 128x128 in 1"} <= names


# -- the command -------------------------------------------------------------------------------------------------------
def test_the_command(kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(problems, "PROBLEMS", {"mm": forward(torch.mm, (9, 8), (8, 7))})
    assert cli.main(["tune"]) == 0
    text = capsys.readouterr().out
    assert "winner" in text
    assert text.count("product float32[9x7]") == torch_fl.device_count()
    assert len(list(kept.glob("*.json"))) == torch_fl.device_count()
    assert ways.state.budget is None
    assert cli.main(["tune", "--list"]) == 0
    assert capsys.readouterr().out.count("product float32[9x7]") == torch_fl.device_count()
    assert cli.main(["tune", "--forget"]) == 0
    assert cli.main(["tune", "--list"]) == 0
    assert "nothing is kept" in capsys.readouterr().out
    assert cli.main(["tune", "--device", "cuda"]) == 1


def test_init_tunes_and_stops(kept: Path, new_plans: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "state", ways._State(False, None))
    torch_fl.init(tune=True)
    a = torch.eye(6, device="npu")
    assert torch.equal((a @ a).cpu(), torch.eye(6))
    assert [len(entries) for _, entries in winners.files()] == [1]
    torch_fl.init(tune=False)
    a = torch.eye(7, device="npu")
    assert torch.equal((a @ a).cpu(), torch.eye(7))
    assert [len(entries) for _, entries in winners.files()] == [1]
