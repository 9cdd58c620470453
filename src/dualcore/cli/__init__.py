"""The command line: a shell over the estimators, with pictures and a report."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

__all__ = ["main"]


def _leave(*_: Any) -> None:
    # Nothing is open yet. Unwinding would end in whatever half-imported package catches the exception first.
    os.write(2, b"error: interrupted\n")
    os._exit(130)


def main() -> None:
    """Run the command line; while it imports what it needs, an interrupt ends it without a traceback."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, _leave)
    from dualcore.cli.app import app

    if not {"--help", "--version"} & set(sys.argv) and len(sys.argv) > 1:
        import dualcore.cli.rows  # noqa: F401
    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # unwinds: no file is left half-written
    try:
        app()
    except KeyboardInterrupt:  # before a command began its work
        sys.exit(130)
