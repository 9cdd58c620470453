"""The command line: parse options, call an estimator, print, end with a code that means something.

Exit codes: 0 done; 1 an internal error; 2 wrong usage; 3 a file or its data cannot be used; 4 not converged, or a gap
larger than asked for (what was found is written all the same); 130 interrupted. With categories a gap up to
`accepted_gap` counts as converged, unless --require-gap asks for less.

Commands import what they need when they run, so that ``--help`` does not wait for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperGroup

from dualcore import __version__
from dualcore.cli.options import (
    DataFile,
    DataOptions,
    DrawOptions,
    PathOptions,
    PathProblem,
    ProblemOptions,
    Seed,
    Separator,
    StreamData,
    TrainingOptions,
    Weight,
    grouped,
    parse_radii,
    parse_separator,
)
from dualcore.cli.outcome import Exit, FileError, Output, as_csv, check_output, guarded, write_file, writing
from dualcore.cli.progress import watching

if TYPE_CHECKING:
    from dualcore.cli.rows import Given


class _Recorded(TyperGroup):
    """The commands, with what was typed kept for reports that say how to get there again."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        Output.arguments = ["dualcore", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="dualcore",
    cls=_Recorded,
    help="Wasserstein-robust linear models, certified on all rows, and coresets of a few rows that reproduce them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ModelFile = Annotated[Path, typer.Argument(help="A model written by fit.")]


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        print(f"dualcore {__version__}")
        raise typer.Exit


@app.command()
@guarded
@grouped
def fit(
    *,
    data: DataOptions,
    out: Annotated[Path, typer.Option("--out", "-o", help="Model file to write (.json).")] = Path("model.json"),
    problem: ProblemOptions,
    training: TrainingOptions,
    require_gap: Annotated[float | None, typer.Option(help="End with code 4 if the certified gap is larger.")] = None,
    output: Output,
) -> Exit:
    """Train a robust model on the rows of a file and write it as JSON. Columns of text are one-hot coded."""
    from dualcore.estimators.remarks import accepted_gap

    model = problem.estimator(data, training)
    check_output(out, ".json")
    began, rows = time.perf_counter(), data.rows()
    with watching(output, "training") as tell:
        model.set_params(callback=tell, source_options=rows.options).fit(*rows[:3])
    seconds = time.perf_counter() - began
    model.notes_ = {"command": output.arguments, "data": Path(data.path).name, "sha256": digest(data.path)}
    model.notes_ |= {"target": getattr(model, "target_", data.target), "weight": data.weight}
    with writing(out):
        model.save(out)
    size = None if model.coreset_ is None else len(model.coreset_)
    coded = {name: len(values) for name, values in getattr(model, "categories_", {}).items()}
    gap = max(certificate.relative_gap for certificate in model.certificates_)
    # Through a coreset the certificate on the full data says how good the model is, not the status of a small solve.
    may_end = gap <= accepted_gap(model.problem_, model.n_rows_, len(model.coef_names_))
    converged = bool(size or model.solution_.converged or may_end) and (require_gap is None or gap <= require_gap)
    values = {"command": "fit", "model": str(out), "rows": model.n_rows_, "rows_dropped": model.n_dropped_}
    values |= {"features": len(model.coef_names_), "coded": coded, "classes": _classes(model), "seconds": seconds}
    values |= {"certificates": [certificate_values(certificate) for certificate in model.certificates_]}
    values |= {"coreset_rows": size, "status": model.solution_.status.value, "converged": converged}
    used = "a working sample, certified on " if size else ""
    shown = [f"Trained on {used}all {model.n_rows_:,} rows, {len(model.coef_names_)} features, in {seconds:.2f} s."]
    if size:
        shown.append(f"Rows of the coreset: {size:,}.")
    if coded:
        shown.append(f"Coded from text: {', '.join(f'{name} ({count} categories)' for name, count in coded.items())}.")
    shown += _left_out(model.n_dropped_)
    many = len(model.certificates_) > 1
    names = [f"{label} against the rest: " for label in model.classes_] if many else [""]
    shown += [f"{name}{known}" for name, known in zip(names, model.certificates_, strict=True)]
    output.result(values, *shown, f"Written to {out}.")
    if not converged:
        asked = f"a relative gap of {training.tol:.0e}" if require_gap is None else f"a gap of {require_gap:g}"
        output.errors.print(f"not converged: asked for {asked}, certified {gap:.2e}", markup=False)
    return Exit.OK if converged else Exit.NOT_CONVERGED


