"""The bound of a dual point of which only sums are known, kept apart by the sign of the rows' slopes.

A read of any source yields these sums. With the two signs apart they can be balanced afterwards: one side is scaled
down until all slopes sum to zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualcore.certificates.rounding import LevelSet, SlopeNorms
from dualcore.certificates.sums import first_order_bound, squared_bound
from dualcore.data.arrays import FloatArray


class SideSums(NamedTuple):
    """Sums over the rows of a dual point; the first axis is the side, slopes below zero first."""

    value: FloatArray  # (2,): of the conjugates, less s y for residuals; of order above 1 of the linear part alone
    balance: FloatArray  # (2,): of the sizes of the slopes in the score
    power: FloatArray  # (2,): of `DualForm.slope_powers`, for orders above 1
    moment: FloatArray  # (2, n_features): of slope times row
    flipped: float = 0.0  # mass that flips


def side_bound(level_set: LevelSet, sums: SideSums, terms: float, n_rows: int, *, closely: bool = True) -> float:
    """Return a lower bound on the optimum, less the allowance for rounding; that alone is a bound.

    ``terms`` is at least the sum of the sizes of the terms of ``sums.value``. ``closely`` is for `first_order_bound`;
    False leaves the allowance away too, which is most of the work: that is good for a comparison of dual points only.
    """
    problem, balance, scale = level_set.problem, sums.balance, np.ones(2)
    if problem.fit_intercept and balance[0] != balance[1]:
        side = int(balance[1] > balance[0])
        scale[side] = max(balance[1 - side], 0.0) / balance[side]
    total, moment, order = float(scale @ sums.value), scale @ sums.moment, problem.geometry.order
    power_sum = 0.0
    if problem.loss.is_lipschitz:
        root = problem.loss.lipschitz
    else:
        dual = order / (order - 1.0)
        power_sum = float(scale**dual @ sums.power)
        # The mean of order q of the slopes; for q < 2 their root mean square may be larger, by this power of the rows.
        root = order * power_sum ** (1.0 / dual) * float(n_rows) ** max(1.0 / dual - 0.5, 0.0)
    rounding = 0.0
    if closely:
        price = level_set.sum_price(SlopeNorms(float(scale @ balance), root, sums.flipped), moment)
        if np.isinf(price):
            return -np.inf
        rounding = price + level_set.error * terms
    if not problem.loss.is_lipschitz:
        power_sum *= 1.0 + level_set.error
        return squared_bound(problem, total, power_sum, moment, level_set.upper, rounding=rounding)
    # Scaling a slope by f <= 1 keeps at least the share f of -L*(s): it is concave, and -L*(0) = min L >= 0.
    bound = first_order_bound(problem, lambda f: f * total, moment, sums.flipped, level_set.upper, closely=closely)
    return bound - rounding
