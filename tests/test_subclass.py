"""Tensor classes of users and libraries: on the device they stay what they are."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch


class Image(torch.Tensor):
    """As libraries of transforms have it."""

    called: list[str] = []

    def pixels(self) -> int:
        return self.numel()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.called.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.fixture
def image(device: torch.device) -> Image:
    torch.ops.aten.alias.default(torch.ones(1, device=device))  # used before anybody asks for a class
    return torch.arange(6.0).view(2, 3).as_subclass(Image).to(device)


def _is_one(x: Any, device: torch.device) -> bool:
    return isinstance(x, Image) and x.device == device


def test_results_are_of_the_class(image: Image, device: torch.device) -> None:
    assert _is_one(image, device)
    plain = torch.ones(3, device=device)
    for made in (
        image + 1,
        plain * image,
        image.t(),
        image[0],
        image.half(),
        torch.stack([image, image]),
        image.detach(),
    ):
        assert _is_one(made, device)
    assert all(_is_one(part, device) for part in image.split(1))
    assert (image @ torch.ones(3, 1, device=device)).pixels() == 2  # type: ignore[attr-defined]
    torch.testing.assert_close(image.sum(0).as_subclass(torch.Tensor).cpu(), torch.tensor([3.0, 5, 7]))


def test_its_function_is_asked(image: Image) -> None:
    Image.called.clear()
    image.add(1).relu()
    assert Image.called == ["add", "relu"]


def test_back_on_the_host_it_is_the_class_itself(image: Image) -> None:
    assert type(image.cpu()) is type(image.to("cpu")) is Image
    assert image.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert image.numpy(force=True).sum() == 15
    assert repr(image).startswith("Image([[0., 1., 2.],")


def test_writing_in_place(image: Image, device: torch.device) -> None:
    before = image._version
    assert image.add_(1) is image
    image[0] = 9
    assert image.tolist() == [[9, 9, 9], [4, 5, 6]]
    assert image._version > before
    image.t_()
    assert image.shape == (3, 2)
    out = torch.empty(2, device=device).as_subclass(Image)
    assert torch.add(torch.ones(2, device=device), 1, out=out) is out
    assert out.tolist() == [2, 2]


def test_gradients_pass(device: torch.device) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    (x.as_subclass(Image) ** 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]  # type: ignore[union-attr]
    assert type(x.grad) is type(x.detach())
    weight = torch.nn.Parameter(torch.ones(2, device=device).as_subclass(Image))
    (weight * 3).sum().backward()
    assert _is_one(weight, device)
    assert weight.grad.tolist() == [3, 3]  # type: ignore[union-attr]


def test_copies_and_back_to_the_plain_class(image: Image, device: torch.device) -> None:
    twin = copy.deepcopy(image)
    assert _is_one(twin.zero_(), device)
    assert image.tolist() == [[0, 1, 2], [3, 4, 5]]
    plain = image.as_subclass(torch.Tensor)
    assert not isinstance(plain, Image)
    plain.fill_(2)
    assert image.tolist() == [[2] * 3] * 2


def test_a_class_that_dispatches_itself_is_refused(device: torch.device) -> None:
    class Own(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with pytest.raises(RuntimeError):
        torch.ones(2, device=device).as_subclass(Own)
