"""Kernels with work-groups: places in the grid, local memory and barriers, in every dialect that runs here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from subprocesses import HERE, run_python

from torch_fl.kernels import source
from torch_fl.runtime.adapter import BufferArg
from torch_fl.runtime.devices import devices

TURN = """
kernel turn(in float x, out float y, int n) groups(SIZE) {
  SHARED(float, tile, SIZE);
  const long at = (GROUP2 * GROUPS1 + GROUP1) * GROUPS0 + GROUP0;
  tile[LID] = at * SIZE + LID < n ? x[at * SIZE + LID] : 0;
  BARRIER;
  for (int step = 1; step < SIZE; step *= 2) {
    const float there = tile[(LID + step) % SIZE];
    BARRIER;
    tile[LID] += there;
    BARRIER;
  }
  y[at * SIZE + LID] = tile[SIZE - 1 - LID];
}
"""
"""Every number of a group becomes the group's sum, through the neighbours."""
FOURS = """
FOUR(Four, T);
kernel fours(in T x, out T y, int n) groups(64) {
  const int i = 4 * LID;
  if (i + 4 <= n && ALIGNED(x, 4 * sizeof(T)) && ALIGNED(y, 4 * sizeof(T))) {
    Four v = *(const GLOBAL Four*)(x + i);
    const T first = v.x;
    v.x = v.w; v.w = first;
    *(GLOBAL Four*)(y + i) = v;
  } else {
    for (int j = i; j < n && j < i + 4; ++j) y[j] = -1;
  }
}
"""


def _run(index: int, text: str, name: str, grid: tuple[int, int, int], x: Any, offset: int = 0, **defines: Any) -> Any:
    """What kernel (x, y, n) leaves in y, which has x's size."""
    chip = devices()[index]
    kernel = source.parse(text)[name]
    program = chip.program(text, {"IDX": "int", **defines})
    there, result = chip.allocate(x.nbytes), chip.allocate(x.nbytes)
    chip.backend.copy_h2d(there.handle, 0, memoryview(x).cast("B"))
    args = [BufferArg(0, offset, x.itemsize), BufferArg(1, 0, x.itemsize), (x.size - offset).to_bytes(4, "little")]
    bound = chip.backend.bind(program, name, grid, args, kernel.local(defines))
    bound([there.handle, result.handle], [0, 0], [])
    y = np.empty_like(x)
    chip.backend.copy_d2h(memoryview(y).cast("B"), result.handle, 0)
    return y


@pytest.mark.parametrize("size", [1, 32, 256])
@pytest.mark.parametrize("grid", [(1, 1, 1), (7, 1, 1), (2, 3, 4)])
def test_groups_share_memory_and_wait(device: torch.device, size: int, grid: tuple[int, int, int]) -> None:
    x = np.arange(size * int(np.prod(grid)), dtype=np.float32)
    y = _run(device.index or 0, TURN, "turn", grid, x, SIZE=size)
    assert np.array_equal(y.reshape(-1, size), np.repeat(x.reshape(-1, size).sum(1, keepdims=True), size, 1))


@pytest.mark.parametrize("dtype", ["float32", "uint16", "int64"])
@pytest.mark.parametrize("offset", [0, 1, 4])
def test_four_elements_at_once_where_they_lie_so(device: torch.device, dtype: str, offset: int) -> None:
    x = np.arange(30, dtype=dtype)
    names = {"float32": "float", "uint16": "ushort", "int64": "long"}
    y = _run(device.index or 0, FOURS, "fours", (1, 1, 1), x, offset, T=names[dtype])[: 30 - offset]
    want = np.full(30 - offset, -1).astype(dtype)
    if offset % 4 == 0:
        whole = (30 - offset) // 4 * 4
        want[:whole] = x[offset : offset + whole].reshape(-1, 4)[:, [3, 1, 2, 0]].reshape(-1)
    assert np.array_equal(y, want)


def test_the_size_of_a_group_is_a_number_or_a_define() -> None:
    assert source.parse(TURN)["turn"].local({"SIZE": 128}) == 128
    assert source.parse(TURN.replace("SIZE)", "32)"))["turn"].local({}) == 32
    assert source.parse("kernel f(out int y) { y[GID0] = 1; }")["f"].local({}) == 0


def test_fibers_find_a_missing_barrier() -> None:
    """Without the second barrier a neighbour's new number is read; with PoCL and on cards that may go unseen."""
    host = next((i for i, d in enumerate(devices()) if d.backend.name == "host"), None)
    if host is None:
        pytest.skip("the host adapter is not asked for")
    wrong = TURN.replace("    BARRIER;\n    tile[LID] += there;", "    tile[LID] += there;")
    x = np.arange(64, dtype=np.float32)
    assert not np.array_equal(_run(host, wrong, "turn", (1, 1, 1), x, SIZE=64), np.full(64, x.sum()))


def test_fibers_refuse_a_barrier_that_some_do_not_reach() -> None:
    code = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import numpy as np
from test_groups import _run
_run(0, "kernel f(in float x, out float y, int n) groups(8) {{ if (LID > 2) BARRIER; y[LID] = 0; }}", "f", (1, 1, 1),
     np.zeros(8, np.float32))
"""
    done = run_python("-c", code, TORCH_FL_BACKENDS="host")
    assert done.returncode != 0
    assert "5 of 8 work-items wait at a barrier that the others do not reach" in done.stderr


def test_every_test_can_run_on_the_stand_in_for_a_card() -> None:
    double = {"PYTHONPATH": f"{HERE / 'double'}:{HERE}", "TORCH_FL_BACKENDS": "cuda"}
    done = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "share or four", **double)
    assert done.returncode == 0, done.stdout
    assert "cuda0" not in done.stdout
