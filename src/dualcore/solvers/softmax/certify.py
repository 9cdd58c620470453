"""The certificate of a softmax model: its exact risk, and a lower bound from steps that start at it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualcore.certificates.rounding import free_features
from dualcore.certificates.rows import Bound
from dualcore.certificates.softmax.bound import lower_bound, spread_bound
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.geometry import L1Norm, L2Norm, LinfNorm
from dualcore.problem.normal import Normal
from dualcore.solvers.softmax.classnewton import newton_step
from dualcore.solvers.softmax.descent import ClassDescent

__all__ = ["STEPS_TO_CERTIFY", "ClassCertificate", "certify_classes", "size_fault"]

# A Newton matrix of this size is factored densely, some dozen times in each of a few cone programs.
_MOST_NUMBERS = 2500
# Up to this many numbers that takes less time than descent does, by measurement; rows near a change of label are cones.
_FEW_NUMBERS, _FEW_WITH_FLIPS = 700, 400
# One for the risk and two to measure the columns; then, a step: itself, at most three for its bound, one for the risk.
_READS_TO_START, _READS_PER_STEP = 3, 5
STEPS_TO_CERTIFY = 4
# Evaluations that descent may take for a bound, and the relative gap at which it may stop.
_EVALUATIONS_TO_CERTIFY, _TIGHT = 60, 1e-6
# The share of the gap that a better bound could still close, below which none is looked for.
_ENOUGH = 0.1


class ClassCertificate(NamedTuple):
    """Risk of a model, lower bound on the best possible one, reads, and what rounding can have done to both."""

    upper: float
    lower: float
    n_reads: int
    rounding: float


def certify_classes(problem: Problem, coef: FloatArray, intercept: FloatArray, data: Data) -> ClassCertificate:
    """Return the exact worst-case risk of a model on these data, and a lower bound on the best possible one.

    The bound is the dual point of a Newton step from the model, or of one from where that step leads; for many numbers
    that of a few dozen steps of descent. The nearer the model is to the optimum, the sooner the bound is tight.
    """
    normal = Normal.of(problem, data)
    coef, levels = normal.inside(coef, intercept)
    upper, multiplier = problem.evaluate(coef, levels, normal.data)
    design = ClassDesign.of(problem, normal.data)
    best = max(Bound(0.0, 0.0), spread_bound(design))
    method = _by_newton if suits_newton(problem, data.rows.m) else _by_descent
    with np.errstate(under="ignore"):
        best, reads = method(design, design.weights(coef, levels), upper, multiplier, best)
    rounding = best.rounding + design.risk_error(coef, levels, upper)
    return ClassCertificate(upper, min(best.value, upper), _READS_TO_START + reads, rounding)


def _by_newton(design: ClassDesign, W: FloatArray, upper: float, multiplier: float, best: Bound) -> tuple[Bound, int]:
    value, reads = upper, 0
    for _ in range(STEPS_TO_CERTIFY):
        step = newton_step(design, W, multiplier, 1e-7)
        best = max(best, lower_bound(design, W, step, value))
        W = W + step.change
        ahead, multiplier = design.problem.evaluate(*design.model(W), design.data)
        value, reads = min(value, ahead), reads + _READS_PER_STEP
        if value - best.value <= _ENOUGH * (upper - best.value):  # no bound can be much better than this one
            break
    return best, reads


def _by_descent(design: ClassDesign, W: FloatArray, upper: float, multiplier: float, best: Bound) -> tuple[Bound, int]:
    descent = ClassDescent(design, _TIGHT, _EVALUATIONS_TO_CERTIFY, W, known=upper)
    descent.run()
    return max(best, descent.lower), descent.n_passes


def size_fault(problem: Problem, n_features: int, *, by_newton: bool = True) -> str | None:
    """Return why Newton's method, or a cone program of all rows, cannot take a problem; None if it can."""
    norm = problem.geometry.norm
    if type(norm) not in (L1Norm, L2Norm, LinfNorm):
        return f"Softmax problems know no cone for the norm {type(norm).__name__}: use l1, l2 or linf."
    n_classes = problem.family.n_outputs
    size = n_classes * (n_features + int(problem.fit_intercept))
    if by_newton and size > _MOST_NUMBERS:
        return (
            f"A softmax model of {n_classes} classes and {n_features} features has {size} numbers, too many for "
            f"Newton's method beyond {_MOST_NUMBERS}. Use solver='descent', or 'auto', which takes it."
        )
    return None


def suits_newton(problem: Problem, n_features: int) -> bool:
    """Whether Newton's method is quick: its matrix, or with free coefficients the only method that bounds them."""
    if size_fault(problem, n_features) is not None:
        return False
    size = problem.family.n_outputs * (n_features + int(problem.fit_intercept))
    few = _FEW_WITH_FLIPS if problem.family.flips else _FEW_NUMBERS
    return size <= few or bool(free_features(problem, n_features).any())
