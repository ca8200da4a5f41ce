"""What was measured, kept on disk: a readable JSON file for each kind of chip, in the folder of the kernel caches.

A file is named after everything that a winner depends on besides its problem; another driver or version begins a new
one. What cannot be read is taken for empty: the file is a cache, and nothing may fail because of it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import re
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import __version__
from ..runtime import settings
from ..runtime.device import Device

FORMAT = 1
"""Raised when ways or keys change their meaning."""

Entry = dict[str, Any]
"""way, default: their names; seconds, default_seconds: their medians."""


def folder() -> Path:
    """Where the files are."""
    return settings.cache_dir() / "tuned"


def identity(device: Device) -> dict[str, Any]:
    """What a winner depends on besides its problem."""
    p = device.properties
    # Names of CPUs say little ("x86_64"): a home that several machines share keeps one file for each.
    machine = platform.node() if p.kind == "cpu" else ""
    return {
        "format": FORMAT, "torch_fl": __version__, "backend": device.backend.name, "device": p.name,
        "driver": p.driver, "units": p.compute_units, "machine": machine,
    }  # fmt: skip


def path_of(device: Device) -> Path:
    """The file of a kind of chip."""
    return folder() / _file_name(tuple(identity(device).items()))


@functools.lru_cache(maxsize=16)
def _file_name(told: tuple[tuple[str, Any], ...]) -> str:
    """Asked at every plan that has a choice."""
    about = dict(told)
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:12]
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{about['backend']}-{about['device']}")[:60]
    return f"{name}-{digest}.json"


def read(path: Path) -> dict[str, Entry]:
    """Entries by problem; none where the file is missing, unreadable, damaged or of another format."""
    try:
        data = json.loads(path.read_text())
        if data["for"]["format"] != FORMAT:
            return {}
        return {str(k): e for k, e in data["problems"].items() if _is_entry(e)}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def _is_entry(entry: Any) -> bool:
    kinds = {"way": str, "default": str, "seconds": float, "default_seconds": float}
    return isinstance(entry, dict) and all(isinstance(entry.get(k), t) for k, t in kinds.items())


def add(device: Device, key: str, entry: Entry) -> None:
    """Keep one entry, beside those that other processes have added meanwhile. Silent where the folder is not ours."""
    path = path_of(device)
    with _lock:
        _known(path)[key] = entry
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _alone(path):
                _write(path, {"for": identity(device), "problems": {**read(path), key: entry}})


def _write(path: Path, data: dict[str, Any]) -> None:
    """Whole or not at all: readers take no lock."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".new")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(data, file, indent=1, sort_keys=True)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """While one process reads and writes, the others wait; where there are no file locks the last one wins."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


_seen: dict[Path, dict[str, Entry]] = {}
_lock = threading.Lock()


def _known(path: Path) -> dict[str, Entry]:
    if path not in _seen:
        _seen[path] = read(path)
    return _seen[path]


def find(device: Device, key: str) -> Entry | None:
    """What is kept for a problem; the file is read once a process."""
    with _lock:
        return _known(path_of(device)).get(key)


def any_for(device: Device) -> bool:
    """Whether a winner of any problem is kept for a chip."""
    with _lock:
        return bool(_known(path_of(device)))


def reread() -> None:
    """Look at the files again."""
    with _lock:
        _seen.clear()


def files() -> list[tuple[dict[str, Any], dict[str, Entry]]]:
    """Every file that can be read: what it is for, and its entries."""
    found = []
    for path in sorted(folder().glob("*.json")):
        entries = read(path)
        if entries:
            found.append((json.loads(path.read_text())["for"], entries))
    return found


def forget() -> int:
    """Delete everything that is kept, also what cannot be read; returns how many files that were."""
    paths = list(folder().glob("*.json"))
    for path in paths:
        path.unlink(missing_ok=True)
    for path in folder().glob("*.lock"):
        path.unlink(missing_ok=True)
    reread()
    return len(paths)
