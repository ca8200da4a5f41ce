"""What must be overridden on the wrapper because C++ cannot know it: real device, moves between chips, host access.

`Tensor` (tensor.py) takes these in; they live apart so that the class itself stays small.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import _tensor_str

from . import names
from .compat.checkpoint import reduce_ex
from .compat.module_apply import OURS
from .compat.placement import named
from .compat.storage import data_ptr, untyped_storage
from .errors import message
from .runtime.devices import Buffer
from .tensor import Tensor, set_content, torch_device, wrap

_DEVICE_LIKE = (str, torch.device, int)


class _Move(torch.autograd.Function):
    """A copy to another device whose gradient goes back to the chip the input came from."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, device: torch.device, options: dict[str, Any]) -> torch.Tensor:
        ctx.device, ctx.dtype = tensor.device, tensor.dtype
        return torch.ops.aten._to_copy.default(tensor, device=device, **options)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].to(device=ctx.device, dtype=ctx.dtype), None, None


def _wanted_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device | None:
    """The device that a call of `to` names, in any of its forms."""
    first = args[0] if args else kwargs.get("device", kwargs.get("other"))
    if isinstance(first, torch.Tensor):
        return names.canonical(first.device)
    if not isinstance(first, _DEVICE_LIKE) or isinstance(first, bool):
        return None
    return torch.device("npu", first) if isinstance(first, int) else torch.device(named(first))


