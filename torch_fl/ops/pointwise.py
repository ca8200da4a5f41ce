"""Pointwise ops as rows."""

from __future__ import annotations

from .rows import pointwise

pointwise(
    "aten::add.Tensor",
    {"float": "self + alpha * other", "int": "self + alpha * other", "bool": "self || (alpha && other)"},
)
pointwise("aten::mul.Tensor", "self * other")
