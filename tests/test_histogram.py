"""torch.histogram and histogramdd against the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import assert_same

EDGES = torch.tensor([-1.0, -0.25, 0.5, 2.0])


@pytest.mark.parametrize("density", [False, True])
def test_one_dimension(device: torch.device, density: bool) -> None:
    x, weight = torch.randn(6, 50), torch.rand(6, 50)
    x[0, :4] = torch.tensor([-1.0, 2.0, 0.5, 3.0])
    options: Any = {"density": density}
    assert_same(lambda x: torch.histogram(x, 7, **options), x, device=device)
    assert_same(lambda x, w: torch.histogram(x, 4, range=(-1.0, 2.0), weight=w, **options), x, weight, device=device)
    assert_same(lambda x, e, w: torch.histogram(x, e, weight=w, **options), x, EDGES, weight, device=device)


def test_several_dimensions(device: torch.device) -> None:
    points, weight = torch.randn(40, 2, dtype=torch.float64), torch.rand(40, dtype=torch.float64)
    for density in (False, True):
        options: Any = {"density": density}
        assert_same(lambda p, w, o=options: torch.histogramdd(p, [3, 5], weight=w, **o), points, weight, device=device)
        run: Any = lambda p, a, b, o=options: torch.histogramdd(p, [a, b], **o)  # noqa: E731
        assert_same(run, points, EDGES.double(), EDGES.double() * 2, device=device)


def test_few_elements(device: torch.device) -> None:
    for x in (torch.tensor([2.0, 2.0]), torch.zeros(0), torch.tensor([[1.5]])):
        assert_same(lambda x: torch.histogram(x, 3), x, device=device)
    x = torch.tensor([0.0, float("nan"), float("inf"), 0.7])
    got = torch.histogram(x.to(device), torch.tensor([0.0, 0.5, 1.0], device=device))
    torch.testing.assert_close(got.hist.cpu(), torch.tensor([1.0, 1.0]))


def test_out(device: torch.device) -> None:
    x = torch.randn(9)
    outs = (torch.zeros(8, device=device)[::2], torch.zeros(0, device=device))
    torch.histogram(x.to(device), 4, out=outs)
    torch.testing.assert_close([o.cpu() for o in outs], list(torch.histogram(x, 4)))


def test_mistakes(device: torch.device) -> None:
    x = torch.randn(4, device=device)
    for options, text in (({"bins": 0}, "bins must be > 0"), ({"bins": 3, "range": (1.0, 0.0)}, "should not exceed")):
        with pytest.raises(RuntimeError, match=text):
            torch.histogram(x, **options)
    with pytest.raises(RuntimeError, match="not finite"):
        torch.histogram(x / 0, 3)
    with pytest.raises(NotImplementedError):
        torch.histogram(x.half(), 3)
