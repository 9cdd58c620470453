"""The command line: parse options, hand them to `dualcore.cli.commands`, end with a code that means something.

Exit codes: 0 done; 1 an error of ours; 2 wrong usage; 3 a file or its data cannot be used; 4 not converged, or a gap
larger than asked for (what was found is written all the same); 130 interrupted.

Commands import what they need when they run, so that ``--help`` does not wait for it.
"""

from __future__ import annotations

import math
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dualcore import __version__
from dualcore.cli.commands.outcome import Exit, OptionError, Output, guarded
from dualcore.cli.startup import interruptible

__all__ = ["app", "main"]

app = typer.Typer(
    name="dualcore",
    help="Wasserstein-robust linear models, trained on a few percent of the rows and certified on all of them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Data = Annotated[
    Path,
    typer.Argument(
        help="Rows: .csv or .tsv with a line of names (also .gz, .bz2), .parquet, .svm, .npy, .npz, or a folder."
    ),
]
ModelFile = Annotated[Path, typer.Argument(help="A model written by fit.")]
Target = Annotated[
    str | None,
    typer.Option("--target", "-t", help="Column to learn, by name or position; SVMlight text has its own."),
]
Loss = Annotated[
    str, typer.Option(help="Classes: logistic, hinge. Numbers: huber, pinball, epsilon_insensitive, squared.")
]
Radius = Annotated[float, typer.Option(help="How far the adversary may move the data; 0 trusts them.")]
Norm = Annotated[str, typer.Option(help="How moving features is measured: l1, l2 or linf.")]
LabelCost = Annotated[float, typer.Option(help="Price of one label flip; inf forbids flips.")]
Ridge = Annotated[float, typer.Option(help="Adds ridge / 2 times the squared coefficients.")]
Intercept = Annotated[bool, typer.Option("--intercept/--no-intercept", help="Whether to fit an intercept.")]
Delta = Annotated[float, typer.Option(help="Huber: where the loss turns linear.")]
Quantile = Annotated[float, typer.Option(help="Pinball: which quantile.")]
Epsilon = Annotated[float, typer.Option(help="Epsilon-insensitive: errors below cost nothing.")]
CoresetSize = Annotated[str | None, typer.Option("--coreset", help="Train on so many rows, or such a share (0.05).")]
Rounds = Annotated[int, typer.Option(help="Coresets to draw at most, each around the last solution.")]
Gap = Annotated[float, typer.Option(help="Stop as soon as the certified relative gap is below.")]
Seed = Annotated[int, typer.Option(help="Seed of the draws: the same seed gives the same model.")]
Tol = Annotated[float, typer.Option(help="Relative gap at which the solver stops.")]
MaxIter = Annotated[int, typer.Option(help="Iterations of the solver at most.")]
Standardize = Annotated[bool, typer.Option("--standardize", help="Scale features to mean 0 and deviation 1 first.")]
Drop = Annotated[list[str] | None, typer.Option(help="Column that is not a feature; may be given again.")]
Weight = Annotated[str | None, typer.Option(help="Column of row weights.")]
Fill = Annotated[str | None, typer.Option(help="What to put for missing features: mean, median or a number.")]
DropMissing = Annotated[
    bool, typer.Option("--drop-missing", help="Leave out rows in which something is missing and not filled.")
]
Separator = Annotated[str | None, typer.Option(help="What stands between the values of a CSV file; tab is a tab.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
    if version:
        print(f"dualcore {__version__}")
        raise typer.Exit


@app.command()
@guarded
def fit(
    data: Data,
    target: Target = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Model file to write (.json).")] = Path("model.json"),
    loss: Loss = "logistic",
    radius: Radius = 0.1,
    norm: Norm = "l2",
    label_cost: LabelCost = math.inf,
    ridge: Ridge = 0.0,
    intercept: Intercept = True,
    delta: Delta = 1.35,
    quantile: Quantile = 0.5,
    epsilon: Epsilon = 0.1,
    coreset: CoresetSize = None,
    rounds: Rounds = 4,
    gap: Gap = 1e-3,
    require_gap: Annotated[float | None, typer.Option(help="End with code 4 if the certified gap is larger.")] = None,
    seed: Seed = 0,
    tol: Tol = 1e-6,
    max_iter: MaxIter = 200,
    standardize: Standardize = False,
    drop: Drop = None,
    weight: Weight = None,
    fill: Fill = None,
    drop_missing: DropMissing = False,
    separator: Separator = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Exit:
    """Train a robust model on the rows of a file and write it as JSON."""
    from dualcore.cli.commands import training
    from dualcore.cli.commands.options import DataOptions, ProblemOptions, TrainingOptions

    return training.fit_model(
        ProblemOptions(loss, radius, norm, label_cost, ridge, intercept, delta, quantile, epsilon),
        DataOptions(data, target, tuple(drop or ()), weight, standardize, fill, drop_missing, separator),
        TrainingOptions(coreset, rounds, gap, seed, tol, max_iter),
        out,
        require_gap,
        Output(json, quiet),
    )


@app.command("coreset")
@guarded
def draw(
    data: Data,
    target: Target = None,
    size: Annotated[str, typer.Option(help="Rows to draw, or a share of them.")] = "0.05",
    out: Annotated[Path, typer.Option("--out", "-o", help="Coreset (.npz), or rows and weights (.csv).")] = Path(
        "coreset.npz"
    ),
    loss: Loss = "logistic",
    radius: Radius = 0.1,
    norm: Norm = "l2",
    label_cost: LabelCost = math.inf,
    ridge: Ridge = 0.0,
    intercept: Intercept = True,
    delta: Delta = 1.35,
    quantile: Quantile = 0.5,
    epsilon: Epsilon = 0.1,
    rounds: Rounds = 2,
    seed: Seed = 0,
    standardize: Standardize = False,
    drop: Drop = None,
    weight: Weight = None,
    fill: Fill = None,
    drop_missing: DropMissing = False,
    separator: Separator = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Exit:
    """Draw a coreset: a few weighted rows that stand for all of them. Rows are numbered from 0."""
    from dualcore.cli.commands import training
    from dualcore.cli.commands.options import DataOptions, ProblemOptions, TrainingOptions

    return training.draw_coreset(
        ProblemOptions(loss, radius, norm, label_cost, ridge, intercept, delta, quantile, epsilon),
        DataOptions(data, target, tuple(drop or ()), weight, standardize, fill, drop_missing, separator),
        TrainingOptions(size, rounds, 1e-9, seed, 1e-6, 200),
        out,
        Output(json, quiet),
    )


@app.command()
@guarded
def stream(
    data: Data,
    target: Target = None,
    state: Annotated[Path | None, typer.Option(help="File of the stream (.npz): read if there, and written.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Coreset of all rows so far to write (.npz).")] = None,
    size: Annotated[int, typer.Option(help="Rows of the coreset.")] = 5000,
    loss: Loss = "logistic",
    radius: Radius = 0.1,
    norm: Norm = "l2",
    label_cost: LabelCost = math.inf,
    ridge: Ridge = 0.0,
    intercept: Intercept = True,
    delta: Delta = 1.35,
    quantile: Quantile = 0.5,
    epsilon: Epsilon = 0.1,
    seed: Seed = 0,
    drop: Drop = None,
    weight: Weight = None,
    fill: Fill = None,
    drop_missing: DropMissing = False,
    separator: Separator = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Exit:
    """Take in rows that are gone afterwards: call it for every new file, and draw a coreset of all of them."""
    from dualcore.cli.commands.options import DataOptions, ProblemOptions
    from dualcore.cli.commands.streaming import stream_rows

    return stream_rows(
        ProblemOptions(loss, radius, norm, label_cost, ridge, intercept, delta, quantile, epsilon),
        DataOptions(data, target, tuple(drop or ()), weight, False, fill, drop_missing, separator),
        size,
        seed,
        state,
        out,
        Output(json, quiet),
    )


@app.command()
@guarded
def certify(
    model: ModelFile,
    data: Data,
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="Target column, if not that of the model.")
    ] = None,
    weight: Weight = None,
    separator: Separator = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Exit:
    """Say what is known about a model on these rows: its worst-case risk, and what no model can beat."""
    from dualcore.cli.commands import training

    return training.certify_model(model, data, target, weight, separator, Output(json, quiet))


@app.command()
@guarded
def predict(
    model: ModelFile,
    data: Data,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write (.csv); else standard output.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Write the scores as well.")] = False,
    separator: Separator = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Exit:
    """Predict the rows of a file."""
    from dualcore.cli.commands import training

    return training.predict_rows(model, data, out, scores, separator, Output(json, quiet))


@app.command("path")
@guarded
def follow(
    data: Data,
    target: Target = None,
    radii: Annotated[str, typer.Option(help="LOW:HIGH:COUNT, or a list like 0.01,0.1,1.")] = "0.01:1:20",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write (.json).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture to write (.png).")] = None,
    cv: Annotated[int | None, typer.Option(help="Choose a radius by cross-validation with so many folds.")] = None,
    suggest: Annotated[bool, typer.Option("--suggest", help="Suggest a radius from the noise of the sample.")] = False,
    loss: Loss = "logistic",
    norm: Norm = "l2",
    label_cost: LabelCost = math.inf,
    ridge: Ridge = 0.0,
    intercept: Intercept = True,
    delta: Delta = 1.35,
    quantile: Quantile = 0.5,
    epsilon: Epsilon = 0.1,
    coreset: CoresetSize = None,
    seed: Seed = 0,
    tol: Tol = 1e-6,
    max_iter: MaxIter = 200,
    standardize: Standardize = False,
    drop: Drop = None,
    weight: Weight = None,
    fill: Fill = None,
    drop_missing: DropMissing = False,
    separator: Separator = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Exit:
    """Train a model for every radius of a range, each certified; one coreset serves a doubling of the radius."""
    from dualcore.cli.commands import training
    from dualcore.cli.commands.options import DataOptions, ProblemOptions, TrainingOptions, parse_radii

    return training.follow_path(
        ProblemOptions(loss, 0.0, norm, label_cost, ridge, intercept, delta, quantile, epsilon),
        DataOptions(data, target, tuple(drop or ()), weight, standardize, fill, drop_missing, separator),
        TrainingOptions(coreset, 1, 1e-3, seed, tol, max_iter),
        parse_radii(radii),
        cv,
        suggest,
        out,
        plot,
        Output(json, quiet),
    )


@app.command()
@guarded
def report(
    model: ModelFile,
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write (.html).")] = Path("report.html"),
    seeds: Annotated[int, typer.Option(help="Draws of each size in the comparison of sizes.")] = 3,
    separator: Separator = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Exit:
    """Write one HTML file: the certificate in a sentence, the pictures, and how to reproduce them."""
    from dualcore.cli.commands.reporting import write_report

    return write_report(model, data, out, seeds, separator, Output(json, quiet))


@app.command()
@guarded
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for pictures and report.")] = Path("demo-output"),
    rows: Annotated[int, typer.Option(help="Rows of the generated data.")] = 200_000,
    json: Json = False,
    quiet: Quiet = False,
) -> Exit:
    """Whole data against coreset, clean and under attack, on data that come with the package."""
    from dualcore.cli.commands.demo import run_demo

    return run_demo(out, rows, Output(json, quiet))


@app.command()
@guarded
def reproduce(
    table: Annotated[str, typer.Argument(help="A table of the paper, for example table1; 'list' names them all.")],
    trials: Annotated[int, typer.Option(min=1, help="Coresets a row and method.")] = 50,
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets; else DUALCORE_DATA, else OpenML.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the records.")] = Path("dualcore-results"),
    jobs: Annotated[int, typer.Option(help="Processes; -1 for all cores.")] = -1,
    latex: Annotated[bool, typer.Option("--latex", help="Print a LaTeX table.")] = False,
    quiet: Quiet = False,
) -> Exit:
    """Run a table of the paper, and print it beside the printed one; an interrupted run goes on where it stopped."""
    from dualcore.experiments import TABLES
    from dualcore.experiments import reproduce as run

    if table == "list":
        print("\n".join(TABLES))
        return Exit.OK
    if table not in TABLES:
        raise OptionError(f"There is no table {table!r}. Use one of: {', '.join(TABLES)}.")
    found = run(table, trials, data_home=data, folder=out, n_jobs=jobs, progress=not quiet)
    print(found.latex() if latex else found.markdown())
    return Exit.OK


def _load_commands(arguments: list[str]) -> None:
    """Import what commands need, while an interrupt still ends the process; not to say how they are used."""
    if arguments and not {"--help", "--version"} & set(arguments):
        import dualcore.cli.commands.training  # noqa: F401


def _terminate(*_: Any) -> None:
    sys.exit(128 + signal.SIGTERM)


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGTERM, _terminate)  # unwinds, so that a file being written is removed
    try:
        _load_commands(sys.argv[1:])
        interruptible()
        app()
    except KeyboardInterrupt:  # before a command began its work
        sys.exit(Exit.INTERRUPTED)


if __name__ == "__main__":
    main()
