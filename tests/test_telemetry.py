"""Records, traces, the console, budgets and the log: what they say, and that they leave nothing behind."""

from __future__ import annotations

import io
import json
import linecache
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from rich.console import Console as RichConsole

import torch_fl
from torch_fl import dispatch, fallback
from torch_fl.telemetry import Totals, listen, records, report
from torch_fl.telemetry.log import logger


@pytest.fixture(autouse=True)
def _nobody_left() -> Iterator[None]:
    yield
    assert dispatch.listener is None
    assert torch_fl.telemetry.limits.current() is None


@pytest.fixture
def no_neg(monkeypatch: pytest.MonkeyPatch, allow_fallback: None) -> Iterator[None]:
    """aten::neg without a kernel: it falls back."""
    from torch_fl import registry

    monkeypatch.setitem(registry._KERNELS, torch.ops.aten.neg.default, {})
    dispatch.forget_plans()
    yield
    monkeypatch.undo()
    dispatch.forget_plans()


def _mlp(device: torch.device) -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    return torch_fl.virtualize(model, device)


def test_trace_records_every_op_with_its_place(device: torch.device) -> None:
    x = torch.ones(3, 4, device=device)
    with torch_fl.trace() as t:
        y = x + x
        y.view(4, 3)
    add, view = (next(r for r in t if r.op == f"aten::{n}") for n in ("add", "view"))
    assert (add.route, add.overload, add.dtype) == ("portable", "Tensor", "float32")
    assert add.shapes == ((3, 4), (3, 4))
    assert view.route == "view"
    assert {r.device for r in t} == {f"npu:{device.index}"}
    assert all(r.thread == threading.get_ident() and r.seconds >= 0 for r in t)


def test_bytes_are_those_that_cross(device: torch.device) -> None:
    backend = torch_fl.devices()[device.index].backend
    before = (backend.copy_h2d, backend.copy_d2h)
    with torch_fl.trace() as t:
        torch.ones(5).to(device).cpu()
    assert [(r.h2d_bytes, r.d2h_bytes) for r in t if r.h2d_bytes or r.d2h_bytes] == [(20, 0), (0, 20)]
    assert (backend.copy_h2d, backend.copy_d2h) == before


def test_time_of_inner_ops_is_not_counted_twice(device: torch.device) -> None:
    class Outer:
        name, func = "aten::sort", torch.ops.aten.sort.default

        @staticmethod
        def handler(x: torch.Tensor) -> torch.Tensor:
            time.sleep(0.05)
            return x + x

    x = torch.ones(2, device=device)
    with torch_fl.trace() as t:
        hub = dispatch.listener
        start = time.perf_counter()
        hub.run(Outer, (x,), {})
        wall = time.perf_counter() - start
    assert [r.op for r in t] == ["aten::add", "aten::sort"]
    assert sum(r.seconds for r in t) <= wall
    assert t[1].seconds >= 0.05


def test_ops_that_come_by_the_autograd_key_are_recorded(device: torch.device) -> None:
    functional = torch.nn.functional
    x = torch.ones(1, 2, 4, 4, device=device, requires_grad=True)
    weight = torch.ones(4, 4, device=device, requires_grad=True)
    works = {
        "rms_norm": lambda: functional.rms_norm(x, (4,), weight[0]),
        "attention": lambda: functional.scaled_dot_product_attention(x, x, x),
        "linear": lambda: functional.linear(x, weight),
        "matmul": lambda: x @ weight,
    }
    for name, work in works.items():
        with torch_fl.trace() as t:
            work().sum().backward()
        assert any(name in r.op and "backward" not in r.op for r in t), name
        assert any(name in r.op and "backward" in r.op for r in t), name
        with torch_fl.trace() as t, torch.inference_mode():
            work()
        assert any(name in r.op for r in t), name
    assert {"portable", "kernel"} >= {r.route for r in t if "matmul" in r.op}


def test_a_plan_that_runs_outside_of_any_op_is_an_op(device: torch.device) -> None:
    x = torch.ones(3, device=device)
    op = dispatch.op_of(torch.ops.aten.neg.default)
    with torch_fl.trace() as t:
        dispatch.planned(op, (x,), {})
        dispatch.call(op.func, (x,), {})
    assert [(r.name, r.route) for r in t] == [("aten::neg", "portable")] * 2


