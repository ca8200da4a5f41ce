"""What the measuring scripts beside this one have in common: their arguments, and the file they write."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def arguments(description: str | None) -> argparse.Namespace:
    """`json`: where to write, or None; `small`: little and once."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--small", action="store_true", help="small sizes, once: for a machine without a card")
    return parser.parse_args()


def write(found: dict[str, Any], path: Path | None) -> None:
    """Keep what was found, where that is wanted."""
    if path:
        path.write_text(json.dumps(found, indent=1))
