"""Which radius should be the default: held-out loss of constants and of `suggest_radius`, on every data set at hand.

    PYTHONPATH=. python benchmarks/bench_default_radius.py --data FOLDER   # stores results/default_radius.json

Features are standardised on the training half. A number is the held-out mean loss divided by that of the best of a grid
of 13 radii from 1e-5 to 1, the radius 0.1 among them; 1 is the best. "nothing" marks a model whose coefficients are all
zero. Regression targets are standardised too, so that one constant can serve them at all.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from fingerprint import fingerprint
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.preprocessing import StandardScaler

from dualcore import Problem, solve, suggest_radius
from experiments import datasets

RESULTS = Path(__file__).resolve().parent / "results" / "default_radius.json"
CONSTANTS = (0.1, 0.03, 0.01, 0.003, 0.001)
GRID = (*np.geomspace(1e-5, 1.0, 11), 0.03, 0.003)
MOST_ROWS = 8000


def tables(home: Path | None) -> Iterator[tuple[str, Any, Any, bool]]:
    """Yield name, features, target, and whether it is a classification."""
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", X, np.where(y == 1, 1.0, -1.0), True
    X, y = load_iris(return_X_y=True)
    yield "iris, versicolor", X, np.where(y == 1, 1.0, -1.0), True
    X, y = load_wine(return_X_y=True)
    yield "wine, first", X, np.where(y == 0, 1.0, -1.0), True
    X, y = load_digits(return_X_y=True)
    yield "digits, 8", X, np.where(y == 8, 1.0, -1.0), True
    yield "digits, 3 or 5", X[(y == 3) | (y == 5)], np.where(y[(y == 3) | (y == 5)] == 3, 1.0, -1.0), True
    X, y = load_diabetes(return_X_y=True)
    yield "diabetes", X, y, False
    if home is None:
        return
    letter = datasets.load_letter(home)
    yield "letter, A", letter.X_train, np.where(letter.y_train == letter.y_train.min(), 1.0, -1.0), True
    adult = datasets.load_adult(home)
    yield "adult", adult.X_train, adult.y_train, True
    energy = datasets.load_appliances_energy(home, random_state=0)
    yield "appliances", energy.X_train, energy.y_train, False


def measure(X: Any, y: Any, classification: bool) -> dict[str, Any]:
    """Return the held-out losses of every candidate, relative to the best of the grid."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))[:MOST_ROWS]
    X, y = np.asarray(X[order], dtype=np.float64), np.asarray(y[order], dtype=np.float64)
    train, test = np.arange(len(y)) % 2 == 0, np.arange(len(y)) % 2 == 1
    scaler = StandardScaler().fit(X[train])
    X = scaler.transform(X)
    if not classification:
        y = (y - y[train].mean()) / y[train].std()
    found: dict[str, Any] = {"rows": int(train.sum()), "features": X.shape[1]}
    for loss in ("logistic", "hinge") if classification else ("huber",):
        plain = Problem(loss)

        def held(radius: float, plain: Problem = plain) -> tuple[float, bool]:
            model = solve(plain.replace(radius=radius), X[train], y[train], tol=1e-5)
            score = X[test] @ model.coef + model.intercept
            nothing = bool(np.std(X[train] @ model.coef) < 1e-6)
            return float(np.mean(plain.loss.value(y[test] * score if classification else score - y[test]))), nothing

        best = min(held(radius)[0] for radius in GRID)
        suggested = suggest_radius(plain, X[train], y[train], random_state=0)
        row: dict[str, Any] = {"suggested": suggested}
        for name, radius in [(f"{c:g}", c) for c in CONSTANTS] + [("auto", suggested)]:
            value, nothing = held(radius)
            row[name] = {"ratio": round(value / best, 3), "nothing": nothing}
        found[loss] = row
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the data sets that are not part of scikit-learn")
    options = parser.parse_args()
    names = [f"{constant:g}" for constant in CONSTANTS] + ["auto"]
    print(f"{'data, loss':<30}" + "".join(f"{name:>10}" for name in names) + "   suggested")
    stored: dict[str, Any] = {"code": fingerprint("default_radius")}
    warnings.simplefilter("ignore")
    for name, X, y, classification in tables(options.data):
        stored[name] = measure(X, y, classification)
        for loss, row in stored[name].items():
            if isinstance(row, dict):
                shown = [f"{row[c]['ratio']:.2f}" + ("*" if row[c]["nothing"] else "") for c in names]
                print(f"{f'{name}, {loss}':<30}", *(f"{s:>9}" for s in shown), f"  {row['suggested']:.3g}", flush=True)
    RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
    print("* nothing learned")


if __name__ == "__main__":
    main()
