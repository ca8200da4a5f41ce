"""Large pages are asked for inside large blocks only."""

from __future__ import annotations

import pytest
from torch_fl.backends import _huge_pages as huge_pages

PAGE, LEAST = huge_pages.PAGE, huge_pages.LEAST


@pytest.mark.parametrize(
    ("address", "nbytes", "asked"),
    [
        (PAGE, LEAST - 1, []),
        (PAGE, LEAST, [(PAGE, LEAST)]),
        (PAGE + 64, LEAST, [(2 * PAGE, LEAST - PAGE)]),
        (PAGE - 64, LEAST + 63, [(PAGE, LEAST - PAGE)]),
    ],
)
def test_whole_pages_of_large_blocks(
    address: int, nbytes: int, asked: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(huge_pages, "_madvise", lambda start, length, wish: seen.append((start, length)))
    monkeypatch.setattr(huge_pages, "_WISH", 14)
    huge_pages.wish(address, nbytes)
    assert seen == asked
