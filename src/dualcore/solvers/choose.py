"""Which solver takes a problem."""

from __future__ import annotations

import numpy as np

from dualcore.certificates.rounding import free_features
from dualcore.data.rows import SparseRows
from dualcore.problem import Data, Problem
from dualcore.problem.geometry import L2Norm
from dualcore.problem.losses import Squared
from dualcore.solvers.base import IncompatibleError, Solver, able_solver
from dualcore.solvers.box import BoxSolver
from dualcore.solvers.conic import ConicSolver
from dualcore.solvers.descent import DescentSolver
from dualcore.solvers.descent.multipliers import can_multiply
from dualcore.solvers.softmax import ClassDescentSolver, ClassNewtonSolver
from dualcore.solvers.structured import StructuredSolver

# Features and rows from which on descent takes less time than the interior point with the norms l2 and linf, by what
# curves the risk: any pair will do. Measured by `benchmarks/bench_choice.py` on dense rows, where correlation of the
# columns, which is not known beforehand, moves the time of descent several times over: these pairs keep the greater of
# the two losses small. With l1 there are none: on one-hot columns (a9a) descent takes ten times as long there.
_HAND_OVER = {"smooth": ((50, 2000), (150, 500)), "kinks": ((50, 10_000),), "flips": ((75, 10_000),)}
# Flips of classes under the Euclidean norm, where descent takes quasi-Newton steps.
_HAND_OVER_FLIPS = (20, 10_000)
# Flips under columns of very different sizes take descent tens of times as long: the grid's columns are of one size.
_MOST_UNEVEN = 100.0
# What the grid does not cover: from this many features on, and this much work for a Newton matrix (rows times features
# squared, of the smaller of the two). Kinks and flips cost descent more steps.
_MANY_FEATURES = 150
_WIDE_SMOOTH, _WIDE = 2e8, 1.5e9
# Kinks with l1 are a linear programme, of which the interior point needs the rows near a kink alone: 3,000 x 800 takes
# it 2 s and descent more than 40, sparse 1,000 x 1,500 4 s and more than 40; 100,000 x 200 takes both 4 s.
_WIDE_PROGRAMME = 3e10

# Of so many columns the cones of a squared loss are few numbers: those of the triangular factor of the rows.
_FEW_COLUMNS = 200
# Work of that factor (rows times features squared) beyond which descent is quicker.
_FEW_PRODUCTS = 1e8
# Rows that can be fitted exactly, of so many numbers, take cones less time than descent takes to stall.
_FEW_ENTRIES = 200_000

SOLVERS: dict[str, type[Solver]] = {cls.name: cls for cls in (StructuredSolver, BoxSolver, DescentSolver, ConicSolver)}


# The same for problems of many classes.
CLASS_SOLVERS: dict[str, type[Solver]] = {cls.name: cls for cls in (ClassDescentSolver, ClassNewtonSolver)}


def solvers_for(problem: Problem) -> dict[str, type[Solver]]:
    """Return the solvers of a kind of problem by name, in the order in which they are tried."""
    return CLASS_SOLVERS if problem.family.n_outputs > 1 else SOLVERS


def check_classes(problem: Problem, data: Data) -> None:
    """Raise ValueError where a class has no mass: weights of zero can empty one that the labels alone do not."""
    if problem.family.n_outputs > 1:
        masses = np.bincount(data.y.astype(np.int64), data.masses, problem.family.n_outputs)
        if not (masses > 0.0).all():
            raise ValueError(f"Class {int(np.argmin(masses))} has no row of positive weight; every class needs one.")
    elif problem.is_classification and data.weights is not None:
        for label in (-1.0, 1.0):
            if not (data.weights[data.y == label] > 0.0).any():
                raise ValueError(f"Every row of class {label:+g} has zero weight; a classifier needs both classes.")


def choose_solver(problem: Problem, data: Data, solver: str) -> Solver:
    """Return the solver of a name, or the one that is made for the problem; refuse what it cannot do."""
    solvers = solvers_for(problem)
    if solver == "auto":
        first: list[type[Solver]] = []
        if _is_wide(problem, data):
            first = [DescentSolver]
        elif problem.family.n_outputs == 1 and _suits_cones(problem, data):
            first = [ConicSolver]
        order = list(solvers.values())
        if problem.family.n_outputs > 1 and free_features(problem, data.rows.m).any():
            order.reverse()  # only Newton's method bounds the risk where nothing penalises a coefficient
        for cls in (*first, *order):
            candidate = cls()
            if candidate.obstacle(problem, data) is None:
                return candidate
        reason = BoxSolver().obstacle(problem, data) if not problem.family.is_closed else None
        raise IncompatibleError(reason or f"No solver can take {problem!r}.")
    if solver not in solvers:
        kind = " for a softmax problem" if problem.family.n_outputs > 1 else ""
        raise ValueError(f"Unknown solver {solver!r}. Use 'auto' or one of {sorted(solvers)}{kind}.")
    chosen = solvers[solver]()
    obstacle = chosen.obstacle(problem, data)
    if obstacle is not None:
        raise IncompatibleError(obstacle)
    return chosen


def _suits_cones(problem: Problem, data: Data) -> bool:
    """Whether a cone programme of order above 1 is small, or the rows can be fitted exactly, where descent stalls."""
    if problem.family.linear_in_multiplier:
        return False
    n, m = data.rows.n, data.rows.m
    compressed = isinstance(problem.loss, Squared) and m <= _FEW_COLUMNS and not isinstance(data.rows, SparseRows)
    fitted = problem.radius > 0.0 and n <= m and n * m <= _FEW_ENTRIES
    return fitted or (compressed and float(n) * m * m <= _FEW_PRODUCTS)


def _is_wide(problem: Problem, data: Data) -> bool:
    """Whether products with the data are cheaper than a few Newton matrices of them; by measurement."""
    n, m = data.rows.n, data.rows.m
    if able_solver(problem) != "structured":
        return False
    smooth = not (problem.loss.kinks or problem.family.flips)
    limit = _WIDE_SMOOTH if smooth else _WIDE
    if problem.loss.kinks and problem.geometry.norm.name == "l1":
        limit = _WIDE_PROGRAMME
    if m >= _MANY_FEATURES and float(n) * m * min(n, m) >= limit:
        return True
    if isinstance(data.rows, SparseRows) or not problem.radius > 0.0 or free_features(problem, m).any():
        return False
    if problem.loss.kinks and problem.family.flips:
        return False
    curves_by = "smooth" if smooth else "flips" if problem.family.flips else "kinks"
    norm = problem.geometry.norm
    if curves_by == "kinks" and isinstance(norm, L2Norm) and not can_multiply(problem, m):
        return False
    pairs: tuple[tuple[int, int], ...] = _HAND_OVER[curves_by]
    if curves_by == "flips" and isinstance(norm, L2Norm) and problem.is_classification:
        pairs = (_HAND_OVER_FLIPS,)
    if norm.name == "l1" or not any(m >= features and n >= rows for features, rows in pairs):
        return False
    return curves_by != "flips" or _is_even(data)


def _is_even(data: Data) -> bool:
    """Whether all columns are of about one size, those of zeros apart."""
    squares = data.rows.column_squares(data.masses)
    squares = squares[squares > 0.0]
    return bool(squares.max(initial=0.0) <= _MOST_UNEVEN**2 * squares.min(initial=np.inf))
