"""Tests of the tests: kernels that are wrong on purpose must be caught by the checks against OpInfo."""

from __future__ import annotations

import opinfo
import pytest
import wrong_kernels
from opinfo import Node

CAUGHT = {
    "add_without_alpha": (("forward", "add"), ("inplace", "add"), ("out", "add")),
    "sum_without_last": (("forward", "sum"), ("gradient", "expand")),
    "transpose_with_wrong_stride": (("forward", "t"), ("gradient", "mm"), ("double_backward", "mm")),
    "exp_over_its_input": (("forward", "exp"),),
    "negative_of_absolute": (
        *((group, "neg") for group in ("forward", "inplace", "out", "gradient", "double_backward")),
        ("double_backward", "sin"),  # its first gradient does without neg
    ),
    "bools_as_bytes": (("forward", "eq"),),
    "column_major_results": (("forward", "add"),),
    "clone_in_the_same_memory": (("forward", "clone"),),
    "result_beside_out": (("out", "neg"),),
}
"""Wrong kernel -> nodes, each of which must fail."""


CAUGHT_ELSEWHERE = {"errors", "spoiled", "variants"}
"""Groups that test_opinfo_checks.py deceives."""


def test_every_wrong_kernel_and_every_group_is_listed() -> None:
    assert set(CAUGHT) == set(wrong_kernels.WRONG)
    assert {group for nodes in CAUGHT.values() for group, _ in nodes} == set(opinfo.GROUPS) - CAUGHT_ELSEWHERE


@pytest.mark.device
@pytest.mark.parametrize("name", CAUGHT)
def test_wrong_kernel_is_caught(name: str) -> None:
    nodes = [Node(group, "float32", entry) for group, entry in CAUGHT[name]]
    right = [opinfo.outcome(node) for node in nodes]
    assert all(r["checked"] and not r["error"] for r in right), right
    with wrong_kernels.wrong(name):
        found = {tuple(node): opinfo.outcome(node)["error"] for node in nodes}
    assert all(error.startswith("AssertionError") for error in found.values()), found
    assert not opinfo.outcome(nodes[0])["error"], "the right kernel is not back"
