"""How tests run the commands: in this process, or in one of their own."""

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from dualcore.cli.app import app

SOURCE = Path(__file__).resolve().parents[1] / "src"
NAMES = ("age", "dose", "x, y")
DROP = ("--drop", "word", "--drop", "target", "--drop", "grade", "--drop", "weight")


def call(*arguments):
    """Run a command in this process; return code, output, errors."""
    ran = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran.exit_code, ran.stdout, ran.stderr


def start(*command, path=()):
    """Start Python in a process of its own, with the package, and first the folders of ``path``, to import from."""
    places = os.pathsep.join(map(str, [*path, SOURCE]))
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *map(str, command)], env=os.environ | {"PYTHONPATH": places}, **settings)


def finish(process, timeout=180):
    """Wait for a process; return code, output, errors."""
    out, errors = process.communicate(timeout=timeout)
    return process.returncode, out, errors