def to(self: Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """torch.Tensor.to, with chips that C++ cannot tell apart told apart."""
    device = _wanted_device(args, kwargs)
    here = self._spec.device.index
    if device is None or (here == 0 and (device.type != "npu" or device.index == 0)):
        return torch._C.TensorBase.to(self, *args, **kwargs)
    if device.type == "npu" and device.index == here:
        # Same chip: the index that C++ would compare is not ours, so the device is left out of the call.
        options = {**_options(self, args, kwargs), "copy": _copy_flag(args, kwargs)}
        return torch._C.TensorBase.to(self, options.pop("dtype", self.dtype), **options)
    return _Move.apply(self, device, _options(self, args, kwargs))  # type: ignore[no-any-return, no-untyped-call]


def _options(self: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """dtype and memory format of a call of `to`; flags that mean nothing for a real copy are dropped."""
    first = args[0] if args else kwargs.get("other")
    dtype = kwargs.get("dtype") or next((a for a in args if isinstance(a, torch.dtype)), None)
    if isinstance(first, torch.Tensor):
        dtype = first.dtype
    found = {"dtype": dtype, "memory_format": kwargs.get("memory_format")}
    return {k: v for k, v in found.items() if v is not None}


def _copy_flag(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """`copy` of a call of `to`: a keyword, or the last of the positional flags (dtype, non_blocking, copy)."""
    flags = [a for a in args if isinstance(a, bool)]
    return bool(kwargs.get("copy", flags[1] if len(flags) > 1 else False))


def cpu(self: Tensor, memory_format: torch.memory_format = torch.preserve_format) -> torch.Tensor:
    """A copy on the host."""
    return to(self, "cpu", memory_format=memory_format)


def get_device(self: Tensor) -> int:
    """Index of the device."""
    return self._spec.device.index


def new_tensor(self: Tensor, data: Any, **options: Any) -> torch.Tensor:
    """As torch has it; C++ would put it on index 0."""
    given: dict[str, Any] = {"dtype": self.dtype, "device": self.device}
    given |= {k: v for k, v in options.items() if v is not None}
    if not isinstance(data, torch.Tensor):
        return torch.tensor(data, **given)
    copied: torch.Tensor = data.detach().clone().to(given["device"], given["dtype"])
    return copied.requires_grad_(bool(given.get("requires_grad", False)))


def new(self: Tensor, *args: Any, **options: Any) -> torch.Tensor:
    """torch's old constructor, beside `self`: C++ would put the tensor on index 0."""
    from .decomposition import at_home

    if options.get("device") is not None:
        return torch._C.TensorBase.new(self, *args, **options)
    with at_home(self._spec.device):
        return torch._C.TensorBase.new(self, *args, **options)


def numpy(self: Tensor, *, force: bool = False) -> Any:
    """As torch has it: only `force=True` copies to the host. Raises TypeError otherwise."""
    if force:
        return plain(self.detach().cpu()).resolve_conj().resolve_neg().numpy()
    raise TypeError(
        f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory "
        "first."
    )


def __array__(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    return numpy(self)


def __dlpack__(self: Tensor, **options: Any) -> Any:
    """Raises BufferError: a capsule would hold a null pointer."""
    raise BufferError(
        f"a tensor on {self.device} has no pointer that a DLPack consumer could read; use Tensor.cpu() to copy it to "
        "host memory first"
    )


def tolist(self: Tensor) -> Any:
    """Nested Python lists of the values; waits for the device."""
    return plain(self.detach().cpu()).tolist()


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Without the user's class."""
    return tensor if type(tensor) is torch.Tensor else torch._C.TensorBase.as_subclass(tensor, torch.Tensor)


def __repr__(self: Tensor, *, tensor_contents: str | None = None) -> str:
    host, name = plain(self.detach().cpu()), "tensor" if type(self) is Tensor else type(self).__name__
    body = tensor_contents if tensor_contents is not None else _tensor_str._tensor_str(host, len(name) + 1)
    suffixes = [f"device='{self.device}'"]
    if host.numel() == 0 and host.dim() != 1:
        suffixes.append(f"size={tuple(host.shape)}")
    if host.dtype not in (torch.get_default_dtype(), torch.int64, torch.bool, torch.complex64):
        suffixes.append(f"dtype={host.dtype}")
    if self.grad_fn is not None:
        suffixes.append(f"grad_fn=<{type(self.grad_fn).__name__}>")
    elif self.requires_grad:
        suffixes.append("requires_grad=True")
    text = _tensor_str._add_suffixes(f"{name}({body}", suffixes, 0, force_newline=False)
    return f"Parameter containing:\n{text}" if isinstance(self, torch.nn.Parameter) else text


def __format__(self: Tensor, spec: str) -> str:
    if self.dim() == 0:
        return self.item().__format__(spec)
    return object.__format__(self, spec)


def as_subclass(self: Tensor, cls: type) -> Any:
    """The same tensor as an instance of a class of the user's (ops/subclass.py)."""
    from .ops import subclass

    return subclass.as_subclass(self, cls)


def _copied(buffer: Buffer, memo: dict[int, Any]) -> Buffer:
    """A copy of a buffer, one per deepcopy: tensors that shared memory share it in the copy."""
    found: Buffer | None = memo.get(id(buffer))
    if found is None:
        found = memo[id(buffer)] = buffer.device.allocate(buffer.nbytes)
        if buffer.nbytes:
            buffer.device.backend.copy_d2d(found.handle, 0, buffer.handle, 0, buffer.nbytes)
        memo.setdefault(id(memo), []).append(buffer)  # ids in a memo are valid while their objects live
    return found


def __deepcopy__(self: Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """A copy on the same device, with gradient and attributes; only leaves can be copied, as in torch."""
    if id(self) in memo:
        return memo[id(self)]  # type: ignore[no-any-return]
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment. "
            "If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage"
        )
    made: torch.Tensor = wrap(_copied(self._buffer, memo), self._spec, self._offset)
    if isinstance(self, torch.nn.Parameter):
        made = torch.nn.Parameter(made, self.requires_grad)
    else:
        made.requires_grad_(self.requires_grad)
    if type(self) is not Tensor:
        made = made.as_subclass(type(self))
    memo[id(self)] = made
    if self.grad is not None:
        made.grad = copy.deepcopy(self.grad, memo)
    own = {k: v for k, v in vars(self).items() if k not in OURS}
    vars(made).update(copy.deepcopy(own, memo))
    return made


def _get_data(self: Tensor) -> torch.Tensor:
    return torch._C.TensorBase.data.__get__(self)  # type: ignore[attr-defined, no-any-return]


def _set_data(self: Tensor, value: torch.Tensor) -> None:
    """`x.data = y`: same identity, the content of y. A y on the host turns x into a host tensor, as for CUDA."""
    if isinstance(value, Tensor):
        set_content(self, value.detach())  # type: ignore[arg-type]
    elif type(value) in (torch.Tensor, torch.nn.Parameter):
        from .virtual import replace_content

        replace_content(self, value.detach())
    else:
        raise TypeError(message(f"Variable data has to be a tensor, but got {type(value).__name__}"))


def install() -> None:
    """Put the overrides into the class."""
    for fn in (
        to, cpu, get_device, new, new_tensor, numpy, __array__, tolist, __repr__, __format__, __deepcopy__,
        __dlpack__, data_ptr, untyped_storage, as_subclass,
    ):  # fmt: skip
        setattr(Tensor, fn.__name__, fn)
    Tensor.__reduce_ex__ = reduce_ex  # type: ignore[assignment, method-assign]
    Tensor.data = property(_get_data, _set_data)  # type: ignore[assignment]
    Tensor.device = property(lambda self: torch_device(self._spec.device))  # type: ignore[assignment]
