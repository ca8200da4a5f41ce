"""The command torch-fl: what it prints where, its exit status, and that it shows no traceback of its own."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_fl
from torch_fl import cli, dispatch, fallback
from torch_fl.commands import demo, devices, digits, training

SCRIPT = """
import sys, helper, torch
print(__name__, sys.argv[1:], helper.VALUE)
def fail():
    raise KeyError("boom")
print((torch.ones(3, device="npu") + 1).sum().item())
if "exit" in sys.argv: sys.exit(7)
if "boom" in sys.argv: fail()
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "helper.py").write_text("VALUE = 3\n")
    (tmp_path / "user.py").write_text(SCRIPT)
    return str(tmp_path / "user.py")


@pytest.fixture(autouse=True)
def _own_argv(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`run` changes these as python itself would."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    yield
    sys.modules.pop("helper", None)
    assert dispatch.listener is None


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith(f"torch_fl {torch_fl.__version__} (torch {torch.__version__}")


@pytest.mark.parametrize("arguments", [[], ["nix"], ["demo", "--epochs", "0"], ["run"], ["devices", "--nix"]])
def test_a_wrong_command_line_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert "usage: torch-fl" in capsys.readouterr().err


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([command, "--help"])
    assert stopped.value.code == 0
    assert f"usage: torch-fl {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "nowhere.py"], "torch-fl: there is no file 'nowhere.py'"),
        (["demo", "--device", "cuda"], "torch-fl: --device takes npu or npu:N, got 'cuda'"),
        (["demo", "--device", "npu:99"], "torch-fl: npu:99 does not exist"),
    ],
)
def test_an_error_is_one_message(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(text)
    assert "Traceback" not in captured.err


def test_devices_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["devices", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    opened = [d for d in data["devices"] if d["index"] is not None]
    assert [d["index"] for d in opened] == list(range(torch_fl.device_count()))
    assert all(d["check"]["ok"] for d in opened)
    assert {d["backend"] for d in opened} == {d.backend.name for d in torch_fl.devices()}
    listed = {d["backend"] for d in data["devices"]} | {d["backend"] for d in data["absent"]}
    assert listed == set(torch_fl.runtime.devices.backend_classes())


def test_devices_as_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["devices"]) == 0
    text = capsys.readouterr().out
    for device in torch_fl.devices():
        assert f"npu:{device.index}" in text
        assert "ok, " in text


def test_a_chip_that_computes_wrong_numbers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.Tensor.__add__
    monkeypatch.setattr(torch.Tensor, "__add__", lambda a, b: real(a, b) + 1 if a.device.type == "npu" else real(a, b))
    found = devices.check(torch_fl.devices()[0])
    assert not found.ok


def test_no_chip_is_told_with_the_reason() -> None:
    code = """
import torch_fl, sys
from torch_fl.runtime.adapter import Discovery
class Absent(torch_fl.Backend):
    name = "absent"
    @classmethod
    def discover(cls): return Discovery(absent="no such card in this machine")
    def allocate(self, nbytes): ...
    def copy_h2d(self, handle, byte_offset, source): ...
    def copy_d2h(self, target, handle, byte_offset): ...
torch_fl.register_backend(Absent)
from torch_fl.cli import main
sys.exit(main(["devices"]))
"""
    env = os.environ | {"TORCH_FL_BACKENDS": "absent"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "absent: no such card in this machine" in done.stdout
    assert "not asked for" in done.stdout
    assert done.stderr == ""


def test_a_chip_that_fails_is_told_in_its_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def fail(where: torch.device) -> str:
        raise RuntimeError("CL_OUT_OF_RESOURCES\nmore")

    monkeypatch.setattr(devices, "_compute", fail)
    assert cli.main(["devices"]) == 1
    assert "CL_OUT_OF_RESOURCES" in capsys.readouterr().out
    assert fallback.get_fallback() == "error"


def test_run_is_the_script_with_a_table_on_stderr(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", script, "--flag", "x"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "__main__ ['--flag', 'x'] 3\n6.0\n"
    assert "add.Tensor" in captured.err


def test_run_keeps_the_exit_status_and_writes_the_trace(script: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["run", "--no-console", "--trace", str(tmp_path / "t.json"), script, "exit"])
    assert stopped.value.code == 7
    ops = [r["op"] for r in json.loads((tmp_path / "t.json").read_text())["records"]]
    assert "aten::add" in ops


def test_run_shows_the_traceback_of_the_script_only(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--no-console", script, "boom"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith(f'  File "{script}", line 8, in <module>')
    assert lines[-1] == "KeyError: 'boom'"


def test_run_of_a_script_that_does_not_parse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.py").write_text("x = (\n")
    assert cli.main(["run", "--no-console", str(tmp_path / "bad.py")]) == 1
    text = capsys.readouterr().err
    assert "SyntaxError" in text
    assert "runpy" not in text


def test_run_sets_the_fallback_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "policy.py").write_text("import torch_fl; print(torch_fl.get_fallback())")
    assert cli.main(["run", "--no-console", "--fallback", "allow", str(tmp_path / "policy.py")]) == 0
    assert capsys.readouterr().out == "allow\n"


def test_run_refuses_a_trace_it_could_not_write(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--trace", "/nowhere/t.json", script]) == 1
    assert capsys.readouterr().err.startswith("torch-fl: cannot write the trace")


def _result(accuracy: float, fallbacks: int = 0) -> training.Result:
    return training.Result("npu:0", accuracy, fallbacks=fallbacks)


def test_demo_says_what_it_missed() -> None:
    good = _result(0.99)
    assert demo.misses(good, _result(0.99), quick=False) == []
    assert "97%" in demo.misses(_result(0.9), _result(0.9), quick=False)[0]
    assert "CPU's" in demo.misses(_result(0.975), _result(0.99), quick=False)[0]
    assert "3 ops" in demo.misses(_result(0.99, 3), _result(0.99), quick=True)[0]
    assert demo.misses(_result(0.2), _result(0.9), quick=True) == []


def test_demo_data_is_split_by_the_seed() -> None:
    first, again, other = digits.load(0), digits.load(0), digits.load(1)
    assert torch.equal(first.test_images, again.test_images)
    assert not torch.equal(first.test_labels, other.test_labels)
    assert len(first.train_labels) + len(first.test_labels) == 1797
    orders = [torch.cat([y for _, y in first.batches(64, seed)]) for seed in (0, 0, 1)]
    assert torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])


def test_demo_without_scikit_learn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert cli.main(["demo", "--quick"]) == 1
    assert 'pip install "torch_fl[demo]"' in capsys.readouterr().err


@pytest.mark.model
def test_quick_demo_runs_without_fallback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--quick", "--svg", str(tmp_path / "console.svg")]) == 0
    text = capsys.readouterr().out
    assert "held-out accuracy" in text
    assert "convolution" in (tmp_path / "console.svg").read_text()


def test_importing_the_package_does_not_import_rich() -> None:
    code = (
        "import torch, torch_fl, sys; torch_fl.trace; torch.ones(1, device='npu'); from torch_fl import cli; "
        "assert 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"TORCH_FL_BACKENDS": "host"})


def test_log_level_from_the_environment() -> None:
    code = "import torch; torch.ones(1, device='npu') + 1"
    env = os.environ | {"TORCH_FL_BACKENDS": "host", "TORCH_FL_LOG": "DEBUG"}
    done = subprocess.run([sys.executable, "-c", code], check=True, env=env, capture_output=True, text=True)
    assert "torch_fl DEBUG aten::add.Tensor npu:0 portable" in done.stderr


def test_options_are_those_of_the_module() -> None:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    assert parser.parse_args(["--quick"]).epochs is None


def test_telemetry_where_autoload_is_switched_off() -> None:
    code = "import torch_fl, torch\nwith torch_fl.trace() as t: torch.ones(2, device='npu')\nassert len(t)"
    env = os.environ | {"TORCH_FL_BACKENDS": "host", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)
