"""``python -m dualcore.experiments run table1 --trials 5`` and ``python -m dualcore.experiments document``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dualcore.experiments import DEFAULT_FOLDER, TABLES, reproduce, write_document

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The paper's tables, and the page made of them.")
Rows = Annotated[Path, typer.Option("--rows", help="Folder of the records.")]


@app.command()
def run(
    tables: Annotated[list[str], typer.Argument(help="Names of tables, or 'all'.")],
    trials: Annotated[int, typer.Option(help="Coresets a row and method.")] = 50,
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets.")] = None,
    rows: Rows = Path(DEFAULT_FOLDER),
    jobs: Annotated[int, typer.Option(help="Processes; -1 for all cores.")] = -1,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX instead of Markdown.")] = False,
) -> None:
    """Run what is not stored yet, and print the tables."""
    for name in TABLES if tables == ["all"] else tables:
        made = reproduce(name, trials, data_home=data, folder=rows, n_jobs=jobs)
        Console().print(made.latex() if latex else made.markdown(), markup=False, soft_wrap=True)


@app.command()
def document(
    output: Annotated[Path, typer.Option(help="The Markdown file to write.")] = Path("docs/experiments.md"),
    rows: Rows = Path("docs/data/experiments"),
) -> None:
    """Write the page of the experiments, and its figures, from stored records."""
    typer.echo(write_document(rows, output))


if __name__ == "__main__":
    app()
