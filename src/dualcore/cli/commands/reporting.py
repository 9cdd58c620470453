"""The command that writes the report of a model."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from dualcore import DualCoreset, certify
from dualcore.cli.commands.options import parse_separator, parse_size
from dualcore.cli.commands.outcome import Exit, FileError, OptionError, Output, check_output, writing
from dualcore.cli.commands.progress import watching
from dualcore.cli.commands.streams import load_for_model, model_reading
from dualcore.cli.commands.training import certificate_values, digest
from dualcore.cli.model import Model
from dualcore.cli.plots import plot_changes, to_png
from dualcore.cli.report import Picture, Report, Section, describe, explain_fit, software
from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem
from dualcore.problem.worstcase import changed_categories, worst_case_distribution

# What a report shows of a model that was trained on all rows.
_SIZE = "0.05"


def write_report(
    model_path: Path, data_path: Path, out: Path, seeds: int, separator: str | None, output: Output
) -> Exit:
    """Certify a model on the rows of a file, tell how a coreset gets there, and write it all as one HTML file."""
    check_output(out, ".html", ".htm")
    if seeds < 1:
        raise OptionError(f"--seeds must be at least 1, got {seeds}.")
    model = Model.load(model_path)
    if model.classes is not None and len(model.classes) != 2:
        raise FileError(f"{model_path.name} has {len(model.classes)} classes; a report is about two, or a regression.")
    reading = model_reading(model, parse_separator(separator))
    X, labels, _ = load_for_model(model, data_path, None, None, reading)
    if labels is None:
        raise RuntimeError("rows to report on have targets")
    X, y, problem, made = model.scale(X), model.encode(labels), model.problem, model.provenance
    seed = int(made.get("seed", 0))
    # The settings of the fit, so that the report explains the model that was trained, with the gap it was given.
    sampler = DualCoreset(
        size=parse_size(str(made.get("coreset") or _SIZE)),
        rounds=int(made.get("rounds") or 4),
        target_gap=float(made.get("gap") or 1e-3),
        random_state=seed,
    )
    with watching(output, "certifying") as watch:
        known = certify(problem, SimpleNamespace(coef=model.coef[0], intercept=float(model.intercept[0])), X, y)
        _, sections = explain_fit(
            problem,
            X,
            y,
            sampler,
            names=model.coef_names,
            classes=None if model.classes is None else (str(model.classes[0]), str(model.classes[1])),
            seeds=range(seeds),
            random_state=seed,
            progress=watch.say,
        )
        if model.settings.get("categories"):
            watch.say("looking at categories")
            changes = explain_changes(
                problem,
                model.coef[0],
                float(model.intercept[0]),
                X,
                y,
                names=model.coef_names,
                unseen=[f"{name}=(unseen)" for name in model.feature_names if name in model.coding],
            )
            sections = (changes, *sections)
    sum_now = digest(data_path)
    facts = [("data", f"{data_path.name}, {y.size:,} rows, SHA-256 {sum_now}"), ("seed", str(seed)), *software()]
    if made.get("sha256") not in (None, sum_now):
        facts.insert(1, ("trained on", f"{made.get('data')}, SHA-256 {made.get('sha256')}"))
    about = Section(
        "The model",
        f"{describe(problem).capitalize()}. {len(model.coef_names)} features"
        + (", standardised." if model.scaling is not None else "."),
        (("feature", "coefficient"), *_largest(model)),
    )
    report = Report(
        f"{model.target}: a robust {'classifier' if model.is_classifier else 'regression'}",
        str(known),
        (about, *sections),
        reproduce(model, model_path, data_path, out, seeds),
        tuple(facts),
    )
    with writing(out):
        report.write(out)
    pictures = [picture.name for section in report.sections for picture in section.pictures]
    values: dict[str, Any] = {"command": "report", "out": str(out), "pictures": pictures}

    def show(console: Console) -> None:
        console.print(str(known), highlight=False, markup=False)
        console.print(f"{len(pictures)} pictures, written to {out}.", markup=False)

    output.result(values | certificate_values(known), show)
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


def _largest(model: Model, count: int = 10) -> list[tuple[str, str]]:
    names = model.coef_names
    order = sorted(range(len(names)), key=lambda j: -abs(model.coef[0, j]))[:count]
    rows = [(names[j], f"{model.coef[0, j]:.6g}") for j in order]
    return [*rows, ("intercept", f"{model.intercept[0]:.6g}")]


def reproduce(model: Model, model_path: Path, data_path: Path, out: Path, seeds: int) -> str:
    """Return the commands that make the model and its report again."""
    made = model.provenance
    fit = ["dualcore", "fit", str(made.get("data", data_path.name)), "--target", model.target, "--out", model_path.name]
    # Categories follow from the file.
    own = {name: value for name, value in model.settings.items() if name not in ("categories", "category_cost")}
    if not own.pop("fit_intercept", True):
        fit.append("--no-intercept")
    fit += _options(own)
    for column, cost in zip(model.coding, model.settings.get("category_cost") or (), strict=True):
        fit += ["--category-cost", f"{column}={cost}"]
    names = ("coreset", "rounds", "gap") if made.get("coreset") is not None else ()
    fit += _options({name: made[name] for name in (*names, "seed", "tol", "max_iter") if made.get(name) is not None})
    fit += ["--standardize"] if model.scaling is not None else []
    fit += [part for column in made.get("drop", ()) for part in ("--drop", str(column))]
    fit += _options({name: made[name] for name in ("weight", "fill") if made.get(name)})
    fit += ["--drop-missing"] if made.get("drop_missing") else []
    separator = _options({"separator": made["separator"]} if made.get("separator") else {})
    report = ["dualcore", "report", model_path.name, data_path.name, "--seeds", str(seeds), "--out", out.name]
    return shlex.join(fit + separator) + "\n" + shlex.join(report + separator)


def _options(values: dict[str, Any]) -> list[str]:
    return [part for name, value in values.items() for part in (f"--{name.replace('_', '-')}", str(value))]
