"""What an estimator logs while it trains, by the logger "dualcore"."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from dualcore.coresets.samplers import Round
from dualcore.solvers import Iterate

LOGGER = logging.getLogger("dualcore")


@contextmanager
def logging_to_console(verbose: int) -> Iterator[None]:
    """Let the logger "dualcore" through as ``verbose`` says, to standard output where logging is not set up."""
    level, handler = LOGGER.level, logging.StreamHandler(sys.stdout)
    if verbose:
        LOGGER.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)
        if not LOGGER.hasHandlers():
            LOGGER.addHandler(handler)
    try:
        yield
    finally:
        LOGGER.setLevel(level)
        LOGGER.removeHandler(handler)


def describe(done: Round | Iterate, *, is_read: bool) -> str:
    """Return what a callback was told as a line of a log: a round, a read of a source, or an iteration."""
    if isinstance(done, Round):
        known = f"worst-case risk {done.upper:.8g} on all rows, certified relative gap {done.relative_gap:.2e}"
        return f"read {done.read}: trained on {done.rows} rows, {known}"
    if not is_read:
        return f"iteration {done.iteration}: value {done.value:.8g}, gap {done.gap:.2e}"
    gap = done.gap / max(abs(done.value), np.finfo(float).tiny)
    return f"read {done.iteration}: worst-case risk {done.value:.8g}, certified relative gap {gap:.2e}"
