"""Run the tables of the paper, and write the page made of them.

``python -m experiments run table1 --trials 5`` and ``python -m experiments document``, from the root of a checkout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments import DEFAULT_FOLDER, TABLES, reproduce, write_document
from experiments.study.page import PAGES, PICTURE, draw_picture, render
from experiments.study.run import DEFAULT_FILE, load_cells, run_comparison

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The paper's tables, and the page made of them.")
Rows = Annotated[Path, typer.Option("--rows", help="Folder of the records.")]
Stale = Annotated[bool, typer.Option("--stale", help="Run again what is stored of other code.")]


@app.command("list")
def name_tables() -> None:
    """Name the tables."""
    typer.echo("\n".join(TABLES))


@app.command()
def run(
    tables: Annotated[list[str], typer.Argument(help="Names of tables, or 'all'.")],
    trials: Annotated[int, typer.Option(min=1, help="Coresets a row and method.")] = 50,
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets; else DUALCORE_DATA, else OpenML.")] = None,
    rows: Rows = Path(DEFAULT_FOLDER),
    jobs: Annotated[int, typer.Option(help="Processes; -1 for all cores.")] = -1,
    stale: Stale = False,
) -> None:
    """Run what is not stored yet, and print the tables; an interrupted run goes on where it stopped."""
    unknown = [name for name in tables if name not in (*TABLES, "all")]
    if unknown:
        raise typer.BadParameter(f"there is no table {unknown[0]!r}. Use 'all' or some of: {', '.join(TABLES)}.")
    for name in TABLES if "all" in tables else tables:
        typer.echo(reproduce(name, trials, data_home=data, folder=rows, n_jobs=jobs, stale=stale).markdown())


@app.command()
def study(
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets; else DUALCORE_DATA, else OpenML.")] = None,
    splits: Annotated[int, typer.Option(min=1, help="Divisions into training and test rows.")] = 20,
    output: Annotated[Path, typer.Option(help="The file of the results; what it holds is not run again.")] = Path(
        DEFAULT_FILE
    ),
    stale: Stale = False,
) -> None:
    """Compare with tuned penalties on public tables under kinds of trouble; goes on where it stopped."""
    run_comparison(output, splits, None if data is None else str(data), echo=typer.echo, stale=stale)


@app.command("study-page")
def study_page(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit with 1 if a page is old.")] = False,
) -> None:
    """Put the stored study into its page and README, and draw its picture."""
    cells = load_cells(DEFAULT_FILE)
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        shown = render(page, cells)
        if check and shown != page:
            raise typer.Exit(1)
        path.write_text(shown, encoding="utf-8")
    if not check:
        draw_picture(cells, PICTURE)


@app.command()
def document(
    output: Annotated[Path, typer.Option(help="The Markdown file to write.")] = Path("docs/experiments.md"),
    rows: Rows = Path("docs/data/experiments"),
) -> None:
    """Write the page of the experiments, and its figures, from stored records."""
    typer.echo(write_document(rows, output))


if __name__ == "__main__":
    app(prog_name="python -m experiments")
