"""The commands that train and use models: fit, coreset, certify, predict, path."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table as Grid

from dualcore import Certificate, Problem, __version__, assess, certify
from dualcore.cli.coding import table_files
from dualcore.cli.commands.options import ESTIMATORS, parse_separator
from dualcore.cli.commands.outcome import Exit, OptionError, Output, check_output, writing
from dualcore.cli.commands.progress import Observed, WatchedSource, watching
from dualcore.cli.commands.streams import (
    Rows,
    can_stream,
    is_large,
    load_for_model,
    load_rows,
    model_reading,
    open_stream,
    refuse_many_classes,
    stream_for_model,
)
from dualcore.cli.commands.streams import measure_quality as stream_quality
from dualcore.cli.groups import DataOptions, ProblemOptions, TrainingOptions
from dualcore.cli.model import Model
from dualcore.cli.tables import write_csv
from dualcore.coresets.path import radius_path, select_radius, suggest_radius
from dualcore.coresets.samplers.resolve import resolve_size
from dualcore.data.storage import write_atomically


def fit_model(
    problem: ProblemOptions,
    data: DataOptions,
    training: TrainingOptions,
    out: Path,
    require_gap: float | None,
    output: Output,
) -> Exit:
    """Train a model and write it to a JSON file."""
    problem.settings()  # what is wrong with options is said before a file is opened
    sampler = training.sampler()
    check_output(out, ".json")
    rows = open_rows(data, problem.is_classification, sampler, output)
    stream, n_rows = rows.stream, rows.n_rows
    settings = problem.settings(stream.coding, stream.names)
    arguments = {name: value for name, value in settings.items() if name != "loss"}
    began = time.perf_counter()
    with watching(output, "training", None if sampler is None else training.rounds + 1) as watch:
        estimator = ESTIMATORS[problem.loss](
            coreset=None if sampler is None else Observed(sampler, watch.round),
            tol=training.tol,
            max_iter=training.max_iter,
            random_state=training.seed,
            **({"multi_class": "ovr"} if problem.loss == "logistic" else {}),
            **arguments,
        )
        with warnings.catch_warnings():
            for said_below in ("the certificate leaves open", "more than the target_gap"):  # in terms of options
                warnings.filterwarnings("ignore", f"(?s).*{said_below}")
            estimator.fit(rows.watched(watch), rows.y, sample_weight=rows.weights)
    seconds = time.perf_counter() - began
    solutions = [estimator.solution_]
    coresets = estimator.coreset_ if isinstance(estimator.coreset_, list) else [estimator.coreset_]
    coreset_rows = None if coresets[0] is None else [len(coreset) for coreset in coresets]
    model = Model.from_estimator(
        estimator,
        settings=settings,
        feature_names=stream.names,
        target=stream.target,
        scaling=stream.scaling,
        fill=stream.fill,
        coding=stream.coding,
        provenance={
            "version": __version__,
            "data": data.path.name,
            "sha256": digest(data.path),
            "rows": n_rows,
            "drop": list(data.drop or ()),
            "weight": data.weight,
            "fill": data.fill,
            "drop_missing": data.drop_missing,
            "separator": parse_separator(data.separator),
            "zero_based": stream.zero_based,
            "coreset": training.coreset,
            "coreset_rows": coreset_rows,
            "rounds": training.rounds,
            "gap": training.gap,
            "seed": training.seed,
            "tol": training.tol,
            "max_iter": training.max_iter,
        },
    )
    with writing(out):
        model.save(out)
    # Through a coreset the certificate on the full data says how good the model is, not the status of a small solve.
    converged = all(solution.converged for solution in solutions) if sampler is None else True
    worst = max(certificate.relative_gap for certificate in model.certificates)
    if require_gap is not None and worst > require_gap:
        converged = False
    values = {
        "command": "fit",
        "model": str(out),
        "rows": n_rows,
        "rows_dropped": stream.n_dropped,
        "features": len(stream.features),
        "coded": {name: len(values) for name, values in stream.coding.items()},
        "classes": None if model.classes is None else list(model.classes),
        "coreset_rows": coreset_rows,
        "seconds": seconds,
        "certificates": [certificate_values(certificate) for certificate in model.certificates],
        "status": [solution.status.value for solution in solutions],
        "converged": converged,
    }

    def show(console: Console) -> None:
        used = "" if coreset_rows is None else "a working sample, certified on "
        console.print(f"Trained on {used}all {n_rows:,} rows, {len(stream.features)} features, in {seconds:.2f} s.")
        if coreset_rows is not None:
            each = "coreset has" if len(coreset_rows) == 1 else "coresets of the classes have"
            console.print(f"The {each} {', '.join(f'{size:,}' for size in coreset_rows)} rows.")
        if stream.coding:
            coded = ", ".join(f"{name} ({len(values)} categories)" for name, values in stream.coding.items())
            console.print(f"Coded from text: {coded}.", markup=False, highlight=False)
        if stream.n_dropped:
            console.print(f"{stream.n_dropped:,} rows with missing values were left out.")
        show_certificates(console, model)
        console.print(f"Written to {out}.", markup=False)

    output.result(values, show)
    if converged and sampler is not None and worst > training.gap:
        advice = "Use more --rounds, a smaller --tol, --standardize, or no --coreset."
        note = f"note: the certified gap {worst:.1e} is more than --gap {training.gap:g}. {advice}"
        output.errors.print(note, markup=False, highlight=False)
    if not converged:
        asked = f"a relative gap of {training.tol:.0e}" if require_gap is None else f"a gap of {require_gap:g}"
        output.errors.print(f"not converged: asked for {asked}, certified {worst:.2e}", markup=False)
    return Exit.OK if converged else Exit.NOT_CONVERGED


def draw_coreset(
    problem: ProblemOptions, data: DataOptions, training: TrainingOptions, out: Path, output: Output
) -> Exit:
    """Draw a coreset and write it: everything to npz, row numbers and weights to csv."""
    problem.settings()  # what is wrong with options is said before a file is opened
    sampler = training.sampler()
    if sampler is None:
        raise OptionError("coreset needs --size.")
    check_output(out, ".npz", ".csv")
    rows = open_rows(data, problem.is_classification, sampler, output)
    stream = rows.stream
    at = Problem(**problem.settings(stream.coding, stream.names))
    with watching(output, "reading the data and drawing") as watch:
        coreset = sampler.build(at, rows.watched(watch), rows.signs("coreset")[0], rows.weights)
    coreset = replace(coreset, details=coreset.details | {"feature_names": list(stream.features)})
    with writing(out):
        if out.suffix.lower() == ".npz":
            coreset.save(out)
        else:
            content = write_csv({"row": coreset.indices.tolist(), "weight": coreset.weights.tolist()})
            write_atomically(out, content.encode())
    values = {"command": "coreset", "out": str(out), "rows": coreset.n_rows, "coreset_rows": len(coreset)}

    def show(console: Console) -> None:
        console.print(f"{len(coreset):,} of {coreset.n_rows:,} rows written to {out}.", markup=False)
        asked = resolve_size(sampler.size or 1, coreset.n_rows)
        if len(coreset) < asked:
            console.print(f"The weights of the other {asked - len(coreset):,} rows that were drawn came out as zero.")
        if "message" in coreset.details:
            console.print(coreset.details["message"], markup=False)

    output.result(values | {"details": coreset.details}, show)
    return Exit.OK


def certify_model(
    model_path: Path, data_path: Path, target: str | None, weight: str | None, separator: str | None, output: Output
) -> Exit:
    """Say what is known about a model on the rows of a file."""
    model = Model.load(model_path)
    if is_large(data_path) and len(model.coef) == 1:
        return _certify_stream(model, data_path, target, weight, separator, output)
    X, labels, weights = load_for_model(
        model, data_path, target, weight, model_reading(model, parse_separator(separator))
    )
    if labels is None:
        raise RuntimeError("rows to certify on have targets")
    scaled, problem = model.scale(X), model.problem
    certificates = []
    first = 1 if model.classes is not None and len(model.classes) == 2 else 0
    with watching(output, "certifying", len(model.coef)) as watch:
        for number, (coef, intercept) in enumerate(zip(model.coef, model.intercept, strict=True)):
            y = model.encode(labels, number + first)
            one = SimpleNamespace(coef=coef, intercept=float(intercept))
            certificates.append(certify(problem, one, scaled, y, weights))
            watch.say("certifying", number + 1)
    return _show_certified(model, certificates, measure_quality(model, X, labels), int(labels.size), output)


def _certify_stream(
    model: Model, data_path: Path, target: str | None, weight: str | None, separator: str | None, output: Output
) -> Exit:
    """Certify by one read of rows that are not loaded, and measure the quality by another."""
    with watching(output, "certifying, one read", 2) as watch:
        reading = model_reading(model, parse_separator(separator))
        source = stream_for_model(model, data_path, target, weight, reading)
        one = SimpleNamespace(coef=model.coef[0], intercept=float(model.intercept[0]))
        certificate = assess(model.problem, one, WatchedSource(source, watch.rows))
        watch.say("measuring the quality, one read", 1)
        quality = stream_quality(model, source)
    return _show_certified(model, [certificate], quality, source.n_rows, output)


def _show_certified(
    model: Model, certificates: Sequence[Certificate], quality: dict[str, float], n_rows: int, output: Output
) -> Exit:
    values: dict[str, Any] = {"command": "certify", "rows": n_rows}
    values |= {"certificates": [certificate_values(certificate) for certificate in certificates], **quality}

    def show(console: Console) -> None:
        show_certificates(console, model, certificates)
        _show_quality(console, quality)

    output.result(values, show)
    return Exit.OK


def predict_rows(
    model_path: Path, data_path: Path, out: Path | None, scores: bool, separator: str | None, output: Output
) -> Exit:
    """Predict the rows of a file, to a CSV file or to standard output."""
    check_output(out, ".csv")
    model = Model.load(model_path)
    reading = model_reading(model, parse_separator(separator), drop=False)
    # A row whose target is missing is predicted too, so where that was allowed the targets are not looked at.
    target = "" if model.provenance.get("drop_missing") else None
    X, labels, _ = load_for_model(model, data_path, target, None, reading, optional_target=True)
    n_rows = int(X.shape[0])
    columns: dict[str, Sequence[Any]] = {"prediction": model.predict(X).tolist()}
    if scores:
        found = model.scores(X)
        if found.shape[1] == 1:
            columns["score"] = found[:, 0].tolist()
        else:
            columns |= {f"score {label}": found[:, k].tolist() for k, label in enumerate(model.classes or ())}
    quality = {} if labels is None else measure_quality(model, X, labels)
    if out is not None:
        with writing(out):
            write_atomically(out, write_csv(columns).encode())
    if out is None and not output.as_json:
        print(write_csv(columns), end="")
        return Exit.OK
    values: dict[str, Any] = {"command": "predict", "rows": n_rows, "out": None if out is None else str(out)}
    values |= quality | ({} if out is not None else {"columns": columns})

    def show(console: Console) -> None:
        console.print(f"{n_rows:,} predictions written to {out}.", markup=False)
        _show_quality(console, quality)

    output.result(values, show)
    return Exit.OK


def follow_path(
    problem: ProblemOptions,
    data: DataOptions,
    training: TrainingOptions,
    radii: list[float],
    folds: int | None,
    suggest: bool,
    out: Path | None,
    picture: Path | None,
    output: Output,
) -> Exit:
    """Train a model for every radius, and help to choose one."""
    problem.settings()
    sampler = training.sampler()
    if folds is not None and folds < 2:
        raise OptionError(f"--cv must be at least 2 folds, got {folds}.")
    check_output(out, ".json")
    check_output(picture, ".png")
    in_memory = suggest or (folds is not None and len(radii) > 1)  # folds and the bootstrap need all rows at once
    rows = open_rows(data, problem.is_classification, None if in_memory else sampler, output)
    stream, weights = rows.stream, rows.weights
    at = Problem(**problem.settings(stream.coding, stream.names))
    y, classes = rows.signs("path")
    with watching(output, "training", len(radii)) as watch:
        X = rows.watched(watch)
        path = radius_path(
            at, X, y, radii, sampler, weights,
            tol=training.tol, max_iter=training.max_iter, random_state=training.seed, callback=watch.step,
        )  # fmt: skip
    choices: dict[str, float] = {}
    if folds is not None and len(radii) > 1:
        with watching(output, f"cross-validating, {folds} folds"):
            choices["cross_validated"] = select_radius(
                at, X, y, radii, folds, sampler, "loss", weights, random_state=training.seed
            ).radius
    if suggest:
        with watching(output, "measuring the noise of the score"):
            choices["suggested"] = suggest_radius(
                at, X, y, sample_weight=weights, coreset=sampler, random_state=training.seed
            )
    points = [
        {"radius": p.radius, "coef": p.solution.coef.tolist(), "intercept": p.solution.intercept, "build": p.build}
        | certificate_values(p.certificate)
        for p in path.points
    ]
    values = {"command": "path", "n_builds": path.n_builds, "n_reads": path.n_reads, "seconds": path.seconds}
    values |= {"choices": choices, "classes": classes, "feature_names": list(stream.features), "points": points}
    if out is not None:
        with writing(out):
            write_atomically(out, (json.dumps(values, indent=1, allow_nan=False) + "\n").encode())
    if picture is not None:
        from dualcore.cli.plots import plot_path, save_figure

        marked = choices.get("cross_validated", choices.get("suggested"))
        figure = plot_path(path, marked=marked, names=stream.features)
        with writing(picture):
            save_figure(figure, picture)

    def show(console: Console) -> None:
        grid = Grid("radius", "worst-case risk", "no model is below", "relative gap", "coreset")
        for p in path.points:
            c = p.certificate
            build = "" if p.build is None else str(p.build + 1)
            grid.add_row(f"{p.radius:.4g}", f"{c.upper:.6g}", f"{c.lower:.6g}", f"{c.relative_gap:.2e}", build)
        console.print(grid)
        console.print(f"Coresets: {path.n_builds}; reads: {path.n_reads}; {path.seconds:.2f} s.")
        for name, radius in choices.items():
            console.print(f"{name.replace('_', '-')} radius: {radius:.4g}")

    output.result(values, show)
    return Exit.OK


def open_rows(data: DataOptions, classification: bool, sampler: Any, output: Output) -> Rows:
    """Return the rows of a file: streamed where a coreset is asked for and the file is made for it, else loaded."""
    with watching(output, "opening"):
        stream = open_stream(data, classification)
    two = stream.classes is None or len(stream.classes) == 2
    if sampler is not None and can_stream(data.path) and (two or data.path.is_dir()):
        refuse_many_classes(stream)
        return Rows(stream.source, None, None, stream)
    with watching(output, "loading"):
        return load_rows(stream)


def measure_quality(model: Model, X: Any, labels: npt.NDArray[Any]) -> dict[str, float]:
    """Return the accuracy, or the mean absolute error in regression."""
    found = model.predict(X)
    if model.is_classifier:
        return {"accuracy": float(np.mean(found == labels))}
    return {"mean_absolute_error": float(np.mean(np.abs(found - labels)))}


def _show_quality(console: Console, quality: dict[str, float]) -> None:
    for name, value in quality.items():
        console.print(f"{name.replace('_', ' ')}: {value:.4f}")


def certificate_values(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate as JSON values."""
    return {
        "worst_case_risk": certificate.upper,
        "lower_bound": certificate.lower,
        "relative_gap": certificate.relative_gap,
        "n_reads": certificate.n_reads,
    }


def show_certificates(console: Console, model: Model, certificates: Sequence[Certificate] | None = None) -> None:
    """Print the certificate in a sentence, or one for each class against the rest."""
    found = model.certificates if certificates is None else certificates
    for number, certificate in enumerate(found):
        name = f"{(model.classes or ())[number]} against the rest: " if len(found) > 1 else ""
        console.print(f"{name}{certificate}", markup=False, highlight=False)


def digest(path: Path) -> str:
    """Return the SHA-256 sum of a file; of a folder, that of the names and sums of its files."""
    if path.is_dir():
        lines = [f"{digest(file)}  {file.relative_to(path).as_posix()}\n" for file in table_files(path)]
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
