"""Threads: how many are allowed, and keeping BLAS to one where more are slower."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    """Return the loaded BLAS libraries, cached because finding them takes milliseconds."""
    import numpy.linalg  # noqa: F401  the libraries must be loaded to be found
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()


def allowed_threads() -> int:
    """Return how many threads BLAS may use now: limits set by environment variables or threadpoolctl are respected."""
    return max((lib.num_threads for lib in _controller().lib_controllers if lib.user_api == "blas"), default=1)


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which BLAS uses one thread.

    Products with cache-sized blocks are too small to share: with two threads they took twice as long as with one.
    """
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit
