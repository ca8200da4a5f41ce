"""Nested tensors of the strided layout are refused; those of the jagged layout are torch's own, over device tensors.

Autograd asks a strided one for its sizes where C++ cannot take an exception: the process would end.
"""

from __future__ import annotations

import functools
from typing import Any

from ..errors import Error, describe_call, message
from ..registry import find_overload, handler

STRIDED = (
    "_nested_from_padded", "_nested_from_padded_and_nested_example", "_nested_tensor_from_mask",
    "_nested_tensor_from_tensor_list", "_nested_view_from_buffer", "_nested_view_from_buffer_copy",
)  # fmt: skip


def _refuse(func: Any, *args: Any, **kwargs: Any) -> Any:
    raise Error(
        message(
            "nested tensors of the strided layout are not on this device",
            call=describe_call(func.name(), args, kwargs),
            because="of nested tensors only those of the jagged layout are tensors of the device",
            hint="layout=torch.jagged; for attention over sequences of several lengths, padding and a mask",
        )
    )


for _name in STRIDED:
    handler(f"aten::{_name}")(functools.partial(_refuse, find_overload(f"aten::{_name}")))
