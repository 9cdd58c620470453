"""The command that writes the report of a model."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from dualcore import DualCoreset
from dualcore.cli.commands import certificate_values, digest, open_model
from dualcore.cli.outcome import Exit, FileError, OptionError, Output, check_output, writing
from dualcore.cli.plots import plot_changes, to_png
from dualcore.cli.progress import watching
from dualcore.cli.report import Picture, Report, Section, describe, explain_fit, software
from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem
from dualcore.problem.worstcase import changed_categories, worst_case_distribution

# What a report shows of a model that was trained on all rows.
_SIZE = 0.05


def write_report(model_path: Path, path: str, out: Path, seeds: int, separator: str | None, output: Output) -> Exit:
    """Certify a model on the rows of a file, tell how a coreset gets there, and write it all as one HTML file."""
    check_output(out, ".html", ".htm")
    if seeds < 1:
        raise OptionError(f"--seeds must be at least 1, got {seeds}.")
    model, rows = open_model(model_path, path, None, None, separator)
    classes = [str(label) for label in model.classes_] if is_classifier(model) else None
    if classes is not None and len(classes) != 2:
        raise FileError(f"{model_path.name} has {len(classes)} classes; a report is about two, or a regression.")
    # The settings of the fit, so that the report explains the model that was trained, with the gap it was given.
    sampler = model.coreset or DualCoreset(size=_SIZE, random_state=model.random_state)
    made, seed = getattr(model, "notes_", {}), int(model.random_state or 0)
    with watching(output, "certifying") as tell:
        known, prepared = model.certify(*rows[:3]), model.prepare(*rows[:3]).in_memory()
        problem, X, y, _, _ = prepared
        _, sections = explain_fit(
            problem,
            X,
            y,
            sampler,
            names=model.coef_names_,
            classes=classes,
            seeds=range(seeds),
            random_state=seed,
            progress=tell,
        )
        if problem.geometry.categories is not None:
            tell("looking at categories")
            coef, intercept = prepared.inside(np.ravel(model.coef_), float(np.squeeze(model.intercept_)))
            unseen = [f"{name}=(unseen)" for name in getattr(model, "categories_", {})]
            changes = explain_changes(problem, coef, intercept, X, y, names=model.coef_names_, unseen=unseen)
            sections = (changes, *sections)
    sum_now = digest(path)
    facts = [("data", f"{Path(path).name}, {len(y):,} rows, SHA-256 {sum_now}"), ("seed", str(seed)), *software()]
    if made.get("sha256") not in (None, sum_now):
        facts.insert(1, ("trained on", f"{made.get('data')}, SHA-256 {made.get('sha256')}"))
    about = Section(
        "The model",
        f"{describe(problem).capitalize()}. {len(model.coef_names_)} features"
        + (", standardised." if prepared.units is not None else "."),
        (("feature", "coefficient"), *_largest(model)),
    )
    report = Report(
        f"{getattr(model, 'target_', 'target')}: a robust {'regression' if classes is None else 'classifier'}",
        str(known),
        (about, *sections),
        "\n".join(shlex.join(command) for command in (made.get("command"), ["dualcore", *output.arguments]) if command),
        tuple(facts),
    )
    with writing(out):
        report.write(out)
    pictures = [picture.name for section in report.sections for picture in section.pictures]
    values: dict[str, Any] = {"command": "report", "out": str(out), "pictures": pictures}
    output.result(values | certificate_values(known), str(known), f"{len(pictures)} pictures, written to {out}.")
    return Exit.OK


def explain_changes(
    problem: Problem,
    coef: FloatArray,
    intercept: float,
    X: Any,
    y: FloatArray,
    *,
    names: Sequence[str],
    unseen: Sequence[str] = (),
    most: int = 10,
) -> Section:
    """Say which categories the adversary changes most against a model: a table and a picture of the ``most`` first.

    ``names`` are those of the features, ``unseen`` those of the category without a column, one for every group.
    """
    worst = worst_case_distribution(problem, coef, intercept, X, y)
    changes = changed_categories(problem, worst, X)
    title = "Categories that change most"
    if not changes:
        return Section(title, f"In the worst case within radius {problem.radius:g} no category changes.")

    def called(group: int, column: int | None) -> str:
        return names[column] if column is not None else unseen[group] if unseen else "none"

    shown = [(called(c.group, c.before), called(c.group, c.after), c.mass) for c in changes[:most]]
    rest, total = len(changes) - len(shown), sum(change.mass for change in changes)
    picture = Picture(
        "categories",
        title,
        "The share of all rows that makes each change in the worst case.",
        to_png(plot_changes([f"{old} to {new}" for old, new, _ in shown], [mass for *_, mass in shown])),
    )
    return Section(
        title,
        f"The worst case within radius {problem.radius:g} changes a category in {total:.2%} of the rows; "
        "a row that changes two counts twice."
        + (f" The {len(shown)} largest of {len(changes)} changes are shown." if rest else ""),
        (("category", "becomes", "share of rows"), *((old, new, f"{mass:.2%}") for old, new, mass in shown)),
        (picture,),
    )


def _largest(model: Any, count: int = 10) -> list[tuple[str, str]]:
    coef = np.ravel(model.coef_)
    order = np.argsort(-np.abs(coef), kind="stable")[:count]
    rows = [(model.coef_names_[j], f"{coef[j]:.6g}") for j in order]
    return [*rows, ("intercept", f"{float(np.squeeze(model.intercept_)):.6g}")]
