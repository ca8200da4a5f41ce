"""torch-fl coverage: routes are measured, and what goes to the CPU is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from torch_fl import cli
from torch_fl.commands import coverage


def test_coverage_counts_entries_that_stay_on_the_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "coverage.json"
    assert cli.main(["coverage", "--samples", "2", "--json", str(file), "add", "t", "linalg.eig"]) == 0
    printed = capsys.readouterr().out
    found = json.loads(file.read_text())
    assert [f["device"] for f in found] == [f"npu:{i}" for i in range(torch.npu.device_count())]
    for each in found:
        assert each["entries"] == {"float32": {"without_fallback": 2, "total": 3}}
        assert each["fallbacks"]["float32"] == {"linalg.eig": ["aten::linalg_eig"]}
        assert each["overloads"]["aten::add.Tensor"].keys() == {"portable"}
        assert each["core"]["aten::add.Tensor"] == "portable"
        assert not each["raised"]
    assert "66.7%" in printed
    assert "aten::linalg_eig (no kernel)" in printed


def test_an_op_that_raises_is_no_covered_op() -> None:
    found = coverage.Coverage("npu:0")
    found.measure("tensor_split", "float32", 12)
    ran_without, ran = found.share("float32")
    assert (ran_without, ran) == (0, 1)
    assert "to be on cpu" in found.raised["float32"]["tensor_split"]


def test_core_overloads_are_those_that_torch_tags() -> None:
    names = coverage.core_overloads()
    assert {"aten::add.Tensor", "aten::mm", "aten::convolution"} <= set(names)
    assert "aten::linear" not in names
