"""The report: one HTML file with the certificate in a sentence, the pictures, and how to reproduce them.

Nothing in it is fetched from anywhere: pictures are part of the file, and its content policy forbids anything else.
"""

from __future__ import annotations

import base64
import html
import platform
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.certificates import Certificate
from dualcore.cli.plots import (
    SizeResult,
    plot_path,
    plot_rounds,
    plot_sizes,
    plot_weights,
    to_panels,
)
from dualcore.coresets.path import RadiusPath, radius_path, suggest_radius
from dualcore.coresets.refine import as_sampler, fit_coreset
from dualcore.coresets.samplers import (
    CoresetFit,
    DualCoreset,
    ImportanceCoreset,
    LayeredCoreset,
    Round,
    Sampler,
    UniformCoreset,
)
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows
from dualcore.data.storage import write_atomically
from dualcore.problem import Anchor, Problem
from dualcore.solvers import solve
from dualcore.solvers.assess import as_source

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
            if section.text:
                body.append(f"<p>{_text(section.text)}</p>")
            if section.table:
                body.append(_table(section.table))
            body += [_figure(picture) for picture in section.pictures]
            body.append("</section>")
        body.append("<section><h2>How to reproduce it</h2>")
        body.append(f"<pre>{_text(self.reproduce)}</pre>")
        if self.facts:
            body.append(_table((("", ""), *self.facts)))
        body.append("</section>")
        page = (files("dualcore.cli") / "report.html").read_text(encoding="utf-8")
        return page.format(title=_text(self.title), body="\n".join(body))

    def write(self, path: str | Path) -> None:
        """Write the report, atomically."""
        write_atomically(Path(path), self.render().encode())


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
    return Picture(name, title, caption, *to_panels(figure))


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
    found = [("Python", platform.python_version())]
    for name in ("dualcore", "numpy", "scipy", "scikit-learn", "clarabel"):
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            found.append((name, "not installed as a package"))
    return tuple(found)


def compare_sizes(
    problem: Problem,
    X: Any,
    y: FloatArray,
    sizes: Sequence[int],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    X_test: Any = None,
    y_test: FloatArray | None = None,
    progress: Progress | None = None,
) -> list[SizeResult]:
    """Train on coresets of several sizes by every sampler, and score all models alike: on the full data.

    Labels are -1 and +1 in classification. The accuracy is measured on ``X_test, y_test``, the full data by default;
    ``progress`` is called with a sentence before each model.
    """
    samplers: list[tuple[Callable[..., Sampler], dict[str, Any]]] = [
        (DualCoreset, {"rounds": 2}),
        (UniformCoreset, {}),
        (ImportanceCoreset, {}),
        (LayeredCoreset, {}),
    ]
    X_test, y_test = (X, y) if X_test is None or y_test is None else (X_test, y_test)
    data, source = problem.validate(X, y), as_source(problem, X, y)
    results = []
    for make, settings in samplers:
        for size in sizes:
            for seed in seeds:
                sampler = make(size=int(size), random_state=seed, **settings)
                if progress is not None:
                    progress(f"{sampler.name} of {size} rows")
                with warnings.catch_warnings():  # how good a model is shows in the picture
                    warnings.simplefilter("ignore", UserWarning)
                    coreset = sampler.build(problem, source)
                    model = solve(problem, coreset.X, coreset.y, coreset.weights, tol=1e-5)
                risk = problem.minimum(model.coef, model.intercept, data).value
                accuracy = score(problem, model.coef, model.intercept, X_test, y_test)
                results.append(SizeResult(sampler.name, int(size), int(seed), risk, accuracy))
    return results


def score(problem: Problem, coef: FloatArray, intercept: float, X: Any, y: npt.ArrayLike) -> float:
    """Return the share of right labels, or the coefficient of determination in regression."""
    data = problem.validate(X, y)
    t = problem.signal(coef, intercept, data)
    if problem.is_classification:  # a score of exactly 0 is predicted as the negative class
        return float(np.where(data.y > 0.0, t > 0.0, t >= 0.0).mean())
    return 1.0 - float(t @ t) / max(float(((data.y - data.y.mean()) ** 2).sum()), np.finfo(float).tiny)


