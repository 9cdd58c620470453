"""`ConeProgram`: many cones at once are those that are given one by one."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore.solvers.coneprogram import ConeProgram


@pytest.mark.parametrize("at_once", [True, False])
def test_lengths_bound_the_vectors_of_their_rows(at_once):
    rows = np.array([[3.0, 4.0], [5.0, 12.0], [0.0, 2.0]])
    program = ConeProgram()
    lengths = program.variables(3)
    vectors = program.variables(6)
    program.zero(vectors - rows.ravel())
    program.minimise(lengths.mapped(np.ones(3)))
    if at_once:
        program.second_orders(lengths, vectors)
    else:
        for row in range(3):
            program.second_order(lengths.mapped(np.eye(3)[[row]]), vectors.mapped(np.eye(6)[2 * row : 2 * row + 2]))
    found = program.solve(tol=1e-10, loose_tol=1e-8, max_iter=100)
    np.testing.assert_allclose(found.value(lengths), [5.0, 13.0, 2.0], rtol=1e-8)
