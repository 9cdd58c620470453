"""What happens before anything else is imported: an interrupt ends the command, without a traceback.

Importing takes a second or two, and Ctrl-C meanwhile should end the command. Only the command line is treated so:
in a program that imports the package, an interrupt is that program's business.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

_INTERRUPTED = 130


def is_command(run: list[str], script: str) -> bool:
    """Whether the interpreter was started as the command line, by ``sys.orig_argv`` and ``sys.argv[0]``.

    Examples
    --------
    >>> is_command(["python", "-m", "dualcore.cli", "fit"], "-m")
    True
    >>> is_command(["python", "own.py", "dualcore"], "own.py")
    False
    """
    if script in ("-m", "-c"):  # a module that is not found yet, or a line of code
        named = next((after for before, after in pairwise(run) if before == script), "")
        return named == "dualcore" or "dualcore.cli" in named
    return script in run and Path(script).stem.removesuffix("-script") == "dualcore"


def _leave(*_: Any) -> None:
    # Nothing is open yet. Unwinding would end in whatever half-imported package catches the exception first.
    os.write(2, b"error: interrupted\n")
    os._exit(_INTERRUPTED)


def begin() -> None:
    """Let an interrupt end the process, if it is the command line and no other handler is set."""
    is_main = threading.current_thread() is threading.main_thread()
    if (
        is_main
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        and is_command(sys.orig_argv, sys.argv[0])
    ):
        signal.signal(signal.SIGINT, _leave)


def interruptible() -> None:
    """Let an interrupt unwind again, so that a file being written is removed."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


begin()
