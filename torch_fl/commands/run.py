"""`torch-fl run script.py`: run a user's script as Python would, with the placement console on stderr."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

from .. import fallback
from ..errors import Error
from ..telemetry import console, trace
from ..telemetry.live import wide_console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of run; everything after the script belongs to the script."""
    parser.add_argument("--trace", metavar="FILE", help="write every op as JSON when the script ends")
    parser.add_argument("--fallback", choices=fallback.POLICIES, help="what to do with ops that have no kernel")
    parser.add_argument("--sync", action="store_true", help="wait for the device after each op: real times, slower")
    parser.add_argument("--cuda", action="store_true", help="let 'cuda' mean the device, also in child processes")
    parser.add_argument("--no-console", action="store_true", help="do not show the placement table")
    parser.add_argument("script", help="Python file to run")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="arguments of the script")


def run(args: argparse.Namespace) -> int:
    """Run the script under the listeners that were asked for; its exit status is ours."""
    if not os.path.exists(args.script):
        raise Error(f"there is no file {args.script!r}")
    if args.fallback:
        fallback.set_fallback(args.fallback)
    if args.cuda:
        _lend_cuda()
    with ExitStack() as stack:
        if args.trace:
            stack.enter_context(_written_trace(args.trace, args.sync))
        if not args.no_console:
            title = os.path.basename(args.script)
            stack.enter_context(console(title, sync=args.sync, rich=wide_console(stderr=True)))
        return _run_script(args.script, args.args)


def _lend_cuda() -> None:
    """Let `cuda` mean our device; processes that the script starts are told by the environment."""
    from ..compat import cuda

    if cuda.enable():
        os.environ.setdefault("TORCH_FL_CUDA", "1")


@contextmanager
def _written_trace(path: str, sync: bool) -> Iterator[None]:
    """A trace that is written however the script ends. Raises Error for a path that cannot be written, before it."""
    try:
        open(path, "w", encoding="utf-8").close()
    except OSError as error:
        raise Error(f"cannot write the trace: {error}") from None
    with trace(sync=sync) as found:
        try:
            yield
        finally:
            found.to_json(path)


def _run_script(script: str, arguments: list[str]) -> int:
    """Run a file as __main__. A traceback is printed as Python prints it, without our frames."""
    sys.argv = [script, *arguments]
    # As python does for a file; a folder or a zip with a __main__.py is put there by runpy.
    if os.path.isfile(script):
        sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        runpy.run_path(script, run_name="__main__")
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - the script's own error, shown as Python would
        error.__traceback__ = _from_script(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _from_script(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback from the script's first frame on; None where it has none (a syntax error)."""
    here = os.path.abspath(__file__)
    inner = traceback
    while inner is not None:
        name = inner.tb_frame.f_code.co_filename
        if name != here and not name.startswith("<frozen") and os.path.basename(name) != "runpy.py":
            return inner
        inner = inner.tb_next
    return None
