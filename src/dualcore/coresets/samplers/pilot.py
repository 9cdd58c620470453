"""The pilot: a keyed uniform sample, and the model trained on it."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from dualcore.coresets.coreset import normalised
from dualcore.coresets.samplers.allocate import allocate
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Smallest, Source
from dualcore.problem import Problem
from dualcore.problem.anchor import Anchor
from dualcore.solvers import Solution, solve

__all__ = ["Pilot", "anchor_at", "check_classes", "check_size", "pilot_anchor", "pilot_sample"]


class Pilot(NamedTuple):
    """Uniformly drawn rows and their weights."""

    rows: npt.NDArray[np.int64]
    X: Any
    y: FloatArray
    weights: FloatArray


def pilot_sample(problem: Problem, source: Source, size: int, seed: int) -> Pilot:
    """Return the rows of smallest keys; in classification by class, in proportion, so that none is lost."""
    labels: tuple[Any, ...] = problem.family.strata or (None,)
    if problem.family.n_outputs > 1:
        groups, shares = _many_classes(problem, source, size, seed)
    else:
        groups = [source.smallest(seed, size, label) for label in labels]
        for label, group in zip(labels, groups, strict=True):
            if group.rows.size == 0:
                raise ValueError(f"No row of class {label:+g} has weight; a classifier needs both classes.")
        mass = sum(group.mass for group in groups)
        shares = [max(1, round(size * group.mass / mass)) for group in groups]
    for label, group in zip(labels, groups, strict=True):
        if label is not None and not group.mass > 0.0:
            raise ValueError(
                f"The rows of class {label:g} weigh so little beside the others that their mass is 0 in float64. "
                "Give the classes weights that can be compared."
            )
    rows, weights = Smallest.join(groups, [int(share) for share in shares])
    order = np.argsort(rows)
    X, y = source.take(rows[order])
    return Pilot(rows[order], X, y, normalised(weights[order]))


def _many_classes(problem: Problem, source: Source, size: int, seed: int) -> tuple[list[Smallest], list[int]]:
    """Return the rows of smallest keys of every class, and how many of them; ``size`` in all."""
    labels = problem.family.strata
    check_size(problem, size)
    survey = source.class_survey(labels)
    counts, masses = np.array([survey.count(label) for label in labels]), [survey.mass(label) for label in labels]
    check_classes(problem, counts)
    shares = allocate(size, counts, np.array(masses)).tolist()
    return source.smallest_of_each(seed, tuple(shares), labels), shares


def check_classes(problem: Problem, counts: npt.NDArray[np.integer]) -> None:
    """Raise ValueError where a class has no row of positive weight; ``counts`` holds how many each has."""
    labels = problem.family.strata
    if not counts.all():
        label = labels[int(np.argmin(counts))]
        raise ValueError(f"No row of class {label:g} has weight; a classifier needs all {len(labels)} classes.")


def check_size(problem: Problem, size: int) -> None:
    """Raise ValueError where a coreset of so many rows cannot hold a row of each class."""
    n_strata = len(problem.family.strata)
    if size < n_strata:
        raise ValueError(
            f"A coreset of {size} rows cannot hold {n_strata} classes, and it needs a row of each class: size must be "
            f"at least {n_strata}, got {size}."
        )


def pilot_anchor(problem: Problem, source: Source, size: int, seed: int) -> Anchor:
    """Return the model trained on a pilot sample of ``size`` rows."""
    pilot = pilot_sample(problem, source, size, seed)
    with warnings.catch_warnings():  # an anchor need not be optimal: what it is worth is measured on the full data
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = solve(problem, pilot.X, pilot.y, pilot.weights, tol=1e-5)
    return anchor_at(problem, solution)


def anchor_at(problem: Problem, solution: Solution) -> Anchor:
    """Return the solution as an anchor, its multiplier such that ``h`` of every row is finite."""
    multiplier = problem.family.feasible_multiplier(solution.coef, solution.dual_variable)
    return Anchor(solution.coef, solution.intercept, multiplier)
