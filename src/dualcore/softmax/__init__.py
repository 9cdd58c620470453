"""Softmax models: many classes at once, trained and certified."""

from __future__ import annotations

from dualcore.softmax.coreset import SoftmaxFit, check_coreset, fit_softmax_coreset
from dualcore.softmax.problem import ClassData, SoftmaxProblem
from dualcore.softmax.solve import READS_PER_STEP, SoftmaxSolution, certify_softmax, check_solvable, solve_softmax

__all__ = [
    "READS_PER_STEP",
    "ClassData",
    "SoftmaxFit",
    "SoftmaxProblem",
    "SoftmaxSolution",
    "certify_softmax",
    "check_coreset",
    "check_solvable",
    "fit_softmax_coreset",
    "solve_softmax",
]
