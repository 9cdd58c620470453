"""Softmax models: many classes at once, trained and certified."""

from __future__ import annotations

from dualcore.softmax.problem import ClassData, SoftmaxProblem
from dualcore.softmax.solve import SoftmaxSolution, certify_softmax, solve_softmax

__all__ = ["ClassData", "SoftmaxProblem", "SoftmaxSolution", "certify_softmax", "solve_softmax"]