def test_a_decomposition_and_what_it_ran_as_add_up(device: torch.device) -> None:
    with torch_fl.trace() as t:
        torch.full_like(torch.empty(3, device=device), 7)
    assert "decomposition" in {r.route for r in t}
    assert sum(r.seconds for r in t) <= t.wall_seconds
    assert sum(row.share for row in t.summary()) == pytest.approx(1)


def test_fallback_says_why_and_who_asked(device: torch.device, no_neg: None) -> None:
    class Negate(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.neg(x)

    model = torch.nn.Sequential(torch.nn.Identity(), Negate())
    x = torch.ones(3, device=device)
    with torch_fl.trace() as t:
        model(x)
    [record] = t.fallbacks()
    assert record.name == "aten::neg"
    assert record.reason == "no kernel"
    assert record.module == "Sequential.1"
    assert (record.h2d_bytes, record.d2h_bytes) == (12, 12)
    file, _, line = record.source.rpartition(":")
    assert file == __file__
    assert "torch.neg(x)" in linecache.getline(file, int(line))


def test_backward_is_charged_to_the_module_of_the_forward_op(device: torch.device) -> None:
    model, x = _mlp(device), torch.ones(3, 4, device=device)
    with torch_fl.trace() as t:
        loss = model(x).sum()
        backward_from = len(t)
        loss.backward()
    modules = {r.module for r in t.records[backward_from:] if r.op == "aten::linear_backward"}
    assert modules == {"Sequential.0", "Sequential.2"}


def test_fallback_in_backward_names_the_line_of_backward(device: torch.device, no_neg: None) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    y = (2 - x).sum()
    with torch_fl.trace() as t:
        y.backward()
    [record] = t.fallbacks()
    file, _, line = record.source.rpartition(":")
    assert file == __file__
    assert "y.backward()" in linecache.getline(file, int(line))


def test_traces_nest(device: torch.device) -> None:
    x = torch.ones(2, device=device)
    with torch_fl.trace() as outer:
        x + x
        with torch_fl.trace() as inner:
            x * x
        x - x
    assert [r.op for r in outer] == ["aten::add", "aten::mul", "aten::sub"]
    assert [r.op for r in inner] == ["aten::mul"]


def test_an_exception_in_the_block_leaves_no_listener(device: torch.device) -> None:
    x = torch.ones(2, device=device)
    with pytest.raises(IndexError), torch_fl.trace() as t, torch_fl.console(rich=_paper()):
        (x + x)[2]
    assert dispatch.listener is None
    assert len(t) == 1


def test_an_op_that_raises_is_not_recorded_and_leaves_no_frame(device: torch.device) -> None:
    x = torch.ones(2, 3, device=device)
    with torch_fl.trace() as t:
        with pytest.raises(RuntimeError):
            torch.mm(x, x)
        x + x
    assert [r.op for r in t] == ["aten::add"]
    assert not records._thread.frames


def test_two_threads(device: torch.device) -> None:
    found: dict[str, list[torch_fl.telemetry.Record]] = {}
    both = threading.Barrier(2)

    def work(name: str, op: Any) -> None:
        x = torch.ones(4, device=device)
        both.wait()
        with torch_fl.trace() as t:
            both.wait()
            for _ in range(50):
                op(x, x)
            both.wait()
        found[name] = [r for r in t if r.thread == threading.get_ident()]

    threads = [threading.Thread(target=work, args=a) for a in (("a", torch.add), ("b", torch.mul))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert [r.op for r in found["a"]] == ["aten::add"] * 50
    assert [r.op for r in found["b"]] == ["aten::mul"] * 50


def test_a_listener_that_raises_is_dropped(device: torch.device, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        sync = False

        def add(self, record: Any) -> None:
            raise ValueError("broken listener")

    x = torch.ones(2, device=device)
    with torch_fl.trace() as t, listen(Broken()):
        y = x + x
        x * x
    torch.testing.assert_close(y.cpu(), torch.full((2,), 2.0))
    assert [r.op for r in t] == ["aten::add", "aten::mul"]
    assert caplog.text.count("broken listener") == 1


def test_more_records_than_wanted_are_summed_only(device: torch.device) -> None:
    x = torch.ones(2, device=device)
    with torch_fl.trace(max_records=2) as t:
        for _ in range(5):
            x + x
    assert (len(t), t.dropped) == (2, 3)
    assert [(r.op, r.calls) for r in t.summary()] == [("aten::add.Tensor", 5)]


def test_report_is_data(device: torch.device, tmp_path: Any) -> None:
    x = torch.ones(2, 2, device=device)
    with torch_fl.trace() as t:
        x @ x
    t.to_json(tmp_path / "trace.json")
    data = json.loads((tmp_path / "trace.json").read_text())
    assert data["records"][0]["op"] == "aten::matmul"
    assert data["records"][0]["shapes"] == [[2, 2], [2, 2]]
    assert data["summary"][0]["calls"] == 1
    assert data == json.loads(json.dumps(t.to_dict()))


def test_report_as_text_and_html(device: torch.device, no_neg: None) -> None:
    with torch_fl.trace() as t:
        torch.neg(torch.ones(3, device=device))
    assert "no kernel" in str(t)
    assert "1 fallback to the CPU" in str(t)
    assert "<td" in t._repr_html_()
    assert "1 fallbacks" in repr(t)


def _rows(n: int) -> list[report.Row]:
    return [report.Row(f"aten::op{i}", "portable", "npu:0", "", 1, float(n - i), 0, 4096, 0) for i in range(n)]


def test_table_is_bounded_and_fits() -> None:
    for width in (80, 132):
        text = report.as_text(report.table(_rows(60), "[title]", max_rows=5, width=width), width)
        assert "55 more" in text
        assert "op4" in text
        assert "op5 " not in text
        assert max(map(len, text.splitlines())) <= width
        assert len(text.splitlines()) < 16


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0 us"), (1.5e-5, "15 us"), (0.25, "250 ms"), (2.0, "2 s"), (12345.0, "12345 s")]
)
def test_seconds_are_readable(value: float, text: str) -> None:
    assert report.format_seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, ""), (12, "12 B"), (1010, "1010 B"), (1536, "1.5 KiB"), (2**31, "2 GiB")]
)
def test_sizes_are_readable(value: int, text: str) -> None:
    assert report.format_bytes(value) == text


