"""The sample of rows from which a softmax metric is taken."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.solvers.softmax.classmetric import sample_rows


@pytest.mark.parametrize("n", [2050, 2183, 4001, 9973])
def test_a_sample_names_rows_that_exist_and_some_of_every_class(n):
    """Steps of n / size in floating point once led to row n of n."""
    y = np.arange(n) % 26
    problem = Problem("softmax", n_classes=26, radius=0.1)
    design = ClassDesign.of(problem, problem.validate(np.ones((n, 2)), y))
    for size in (37, 2000, 2167):
        chosen = sample_rows(design, 1, size)
        assert chosen[0] == 0
        assert chosen[-1] < n
        assert (np.diff(chosen) > 0).all()
        assert len(chosen) >= min(size, n)
        assert set(y[chosen]) == set(range(26))
