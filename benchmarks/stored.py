"""What several benchmarks share: data, the strongest peer, versions and processor, results stored as JSON."""

from __future__ import annotations

import gzip
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from fingerprint import fingerprint

from dualcore import __version__

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("DUALCORE_DATA", HERE.parents[1] / "shared" / "data"))


def load_letter(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    path = folder / "letter_authors.npz"
    if not path.is_file():
        sys.exit(f"There is no {path.name} in the data folder: name the folder with --data or DUALCORE_DATA.")
    with np.load(path, allow_pickle=False) as file:
        return file["X_mm"], file["y_mm"]


def load_mnist(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the training images as rows of numbers from 0 to 1, and their digits."""

    def read(name: str, skip: int) -> np.ndarray:
        with gzip.open(folder / "mnist_idx" / name) as file:
            return np.frombuffer(file.read(), np.uint8)[skip:]

    images = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 784)
    return images / 255.0, read("train-labels-idx1-ubyte.gz", 8)


def make_data(n: int, m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Correlated features, labels with noise, targets with heavy tails."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, m)) @ (np.eye(m) + 0.2 * rng.standard_normal((m, m)))
    score = X @ rng.standard_normal(m) / np.sqrt(m) + 0.5
    labels = np.where(score + rng.logistic(size=n) > 0.0, 1.0, -1.0)
    return X, labels, score + rng.standard_t(3, size=n)


def logistic_solvers(X: Any, n_outputs: int = 1) -> list[str]:
    """Return the solvers of scikit-learn's logistic regression of which the fastest is the peer.

    "newton-cholesky" keeps a square matrix of all coefficients, so it is for dense rows of few features.
    """
    few = isinstance(X, np.ndarray) and n_outputs * (X.shape[1] + 1) <= 1000
    return ["lbfgs", "newton-cholesky"] if few else ["lbfgs"]


def environment(result: str) -> dict[str, Any]:
    """What the figures of a result depend on, and nothing that names the machine."""
    model = platform.processor()
    try:
        listing = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
        model = next(line.split(":", 1)[1].strip() for line in listing.splitlines() if line.startswith("Model name"))
    except (OSError, subprocess.CalledProcessError, StopIteration):
        pass
    versions = {"dualcore": __version__} | {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": model,
        "cores": os.cpu_count(),
        "versions": versions,
        "code": fingerprint(result),
    }


def store(name: str, content: dict[str, Any], *, full: bool) -> None:
    """Write results; those of a shortened run go to a folder that is not kept."""
    folder = HERE / "results" if full else HERE / "results" / "local"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"environment": environment(name)} | content, indent=1) + "\n", encoding="utf-8")
    print(f"\nstored in {path.relative_to(HERE.parent).as_posix()}")
