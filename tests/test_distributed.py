"""Two processes, each with the device: collectives, DistributedDataParallel, sharding. Values are those of the CPU."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed_cases import CASES
from subprocesses import HERE, run_python

from torch_fl import Error

pytestmark = pytest.mark.device


def _results(file: Path, *arguments: str, **environment: str) -> list[dict[str, str]]:
    """Of each process: per case what went wrong."""

    def process(rank: int) -> Any:
        backends = ("opencl", "host")[rank]  # neighbours need not have the same chip
        command = [str(HERE / "distributed_cases.py"), str(rank), str(file), *arguments]
        return run_python(*command, timeout=600, TORCH_FL_BACKENDS=backends, **environment)

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(process, (0, 1)))
    assert [d.returncode for d in done] == [0, 0], "\n".join(d.stdout + d.stderr for d in done)
    return [json.loads(d.stdout.splitlines()[-1]) for d in done]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    return _results(tmp_path_factory.mktemp("group") / "file", "npu")


@pytest.mark.parametrize("name", CASES)
def test_as_on_the_cpu(results: list[dict[str, str]], name: str) -> None:
    assert [r[name] for r in results] == ["", ""]


def test_scripts_that_say_cuda_and_nccl(tmp_path: Path) -> None:
    names = ("reduce_in_place", "ddp_looking_for_unused", "fully_sharded")
    found = _results(tmp_path / "file", "cuda", *names, TORCH_FL_CUDA="1")
    assert found == [dict.fromkeys(names, "")] * 2


def test_what_nobody_would_wait_for_is_refused(device: torch.device) -> None:
    with pytest.raises(Error, match="isend"):
        torch.ops._c10d_functional.isend(torch.ones(2, device=device), 1, 0, "0")
