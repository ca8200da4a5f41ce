"""The benchmark: what it runs is what it says, and its numbers survive the way through a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from torch_fl import bench
from torch_fl.bench.ops import MOVEMENT, OPTIMIZERS, SMALL
from torch_fl.bench.report import GROUPS, chosen
from torch_fl.errors import Error


def test_a_run_is_kept_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str], device: torch.device) -> None:
    file = tmp_path / "numbers.json"
    assert bench.main(quick=True, json_file=str(file), device=str(device)) == 0
    kept = json.loads(file.read_text())
    assert [r["name"] for r in kept["results"]] == list(SMALL)
    assert all(r["ratio"] == r["device_seconds"] / r["cpu_seconds"] > 0 for r in kept["results"])
    assert all(r["ops"] > 0 and r["fallbacks"] == 0 for r in kept["results"])
    capsys.readouterr()
    assert bench.main(quick=True, against=str(file), device=str(device)) == 0
    assert "before" in capsys.readouterr().out


def test_groups_are_chosen_by_name() -> None:
    assert chosen("small, start") == ["small", "start"]
    with pytest.raises(Error, match="smal"):
        chosen("smal")


def test_every_work_has_one_name() -> None:
    names = [n for works in GROUPS.values() for n in works]
    assert len(names) == len(set(names))


@pytest.mark.device
@pytest.mark.parametrize("name", [*MOVEMENT, *OPTIMIZERS])
def test_works_give_the_same_everywhere(name: str, device: torch.device) -> None:
    """Both sides of a line do the same work on the same numbers."""
    case = {**MOVEMENT, **OPTIMIZERS}[name]
    found = []
    for where in (device, torch.device("cpu")):
        torch.manual_seed(0)
        with torch.set_grad_enabled(case.grad):
            found.append(case.make(where)())
    if "sort" in name or "topk" in name:
        found = [f[0] for f in found]
    if isinstance(found[0], torch.Tensor):
        torch.testing.assert_close(found[0].cpu(), found[1], rtol=1e-4, atol=1e-3)
    else:
        assert found[0] == found[1]
