"""Lower bounds from rows merged into groups: their own optimum, which is at most that of all rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dualcore.certificates import RowBounds
from dualcore.coresets.samplers.anchors import anchor_at
from dualcore.data.sources import Source
from dualcore.problem import Anchor
from dualcore.reading.closed import ClosedReading
from dualcore.reading.groups import merge_rows, near_rows
from dualcore.solvers import solve_quietly

# Reads at most: the second groups rows by the model of the first merged rows too, where those bound least.
_READS = 2


def merged_bounds(source: Source, reading: ClosedReading, anchor: Anchor, tol: float) -> Iterator[float]:
    """Yield lower bounds on the optimal risk of the full data, one a read, two reads at most.

    ``reading`` is of these data at ``anchor``, a model near the optimum with the multiplier of its risk on the full
    data, for a problem that `can_merge` accepts. Merged rows are solved to the relative gap ``tol``.
    """
    problem, kept = reading.problem, near_rows(reading)
    models: tuple[Anchor, ...] = (anchor,)
    whole = reading.level_set(reading.risk)
    for _ in range(_READS):
        merged = merge_rows(source, problem, models, kept)
        solution = solve_quietly(problem, merged, tol=tol)  # any dual point gives a bound
        bounds = RowBounds(problem, problem.validate(*merged), whole.upper, whole)
        yield -np.inf if solution.dual is None else bounds.bound(solution.dual).value
        models = (anchor, anchor_at(problem, solution))
