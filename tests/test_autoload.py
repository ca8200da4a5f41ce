"""`import torch` alone gives torch.npu, stays light, and cannot be made to fail by us."""

from __future__ import annotations

import pytest
from subprocesses import output_of

pytestmark = pytest.mark.device  # many processes, each of which loads torch

HEAVY = ("pyopencl", "cupy", "rich", "numpy.testing", "torch_fl.dispatch", "torch_fl.ops", "torch_fl.backends.opencl")


def test_import_torch_is_enough() -> None:
    code = """
import torch
x = torch.ones(3).npu() + 1
print(x.device, x.tolist(), torch.npu.device_count(), torch.accelerator.current_accelerator())
"""
    assert output_of(code, TORCH_FL_BACKENDS="host") == "npu:0 [2.0, 2.0, 2.0] 1 npu\n"


def test_import_loads_nothing_heavy_and_opens_nothing() -> None:
    code = f"""
import sys, torch
print([m for m in {HEAVY!r} if m in sys.modules], torch.npu.is_initialized())
import torch_fl
print([m for m in {HEAVY!r} if m in sys.modules], torch.npu.is_initialized())
"""
    assert output_of(code) == "[] False\n[] False\n"


def test_import_without_autoload() -> None:
    code = "import torch, torch_fl; print(torch_fl.device_count(), torch.ones(2, device='npu').tolist())"
    assert output_of(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0", TORCH_FL_BACKENDS="host") == "1 [1.0, 1.0]\n"


ASK = """
import torch_fl
try:
    torch_fl.init()
except torch_fl.DeviceError as error:
    print(error)
print(torch.ones(2).add(1).tolist())
"""


_VERSION = "torch.__version__ = torch.torch_version.TorchVersion"
_HOOKS = "torch.utils.backend_registration._setup_privateuseone_for_python_backend"
OBSTACLES = {
    "other owner": (
        "torch.utils.rename_privateuse1_backend('foo')",
        "owns torch's PrivateUse1 device (as 'foo')",
    ),
    "old torch": (f"{_VERSION}('2.3.1+cpu')", "torch 2.3.1+cpu is outside the supported range"),
    "new torch": (f"{_VERSION}('2.14.0a0')", "outside the supported range"),
    "odd version": ("torch.__version__ = 'nonsense'", "registering the device type 'npu' failed"),
    "hooks gone": (f"{_HOOKS} = None", "registering the device type 'npu' failed"),
}


@pytest.mark.parametrize(("before", "because"), OBSTACLES.values(), ids=OBSTACLES)
def test_obstacles_are_told_at_first_use(before: str, because: str) -> None:
    code = f"import torch\nimport torch.utils.backend_registration\n{before}\nimport torch_fl.register\n"
    text = output_of(f"{code}torch_fl.register.autoload()\n{ASK}", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "the device type 'npu' is not available" in text
    assert because in text
    assert text.endswith("[2.0, 2.0]\n")


BROKEN_DRIVER = """
import importlib.abc, sys
class Broken(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names!r}:
            raise {error}
sys.meta_path.insert(0, Broken())
import torch, torch_fl
x = torch.ones(3, device="npu") + 1
print([(d.backend.name) for d in torch_fl.devices()], x.tolist())
from torch_fl.runtime.devices import discoveries
print([f.note for f in discoveries() if f.index is None and f.backend == "opencl"])
"""


@pytest.mark.parametrize(
    "error", ["ImportError('no pyopencl')", "OSError('libOpenCL.so.1: broken')", "RuntimeError('driver')"]
)
def test_a_broken_driver_is_reported_and_passed_over(error: str) -> None:
    text = output_of(BROKEN_DRIVER.format(names=("pyopencl", "cupy"), error=error))
    assert text.startswith("['host'] [2.0, 2.0, 2.0]\n")
    assert "pyopencl cannot be imported" in text


@pytest.mark.parametrize("name", ["TORCH_FL_CUDA", "TORCH_FL_FALLBACK", "TORCH_FL_LOG"])
def test_a_wrong_setting_is_told_at_first_use(name: str) -> None:
    code = "import torch, torch_fl\ntry: torch.ones(2, device='npu')\nexcept torch_fl.DeviceError as e: print(e)"
    assert f"{name} takes " in output_of(code, **{name: "perhaps"})
