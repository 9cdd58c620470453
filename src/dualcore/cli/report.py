"""The report: one HTML file with the certificate in a sentence, the pictures, and how to reproduce them.

Nothing in it is fetched from anywhere: pictures are part of the file, and its content policy forbids anything else.
"""

from __future__ import annotations

import base64
import html
import platform
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from dualcore import __version__, radius_path, suggest_radius
from dualcore.certificates import Certificate
from dualcore.cli import plots
from dualcore.cli.app import certificate_values
from dualcore.cli.outcome import FileError, Output
from dualcore.cli.progress import watching
from dualcore.cli.rows import Given
from dualcore.coresets.fit import as_sampler, fit_coreset
from dualcore.coresets.samplers import (
    CoresetFit,
    DualCoreset,
    Round,
    Sampler,
)
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows
from dualcore.problem import Anchor, Data, Problem
from dualcore.problem.worstcase import changed_categories, worst_case_distribution

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Picture:
    """A PNG picture with what it shows: ``name`` is that of its file, ``caption`` a sentence or two.

    A report shows its ``panels`` where there are some: side by side, or below each other on a phone.
    """

    name: str
    title: str
    caption: str
    png: bytes = field(repr=False)
    panels: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Section:
    """A heading with a sentence, a table (the first row is its header) and pictures; each may be empty."""

    title: str
    text: str = ""
    table: tuple[tuple[str, ...], ...] = ()
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Report:
    """What a report says: the certificate in one sentence, sections, and how to reproduce it.

    Examples
    --------
    >>> text = Report("A model", "It is good.", (), "dualcore fit data.csv").render()
    >>> "<h1>A model</h1>" in text and "://" not in text
    True
    """

    title: str
    certificate: str
    sections: tuple[Section, ...]
    reproduce: str  # commands, one a line
    facts: tuple[tuple[str, str], ...] = ()  # seeds, sums of files, versions

    def render(self) -> str:
        """Return the report as the text of an HTML file."""
        body = [f"<h1>{_text(self.title)}</h1>", f'<p class="certificate">{_text(self.certificate)}</p>']
        for section in self.sections:
            body.append(f"<section><h2>{_text(section.title)}</h2>")
            body += [f"<p>{_text(section.text)}</p>"] if section.text else []
            body += [_table(section.table)] if section.table else []
            body += [_figure(picture) for picture in section.pictures]
            body.append("</section>")
        facts = _table((("", ""), *self.facts)) if self.facts else ""
        body.append(f"<section><h2>How to reproduce it</h2><pre>{_text(self.reproduce)}</pre>{facts}</section>")
        page = (files("dualcore.cli") / "report.html").read_text(encoding="utf-8")
        return page.format(title=_text(self.title), body="\n".join(body))


