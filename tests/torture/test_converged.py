"""Problems of which an earlier edition had the minimiser but not its certificate, or stated that there was none.

A number names a problem: `python -m tests.torture --seed 90001 --small --unpaired --only 260` runs it with all its
numbers.
"""

from __future__ import annotations

import pytest

from torture.parts.report import failures
from torture.parts.trial import QUICK, run_trial

SEED = 90001

# Orders above 1 without an intercept: columns far from the origin differ in their last digits, and the system of the
# repair, which squares their condition, took them for one.
FAR_COLUMNS = (260, 1480, 2028, 2077)
# The norm has no slope where the price of the target decides, and the repair did not aim at a moment of zero.
PRICE_OF_TARGET = (1105,)
# The target is constant: zero coefficients fit it exactly, and an interior point left 1e-23 of the risk.
CONSTANT_TARGET = (85, 150, 546, 839, 1775)
# Planes near a vertex: multipliers that balance up to rounding of the normal equations, in a region wide enough for
# that to count; or a length of one coefficient, rounded off at zero.
PLANES = (142, 489, 576, 815, 1031, 1363, 1726, 1959, 2976)


@pytest.mark.parametrize("number", FAR_COLUMNS + PRICE_OF_TARGET + CONSTANT_TARGET + PLANES)
def test_the_certificate_is_found(number: int) -> None:
    record = run_trial(SEED, number, small=True, paired=False, limits=QUICK)
    assert not failures(record)
    assert "converged" in record["verdicts"]


def test_a_separable_squared_hinge_has_a_minimiser() -> None:
    """All margins were positive and one 1e-10 short of 1: the solution said that no minimiser exists."""
    record = run_trial(SEED, 1562, small=True, paired=False, limits=QUICK)
    assert not failures(record)
    assert record["claims"][0]["upper"] == 0.0


@pytest.mark.slow
def test_a_path_on_a_box_ends_where_rounding_decides() -> None:
    """A target of 4.5e10 without an intercept: 15 s, most of them on planes and tangents that were the same again."""
    assert not failures(run_trial(80001, 485, small=True, paired=False, limits=QUICK))
