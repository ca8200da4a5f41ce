"""Every environment variable of torch_fl, read here and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

FALLBACK_POLICIES = ("allow", "warn", "error")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def check() -> None:
    """Raise ValueError for a variable whose value means nothing."""
    fallback_policy(), log_level(), cuda_compat(), tune()


def backends() -> list[str] | None:
    """TORCH_FL_BACKENDS: comma-separated adapters to use, in order of preference; unset means all, best first."""
    text = os.environ.get("TORCH_FL_BACKENDS", "")
    return [n.strip() for n in text.split(",") if n.strip()] or None


def fallback_policy() -> str:
    """TORCH_FL_FALLBACK: "allow", "warn" (default) or "error"."""
    policy = os.environ.get("TORCH_FL_FALLBACK", "").strip().lower() or "warn"
    if policy not in FALLBACK_POLICIES:
        raise ValueError(f"TORCH_FL_FALLBACK takes one of {FALLBACK_POLICIES}, got {policy!r}")
    return policy


def log_level() -> str:
    """TORCH_FL_LOG: "WARNING" (default), "INFO" or "DEBUG" (one line per op)."""
    level = os.environ.get("TORCH_FL_LOG", "").strip().upper() or "WARNING"
    if level not in LOG_LEVELS:
        raise ValueError(f"TORCH_FL_LOG takes one of {LOG_LEVELS}, got {level!r}")
    return level


def cache_dir() -> Path:
    """TORCH_FL_CACHE: folder for compiled kernels and what was measured; default ~/.cache/torch_fl."""
    named = os.environ.get("TORCH_FL_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "torch_fl"


def tune() -> bool | None:
    """TORCH_FL_TUNE: 1 measures problems at their first use, 0 ignores what was measured; unset uses it (None)."""
    text = os.environ.get("TORCH_FL_TUNE", "").strip()
    if text not in ("", "0", "1"):
        raise ValueError(f"TORCH_FL_TUNE takes 0 or 1, got {text!r}")
    return text == "1" if text else None


def interpreted() -> bool:
    """TORCH_FL_PURE: 1 runs the hit path in Python although it was compiled at install; for tests and debugging."""
    return os.environ.get("TORCH_FL_PURE", "").strip() not in ("", "0")


def host_compiler() -> str | None:
    """TORCH_FL_CC (else CC): the C compiler of the host adapter; unset means cc, gcc or clang from the path."""
    return os.environ.get("TORCH_FL_CC") or os.environ.get("CC") or None


_CUDA: dict[str, Any] = {
    **dict.fromkeys(("", "0", "false", "no", "off"), False),
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    "force": "force",
}


def cuda_compat() -> bool | Literal["force"]:
    """TORCH_FL_CUDA: 1 lets scripts say "cuda" where the machine has none, "force" also where it has; default 0."""
    text = os.environ.get("TORCH_FL_CUDA", "").strip().lower()
    if text not in _CUDA:
        raise ValueError(f"TORCH_FL_CUDA takes 0, 1 or force, got {text!r}")
    return _CUDA[text]  # type: ignore[no-any-return]
