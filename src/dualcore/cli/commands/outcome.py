"""How a command ends: an exit code that means something, one clear line, and no file left behind."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer
from rich.console import Console

P = ParamSpec("P")
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


class Exit(IntEnum):
    """What the exit code of a command says."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    DATA = 3
    NOT_CONVERGED = 4
    INTERRUPTED = 130


class OptionError(Exception):
    """An option has a value that cannot be used."""


class FileError(Exception):
    """A file cannot be read or written."""


@dataclass
class Output:
    """Where a command speaks: results to standard output, everything else to standard error."""

    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")] = False
    quiet: Quiet = False

    def __post_init__(self) -> None:
        self.console = Console(soft_wrap=True)
        self.errors = Console(stderr=True, soft_wrap=True)
        self.shows_progress = not (self.as_json or self.quiet) and self.errors.is_terminal

    def result(self, values: dict[str, Any], show: Callable[[Console], None]) -> None:
        """Print a result: the values as JSON, or what ``show`` prints."""
        if self.as_json:
            print(json.dumps(values, allow_nan=False, default=float))
        else:
            show(self.console)


def guarded(command: Callable[P, Exit]) -> Callable[P, None]:
    """Turn what a command returns or raises into an exit code and, if it failed, one line on standard error."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", UserWarning)  # those meant for users, ConvergenceWarning among them
            warnings.showwarning = _show_warning
            try:
                code = command(*args, **kwargs)
            except KeyboardInterrupt:
                code = _fail("interrupted; no file is left half-written", Exit.INTERRUPTED)
            except OptionError as error:
                code = _fail(error, Exit.USAGE)
            except (FileError, ValueError, ImportError) as error:  # tables, models, sources raise kinds of ValueError
                code = _fail(error, Exit.DATA)
            except BrokenPipeError:  # whoever read our output has seen enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                code = Exit.OK
            except OSError as error:
                named = f"{error.filename}: " if error.filename else ""
                code = _fail(f"{named}{error.strerror or error}", Exit.DATA)
            except Exception as error:  # whatever else happens is our fault, and said so
                code = _fail(f"internal error: {type(error).__name__}: {error}", Exit.INTERNAL)
                if os.environ.get("DUALCORE_DEBUG"):
                    traceback.print_exc()
                else:
                    typer.echo("Set DUALCORE_DEBUG=1 to see where.", err=True)
        raise typer.Exit(int(code))

    return run


def _fail(reason: object, code: Exit) -> Exit:
    text = str(reason)
    for argument, option in _OPTIONS.items():
        text = text.replace(argument, option)
    typer.echo("error: " + " ".join(text.split()), err=True)
    return code


# What sources say in terms of Python, and what it is called here.
_OPTIONS = {
    "give fill= a number for it, or drop_missing=True": "train with --fill or --drop-missing; "
    "predict keeps every row, so it needs a model trained with --fill",
    "drop_missing=True leaves such rows out": "fit --drop-missing leaves such rows out",
}


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo("warning: " + " ".join(str(message).split()), err=True)


def check_output(path: Path | None, *suffixes: str) -> None:
    """See, before any work, that a file can be written where it is wanted."""
    if path is None:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        raise OptionError(f"The name of {path} must end in {' or '.join(suffixes)}.")
    if path.exists() and not path.is_file():
        raise FileError(f"Cannot write {path}: it exists and is not a plain file.")
    folder = Path(os.path.realpath(path)).parent  # a link is written through
    if not folder.is_dir():
        raise FileError(f"Cannot write {path}: there is no folder {folder}.")
    if not os.access(folder, os.W_OK):
        raise FileError(f"Cannot write {path}: the folder {folder} cannot be written to.")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file that was meant where writing fails; writes are atomic, so nothing of it is left."""
    try:
        yield
    except OSError as error:
        raise FileError(f"Cannot write {path}: {error.strerror or error}.") from None