@app.command()
@guarded
@grouped
def coreset(
    *,
    data: DataOptions,
    out: Annotated[Path, typer.Option("--out", "-o", help="Coreset .npz, or its rows .csv.")] = Path("coreset.npz"),
    problem: ProblemOptions,
    training: DrawOptions,
    output: Output,
) -> Exit:
    """Choose a coreset: weighted rows that train the same model. The number of a row does not count those left out."""
    model = problem.estimator(data, training)
    check_output(out, ".npz", ".csv")
    rows = data.rows()
    with watching(output, "training, and choosing rows") as tell:
        found = model.set_params(callback=tell, source_options=rows.options).fit(*rows[:3]).coreset_
    if out.suffix.lower() == ".npz":
        with writing(out):
            found.save(out)
    elif hasattr(found.X, "indptr"):  # written out, sparse rows would be mostly zeros
        write_file(out, as_csv({"row": found.indices.tolist(), "weight": found.weights.tolist()}))
    else:
        frame = found.to_frame()
        names = [*frame.columns[:2], getattr(model, "target_", "y"), *frame.columns[3:]]
        write_file(out, frame.set_axis(names, axis=1).to_csv(index=False, lineterminator="\n"))
    values = {"command": "coreset", "out": str(out), "rows": found.n_rows, "coreset_rows": len(found)}
    values |= {"excess": found.excess, "details": found.details}
    note = [found.details["message"]] if "message" in found.details else []
    known = "" if found.excess is None else f" Trained on alone they give an excess risk of {found.excess:.1g}."
    output.result(values, f"{len(found):,} of {found.n_rows:,} rows written to {out}.{known}", *note)
    return Exit.OK


@app.command()
@guarded
@grouped
def stream(
    *,
    data: StreamData,
    state: Annotated[Path | None, typer.Option(help="File of the stream (.npz): read if there, and written.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Coreset of all rows so far to write (.npz).")] = None,
    size: Annotated[int, typer.Option(min=2, help="Rows of the coreset.")] = 5000,
    seed: Seed = 0,
    problem: ProblemOptions,
    output: Output,
) -> Exit:
    """Add the rows of a file to a stream: call it for every new file, and draw a coreset of all rows so far."""
    from dualcore.cli.streaming import stream_rows

    return stream_rows(problem.estimator(data), data, size, seed, state, out, output)


def open_model(
    path: Path, data: str, target: str | None, weight: str | None, separator: str | None, *, optional: bool = False
) -> tuple[Any, Given]:
    """Return a model and rows for it: its target, unless another is named, read as the rows of its training."""
    from dualcore import load
    from dualcore.cli.rows import Given, find_rows

    model = load(path)
    options = dict(model.source_options or {})
    if separator is not None:
        options["separator"] = parse_separator(separator)
        model.set_params(source_options=options)
    known = getattr(model, "notes_", {})
    target, weight = target or known.get("target"), known.get("weight") if weight is None and not optional else weight
    rows = find_rows(data, target, weight, optional=optional, separator=options.get("separator"))
    return model, Given(model._open(*rows[:3]).X) if options.get("drop_missing") and not optional else rows


@app.command()
@guarded
@grouped
def certify(
    *,
    model: ModelFile,
    data: DataFile,
    target: Annotated[str | None, typer.Option("--target", "-t", help="Target, if not the model's.")] = None,
    weight: Weight = None,
    separator: Separator = None,
    output: Output,
) -> Exit:
    """Certify a model on these rows: its worst-case risk, and a lower bound on that of any model."""
    loaded, rows = open_model(model, data, target, weight, separator)
    with watching(output, "certifying"):
        known, quality = loaded.certify(*rows[:3]), _quality(loaded, rows)
    dropping, dropped = bool((loaded.source_options or {}).get("drop_missing")), getattr(rows.X, "n_dropped", 0)
    values: dict[str, Any] = {"command": "certify", "certificates": [certificate_values(known)]}
    values |= {"drop_missing": dropping, "rows_dropped": dropped}
    output.result(values | quality, str(known), *_left_out(dropped), *_texts(quality))
    return Exit.OK