def _text(value: str) -> str:
    return html.escape(value)


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = rows
    lines = ['<div class="wide"><table>']
    if any(head):
        lines.append("<tr>" + "".join(f"<th>{_text(cell)}</th>" for cell in head) + "</tr>")
    lines += ["<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rest]
    return "\n".join([*lines, "</table></div>"])


def _figure(picture: Picture) -> str:
    shown = [base64.b64encode(png).decode() for png in picture.panels or (picture.png,)]
    parts = [f", panel {number} of {len(shown)}" if len(shown) > 1 else "" for number in range(1, len(shown) + 1)]
    images = "".join(
        f'<img src="data:image/png;base64,{data}" alt="{_text(picture.title)}{part}">'
        for data, part in zip(shown, parts, strict=True)
    )
    return (
        f'<figure id="{_text(picture.name)}"><div class="panels">{images}</div>'
        f"<figcaption><strong>{_text(picture.title)}.</strong> {_text(picture.caption)}</figcaption></figure>"
    )


def _draw(name: str, title: str, caption: str, figure: Any) -> Picture:
    """Return a figure as a picture."""
    return Picture(name, title, caption, *plots.to_panels(figure))


def describe(problem: Problem) -> str:
    """Return a problem in words.

    Examples
    --------
    >>> describe(Problem("logistic", radius=0.1, norm="l1"))
    'logistic loss, radius 0.1, feature norm l1, labels fixed'
    >>> describe(Problem("hinge", radius=0.1, categories=[[0, 1], [None, 2]], category_cost=[1.0, np.inf], ridge=0.1))
    'hinge loss, radius 0.1, feature norm l2, labels fixed, category costs 1 and inf, ridge 0.1'
    """
    gamma = problem.geometry.label_cost
    noun = "label" if problem.is_classification else "target"
    moves = f"{noun}s fixed" if np.isinf(gamma) else f"{noun} cost {gamma:g}"
    ridge = f", ridge {problem.ridge:g}" if problem.ridge else ""
    norm = problem.geometry.norm.name
    groups = problem.geometry.categories
    if groups is not None:
        costs = [f"{cost:g}" for cost in dict.fromkeys(groups.costs)]
        moves += f", category cost{'s' if len(costs) > 1 else ''} {' and '.join(costs)}"
    return f"{problem.loss.name} loss, radius {problem.radius:g}, feature norm {norm}, {moves}{ridge}"


def software() -> tuple[tuple[str, str], ...]:
    """Return the versions that a result depends on."""
    others = ((name, version(name)) for name in ("numpy", "scipy", "scikit-learn", "clarabel"))
    return (("Python", platform.python_version()), ("dualcore", __version__), *others)


def explain_fit(
    problem: Problem,
    X: Any,
    y: FloatArray,
    coreset: float | int | Sampler = 0.05,
    sample_weight: Any = None,
    *,
    names: Sequence[str] = (),
    classes: Sequence[Any] | None = None,
    random_state: int = 0,
    progress: Progress = lambda sentence: None,
    draw: bool = True,
) -> tuple[Certificate, tuple[Section, ...]]:
    """Train through a coreset and explain the fit: rounds, weights, other radii.

    The fit is the same as with ``coreset`` elsewhere, so that a report states the gap of the model. Labels are -1
    and +1 in classification, and ``classes`` what they stand for; ``names`` are those of the features. ``progress`` is
    called with a sentence before each part of the work. Without ``draw`` there are no pictures, which need matplotlib.
    """
    progress("training, and choosing a coreset")
    sampler, n = as_sampler(coreset, random_state), len(y)
    fit = fit_coreset(problem, X, y, sampler, sample_weight)
    certificate, rounds = fit.certificate, _rounds(fit)
    table = [("read", "rows trained on", "worst-case risk", "no model is below", "relative gap")]
    for r in rounds:
        table.append((str(r.read), f"{r.rows:,}", f"{r.upper:.6g}", f"{r.lower:.6g}", f"{r.relative_gap:.2e}"))
    worked_on, reads = rounds[-1].rows, certificate.n_reads
    text = (
        f"Trained on {f'{worked_on:,} of' if worked_on < n else 'all'} {n:,} rows; the data were read "
        f"{reads} time{'s' * (reads != 1)}. The coreset has {len(fit.coreset):,} rows. "
        f"{describe(problem).capitalize()}."
    )
    pictures = _pictures_of(problem, fit, problem.validate(X, y, sample_weight), classes) if draw else ()
    section = Section("The fit", text, tuple(table), pictures)
    progress("following the radius")
    drawn: dict[str, Any] = {"coreset": coreset, "random_state": random_state}
    at = problem.radius or max(suggest_radius(problem, X, y, sample_weight=sample_weight, **drawn), 1e-3)
    # Where moves are known row by row a radius takes a coreset and a certificate of its own, longer than all rows do.
    through = sampler if problem.family.is_closed else None
    radii, tol = at * np.geomspace(0.25, 4.0, 13), 1e-6 if through else 1e-4
    path = radius_path(problem, X, y, radii, through, sample_weight, tol=tol, random_state=random_state)
    text = f"{len(path.points)} radii, {path.n_reads} reads; "
    text += f"the largest certified relative gap is {path.relative_gap.max():.2e}."
    if draw:
        figure, caption = plots.plot_path(path, marked=at, names=names), "A red line is the radius of the model."
        pictures = (_draw("path", "Radius path", caption, figure),)
    return certificate, (section, Section("Other radii", text, pictures=pictures))


def _rounds(fit: CoresetFit) -> list[Round]:
    """Return what was known after every read; where the rows were read once more, that read is the last."""
    last, known = fit.history[-1], fit.certificate
    if known.lower <= last.lower:
        return list(fit.history)
    return [*fit.history, replace(last, read=max(known.n_reads, last.read + 1), upper=known.upper, lower=known.lower)]


def _pictures_of(problem: Problem, fit: CoresetFit, data: Data, classes: Sequence[Any] | None) -> Any:
    coreset, anchor = fit.coreset, fit.coreset.anchor or fit.solution
    at = Anchor(anchor.coef, anchor.intercept, problem.minimum(anchor.coef, anchor.intercept, data).multiplier)
    h, _ = problem.family.bounds(at, as_rows(coreset.X), coreset.y)
    gaps = "Every read of the full data tightens the bounds: the risk of the best model so far, and that of any model."
    rows = "Each row of the coreset, and how many of all rows it stands for."
    return (
        _draw("rounds", "Certified gap per read", gaps, plots.plot_rounds(_rounds(fit))),
        _draw("weights", "Weights against the dual loss", rows, plots.plot_weights(coreset, h, classes)),
    )


def report_on(model: Any, rows: Given, path: str, sum_now: str | None, output: Output) -> tuple[Report, dict[str, Any]]:
    """Certify a model on rows, and explain its fit through a coreset; return the report and the values to print."""
    classes = [str(label) for label in model.classes_] if hasattr(model, "classes_") else None
    if classes is not None and len(classes) != 2:
        raise FileError(f"The model has {len(classes)} classes; a report is about two, or a regression.")
    # The settings of the fit, so that the report explains the model that was trained, with the gap it was given.
    sampler = model.coreset or DualCoreset(size=0.05, random_state=model.random_state)
    made, seed = getattr(model, "notes_", {}), int(model.random_state or 0)
    with watching(output, "certifying") as tell:
        known, prepared = model.certify(*rows[:3]), model.prepare(*rows[:3]).in_memory()
        problem, X, y, weights, _ = prepared
        named = {"names": model.coef_names_, "classes": classes, "random_state": seed}
        _, sections = explain_fit(problem, X, y, sampler, weights, progress=tell, **named)
        if problem.geometry.categories is not None:
            tell("looking at categories")
            coef, intercept = prepared.inside(np.ravel(model.coef_), float(np.squeeze(model.intercept_)))
            unseen = [f"{name}=(unseen)" for name in getattr(model, "categories_", {})]
            sections = (explain_changes(problem, coef, intercept, X, y, model.coef_names_, unseen), *sections)
    facts = [("data", f"{Path(path).name}, {len(y):,} rows, SHA-256 {sum_now}"), ("seed", str(seed)), *software()]
    if made.get("sha256") not in (None, sum_now):
        facts.insert(1, ("trained on", f"{made.get('data')}, SHA-256 {made.get('sha256')}"))
    coefs, scaled = np.ravel(model.coef_), "" if prepared.units is None else ", standardised"
    largest = [(model.coef_names_[j], f"{coefs[j]:.6g}") for j in np.argsort(-np.abs(coefs), kind="stable")[:10]]
    largest += [("intercept", f"{float(np.squeeze(model.intercept_)):.6g}")]
    text = f"{describe(problem).capitalize()}. {len(coefs)} features{scaled}."
    about = Section("The model", text, (("feature", "coefficient"), *largest))
    report = Report(
        f"{getattr(model, 'target_', 'target')}: a robust {'regression' if classes is None else 'classifier'}",
        str(known),
        (about, *sections),
        "\n".join(shlex.join(command) for command in (made.get("command"), output.arguments) if command),
        tuple(facts),
    )
    return report, certificate_values(known)


def explain_changes(
    problem: Problem, coef: Any, intercept: float, X: Any, y: Any, names: Any, unseen: Any, most: int = 10
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
        return str(unseen[group] if column is None else names[column])

    shown = [(called(c.group, c.before), called(c.group, c.after), c.mass) for c in changes[:most]]
    total = sum(change.mass for change in changes)
    text = f"The worst case within radius {problem.radius:g} changes a category in {total:.2%} of the rows; "
    text += "a row that changes two counts twice."
    if len(changes) > len(shown):
        text += f" The {len(shown)} largest of {len(changes)} changes are shown."
    figure = plots.plot_changes([f"{old} to {new}" for old, new, _ in shown], [mass for *_, mass in shown])
    caption = "The share of all rows that makes each change in the worst case."
    cells = (("category", "becomes", "share of rows"), *((old, new, f"{mass:.2%}") for old, new, mass in shown))
    return Section(title, text, cells, (Picture("categories", title, caption, plots.to_png(figure)),))
