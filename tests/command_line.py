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


def spawn(*arguments, code="from dualcore.cli import main; main()", **settings):
    """Start a command as a user would, in a process of its own."""
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    settings |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, **settings)


# The same, but it says when the work begins.
TELLING = """
import signal
import sys
from dualcore.cli import main
import dualcore

# A shell has its background jobs ignore interrupts, and so would what the tests start from there.
signal.signal(signal.SIGINT, signal.default_int_handler)

follow = dualcore.radius_path

def tell(*args, **settings):
    print("started", file=sys.stderr, flush=True)
    return follow(*args, **settings)

dualcore.radius_path = tell
main()
"""


def finish(process, timeout=180):
    out, errors = process.communicate(timeout=timeout)
    return process.returncode, out, errors