def _paper(**kwargs: Any) -> RichConsole:
    return RichConsole(file=io.StringIO(), width=132, **kwargs)


def test_console_prints_once_where_nothing_can_be_redrawn(device: torch.device) -> None:
    paper = _paper()
    with torch_fl.console(title="mine", rich=paper) as c:
        torch.ones(2, device=device) * 3
        assert paper.file.getvalue() == ""
    text = paper.file.getvalue()
    assert text.count("mine") == 1
    assert "mul.Tensor" in text
    assert c.fallbacks() == 0
    assert "mul.Tensor" in c._repr_html_()


def test_console_in_a_terminal_updates_while_the_block_runs(device: torch.device) -> None:
    screen = _paper(force_terminal=True, height=30)
    x = torch.ones(2, device=device)
    with torch_fl.console(rich=screen, refresh_per_second=50):
        x * 3
        deadline = time.monotonic() + 10
        while "mul.Tensor" not in screen.file.getvalue() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert "mul.Tensor" in screen.file.getvalue()
        with torch_fl.console(title="inner", rich=_paper()) as inner:
            x + x
    assert [r.op for r in inner.rows()] == ["aten::add.Tensor"]


def test_console_runs_once_at_a_time(device: torch.device) -> None:
    view = torch_fl.console(rich=_paper())
    with view, pytest.raises(RuntimeError, match="already running"):
        view.__enter__()
    with view:
        torch.ones(2, device=device) * 3
    assert "aten::mul.Tensor" in [r.op for r in view.rows()]


