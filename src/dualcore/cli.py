"""The command line: parse and dispatch only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app", "main"]

app = typer.Typer(
    help="Wasserstein-robust linear models on data too large to train on.", no_args_is_help=True, add_completion=False
)


@app.callback()
def _app() -> None:
    """Wasserstein-robust linear models on data too large to train on."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pictures and the report.")] = Path("demo-output"),
    rows: Annotated[int, typer.Option(min=1000, help="Rows of the generated data.")] = 200_000,
) -> None:
    """Fit whole and coreset models on embedded data and compare them."""
    from dualcore.demo import run_demo

    run_demo(out, rows)


def main() -> None:
    """Run the command line."""
    app()