@app.command()
@guarded
@grouped
def predict(
    *,
    model: ModelFile,
    data: DataFile,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write (.csv); else standard output.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Write the scores as well.")] = False,
    separator: Separator = None,
    output: Output,
) -> Exit:
    """Predict the rows of a file. A text that did not occur in training is coded as zeros."""
    check_output(out, ".csv")
    loaded, rows = open_model(model, data, None, None, separator, optional=True)
    columns: dict[str, Any] = {"prediction": loaded.predict(rows.X).tolist()}
    if scores:
        found = getattr(loaded, "decision_function", loaded.predict)(rows.X).T.reshape(-1, len(columns["prediction"]))
        names = ["score"] if len(found) == 1 else [f"score {label}" for label in loaded.classes_]
        columns |= dict(zip(names, found.tolist(), strict=True))
    quality: dict[str, float] = {}
    if rows.y is not None or rows.options is None:
        with contextlib.suppress(ValueError):  # a target that is missing, or new, is no reason not to predict
            quality = _quality(loaded, rows)
    if out is None and not output.as_json:
        print(as_csv(columns), end="")
        return Exit.OK
    values: dict[str, Any] = {"command": "predict", "rows": len(columns["prediction"]), "out": out and str(out)}
    if out is None:
        values["columns"] = columns
    else:
        write_file(out, as_csv(columns))
    output.result(values | quality, f"{values['rows']:,} predictions written to {out}.", *_texts(quality))
    return Exit.OK


@app.command()
@guarded
@grouped
def path(
    *,
    data: DataOptions,
    radii: Annotated[str | None, typer.Option(help="LOW:HIGH:COUNT, or a list like 0.01,0.1; else 20.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write (.json).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture to write (.png).")] = None,
    cv: Annotated[
        int | None, typer.Option(min=2, help="Choose a radius by cross-validation with so many folds.")
    ] = None,
    suggest: Annotated[bool, typer.Option("--suggest", help="Suggest a radius from the noise of the sample.")] = False,
    problem: PathProblem,
    training: PathOptions,
    output: Output,
) -> Exit:
    """Train a model for every radius of a range, each certified; with --coreset all are trained on one coreset."""
    from dualcore import radius_path, select_radius, suggest_radius
    from dualcore.coresets.radii import radius_grid
    from dualcore.solvers.overreads import is_small

    model, wanted = problem.estimator(data, training), parse_radii(radii)
    check_output(out, ".json")
    check_output(plot, ".png")
    rows, choices = data.rows(), {}
    with watching(output, "training") as tell:
        prepared = model.set_params(source_options=rows.options).prepare(*rows[:3])
        if is_small(prepared.X):  # folds are then those of the same rows in any kind of file
            prepared = prepared.in_memory()
        at, X, y, weights, _ = prepared
        if at.family.n_outputs > 1:
            raise FileError(f"path takes two classes, the target holds {model.classes_.size}. Keep the rows of two.")
        tried = wanted or radius_grid(at, X, y, 20, weights).tolist()
        drawn: dict[str, Any] = {"coreset": model.coreset, "sample_weight": weights, "random_state": training.seed}
        found = radius_path(at, X, y, tried, callback=tell, tol=training.tol, max_iter=training.max_iter, **drawn)
        if cv is not None and len(tried) > 1:
            tell(f"cross-validating, {cv} folds")
            choices["cross_validated"] = select_radius(at, X, y, tried, cv, **drawn).radius
        if suggest:
            tell("measuring the noise of the sample")
            choices["suggested"] = suggest_radius(at, X, y, **drawn)
    points, grid = [], Table("radius", "worst-case risk", "no model is below", "relative gap", "coreset")
    for point in found.points:
        solution, known = prepared.raw(point.solution), point.certificate
        values = {"radius": point.radius, "coef": solution.coef.tolist(), "intercept": solution.intercept}
        points.append(values | {"build": point.build} | certificate_values(known))
        cells = (f"{point.radius:.4g}", f"{known.upper:.6g}", f"{known.lower:.6g}", f"{known.relative_gap:.2e}")
        grid.add_row(*cells, "" if point.build is None else str(point.build + 1))
    values = {"command": "path", "n_builds": found.n_builds, "n_reads": found.n_reads, "seconds": found.seconds}
    values |= {"choices": choices, "classes": _classes(model), "feature_names": model.coef_names_, "points": points}
    if out is not None:
        write_file(out, json.dumps(values, indent=1, allow_nan=False) + "\n")
    if plot is not None:
        from dualcore.cli.plots import plot_path, to_png

        marked = choices.get("cross_validated", choices.get("suggested"))
        write_file(plot, to_png(plot_path(found, marked=marked, names=model.coef_names_)))
    shown = [f"Coresets: {found.n_builds}; reads: {found.n_reads}; {found.seconds:.2f} s."]
    shown += [f"{name.replace('_', '-')} radius: {radius:.4g}" for name, radius in choices.items()]
    edge = {tried[0]: "smallest of the radii: try smaller ones", tried[-1]: "largest of the radii"}
    if choices.get("cross_validated") in edge:
        shown.append(f"Cross-validation chose the {edge[choices['cross_validated']]}.")
    output.result(values, grid, *shown)
    return Exit.OK