def test_console_can_wait_for_the_device(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = torch_fl.devices()[device.index].backend
    waits: list[int] = []
    x = torch.ones(2, device=device)
    monkeypatch.setattr(backend, "synchronize", lambda: waits.append(1))
    with torch_fl.console(sync=True, rich=_paper()):
        x + x
        x * x
    assert len(waits) == 2


def test_rows_are_sorted_by_time() -> None:
    totals = Totals()
    for op, seconds in (("aten::a", 1.0), ("aten::b", 3.0), ("aten::a", 1.0)):
        totals.add(torch_fl.telemetry.Record(op, "", "portable", "npu:0", "", seconds, 1, 2, (), "", "", "", 0))
    assert [(r.op, r.calls, r.seconds, r.h2d_bytes) for r in totals.rows()] == [
        ("aten::b", 1, 3, 1),
        ("aten::a", 2, 2, 2),
    ]
    assert totals.rows()[0].share == pytest.approx(0.6)


def test_budget_stops_at_the_line_that_breaks_it(device: torch.device, no_neg: None) -> None:
    x = torch.ones(3, device=device)
    with torch_fl.budget(fallbacks=1) as used:
        torch.neg(x)
        with pytest.raises(torch_fl.FallbackError, match=r"in a budget of 1\n  call: aten::neg"):
            torch.neg(x)
    assert used.used_fallbacks == 2
    torch.neg(x)


def test_budget_without_numbers_allows_none(device: torch.device, no_neg: None) -> None:
    x = torch.ones(3, device=device)
    with torch_fl.budget():
        x + x
        with pytest.raises(torch_fl.FallbackError, match="budget of 0"):
            torch.neg(x)


def test_budget_of_bytes(device: torch.device, no_neg: None) -> None:
    x = torch.ones(3, device=device)
    with torch_fl.budget(bytes=30) as used:
        torch.neg(x)
        with pytest.raises(torch_fl.FallbackError, match="48 bytes moved in a budget of 30"):
            torch.neg(x)
    assert used.used_bytes == 48


def test_budgets_nest(device: torch.device, no_neg: None) -> None:
    x = torch.ones(3, device=device)
    with torch_fl.budget(fallbacks=1), torch_fl.budget(fallbacks=5):
        torch.neg(x)
        with pytest.raises(torch_fl.FallbackError, match="in a budget of 1"):
            torch.neg(x)


def test_budget_holds_in_backward(device: torch.device, no_neg: None) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    y = (2 - x).sum()
    with torch_fl.budget(fallbacks=0), pytest.raises(torch_fl.FallbackError, match="budget of 0"):
        y.backward()


def test_budget_is_of_its_thread(device: torch.device, no_neg: None) -> None:
    x = torch.ones(3, device=device)
    done: list[bool] = []

    def other() -> None:
        torch.neg(x)
        done.append(True)

    with torch_fl.budget(fallbacks=0) as used:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert done
    assert used.used_fallbacks == 0


def test_warning_names_the_users_line_once(device: torch.device, no_neg: None) -> None:
    fallback.set_fallback("warn")
    fallback._State.warned.discard(("aten::neg", "no kernel"))
    x = torch.ones(3, device=device)
    with pytest.warns(torch_fl.FallbackWarning, match="aten::neg: fallback to CPU") as caught:
        torch.neg(torch.neg(x))
    assert [w.filename for w in caught] == [__file__]


@pytest.fixture
def _quiet_log() -> Iterator[None]:
    before, level = list(logger.handlers), logger.level
    yield
    torch_fl.set_log_level("WARNING")
    logger.handlers[:] = before
    logger.setLevel(level)


@pytest.mark.usefixtures("_quiet_log")
def test_log_of_every_op(device: torch.device, no_neg: None, caplog: pytest.LogCaptureFixture) -> None:
    x = torch.ones(3, device=device)
    torch_fl.set_log_level("DEBUG")
    x + x
    torch.neg(x)
    torch_fl.set_log_level("WARNING")
    x * x
    lines = [r.getMessage() for r in caplog.records if r.name == "torch_fl"]
    assert len(lines) == 2
    assert f"aten::add.Tensor npu:{device.index} portable" in lines[0]
    assert f"aten::neg npu:{device.index} fallback to CPU (no kernel) at {__file__}:" in lines[1]


@pytest.mark.usefixtures("_quiet_log")
def test_log_of_fallbacks_only(device: torch.device, no_neg: None, caplog: pytest.LogCaptureFixture) -> None:
    x = torch.ones(3, device=device)
    torch_fl.set_log_level("info")
    assert dispatch.listener is None
    x + x
    torch.neg(x)
    assert ["aten::neg" in r.getMessage() for r in caplog.records if r.levelno == logging.INFO] == [True]


@pytest.mark.usefixtures("_quiet_log")
def test_log_level_must_exist() -> None:
    with pytest.raises(ValueError, match="did you mean 'DEBUG'"):
        torch_fl.set_log_level("DEBUGG")


def test_a_listener_does_not_change_results(device: torch.device) -> None:
    model, x = _mlp(device), torch.linspace(-1, 1, 12).view(3, 4)
    want = model(x).sum()
    want.backward()
    grads = [p.grad.cpu() for p in model.parameters()]
    model.zero_grad()
    with torch_fl.trace(sync=True), listen(Totals()):
        got = model(x).sum()
        got.backward()
    torch.testing.assert_close(got.cpu(), want.cpu(), rtol=0, atol=0)
    torch.testing.assert_close([p.grad.cpu() for p in model.parameters()], grads, rtol=0, atol=0)
