"""One model of all classes against one class at a time: accuracy and time, for the default of ``multi_class``.

    python benchmarks/bench_multi_class.py                  # LETTER and MNIST are looked for in ../shared/data
    python benchmarks/bench_multi_class.py --data folder

Columns have mean 0 and variance 1, the norm is l2. For every data set and method the radius is the one of RADII that is
best on a quarter of the training rows held out; the accuracy is that of a fit on all training rows on rows never seen,
the mean over --splits, and the seconds are those of that fit. ``wins`` counts the splits in which a method is better.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from stored import DATA, environment, load_mnist
from threadpoolctl import threadpool_limits

from dualcore import WassersteinLogisticRegression

RESULTS = Path(__file__).resolve().parent / "results" / "multi_class.json"
RADII = (0.001, 0.01, 0.05)
METHODS = ("ovr", "multinomial")


def data_sets(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray, int]]:
    """Return rows, labels and how many rows to train on."""
    found: dict[str, tuple[np.ndarray, np.ndarray, int]] = {}
    for name, load in (("iris", load_iris), ("wine", load_wine), ("digits", load_digits)):
        X, y = load(return_X_y=True)
        found[name] = (X, y, len(y) // 2)
    if (folder / "letter_full.npz").is_file():
        stored = np.load(folder / "letter_full.npz")
        found["letter"] = (stored["X"].astype(np.float64), stored["y"], 4000)
    if (folder / "mnist_idx").is_dir():
        images, labels = load_mnist(folder)
        found["mnist"] = (images[:8000], labels[:8000], 3000)
    return found


def trained(method: str, radius: float, X: np.ndarray, y: np.ndarray) -> WassersteinLogisticRegression:
    return WassersteinLogisticRegression(radius=radius, multi_class=method, tol=1e-3).fit(X, y)


def compare(X: np.ndarray, y: np.ndarray, n_train: int, split: int) -> dict[str, tuple[float, float]]:
    """Return accuracy and seconds of both methods on one split."""
    X, X_test, y, y_test = train_test_split(X, y, train_size=n_train, random_state=split, stratify=y)
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    X_fit, X_held, y_fit, y_held = train_test_split(X, y, test_size=0.25, random_state=split, stratify=y)
    out = {}
    for method in METHODS:
        best = max(RADII, key=lambda radius: trained(method, radius, X_fit, y_fit).score(X_held, y_held))
        began = time.perf_counter()
        model = trained(method, best, X, y)
        seconds = time.perf_counter() - began
        out[method] = (float(model.score(X_test, y_test)), seconds)
    return out


def line(name: str, X: np.ndarray, y: np.ndarray, n_train: int, splits: int) -> dict[str, Any]:
    found = [compare(X, y, n_train, split) for split in range(splits)]
    out: dict[str, Any] = {"data": name, "rows": n_train, "features": X.shape[1], "classes": len(np.unique(y))}
    for method, other in (METHODS, METHODS[::-1]):
        out[method] = {
            "accuracy": float(np.mean([both[method][0] for both in found])),
            "seconds": float(np.median([both[method][1] for both in found])),
            "wins": sum(both[method][0] > both[other][0] for both in found),
        }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=None, help="some of the data sets; nothing is stored")
    chosen = parser.parse_args()
    about, lines = environment("multi_class"), []
    with threadpool_limits(chosen.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that is not converged is scored all the same
        for name, given in data_sets(chosen.data).items():
            if chosen.only is None or name in chosen.only:
                lines.append(line(name, *given, chosen.splits))
                print(json.dumps(lines[-1]), flush=True)
    if chosen.only is None:
        record = {"environment": about, "threads": chosen.threads, "splits": chosen.splits, "lines": lines}
        RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"stored in {RESULTS.name}")


if __name__ == "__main__":
    main()
