"""`tensor.pin_memory()` and `DataLoader(pin_memory=True)` beside our device type.

torch asks the accelerator's hooks for a pinned allocator; hooks written in Python have none, and the call raises.
Where the machine has CUDA, memory is pinned for CUDA as before; elsewhere the result is a plain copy: nothing is
faster for it, and nothing is wrong (`is_pinned()` says False). Factories with `pin_memory=True` ask the hooks below
any kernel and still raise.
"""

from __future__ import annotations

from typing import Any

import torch

_NATIVE = torch._C.DispatchKey.CompositeExplicitAutograd


def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    """aten::_pin_memory for CPU tensors: pinned for CUDA where there is CUDA, else a copy with the same layout."""
    if torch.cuda.is_available():
        native = torch.ops.aten._pin_memory.default
        return native._op_dk(_NATIVE, self, device="cuda")  # type: ignore[no-any-return]
    return self.clone()


def install() -> list[Any]:
    """Register the kernel. Returns the library, which lives as long as the registration should."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("_pin_memory", pin_memory, "CPU")
    return [library]
