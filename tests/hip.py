"""Clang as a compiler of kernels for AMD's cards, without a card.

hip_builtins.h stands in for ROCm's headers. What is not built into the compiler stays a call into its device library.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from nvrtc import Usage

NEWEST, OLDEST = 24, 15
NAMES = ("clang", *(f"clang-{v}" for v in range(NEWEST, OLDEST - 1, -1)))
COMPILER = next(filter(None, map(shutil.which, NAMES)), None)
MISSING = f"clang {OLDEST} or newer is not installed (Debian: apt install clang-16)"
BUILTINS = (Path(__file__).parent / "hip_builtins.h").read_text()


def compile_log(source: str, architecture: str) -> str:
    """What the compiler has to say where a source does not compile; "" where it does. No machine code is made."""
    return _compile(source, architecture, "-O1", "-emit-llvm").stderr


def knows(architecture: str) -> bool:
    """Whether the compiler makes code for an architecture."""
    return not _compile("", architecture).returncode


def assembly(source: str, architecture: str) -> str:
    """The machine code of a source, as text. Raises where it does not compile."""
    done = _compile(source, architecture, "-O3")
    assert not done.returncode, done.stderr
    return done.stdout


def usage(source: str, architecture: str) -> dict[str, Usage]:
    """What each kernel of a source takes on a card of a `gfx...` architecture. Raises where it does not compile."""
    return usage_in(assembly(source, architecture))


def usage_in(text: str) -> dict[str, Usage]:
    """The same of machine code.

    Code with calls has no numbers: registers are saved around them that ROCm's inlined functions leave alone.
    """
    found = [] if "s_swappc_b64" in text else _KERNEL.findall(text)
    return {name: Usage(int(count), 4 * int(spilled), int(shared)) for shared, name, count, spilled in found}


_KERNEL = re.compile(
    r"\.group_segment_fixed_size: (\d+).*?\.name: +(\w+)\n.*?\.vgpr_count: +(\d+)\n *\.vgpr_spill_count: (\d+)",
    re.DOTALL,
)


def _compile(source: str, architecture: str, *options: str) -> subprocess.CompletedProcess[str]:
    assert COMPILER, MISSING
    command = [COMPILER, "-x", "hip", f"--offload-arch={architecture}", "--cuda-device-only", "-nogpulib", "-nogpuinc"]
    command += ["-std=c++17", "-fno-math-errno", "-w", "-S", *options, "-", "-o", "-"]
    return subprocess.run(command, input=BUILTINS + source, capture_output=True, text=True, check=False)
