"""What must not end the process: run as a program, one line per case. See test_survival.py, which judges the lines.

Every case gets a device, does something that fails, and returns when the right exception came out.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

import torch_fl
from torch_fl import registry
from torch_fl.dispatch import forget_plans
from torch_fl.runtime.devices import device_at

CASES: dict[str, Callable[[torch.device], None]] = {}


class Boom(Exception):
    """The exception that must come out, this very object."""


def case(fn: Callable[[torch.device], None]) -> Callable[[torch.device], None]:
    CASES[fn.__name__] = fn
    return fn


@contextmanager
def raises(kind: type[BaseException], text: str = "") -> Iterator[None]:
    try:
        yield
    except kind as error:
        assert text in str(error), str(error)  # noqa: PT017
    else:
        raise AssertionError(f"no {kind.__name__}")


def boom(*_: Any) -> Any:
    raise Boom("boom") from KeyError("cause")


@contextmanager
def raises_boom() -> Iterator[None]:
    """Boom comes out with its cause and with the frame that raised it."""
    try:
        yield
    except Boom as error:
        assert isinstance(error.__cause__, KeyError)  # noqa: PT017
        tb, names = error.__traceback__, []
        while tb is not None:
            names.append(tb.tb_frame.f_code.co_name)
            tb = tb.tb_next
        assert names[-1] == "boom", names
    else:
        raise AssertionError("no Boom")


def leaf(device: torch.device) -> torch.Tensor:
    return torch.ones(3, 4, device=device, requires_grad=True)


@contextmanager
def broken(op: str) -> Iterator[None]:
    """The portable kernel of `op` raises."""
    table = registry.registered()[registry.find_overload(op)]
    before = dict(table)
    table[""] = registry.Kernel(op, boom)
    forget_plans()
    try:
        yield
    finally:
        table.clear()
        table.update(before)
        forget_plans()


# -- ops ----------------------------------------------------------------------------------------------------------
@case
def kernel_in_forward(device: torch.device) -> None:
    x = leaf(device)
    with broken("aten::cos"), raises_boom():
        x.cos()


@case
def kernel_in_backward(device: torch.device) -> None:
    y = leaf(device).sin().sum()
    with broken("aten::cos"), raises_boom():
        y.backward()


@case
def kernel_in_autograd_grad(device: torch.device) -> None:
    x = leaf(device)
    y = x.sin().sum()
    with broken("aten::cos"), raises_boom():
        torch.autograd.grad(y, x)


@case
def out_of_memory_in_forward(device: torch.device) -> None:
    x = leaf(device)
    with memory_limit(device, 1000), raises(torch.OutOfMemoryError, "out of memory"):
        x.expand(1000, 3, 4) + 1


@case
def out_of_memory_in_backward(device: torch.device) -> None:
    x = torch.ones(64, 64, device=device, requires_grad=True)
    y = (x * x).sum()
    with memory_limit(device, 100), raises(torch.OutOfMemoryError, "the limit is"):
        y.backward()


@contextmanager
def memory_limit(device: torch.device, room: int) -> Iterator[None]:
    chip = device_at(device.index)
    chip.memory_limit = chip.allocated_bytes() + room
    try:
        yield
    finally:
        chip.memory_limit = None


@case
def wrong_shapes(device: torch.device) -> None:
    with raises(RuntimeError):
        torch.ones(3, device=device) + torch.ones(4, device=device)


# -- hooks --------------------------------------------------------------------------------------------------------
@case
def tensor_hook(device: torch.device) -> None:
    y = leaf(device) * 2
    y.register_hook(boom)
    with raises_boom():
        y.sum().backward()


@case
def leaf_hook(device: torch.device) -> None:
    x = leaf(device)
    x.register_hook(boom)
    with raises_boom():
        (x * 2).sum().backward()


@case
def post_accumulate_hook(device: torch.device) -> None:
    x = leaf(device)
    x.register_post_accumulate_grad_hook(boom)
    with raises_boom():
        (x * 2).sum().backward()


@case
def node_hook(device: torch.device) -> None:
    y = leaf(device) * 2
    y.grad_fn.register_hook(boom)
    with raises_boom():
        y.sum().backward()


@case
def node_prehook(device: torch.device) -> None:
    y = leaf(device) * 2
    y.grad_fn.register_prehook(boom)
    with raises_boom():
        y.sum().backward()


@case
def module_backward_hook(device: torch.device) -> None:
    module = torch.nn.ReLU()
    module.register_full_backward_hook(boom)
    with raises_boom():
        module(leaf(device)).sum().backward()


@case
def module_backward_pre_hook(device: torch.device) -> None:
    module = torch.nn.ReLU()
    module.register_full_backward_pre_hook(boom)
    with raises_boom():
        module(leaf(device)).sum().backward()


@case
def multi_grad_hook(device: torch.device) -> None:
    x = leaf(device)
    y = x * 2
    torch.autograd.graph.register_multi_grad_hook([x, y], boom)
    with raises_boom():
        y.sum().backward()


@case
def saved_tensor_hook(device: torch.device) -> None:
    x = leaf(device)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, boom):
        y = (x * x).sum()
    with raises_boom():
        y.backward()


@case
def first_of_two_errors(device: torch.device) -> None:
    x = leaf(device)
    y = x * 2
    z = y * 3
    z.register_hook(boom)
    y.register_hook(lambda g: 1 / 0)
    with raises_boom():
        z.sum().backward()
    assert x.grad is None


# -- functions ----------------------------------------------------------------------------------------------------
class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return boom()


@case
def function_backward(device: torch.device) -> None:
    with raises_boom():
        Fails.apply(leaf(device)).sum().backward()


@case
def function_backward_that_recovers(device: torch.device) -> None:
    class Recovers(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            x = torch.ones(3, 4, device=device, requires_grad=True)
            with raises_boom(), torch.enable_grad():
                Fails.apply(x).sum().backward()
            return grads[0] * 5

    x = leaf(device)
    Recovers.apply(x).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), torch.full((3, 4), 5.0))


def _checkpointed(device: torch.device, use_reentrant: bool) -> None:
    calls = [0]

    def body(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        if calls[0] > 1:
            boom()
        return (x * x).sin()

    y = checkpoint(body, leaf(device), use_reentrant=use_reentrant).sum()
    with raises_boom():
        y.backward()


@case
def checkpoint_reentrant(device: torch.device) -> None:
    _checkpointed(device, True)


@case
def checkpoint_not_reentrant(device: torch.device) -> None:
    _checkpointed(device, False)


@case
def hook_on_the_host(device: torch.device) -> None:
    x = torch.ones(3, requires_grad=True)
    y = x.to(device) * 2
    x.register_hook(boom)
    with raises_boom():
        y.sum().cpu().backward()


# -- Ctrl-C -------------------------------------------------------------------------------------------------------
def _interrupted(work: Callable[[], Any], times: int = 5) -> None:
    """Runs `work` again and again until SIGINT has interrupted it `times` times, wherever it was."""
    armed, stop = threading.Event(), threading.Event()

    def handler(*_: Any) -> None:
        if armed.is_set():
            armed.clear()
            raise KeyboardInterrupt

    def press() -> None:
        while not stop.wait(0.011):
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, handler)
    thread = threading.Thread(target=press)
    thread.start()
    end = time.monotonic() + 30
    try:
        for _ in range(times):
            with raises(KeyboardInterrupt):
                while time.monotonic() < end:
                    armed.set()  # again: one that hits a finalizer is swallowed by CPython
                    work()
    finally:
        armed.clear()
        stop.set()
        thread.join()
        signal.signal(signal.SIGINT, before)


@case
def interrupt_in_ops(device: torch.device) -> None:
    x = torch.ones(50, device=device)
    _interrupted(lambda: x * 2 + 1)


@case
def interrupt_in_backward(device: torch.device) -> None:
    def work() -> None:
        x = leaf(device)
        y = x
        for _ in range(10):
            y = y * 1.5
        y.sum().backward()

    _interrupted(work)


@case
def interrupt_in_mixed_backward(device: torch.device) -> None:
    def work() -> None:
        x = torch.ones(3, requires_grad=True)
        y = x
        for _ in range(3):
            y = (y.to(device) * 2).cpu() * 0.5
        y.sum().backward()

    _interrupted(work)


# -- telemetry ----------------------------------------------------------------------------------------------------
@case
def telemetry_listener(device: torch.device) -> None:
    from torch_fl.telemetry import listen

    class Sink:
        sync = False
        add = staticmethod(boom)

    x = leaf(device)
    with listen(Sink()):
        (x * 2).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), torch.full((3, 4), 2.0))


def next_op_is_right(device: torch.device) -> None:
    x = torch.arange(6.0, device=device).reshape(2, 3).requires_grad_()
    ((x + 1) * x).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), 2 * torch.arange(6.0).reshape(2, 3) + 1)


def main(names: list[str]) -> None:
    torch_fl.set_fallback("allow")
    for device in [torch.device("npu", i) for i in range(torch_fl.device_count())]:
        for name in names or CASES:
            print(f"{name} {device}:", end=" ", flush=True)
            try:
                CASES[name](device)
                next_op_is_right(device)
                print("ok", flush=True)
            except BaseException as error:  # noqa: BLE001 - reported, the next case runs
                print(f"{type(error).__name__}: {error}".replace("\n", " | "), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
