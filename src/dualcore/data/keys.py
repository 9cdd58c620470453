"""Random keys that belong to rows: a hash of (seed, global row number), nothing else.

The q smallest keys of a set of rows are a uniform sample without replacement of it. Because a key does not
depend on how the rows were chunked, shuffled or shared out, neither does the sample, and samples of parts
merge into a sample of the whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray


def row_keys(seed: int, rows: npt.NDArray[np.integer]) -> FloatArray:
    """Return a key in [0, 1) for each global row number, by the SplitMix64 finaliser; the seed is in [0, 2**64).

    Examples
    --------
    >>> bool((row_keys(7, np.arange(5)) == row_keys(7, np.arange(10))[:5]).all())
    True
    """
    state = rows.astype(np.uint64)
    state += np.uint64(1)
    state *= np.uint64(0x9E3779B97F4A7C15)
    state += _scramble(seed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state ^= state >> np.uint64(shift)
        state *= np.uint64(factor)
    state ^= state >> np.uint64(31)
    state >>= np.uint64(11)
    return state.astype(np.float64) * 2.0**-53


def _scramble(seed: int) -> np.uint64:
    """Spread a seed over all 64 bits, so that nearby seeds do not give shifted copies of one stream."""
    state = seed & 0xFFFFFFFFFFFFFFFF
    for factor in (0xD6E8FEB86659FD93, 0xD6E8FEB86659FD93):
        state = ((state ^ (state >> 32)) * factor) & 0xFFFFFFFFFFFFFFFF
    return np.uint64(state ^ (state >> 32))


def seed_from(random_state: Any, stream: int = 0) -> int:
    """Return a 64-bit seed from anything that scikit-learn accepts as ``random_state``.

    Different values of ``stream`` yield independent seeds.
    """
    if random_state is None or isinstance(random_state, np.random.Generator):
        base = int(np.random.default_rng(random_state).integers(2**63))
    elif isinstance(random_state, np.random.RandomState):
        base = int(random_state.randint(2**31))
    elif isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if random_state < 0:
            raise ValueError(f"random_state must be non-negative, got {random_state!r}.")
        base = int(random_state)
    else:
        raise TypeError(f"random_state must be an int, a numpy Generator or None, got {type(random_state).__name__}.")
    return int(np.random.SeedSequence([base, stream]).generate_state(1, np.uint64)[0])
