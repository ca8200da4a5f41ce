"""Libraries that choose a device by a list of vendors: when one is imported, the virtual device is put on its list.

A library that asks `torch.accelerator` needs nothing here. accelerate and transformers' Trainer and pipelines ask for a
vendor's package before they believe in a device type, Lightning looks names up in a registry of classes.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from .after_import import AfterImport, Change
from .distributed import name_backends, note_searching


def _teach_accelerate(imports: ModuleType) -> None:
    """`Accelerator()` and `device_map` find npu devices without the vendor's package."""

    def is_npu_available(check_device: bool | None = None) -> bool:
        # An explicit False is asked by the lines that import the vendor's package next.
        import torch

        return check_device is not False and torch.npu.is_available()  # type: ignore[attr-defined]

    imports.is_npu_available = is_npu_available  # type: ignore[attr-defined]


def _teach_process_groups(state: ModuleType) -> None:
    """Processes of `accelerate launch` meet over gloo, not over the vendor's transport."""
    cls = state.PartialState
    original = cls._prepare_backend

    def _prepare_backend(self: Any, *args: Any, **kwargs: Any) -> Any:
        backend, kind = original(self, *args, **kwargs)
        return "gloo" if backend == "hccl" else backend, kind

    cls._prepare_backend = _prepare_backend


def _teach_transformers(module: ModuleType) -> None:
    """The Trainer and pipelines find npu devices. Not their attention, which would call the vendor's kernels."""
    import torch

    available = torch.npu.is_available  # type: ignore[attr-defined]
    for name in ("is_torch_npu_available", "is_torch_bf16_gpu_available"):
        if hasattr(module, name):
            setattr(module, name, lambda check_device=False: available())


def _teach_lightning(accelerators: ModuleType) -> None:
    """`Trainer(accelerator="npu")`, by the registry Lightning has for this."""
    from .lightning import accelerator_class

    package = accelerators.__name__.rpartition(".")[0]
    made = accelerator_class(accelerators, importlib.import_module(f"{package}.utilities.exceptions"))
    accelerators.AcceleratorRegistry.register("npu", made, description="virtual device of torch_fl")


_TEACH: Mapping[str, Change] = {
    "torch.distributed.distributed_c10d": name_backends,
    "torch.nn.parallel.distributed": note_searching,
    "accelerate.utils.imports": _teach_accelerate,
    "accelerate.state": _teach_process_groups,
    "transformers.training_args": _teach_transformers,
    "transformers.trainer": _teach_transformers,
    "transformers.trainer_utils": _teach_transformers,
    "transformers.pipelines.base": _teach_transformers,
    "lightning.pytorch.accelerators": _teach_lightning,
    "pytorch_lightning.accelerators": _teach_lightning,
}


def install() -> None:
    """Wait for the libraries; done once, at registration."""
    AfterImport(_TEACH).install()
