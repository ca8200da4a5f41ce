"""Which chips are found, in which order, and what is said about those that are not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from subprocesses import HERE, output_of
from toy_chip import Toy

import torch_fl
from torch_fl.runtime import devices as module
from torch_fl.runtime import discovery
from torch_fl.runtime.adapter import Discovery

pytestmark = pytest.mark.device  # many processes, each of which loads torch

SHOW = """
import json, torch_fl
from torch_fl.runtime.devices import discoveries
try:
    torch_fl.devices()
except torch_fl.DeviceError as error:
    print("error:", error)
else:
    print(json.dumps([[f.backend, f.index, f.properties and f.properties.fingerprint, f.note] for f in discoveries()]))
"""


def _found(code: str = "", **environment: str) -> list[list[Any]]:
    found: list[list[Any]] = json.loads(output_of(code + SHOW, **environment))
    return found


def test_same_cpu_is_opened_once() -> None:
    found = _found()
    assert [(b, i) for b, i, _, _ in found if b in ("opencl", "host")] == [("host", 0), ("opencl", None)]
    assert [n for b, _, _, n in found if b == "opencl"] == ["same chip as npu:0"]


def test_both_views_on_request_and_in_the_order_asked_for() -> None:
    assert [(b, i) for b, i, *_ in _found(TORCH_FL_BACKENDS="host, opencl")] == [("host", 0), ("opencl", 1)]


def test_two_pocl_devices() -> None:
    found = _found(TORCH_FL_BACKENDS="opencl", POCL_DEVICES="pthread pthread")
    assert [i for _, i, _, _ in found] == [0, 1]
    assert len({mark for _, _, mark, _ in found}) == 2


def test_two_devices_of_one_driver_compute() -> None:
    code = """
import torch, torch_fl
x = torch.arange(4.0, device="npu:0")
y = (x + 1).to("npu:1") * 2
print(y.device, y.tolist(), torch_fl.device_count())
"""
    text = output_of(code, TORCH_FL_BACKENDS="opencl", POCL_DEVICES="pthread pthread")
    assert text == "npu:1 [2.0, 4.0, 6.0, 8.0] 2\n"


def test_two_platforms_of_one_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cl = pytest.importorskip("pyopencl")
    from torch_fl.backends.opencl import OpenCL

    (platform, *_) = cl.get_platforms()

    class Copy:
        name, version = "another PoCL", platform.version

        def get_devices(self) -> Any:
            return platform.get_devices()

    once = len(OpenCL.discover().found)
    monkeypatch.setattr(cl, "get_platforms", lambda: [platform, Copy()])
    assert len(OpenCL.discover().found) == once


def test_unknown_name() -> None:
    text = output_of(SHOW, TORCH_FL_BACKENDS="hots")
    assert "there is no backend 'hots'" in text
    assert "did you mean 'host'?" in text


def test_no_compiler() -> None:
    assert [b for b, i, *_ in _found(TORCH_FL_CC="/nonexistent") if i == 0] == ["opencl"]
    text = output_of(SHOW, TORCH_FL_CC="/nonexistent", TORCH_FL_BACKENDS="host")
    assert text.startswith("error: no device was found")
    assert "name it in TORCH_FL_CC" in text


# -- adapters from elsewhere --------------------------------------------------------------------------------------
def _package(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[torch_fl.backends]\n{name} = {name}\n")


@pytest.fixture
def packages(tmp_path: Path) -> str:
    """PYTHONPATH with an adapter package that works and one whose import fails."""
    _package(tmp_path, "toy_adapter", "from toy_chip import Toy as Base\nclass Toy(Base):\n    name = 'theirs'\n")
    _package(tmp_path, "broken_adapter", "import no_such_library\n")
    return f"{tmp_path}:{HERE}"


def test_adapters_are_found_by_entry_point(packages: str) -> None:
    """Chips come before the CPU, although their adapter's preference is the lowest."""
    found = _found(PYTHONPATH=packages)
    assert [i for b, i, *_ in found if b == "theirs"] == [0, 1]
    assert [i for b, i, *_ in found if b == "host"] == [2]
    (note,) = [n for b, _, _, n in found if b == "broken_adapter"]
    assert "failed to load" in note
    assert "no_such_library" in note


def test_register_backend() -> None:
    code = "import torch_fl, toy_chip\ntorch_fl.register_backend(toy_chip.Toy)\n"
    assert [(b, i) for b, i, *_ in _found(code, TORCH_FL_BACKENDS="toy")] == [("toy", 0), ("toy", 1)]


# -- adapters that misbehave (in this process, without opening anything for good) ---------------------------------
class Raises(Toy):
    name = "raises"

    @classmethod
    def discover(cls) -> Discovery:
        raise OSError("cannot talk to the driver")


class DoesNotOpen(Toy):
    name = "does_not_open"

    def __init__(self, properties: Any) -> None:
        raise OSError("busy")


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> module._Devices:
    """Discovery state as in a new process."""
    state = module._Devices()
    monkeypatch.setattr(module, "_state", state)
    monkeypatch.setattr(discovery, "_REGISTERED", {b.name: b for b in (Toy, Raises, DoesNotOpen)})
    return state


def test_discover_that_raises_and_chips_that_do_not_open(fresh: module._Devices) -> None:
    module.initialize(["raises", "does_not_open", "toy"])
    assert [d.backend.name for d in fresh.opened] == ["toy", "toy"]
    notes = {f.backend: f.note for f in fresh.found if f.index is None}
    assert "cannot talk to the driver" in notes["raises"]
    assert "busy" in notes["does_not_open"]


def test_no_device_says_why_for_each(fresh: module._Devices) -> None:
    with pytest.raises(torch_fl.DeviceError, match=r"(?s)raises: .*cannot talk.*does_not_open: .*busy"):
        module.initialize(["raises", "does_not_open"])
    module.initialize(["toy"])
    assert len(fresh.opened) == 2


def test_choice_is_final(fresh: module._Devices) -> None:
    module.initialize(["toy"])
    module.initialize(["toy"])
    with pytest.raises(torch_fl.DeviceError, match="already opened"):
        module.initialize(["raises"])


def test_index_that_does_not_exist(fresh: module._Devices) -> None:
    module.initialize(["toy"])
    with pytest.raises(torch_fl.DeviceError, match=r"npu:2 does not exist: this machine has 2 device\(s\)"):
        module.device_at(2)


def test_properties_compare_without_their_handle() -> None:
    (first, _) = Toy.discover().found
    assert dataclasses.replace(first, handle=object()) == first
