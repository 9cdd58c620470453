"""The demo: all rows beside a coreset, clean and under attack, with pictures and a report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.table import Table
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.preprocessing import StandardScaler

from dualcore import Problem, WassersteinLogisticRegression
from dualcore.attacks import alfa_attack
from dualcore.cli.outcome import Exit, Output, write_file, writing
from dualcore.cli.progress import watching
from dualcore.cli.report import Report, Section, explain_fit, software
from dualcore.data.arrays import FloatArray

_SEED = 0


class Case(NamedTuple):
    """Data to learn from and to judge by, the radius, the coreset, and an attack on the labels."""

    title: str
    X: FloatArray
    y: FloatArray
    X_test: FloatArray
    y_test: FloatArray
    poisoned: FloatArray
    radius: float
    shift: float
    coreset: float


def make_large(n: int) -> tuple[FloatArray, FloatArray]:
    """Return rows of 20 features, and labels.

    Five features tell much and have a large scale, the others tell little and have a small one. A plain model has
    large coefficients on these, although they are cheap to move.
    """
    rng = np.random.default_rng(_SEED)
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    means = np.concatenate([np.full(5, 0.6), np.full(15, 0.04)])
    return rng.normal(size=(n, 20)) * np.repeat([1.0, 0.12], [5, 15]) + y[:, None] * means, y


def run_demo(out: Path, rows: int, output: Output) -> Exit:
    """Run the demo and write everything into a folder."""
    began, draws = time.perf_counter(), find_spec("matplotlib") is not None
    with watching(output, "preparing") as tell:
        cases = [_bundled(), _generated(rows)]
        tables = [_compare(case, tell) for case in cases]
        large, settings = cases[1], dict[str, Any](random_state=_SEED, progress=tell, draw=draws)
        problem = Problem("logistic", radius=large.radius)
        certificate, sections = explain_fit(problem, large.X, large.y, large.coreset, **settings)
    found = list(zip(cases, tables, strict=True))
    pictures = [picture for section in sections for picture in section.pictures]
    report = Report(
        "Robust models, and a few percent of the rows that reproduce them",
        str(certificate),
        (*(Section(case.title, _legend(case).capitalize(), _cells(table)) for case, table in found), *sections),
        "dualcore demo" + ("" if rows == 200_000 else f" --rows {rows}"),
        (("seed", str(_SEED)), *software()),
    )
    seconds = time.perf_counter() - began
    files: dict[str, Any] = {f"{picture.name}.png": picture.png for picture in pictures}
    files["report.html"] = report.render()
    values: dict[str, Any] = {"command": "demo", "seconds": seconds, "certificate": str(certificate)}
    values |= {"tables": {case.title: table for case, table in found}, "files": sorted([*files, "demo.json"])}
    files["demo.json"] = json.dumps(values, indent=1, allow_nan=False) + "\n"
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_file(out / name, content)
    drawn = f" and {len(pictures)} pictures are" if draws else " is"
    grids = [_grid(case, table) for case, table in found]
    output.result(values, *grids, f"On {large.title}: {certificate}", f"{seconds:.0f} s; report.html{drawn} in {out}.")
    if not draws:
        note = "note: pictures need matplotlib. Install it with: pip install 'dualcore[plots]'"
        output.errors.print(note, markup=False, highlight=False)
    return Exit.OK


def _bundled() -> Case:
    X, y = load_breast_cancer(return_X_y=True)
    signs = np.where(y == 1, 1.0, -1.0)
    X, X_test, y, y_test = train_test_split(X, signs, test_size=0.3, random_state=_SEED, stratify=signs)
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    poisoned = np.asarray(alfa_attack(X, y, 0.1, random_state=_SEED).y, dtype=np.float64)
    title = f"Breast cancer, {y.size} rows of {X.shape[1]} features"
    return Case(title, X, y, X_test, y_test, poisoned, radius=0.1, shift=1.0, coreset=0.5)


def _generated(n: int) -> Case:
    X, y = make_large(n + n // 4)
    X, X_test, y, y_test = X[:n], X[n:], y[:n], y[n:]
    # The labels that mislead most: of the rows that the class means place most clearly.
    direction = X[y > 0.0].mean(axis=0) - X[y < 0.0].mean(axis=0)
    clearest = np.argsort(-(y * (X @ direction)), kind="stable")[: n // 10]
    poisoned = np.where(np.isin(np.arange(n), clearest), -y, y)
    title = f"Generated, {n:,} rows of {X.shape[1]} features"
    return Case(title, X, y, X_test, y_test, poisoned, radius=0.1, shift=0.3, coreset=0.02)


def _compare(case: Case, tell: Callable[[Any], None]) -> list[dict[str, Any]]:
    """Train plain, tuned and robust, from all rows and with a coreset; on clean labels and on poisoned ones."""
    robust = WassersteinLogisticRegression(radius=case.radius, random_state=_SEED, callback=tell)
    ridge = GridSearchCV(LogisticRegression(solver="newton-cholesky"), {"C": np.logspace(-3, 2, 6)}, cv=3)
    models = {
        # A tiny ridge: the bundled data are nearly separable, and without it the plain model does not exist.
        "plain": clone(robust).set_params(radius=0.0, ridge=1e-4),
        "tuned ridge": ridge,
        "robust, all rows": robust,
        "robust, coreset": clone(robust).set_params(coreset=case.coreset),
    }
    problem = Problem("logistic", radius=case.radius)
    lines = []
    for name, model in models.items():
        tell(f"{case.title}: {name}")
        began = time.perf_counter()
        model.fit(case.X, case.y)
        seconds = time.perf_counter() - began
        poisoned = clone(model).fit(case.X, case.poisoned)
        fitted = model.best_estimator_ if model is ridge else model
        coef, margins = fitted.coef_[0], case.y_test * model.decision_function(case.X_test)
        lines.append(
            {
                "model": name,
                "rows": len(model.coreset_ if "coreset" in name else case.y),
                "seconds": seconds,
                "worst_case_risk": problem.risk(coef, float(fitted.intercept_[0]), case.X, case.y),
                "relative_gap": model.certificate_.relative_gap if "robust" in name else None,
                "accuracy": float((margins > 0.0).mean()),
                # A row moved by `shift` against the model loses shift * ||coef|| of its margin, and no more.
                "accuracy_shifted": float((margins > case.shift * problem.size(coef)).mean()),
                "accuracy_poisoned": float((poisoned.predict(case.X_test) == case.y_test).mean()),
            }
        )
    return lines


def _legend(case: Case) -> str:
    return (
        "rows: of the training data, or of the coreset that stands for them; risk: worst case within radius "
        f"{case.radius:g}, on all training rows; gap: certified, relative; then accuracy on test rows: clean; each row "
        f"shifted by {case.shift:g} against the model; trained with a tenth of the labels flipped by an attacker."
    )


def _cells(table: list[dict[str, Any]]) -> tuple[tuple[str, ...], ...]:
    """Return the table of a case as texts, its header first."""
    formats = ("{}", "{:,}", "{:.2f}", "{:.4f}", "{:.1e}", "{:.1%}", "{:.1%}", "{:.1%}")
    head = ("model", "rows", "seconds", "risk", "gap", "clean", "shifted", "flipped")
    known = [zip(formats, line.values(), strict=True) for line in table]
    # Models of another problem have no certified gap for this risk.
    return head, *(tuple("-" if value is None else form.format(value) for form, value in line) for line in known)


def _grid(case: Case, table: list[dict[str, Any]]) -> Table:
    head, *rows = _cells(table)
    grid = Table(title=case.title, caption=_legend(case), box=box.SIMPLE_HEAD, padding=0)
    grid.title_justify = grid.caption_justify = "left"
    for name in head:
        grid.add_column(name, justify="left" if name == "model" else "right", no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    return grid