@app.command()
@guarded
@grouped
def report(
    *,
    model: ModelFile,
    data: DataFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write (.html).")] = Path("report.html"),
    weight: Weight = None,
    separator: Separator = None,
    output: Output,
) -> Exit:
    """Write one HTML file about a model of two classes or of a number: certificate, pictures, how to reproduce them."""
    check_output(out, ".html", ".htm")
    loaded, rows = open_model(model, data, None, weight, separator)
    from dualcore.cli.report import report_on

    made, text = report_on(loaded, rows, data, digest(data), output)
    write_file(out, made.render())
    pictures = [picture.name for section in made.sections for picture in section.pictures]
    values: dict[str, Any] = {"command": "report", "out": str(out), "pictures": pictures}
    dropped = getattr(rows.X, "n_dropped", 0)
    output.result(values | text, made.certificate, *_left_out(dropped), f"{len(pictures)} pictures, written to {out}.")
    return Exit.OK


@app.command()
@guarded
@grouped
def demo(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for pictures and report.")] = Path("demo-output"),
    rows: Annotated[int, typer.Option(min=2000, help="Rows of the generated data.")] = 200_000,
    output: Output,
) -> Exit:
    """Compare all rows with a coreset, clean and under attack, on data that come with the package."""
    if out.exists() and not out.is_dir():
        raise FileError(f"Cannot write into {out}: it exists and is not a folder.")
    from dualcore.cli.demo import run_demo

    return run_demo(out, rows, output)


def _left_out(dropped: int) -> list[str]:
    return [f"{dropped:,} rows with missing values were left out."] if dropped else []


def _classes(model: Any) -> list[Any] | None:
    return model.classes_.tolist() if hasattr(model, "classes_") else None


def _quality(model: Any, rows: Given) -> dict[str, float]:
    """Return the accuracy, or the coefficient of determination in regression."""
    return {"accuracy" if hasattr(model, "classes_") else "r2": model.score(*rows[:3])}


def _texts(quality: dict[str, float]) -> list[str]:
    return [f"{name}: {value:.4f}" for name, value in quality.items()]


def certificate_values(known: Any) -> dict[str, Any]:
    """Return a certificate as JSON values."""
    bounds = {"worst_case_risk": known.upper, "lower_bound": known.lower}
    return bounds | {"relative_gap": known.relative_gap, "n_reads": known.n_reads}


def digest(path: str) -> str | None:
    """Return the SHA-256 sum of a file; of a folder, that of the names and sums of its files; None of remote ones."""
    from dualcore.data.sources import list_tables

    if Path(path).is_file():
        with Path(path).open("rb") as rows:
            return hashlib.file_digest(rows, "sha256").hexdigest()
    files = list_tables(path).files
    if any(file.filesystem is not None for file in files):
        return None
    lines = [f"{digest(file.path)}  {Path(file.path).name}\n" for file in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
