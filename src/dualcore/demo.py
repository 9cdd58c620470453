"""The main job on embedded data: whole against coreset, clean against attacked, with the certificate."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from dualcore import DualCoreset, WassersteinLogisticRegression
from dualcore.attacks import alfa_attack
from dualcore.geometry import FloatArray

__all__ = ["Line", "run_demo"]


@dataclass(frozen=True)
class Line:
    """One line of the comparison."""

    data: str
    model: str
    rows: int
    seconds: float
    risk: float | None
    relative_gap: float | None
    clean: float
    attacked: float


@dataclass(frozen=True)
class _Case:
    """Training data, clean and shifted test data, and the settings that suit them."""

    name: str
    X: FloatArray
    y: FloatArray
    X_test: FloatArray
    y_test: FloatArray
    radius: float
    size: float


def _breast_cancer() -> _Case:
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
    scaler = StandardScaler().fit(X)
    X, y = scaler.transform(X), np.where(y == 1, 1.0, -1.0)
    attacked = alfa_attack(X, y, rate=0.05, random_state=0)  # the training labels are poisoned
    return _Case(
        "breast cancer, 5 % adversarial label flips",
        attacked.X,
        attacked.y,
        scaler.transform(X_test),
        np.where(y_test == 1, 1.0, -1.0),
        0.03,
        0.5,
    )


def _generated(n: int) -> _Case:
    rng = np.random.default_rng(0)
    mixing = np.eye(20) + 0.1 * rng.normal(size=(20, 20))
    coef = rng.normal(size=20) / 4.0
    X = rng.normal(size=(n + 20_000, 20)) @ mixing
    y = np.where(rng.random(len(X)) < 1.0 / (1.0 + np.exp(-(X @ coef))), 1.0, -1.0)
    return _Case(f"generated, {n:,} rows x 20", X[:n], y[:n], X[n:], y[n:], 0.05, 0.02)


def _accuracy(model: Any, case: _Case, shift: float) -> float:
    """Accuracy after every test row moved by ``shift``, in the Euclidean norm, straight against the model."""
    coef = np.ravel(model.coef_)
    direction = coef / max(float(np.linalg.norm(coef)), 1e-300)
    moved = case.X_test - shift * case.y_test[:, None] * direction
    return float(np.mean(model.predict(moved) == case.y_test))


def _lines(case: _Case, shift: float) -> tuple[list[Line], Any]:
    plain = LogisticRegression(C=np.inf, max_iter=10_000)
    whole = WassersteinLogisticRegression(radius=case.radius)
    sampler = DualCoreset(size=case.size, rounds=4, target_gap=1e-3)
    small = WassersteinLogisticRegression(radius=case.radius, coreset=sampler, random_state=0)
    lines = []
    for name, model in (("plain", plain), ("robust, all rows", whole), ("robust, coreset", small)):
        began = time.perf_counter()
        model.fit(case.X, case.y)
        seconds = time.perf_counter() - began
        certificate = getattr(model, "certificate_", None)
        coreset = getattr(model, "coreset_", None)
        lines.append(
            Line(
                case.name,
                name,
                len(case.y) if coreset is None else len(coreset),
                seconds,
                None if certificate is None else certificate.upper,
                None if certificate is None else certificate.relative_gap,
                _accuracy(model, case, 0.0),
                _accuracy(model, case, shift),
            )
        )
    return lines, small


def run_demo(out: Path, n: int = 200_000, console: Console | None = None) -> list[Line]:
    """Fit whole and coreset models on bundled and on generated data, print the comparison, write pictures.

    Parameters
    ----------
    out : Path
        Folder for the pictures.
    n : int, default=200_000
        Rows of the generated data.
    console : rich.console.Console, optional
    """
    console = console or Console()
    lines: list[Line] = []
    for case, shift in ((_breast_cancer(), 0.5), (_generated(n), 0.5)):
        found, model = _lines(case, shift)
        lines += found
        table = Table(title=case.name, title_justify="left")
        for heading in (
            "model",
            "rows",
            "seconds",
            "worst-case risk",
            "certified gap",
            "accuracy",
            f"shifted by {shift}",
        ):
            table.add_column(heading, justify="left" if heading == "model" else "right")
        for line in found:
            table.add_row(
                line.model,
                f"{line.rows:,}",
                f"{line.seconds:.3f}",
                "" if line.risk is None else f"{line.risk:.6f}",
                "" if line.relative_gap is None else f"{line.relative_gap:.1e}",
                f"{line.clean:.3f}",
                f"{line.attacked:.3f}",
            )
        console.print(table)
        console.print(str(model.certificate_))
    return lines
