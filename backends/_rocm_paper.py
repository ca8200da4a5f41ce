"""AMD cards that are not there: what ops launch on one is not run, but its kernels are built by hipcc for a real one.

Code objects lie in the folder of compiled kernels (TORCH_FL_CACHE), named by architecture and a hash of what was
compiled; `Rocm` looks there before it asks hipRTC. A source that differs in anything, because of another size of tiles,
another dtype, another version of this package, is not found, and compiled as without this.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from torch_fl.errors import Error, message
from torch_fl.runtime import settings
from torch_fl.runtime.adapter import Backend, Discovery, Handle, KernelArg, Launcher, Properties

from ._rocm_matrix import matrix_of

UNITS = {"gfx1030": 40, "gfx1100": 48, "gfx90a": 104, "gfx942": 304}
"""Units of the largest card of an architecture as HIP counts them; they decide sizes of tiles."""
_OPTIONS = ("-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-std=c++17", "-O3")
_HEAD = "#include <hip/hip_runtime.h>\n"  # which hipRTC has built in


def code_object(architecture: str, source: str) -> Path:
    """Where the code object of a rendered source lies, if it was built."""
    key = hashlib.sha256(repr((source, _OPTIONS)).encode()).hexdigest()[:32]
    return settings.cache_dir() / f"rocm-{architecture}-{key}.hsaco"


class Paper(Backend):
    """One card of `architecture`: memory is the host's, launches do nothing, `sources` are those it would compile."""

    name = "paper"
    dialect = "hip"
    groups = True
    architecture: ClassVar[str] = ""

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        self.matrix = matrix_of(self.architecture)
        self.sources: list[str] = []

    @classmethod
    def discover(cls) -> Discovery:
        units = UNITS.get(cls.architecture, 64)
        card = Properties(
            f"{cls.architecture} on paper", "AMD", total_memory=64 << 30, compute_units=units, local_memory=64 << 10,
            fp64=True, fp16=True, int64_atomics=True, architecture=cls.architecture,
        )  # fmt: skip
        return Discovery((card,))

    def allocate(self, nbytes: int) -> Handle:
        return np.zeros(nbytes, np.uint8)

    def copy_h2d(self, handle: Handle, byte_offset: int, source: memoryview) -> None:
        handle[byte_offset : byte_offset + source.nbytes] = source

    def copy_d2h(self, target: memoryview, handle: Handle, byte_offset: int) -> None:
        target[:] = handle[byte_offset : byte_offset + target.nbytes].data

    def compile(self, source: str) -> Any:
        self.sources.append(source)
        return source

    def bind(
        self, program: Any, name: str, grid: tuple[int, int, int], args: Sequence[KernelArg], local: int = 0
    ) -> Launcher:
        return lambda handles, offsets, values: None

    def build(self, source: str) -> bool:
        """Make a source's code object; False: it is there. Raises Error with what the compiler says, or without one."""
        kept = code_object(self.architecture, source)
        if kept.exists():
            return False
        compiler = shutil.which("hipcc")
        if compiler is None:
            raise Error(message("there is no hipcc", hint="install ROCm's HIP compiler and put it on the PATH"))
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            text, made = Path(folder) / "kernels.hip", Path(folder) / kept.name
            text.write_text(_HEAD + source)
            command = [compiler, *_OPTIONS, f"--offload-arch={self.architecture}", "-o", str(made), str(text)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise Error(message("hipcc could not compile a source", because=done.stderr.strip()[-2000:]))
            made.replace(kept)  # atomic: two processes may build the same kernel
        return True
