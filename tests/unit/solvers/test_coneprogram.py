"""`ConeProgram`: cones of many rows at once."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore.solvers.coneprogram import ConeProgram


@pytest.mark.parametrize("p", [1.2, 2.0, 5.0])
def test_power_cones_bound_powers_entry_by_entry(p):
    program, residual = ConeProgram(), np.array([0.5, -2.0, 3.0])
    bound, one, fixed = program.variables(3), program.variables(3), program.variables(3)
    program.zero(fixed - residual)
    program.zero(one - 1.0)
    program.power(bound, one, fixed, 1.0 / p)
    program.minimise(bound.mapped(np.ones(3)))
    found = program.solve(tol=1e-10, loose_tol=1e-8, max_iter=100)
    powers = np.abs(residual) ** p
    # What is solved to a relative tol is the sum: a small entry of it is known to that part of the sum.
    np.testing.assert_allclose(found.value(bound), powers, rtol=1e-7, atol=1e-10 * powers.sum())
