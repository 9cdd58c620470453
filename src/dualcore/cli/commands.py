"""The commands that train and use models: fit, coreset, certify, predict, path."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table as Grid
from sklearn.base import is_classifier

from dualcore import Certificate, load, radius_path, select_radius, suggest_radius
from dualcore.cli.options import DataOptions, ProblemOptions, TrainingOptions, parse_separator
from dualcore.cli.outcome import Exit, FileError, OptionError, Output, as_csv, check_output, writing
from dualcore.cli.progress import watching
from dualcore.cli.rows import Given, find_rows
from dualcore.coresets.path import radius_grid
from dualcore.data.sources import list_tables
from dualcore.data.storage import write_atomically

# Radii of a path, where none are given.
_RADII = 20


def fit_model(
    problem: ProblemOptions,
    data: DataOptions,
    training: TrainingOptions,
    out: Path,
    require_gap: float | None,
    output: Output,
) -> Exit:
    """Train a model and write it to a JSON file."""
    model = problem.estimator(data, training)
    check_output(out, ".json")
    began, rows = time.perf_counter(), data.rows()
    with watching(output, "training") as tell:
        model.set_params(callback=tell, source_options=rows.options).fit(*rows[:3])
    seconds = time.perf_counter() - began
    made = {"command": ["dualcore", *output.arguments], "data": Path(data.path).name, "sha256": digest(data.path)}
    model.notes_ = made | {"target": getattr(model, "target_", data.target)}
    with writing(out):
        model.save(out)
    coresets = model.coreset_ if isinstance(model.coreset_, list) else [model.coreset_]
    sizes = [len(coreset) for coreset in coresets if coreset is not None]
    coded = {name: len(values) for name, values in getattr(model, "categories_", {}).items()}
    gap = max(certificate.relative_gap for certificate in model.certificates_)
    # Through a coreset the certificate on the full data says how good the model is, not the status of a small solve.
    converged = bool(sizes or model.solution_.converged) and (require_gap is None or gap <= require_gap)
    values = {
        "command": "fit",
        "model": str(out),
        "rows": model.n_rows_,
        "rows_dropped": model.n_dropped_,
        "features": len(model.coef_names_),
        "coded": coded,
        "classes": model.classes_.tolist() if is_classifier(model) else None,
        "coreset_rows": sizes or None,
        "seconds": seconds,
        "certificates": [certificate_values(certificate) for certificate in model.certificates_],
        "status": model.solution_.status.value,
        "converged": converged,
    }
    used = "a working sample, certified on " if sizes else ""
    shown = [f"Trained on {used}all {model.n_rows_:,} rows, {len(model.coef_names_)} features, in {seconds:.2f} s."]
    if sizes:
        each = "coreset has" if len(sizes) == 1 else "coresets of the classes have"
        shown.append(f"The {each} {', '.join(f'{size:,}' for size in sizes)} rows.")
    if coded:
        texts = ", ".join(f"{name} ({count} categories)" for name, count in coded.items())
        shown.append(f"Coded from text: {texts}.")
    if model.n_dropped_:
        shown.append(f"{model.n_dropped_:,} rows with missing values were left out.")
    output.result(values, *shown, *_sentences(model), f"Written to {out}.")
    if not converged:
        asked = f"a relative gap of {training.tol:.0e}" if require_gap is None else f"a gap of {require_gap:g}"
        output.errors.print(f"not converged: asked for {asked}, certified {gap:.2e}", markup=False)
    return Exit.OK if converged else Exit.NOT_CONVERGED


def draw_coreset(
    problem: ProblemOptions, data: DataOptions, training: TrainingOptions, out: Path, output: Output
) -> Exit:
    """Choose a coreset and write it: everything to npz, row numbers and weights to csv."""
    model = problem.estimator(data, training)
    check_output(out, ".npz", ".csv")
    rows = data.rows()
    with watching(output, "training, and choosing rows") as tell:
        coreset = model.set_params(callback=tell, source_options=rows.options).fit(*rows[:3]).coreset_
    if isinstance(coreset, list):
        raise FileError(
            f"The target holds {len(coreset)} classes, each with a coreset of its own. Use --loss logistic."
        )
    with writing(out):
        if out.suffix.lower() == ".npz":
            coreset.save(out)
        else:
            text = as_csv({"row": coreset.indices.tolist(), "weight": coreset.weights.tolist()})
            write_atomically(out, text.encode())
    values = {"command": "coreset", "out": str(out), "rows": coreset.n_rows, "coreset_rows": len(coreset)}
    values |= {"excess": coreset.excess, "details": coreset.details}
    note = [coreset.details["message"]] if "message" in coreset.details else []
    output.result(values, f"{len(coreset):,} of {coreset.n_rows:,} rows written to {out}.", *note)
    return Exit.OK


def open_model(
    model_path: Path,
    path: str,
    target: str | None,
    weight: str | None,
    separator: str | None,
    *,
    optional: bool = False,
) -> tuple[Any, Given]:
    """Return a model and rows for it: its target, unless another is named, read as the rows of its training."""
    model = load(model_path)
    options = dict(model.source_options or {}) | {"separator": parse_separator(separator)}
    if separator is not None:
        model.set_params(source_options=options)
    target = target or getattr(model, "notes_", {}).get("target")
    separator = model.source_options.get("separator") if model.source_options else None
    return model, find_rows(path, target, weight, optional=optional, separator=separator)


def certify_model(
    model_path: Path, path: str, target: str | None, weight: str | None, separator: str | None, output: Output
) -> Exit:
    """Say what is known about a model on the rows of a file."""
    model, rows = open_model(model_path, path, target, weight, separator)
    with watching(output, "certifying"):
        certificate, quality = model.certify(*rows[:3]), _quality(model, rows)
    values: dict[str, Any] = {"command": "certify", "certificates": [certificate_values(certificate)]}
    output.result(values | quality, str(certificate), *_texts(quality))
    return Exit.OK


def predict_rows(
    model_path: Path, path: str, out: Path | None, scores: bool, separator: str | None, output: Output
) -> Exit:
    """Predict the rows of a file, to a CSV file or to standard output."""
    check_output(out, ".csv")
    model, rows = open_model(model_path, path, None, None, separator, optional=True)
    columns: dict[str, Sequence[Any]] = {"prediction": model.predict(rows.X).tolist()}
    if scores:
        found = model.decision_function(rows.X) if is_classifier(model) else model.predict(rows.X)
        names = ["score"] if found.ndim == 1 else [f"score {label}" for label in model.classes_]
        columns |= dict(zip(names, np.atleast_2d(found.T).tolist(), strict=True))
    quality: dict[str, float] = {}
    if rows.has_target:
        with contextlib.suppress(ValueError):  # a target that is missing, or new, is no reason not to predict
            quality = _quality(model, rows)
    n_rows = len(columns["prediction"])
    if out is None and not output.as_json:
        print(as_csv(columns), end="")
        return Exit.OK
    if out is not None:
        with writing(out):
            write_atomically(out, as_csv(columns).encode())
    values: dict[str, Any] = {"command": "predict", "rows": n_rows, "out": None if out is None else str(out)}
    values |= quality | ({} if out is not None else {"columns": columns})
    output.result(values, f"{n_rows:,} predictions written to {out}.", *_texts(quality))
    return Exit.OK


def follow_path(
    problem: ProblemOptions,
    data: DataOptions,
    training: TrainingOptions,
    radii: list[float] | None,
    folds: int | None,
    suggest: bool,
    out: Path | None,
    picture: Path | None,
    output: Output,
) -> Exit:
    """Train a model for every radius, and help to choose one."""
    model = problem.estimator(data, training)
    if folds is not None and folds < 2:
        raise OptionError(f"--cv must be at least 2 folds, got {folds}.")
    check_output(out, ".json")
    check_output(picture, ".png")
    rows, choices, seed = data.rows(), {}, training.seed
    with watching(output, "training") as tell:
        prepared = model.set_params(source_options=rows.options).prepare(*rows[:3])
        at, X, y, weights, _ = prepared
        if at.family.n_outputs > 1:
            raise FileError(f"path takes two classes, the target holds {model.classes_.size}. Keep the rows of two.")
        radii = radii or radius_grid(at, X, y, _RADII, weights).tolist()
        settings: dict[str, Any] = {"tol": training.tol, "max_iter": training.max_iter, "random_state": seed}
        path = radius_path(at, X, y, radii, model.coreset, weights, callback=tell, **settings)
        if folds is not None and len(radii) > 1:
            tell(f"cross-validating, {folds} folds")
            chosen = select_radius(at, X, y, radii, folds, model.coreset, "loss", weights, random_state=seed)
            choices["cross_validated"] = chosen.radius
        if suggest:
            tell("measuring the noise of the sample")
            choices["suggested"] = suggest_radius(
                at, X, y, sample_weight=weights, coreset=model.coreset, random_state=seed
            )
    points = []
    grid = Grid("radius", "worst-case risk", "no model is below", "relative gap", "coreset")
    for point in path.points:
        solution, known = prepared.raw(point.solution), point.certificate
        values = {"radius": point.radius, "coef": solution.coef.tolist(), "intercept": solution.intercept}
        points.append(values | {"build": point.build} | certificate_values(known))
        build = "" if point.build is None else str(point.build + 1)
        grid.add_row(
            f"{point.radius:.4g}", f"{known.upper:.6g}", f"{known.lower:.6g}", f"{known.relative_gap:.2e}", build
        )
    values = {"command": "path", "n_builds": path.n_builds, "n_reads": path.n_reads, "seconds": path.seconds}
    values |= {"choices": choices, "classes": model.classes_.tolist() if is_classifier(model) else None}
    values |= {"feature_names": list(model.coef_names_), "points": points}
    if out is not None:
        with writing(out):
            write_atomically(out, (json.dumps(values, indent=1, allow_nan=False) + "\n").encode())
    if picture is not None:
        from dualcore.cli.plots import plot_path, save_figure

        marked = choices.get("cross_validated", choices.get("suggested"))
        figure = plot_path(path, marked=marked, names=model.coef_names_)
        with writing(picture):
            save_figure(figure, picture)
    shown = [f"Coresets: {path.n_builds}; reads: {path.n_reads}; {path.seconds:.2f} s."]
    for name, radius in choices.items():
        ends = {radii[0]: " It is the smallest one: try smaller radii.", radii[-1]: " It is the largest one."}
        edge = ends.get(radius, "") if name == "cross_validated" else ""
        shown.append(f"{name.replace('_', '-')} radius: {radius:.4g}{'.' if edge else ''}{edge}")
    output.result(values, grid, *shown)
    return Exit.OK


def _quality(model: Any, rows: Given) -> dict[str, float]:
    """Return the accuracy, or the coefficient of determination in regression."""
    return {"accuracy" if is_classifier(model) else "r2": model.score(*rows[:3])}


def _texts(quality: dict[str, float]) -> list[str]:
    return [f"{name}: {value:.4f}" for name, value in quality.items()]


def certificate_values(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate as JSON values."""
    return {
        "worst_case_risk": certificate.upper,
        "lower_bound": certificate.lower,
        "relative_gap": certificate.relative_gap,
        "n_reads": certificate.n_reads,
    }


def _sentences(model: Any) -> list[str]:
    """Return the certificate in a sentence, or one for each class against the rest."""
    if len(model.certificates_) == 1:
        return [str(model.certificate_)]
    pairs = zip(model.classes_, model.certificates_, strict=True)
    return [f"{label} against the rest: {certificate}" for label, certificate in pairs]


def digest(path: str) -> str | None:
    """Return the SHA-256 sum of a file; of a folder, that of the names and sums of its files; None of remote ones."""
    if Path(path).is_file():
        with Path(path).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    listings = list_tables(path)
    if any(listing.filesystem is not None for listing in listings):
        return None
    lines = [f"{digest(file)}  {Path(file).name}\n" for listing in listings for file in listing.files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