def explain_fit(
    problem: Problem,
    X: FloatArray,
    y: FloatArray,
    coreset: float | int | Sampler = 0.05,
    *,
    names: Sequence[str] = (),
    classes: Sequence[Any] | None = None,
    X_test: FloatArray | None = None,
    y_test: FloatArray | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    random_state: int = 0,
    progress: Progress | None = None,
    draw: bool = True,
) -> tuple[Certificate, tuple[Section, ...]]:
    """Train through a coreset and tell the whole story of it: rounds, weights, other sizes, other radii.

    The fit is the one that ``coreset`` means everywhere else, so that a report has one gap and not two. Labels are -1
    and +1 in classification, and ``classes`` what they stand for; ``names`` are those of the features. The accuracy is
    measured on ``X_test, y_test``, the full data by default, and sizes are compared over ``seeds``. ``progress`` is
    called with a sentence before each part of the work. Without ``draw`` there are no pictures, which need matplotlib,
    and the comparison of sizes is left out.
    """
    tell = progress or (lambda sentence: None)
    tell("training, and choosing a coreset")
    sampler = as_sampler(coreset, random_state)
    fit = fit_coreset(problem, X, y, sampler)
    size, n = len(fit.coreset), int(np.shape(X)[0])
    results: list[SizeResult] = []
    if draw:
        tell("comparing sizes and samplers")
        sizes = sorted({max(10, min(n, round(size * share))) for share in (0.2, 0.5, 1.0, 2.0)})
        results = compare_sizes(problem, X, y, sizes, seeds=seeds, X_test=X_test, y_test=y_test, progress=progress)
    tell("following the radius")
    at = problem.radius or max(suggest_radius(problem, X, y, coreset=coreset, random_state=random_state), 1e-3)
    radii = at * np.geomspace(0.25, 4.0, 13)
    # Where moves are known row by row a radius takes a coreset and a certificate of its own, longer than all rows do.
    through = sampler if problem.family.is_closed else None
    path = radius_path(problem, X, y, radii, through, tol=1e-6 if through else 1e-4, random_state=random_state)
    if draw:
        tell("drawing")
    solution, certificate = fit.solution, fit.certificate
    X_test, y_test = (X, y) if X_test is None or y_test is None else (X_test, y_test)
    accuracy = score(problem, solution.coef, solution.intercept, X_test, y_test)
    accuracy_name = "accuracy" if problem.is_classification else "coefficient of determination"
    table = [("read", "rows trained on", "worst-case risk", "no model is below", "relative gap")]
    for r in _rounds(fit):
        table.append((str(r.read), f"{r.rows:,}", f"{r.upper:.6g}", f"{r.lower:.6g}", f"{r.relative_gap:.2e}"))
    worked_on, reads = fit.history[-1].rows, certificate.n_reads
    text = (
        f"Trained on {f'{worked_on:,} of' if worked_on < n else 'all'} {n:,} rows; the data were read "
        f"{reads} time{'s' * (reads != 1)}. The coreset has {size:,} rows. {describe(problem).capitalize()}."
    )
    sections = [Section("The fit", text, tuple(table), _pictures_of(problem, fit, X, y, classes) if draw else ())]
    if draw:
        least = certificate.lower if certificate.lower > 0.0 else None
        figure = plot_sizes(results, optimum=least, reference=accuracy, accuracy_name=accuracy_name)
        caption = (
            f"Median and range over {len(seeds)} seed{'s' * (len(seeds) != 1)}. The risk is on the full data, as its "
            "excess over the certified lower bound."
        )
        text = "The same problem through coresets of other sizes, and through the samplers that are usual."
        drawn = _draw("sizes", "Risk and accuracy against coreset size", caption, figure)
        sections.append(Section("Size of the coreset", text, pictures=(drawn,)))
    counts = f"{len(path.points)} radii, " + (f"coresets: {path.n_builds}" if path.n_builds else "all rows")
    counts += f", {path.n_reads} reads"
    text = f"{counts}; the largest certified relative gap is {path.relative_gap.max():.2e}."
    pictures = (_path_picture(path, at, names),) if draw else ()
    return certificate, (*sections, Section("Other radii", text, pictures=pictures))


def _path_picture(path: RadiusPath, at: float, names: Sequence[str]) -> Picture:
    caption = "A red line is the radius of the model."
    if path.n_builds:
        caption = "A dotted line is where a new coreset begins to serve, a red one the radius of the model."
    return _draw("path", "Radius path", caption, plot_path(path, marked=at, names=names))


def _rounds(fit: CoresetFit) -> list[Round]:
    """Return what was known after every read; where the rows were looked at once more, that look is the last."""
    last, known = fit.history[-1], fit.certificate
    if known.lower <= last.lower:
        return list(fit.history)
    return [*fit.history, replace(last, read=max(known.n_reads, last.read + 1), upper=known.upper, lower=known.lower)]


def _pictures_of(
    problem: Problem, fit: CoresetFit, X: FloatArray, y: FloatArray, classes: Sequence[Any] | None
) -> tuple[Picture, ...]:
    coreset, anchor = fit.coreset, fit.coreset.anchor or fit.solution
    full = problem.minimum(anchor.coef, anchor.intercept, problem.validate(X, y))
    family = problem.family
    h, _ = family.bounds(Anchor(anchor.coef, anchor.intercept, full.multiplier), as_rows(coreset.X), coreset.y)
    rounds = _draw(
        "rounds",
        "Certified gap per read",
        "Every read of the full data tightens what is known: the risk of the best model, and what none can beat.",
        plot_rounds(_rounds(fit)),
    )
    weights = _draw(
        "weights",
        "Weights against the dual loss",
        "Each row of the coreset, and how many of all rows it stands for.",
        plot_weights(coreset, h, classes),
    )
    return rounds, weights
