"""The command torch-fl. A subcommand is a module with `add_arguments(parser)` and `run(args) -> exit status`.

Only the module of the chosen subcommand is imported. Errors are one message on stderr: 1 for what went wrong while
running, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from . import __version__
from .errors import Error, message

COMMANDS: dict[str, tuple[str, str]] = {
    "devices": ("torch_fl.commands.devices", "list the chips of this machine, after running a kernel on each"),
    "demo": ("torch_fl.commands.demo", "train a small network on a device and on the CPU, and compare"),
    "run": ("torch_fl.commands.run", "run a script and show which op ran where"),
    "bench": ("torch_fl.commands.bench", "measure ops and models"),
    "tune": ("torch_fl.commands.tune", "measure which way of computing is the fastest here, and keep it"),
    "build": ("torch_fl.commands.build", "compile kernels ahead of time, for chips this machine need not have"),
    "coverage": ("torch_fl.commands.coverage", "run torch's op database and show which route every op takes"),
}
"""Name -> (module, help). A module that is not installed is not offered."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        args = _parse(arguments)
        return int(args.run(args))
    except (Error, ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            return _closed_pipe()
        sys.stderr.write(f"torch-fl: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="torch-fl", description="One PyTorch program, any chip.")
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    chosen = next((a for a in arguments if not a.startswith("-")), None)
    for name, (module, text) in COMMANDS.items():
        if find_spec(module) is None:
            continue
        sub = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if name == chosen:
            loaded = _load(name, module)
            loaded.add_arguments(sub)
            sub.set_defaults(run=loaded.run)
    return parser.parse_args(arguments)


def _load(name: str, module: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise Error(message(f"torch-fl {name} cannot start", because=str(error))) from error


def _version() -> str:
    import torch

    return f"torch_fl {__version__} (torch {torch.__version__}, Python {sys.version.split()[0]})"


def _closed_pipe() -> int:
    """The reader of our output is gone (`| head`): nothing more to say, also not at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
