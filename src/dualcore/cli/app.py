"""The command line: parse options, hand them to the commands, end with a code that means something.

Exit codes: 0 done; 1 an internal error; 2 wrong usage; 3 a file or its data cannot be used; 4 not converged, or a gap
larger than asked for (what was found is written all the same); 130 interrupted.

Commands import what they need when they run, so that ``--help`` does not wait for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
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
)
from dualcore.cli.outcome import Exit, Output, guarded


class _Recorded(TyperGroup):
    """The commands, with what was typed kept for reports that say how to get there again."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        Output.arguments = list(args)
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
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
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
    from dualcore.cli.commands import fit_model

    return fit_model(problem, data, training, out, require_gap, output)


@app.command("coreset")
@guarded
@grouped
def draw(
    *,
    data: DataOptions,
    out: Annotated[Path, typer.Option("--out", "-o", help="Coreset (.npz), or rows and weights (.csv).")] = Path(
        "coreset.npz"
    ),
    problem: ProblemOptions,
    training: DrawOptions,
    output: Output,
) -> Exit:
    """Choose a coreset: a few weighted rows that train the same model. Rows are numbered from 0."""
    from dualcore.cli.commands import draw_coreset

    return draw_coreset(problem, data, training, out, output)


@app.command()
@guarded
@grouped
def stream(
    *,
    data: StreamData,
    state: Annotated[Path | None, typer.Option(help="File of the stream (.npz): read if there, and written.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Coreset of all rows so far to write (.npz).")] = None,
    size: Annotated[int, typer.Option(help="Rows of the coreset.")] = 5000,
    seed: Seed = 0,
    problem: ProblemOptions,
    output: Output,
) -> Exit:
    """Take in rows that are gone afterwards: call it for every new file, and draw a coreset of all of them."""
    from dualcore.cli.streaming import stream_rows

    return stream_rows(problem, data, size, seed, state, out, output)


@app.command()
@guarded
@grouped
def certify(
    *,
    model: ModelFile,
    data: DataFile,
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="Target column, if not that of the model.")
    ] = None,
    weight: Weight = None,
    separator: Separator = None,
    output: Output,
) -> Exit:
    """Say what is known about a model on these rows: its worst-case risk, and what no model can beat."""
    from dualcore.cli.commands import certify_model

    return certify_model(model, data, target, weight, separator, output)


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
    """Predict the rows of a file. A text that training did not see counts as no category: a row of zeros."""
    from dualcore.cli.commands import predict_rows

    return predict_rows(model, data, out, scores, separator, output)


@app.command("path")
@guarded
@grouped
def follow(
    *,
    data: DataOptions,
    radii: Annotated[
        str | None,
        typer.Option(help="LOW:HIGH:COUNT, or a list like 0.01,0.1,1; else 20 up to where nothing is learned."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write (.json).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture to write (.png).")] = None,
    cv: Annotated[int | None, typer.Option(help="Choose a radius by cross-validation with so many folds.")] = None,
    suggest: Annotated[bool, typer.Option("--suggest", help="Suggest a radius from the noise of the sample.")] = False,
    problem: PathProblem,
    training: PathOptions,
    output: Output,
) -> Exit:
    """Train a model for every radius of a range, each certified; one coreset serves all of them."""
    from dualcore.cli.commands import follow_path

    return follow_path(problem, data, training, parse_radii(radii), cv, suggest, out, plot, output)


@app.command()
@guarded
@grouped
def report(
    *,
    model: ModelFile,
    data: DataFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write (.html).")] = Path("report.html"),
    seeds: Annotated[int, typer.Option(help="Draws of each size in the comparison of sizes.")] = 3,
    separator: Separator = None,
    output: Output,
) -> Exit:
    """Write one HTML file: the certificate in a sentence, the pictures, and how to reproduce them."""
    from dualcore.cli.reporting import write_report

    return write_report(model, data, out, seeds, separator, output)


@app.command()
@guarded
@grouped
def demo(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for pictures and report.")] = Path("demo-output"),
    rows: Annotated[int, typer.Option(help="Rows of the generated data.")] = 200_000,
    output: Output,
) -> Exit:
    """Whole data against coreset, clean and under attack, on data that come with the package."""
    from dualcore.cli.demo import run_demo

    return run_demo(out, rows, output)
