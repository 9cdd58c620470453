"""The file of a run: one JSON line a problem, appended, read back on the next start."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def stored(path: Path | None) -> list[dict[str, Any]]:
    """Return the records of a file; a line cut short by an interrupted run is left out."""
    if path is None or not path.exists():
        return []
    records = []
    for line in path.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            print(f"{path}: a line that is no JSON is left out", file=sys.stderr)
    return records


def append(path: Path, record: dict[str, Any]) -> None:
    """Write one line in one call, so that lines of several writers do not mix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = (json.dumps(record) + "\n").encode()
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":  # an interrupted run left half a line
            line = b"\n" + line
        os.write(handle, line)
    finally:
        os.close(handle)
