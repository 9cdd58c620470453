"""What several benchmarks share: the versions and the processor, results stored as JSON, bars printed."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent


def load_letter(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    path = folder / "letter_authors.npz"
    if not path.is_file():
        sys.exit(f"There is no {path.name} in the data folder: name the folder with --data or DUALCORE_DATA.")
    with np.load(path, allow_pickle=False) as file:
        return file["X_mm"], file["y_mm"]


def environment() -> dict[str, Any]:
    """What a figure depends on, and nothing that names the machine."""
    model = platform.processor()
    try:
        listing = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
        model = next(line.split(":", 1)[1].strip() for line in listing.splitlines() if line.startswith("Model name"))
    except (OSError, subprocess.CalledProcessError, StopIteration):
        pass
    names = ("dualcore", "numpy", "scipy", "scikit-learn", "joblib", "threadpoolctl")
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # a checkout that is not installed
            versions[name] = "not installed"
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": model,
        "cores": os.cpu_count(),
        "versions": versions,
    }


def store(name: str, content: dict[str, Any], *, full: bool) -> None:
    """Write results; those of a shortened run go to a folder that is not kept."""
    folder = HERE / "results" if full else HERE / "results" / "local"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"environment": environment()} | content, indent=1) + "\n", encoding="utf-8")
    print(f"\nstored in {path.relative_to(HERE.parent).as_posix()}")


def report(bars: Sequence[tuple[bool, str]]) -> bool:
    print()
    for passed, sentence in bars:
        print(f"{'pass' if passed else 'FAIL'}  {sentence}")
    return all(passed for passed, _ in bars)
