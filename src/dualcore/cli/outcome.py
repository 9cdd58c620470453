"""How a command ends: an exit code that means something, one clear line, and no file left behind."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, ParamSpec

import typer
from rich.console import Console

from dualcore.cli.wording import in_options

P = ParamSpec("P")


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
    """Where a command writes: results to standard output, everything else to standard error."""

    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False

    arguments: ClassVar[list[str]] = []  # of the command, as they were typed

    def __post_init__(self) -> None:
        self.console = Console(soft_wrap=True)
        self.errors = Console(stderr=True, soft_wrap=True)

    def result(self, values: dict[str, Any], *shown: Any) -> None:
        """Print a result: the values as JSON, or what is ``shown``, texts as they are."""
        if self.as_json:
            print(json.dumps(values, allow_nan=False, default=float))
            return
        for part in shown:
            self.console.print(part, markup=False, highlight=False)


def guarded(command: Callable[P, Exit]) -> Callable[P, None]:
    """Turn what a command returns or raises into an exit code and, if it failed, one line on standard error."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", UserWarning)  # those meant for users, ConvergenceWarning among them
            warnings.showwarning = lambda message, *_, **__: _say("warning", message)
            try:
                code = command(*args, **kwargs)
            except KeyboardInterrupt:
                code = _fail("interrupted; no file is left half-written", Exit.INTERRUPTED)
            except OptionError as error:
                code = _fail(error, Exit.USAGE)
            except BrokenPipeError:  # whatever reads the output has closed it
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                code = Exit.OK
            except OSError as error:
                named = f"{error.filename}: " if error.filename else ""
                code = _fail(f"{named}{error.strerror or error}", Exit.DATA)
            except (FileError, ValueError, TypeError, ImportError) as error:
                code = _fail(error, Exit.DATA)
            except Exception as error:  # an error inside the package, reported as such
                code = _fail(f"internal error: {type(error).__name__}: {error}", Exit.INTERNAL)
                typer.echo("Set DUALCORE_DEBUG=1 to see where.", err=True)
        raise typer.Exit(int(code))

    return run


def _say(what: str, text: object) -> None:
    typer.echo(f"{what}: {in_options(str(text))}", err=True)


def _fail(reason: object, code: Exit) -> Exit:
    _say("error", reason)
    if os.environ.get("DUALCORE_DEBUG"):
        traceback.print_exc()
    return code


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


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file, whole or not at all."""
    from dualcore.data.storage import write_atomically

    with writing(path):
        write_atomically(path, content.encode() if isinstance(content, str) else content)


def as_csv(columns: dict[str, Sequence[Any]]) -> str:
    """Return columns as the text of a CSV file; numbers keep every digit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
