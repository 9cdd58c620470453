"""A cone program written down block by block in the matrices that Clarabel reads, and what all our programs share.

Minimise ``x' P x / 2 + q' x`` subject to ``M x + c`` in a product of cones. Clarabel states the same as
``A x + s = b, s in K``, hence ``A = -M`` and ``b = c``. Its multiplier ``z`` of a cone is the usual one: where ``c``
grows by a small ``d``, the minimum falls by ``z . d``.

A `Scene` is such a program with the model in it: coefficients and intercept of the scaled rows, the bound on the dual
norm, radius and ridge. Losses add their rows to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import clarabel
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.geometry import L1Norm, L2Norm, LinfNorm, Norm
from dualcore.solvers.base import RawSolution

__all__ = [
    "DUAL_BOUNDS",
    "SOLVED",
    "UNIT_SIZES",
    "Affine",
    "ConeProgram",
    "ConeSolution",
    "Place",
    "ScaledRows",
    "Scene",
    "Sizes",
    "may_flip",
]

# A column whose spread is this small a part of its mean is constant up to rounding.
_CONSTANT = 1e-13
# Sizes beyond this (or its inverse) say that something vanishes, not how large it is.
_SMALLEST = 1e-6

# What Clarabel calls a solution.
SOLVED = ("Solved", "AlmostSolved")

Place = npt.NDArray[np.int64]
"""Where the rows of one cone component stand among all rows: the key to their multipliers."""


@dataclass(frozen=True, eq=False)
class Affine:
    """``offset + sum_k matrix_k x[start_k : start_k + width_k]``: a vector of affine functions of the variables.

    Parameters
    ----------
    offset : ndarray of shape (length,)
    terms : tuple of (start, sparse array of shape (length, width))
    """

    offset: FloatArray
    terms: tuple[tuple[int, Any], ...] = ()

    # Without this numpy would multiply `array * affine` element by element before Affine is asked.
    __array_ufunc__ = None

    def __len__(self) -> int:
        return self.offset.size

    def __add__(self, other: Affine | FloatArray | float) -> Affine:
        if isinstance(other, Affine):
            return Affine(self.offset + other.offset, self.terms + other.terms)
        return Affine(self.offset + other, self.terms)

    __radd__ = __add__

    def __neg__(self) -> Affine:
        return -1.0 * self

    def __sub__(self, other: Affine | FloatArray | float) -> Affine:
        return self + (-other)

    def __rsub__(self, other: FloatArray | float) -> Affine:
        return other + (-self)

    def __rmul__(self, factor: FloatArray | float) -> Affine:
        """Multiply all entries by one number, or each by its own."""
        if isinstance(factor, np.ndarray):
            return self.mapped(sp.diags_array(factor))
        return Affine(factor * self.offset, tuple((start, factor * matrix) for start, matrix in self.terms))

    def mapped(self, matrix: Any) -> Affine:
        """Return ``matrix @ self`` for a dense or sparse matrix."""
        left = matrix if sp.issparse(matrix) else sp.csc_array(np.atleast_2d(matrix))
        return Affine(left @ self.offset, tuple((start, left @ part) for start, part in self.terms))

    def spread(self, length: int) -> Affine:
        """Return a single entry repeated ``length`` times."""
        return self.mapped(np.ones((length, 1)))

    def __getitem__(self, keep: npt.NDArray[np.bool_]) -> Affine:
        return Affine(self.offset[keep], tuple((start, matrix.tocsr()[keep]) for start, matrix in self.terms))


class ConeSolution(NamedTuple):
    """Where Clarabel stopped: variables, multipliers, and how it went."""

    x: FloatArray
    multipliers: FloatArray
    status: str
    iterations: int
    trace: tuple[tuple[int, float, float], ...]

    def value(self, expression: Affine) -> FloatArray:
        """Return what an affine expression is worth at the solution."""
        out = expression.offset.copy()
        for start, matrix in expression.terms:
            out += matrix @ self.x[start : start + matrix.shape[1]]
        return out


def _entries(matrix: Any) -> tuple[Place, Place, FloatArray]:
    """Return rows, columns and values of the entries; of small matrices scipy's own way costs more than the program."""
    if matrix.format not in ("csc", "csr"):
        matrix = matrix.tocsc()
    first, second = np.repeat(np.arange(matrix.indptr.size - 1), np.diff(matrix.indptr)), matrix.indices
    down, along = (second, first) if matrix.format == "csc" else (first, second)
    return down.astype(np.int64), along.astype(np.int64), matrix.data


class ConeProgram:
    """Collects variables, costs and cones; `solve` assembles them once."""

    def __init__(self) -> None:
        self._n_variables = 0
        self._n_rows = 0
        self._costs: list[Affine] = []
        self._squares: list[tuple[int, FloatArray]] = []
        self._blocks: list[tuple[Place, Affine]] = []
        self._cones: list[Any] = []

    def variables(self, size: int) -> Affine:
        """Return ``size`` new free variables."""
        start = self._n_variables
        self._n_variables += size
        one = sp.csc_array((np.ones(size), np.arange(size), np.arange(size + 1)), (size, size))
        return Affine(np.zeros(size), ((start, one),))

    def minimise(self, cost: Affine) -> None:
        """Add a single affine entry to the objective."""
        self._costs.append(cost)

    def minimise_squares(self, weights: FloatArray, variables: Affine) -> None:
        """Add ``sum_j weights_j x_j^2 / 2`` to the objective; ``variables`` as handed out by `variables`."""
        self._squares.append((variables.terms[0][0], weights))

    def zero(self, expression: Affine) -> Place:
        """Demand ``expression = 0``."""
        return self._one_cone(clarabel.ZeroConeT(len(expression)), expression)[0]

    def nonnegative(self, expression: Affine) -> Place:
        """Demand ``expression >= 0``."""
        return self._one_cone(clarabel.NonnegativeConeT(len(expression)), expression)[0]

    def second_order(self, length: Affine, vector: Affine) -> tuple[Place, Place]:
        """Demand ``length >= ||vector||_2``."""
        bound, inside = self._one_cone(clarabel.SecondOrderConeT(1 + len(vector)), length, vector)
        return bound, inside

    def rotated(self, left: Affine, right: Affine, middle: Affine) -> tuple[Place, Place, Place]:
        """Demand ``left * right >= middle^2, left >= 0, right >= 0``, entry by entry.

        In Clarabel's terms ``left + right >= ||(left - right, 2 middle)||``. The places returned are those of the sum,
        the difference and the double, so the multiplier of ``left`` is that of the first plus that of the second.
        """
        cones = [clarabel.SecondOrderConeT(3)] * len(left)
        total, difference, double = self._each_cone(cones, left + right, left - right, 2.0 * middle)
        return total, difference, double

    def exponential(self, exponent: Affine, bound: Affine) -> tuple[Place, Place, Place]:
        """Demand ``exp(exponent) <= bound``, entry by entry."""
        cones = [clarabel.ExponentialConeT()] * len(exponent)
        one = Affine(np.ones(len(exponent)))
        first, middle, last = self._each_cone(cones, exponent, one, bound)
        return first, middle, last

    def _one_cone(self, cone: Any, *parts: Affine) -> list[Place]:
        """Stack the parts in one cone."""
        places = []
        for part in parts:
            place = np.arange(self._n_rows, self._n_rows + len(part))
            self._n_rows += len(part)
            self._blocks.append((place, part))
            places.append(place)
        self._cones.append(cone)
        return places

    def _each_cone(self, cones: list[Any], *parts: Affine) -> list[Place]:
        """Give each entry a small cone of its own, one row from every part."""
        count, step = len(cones), len(parts)
        places = [np.arange(self._n_rows + k, self._n_rows + k + step * count, step) for k in range(step)]
        self._n_rows += step * count
        self._blocks.extend(zip(places, parts, strict=True))
        self._cones.extend(cones)
        return places

    def _assemble(self) -> tuple[Any, FloatArray, Any, FloatArray]:
        """Return Clarabel's ``P, q, A, b``."""
        linear = np.zeros(self._n_variables)
        for cost in self._costs:
            for start, matrix in cost.terms:
                linear[start : start + matrix.shape[1]] += matrix.toarray()[0]
        diagonal = np.zeros(self._n_variables)
        for start, weights in self._squares:
            diagonal[start : start + weights.size] += weights
        right = np.zeros(self._n_rows)
        rows, columns, values = [], [], []
        for place, part in self._blocks:
            right[place] = part.offset
            for start, matrix in part.terms:
                down, along, data = _entries(matrix)
                rows.append(place[down])
                columns.append(along + start)
                values.append(-data)
        places = (np.concatenate(rows), np.concatenate(columns))
        left = sp.csc_matrix((np.concatenate(values), places), shape=(self._n_rows, self._n_variables))
        curved = np.flatnonzero(diagonal)
        quadratic = sp.csc_matrix((diagonal[curved], (curved, curved)), shape=(self._n_variables,) * 2)
        return quadratic, linear, left, right

    def solve(
        self, *, tol: float, loose_tol: float, max_iter: int, stretch: float = 1.0, cautious: bool = False
    ) -> ConeSolution:
        """Hand the program to Clarabel.

        Parameters
        ----------
        tol : float
            Gap and feasibility asked for, relative where the objective exceeds 1.
        loose_tol : float
            Gap that still counts as almost solved where rounding keeps Clarabel from reaching ``tol``.
        max_iter : int
        stretch : float, default=1.0
            Factor on the objective while Clarabel works. It measures gaps absolutely where the objective is below 1,
            and multipliers of many light rows drown in its regularisation: both want a larger objective.
        cautious : bool, default=False
            Whether to keep further from the boundary of the cones: slower, for programs on which Clarabel gives up.
        """
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_iter = max_iter
        if cautious:
            settings.max_step_fraction = 0.9
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tol
        settings.reduced_tol_gap_abs = settings.reduced_tol_gap_rel = loose_tol
        if hasattr(settings, "max_threads"):  # since Clarabel 0.10
            settings.max_threads = 1
        quadratic, linear, left, right = self._assemble()
        solver = clarabel.DefaultSolver(stretch * quadratic, stretch * linear, left, right, self._cones, settings)
        trace: list[tuple[int, float, float]] = []

        def record(info: Any) -> bool:
            trace.append((int(info.iterations), float(info.cost_primal) / stretch, float(info.gap_abs) / stretch))
            return False

        if hasattr(solver, "set_termination_callback"):  # since Clarabel 0.11
            solver.set_termination_callback(record)
        found = solver.solve()
        gap = abs(float(found.obj_val - found.obj_val_dual))
        last = (int(found.iterations), float(found.obj_val) / stretch, gap / stretch)
        multipliers = np.asarray(found.z) / stretch
        return ConeSolution(np.asarray(found.x), multipliers, str(found.status), last[0], tuple(trace) or (last,))


def bound_largest(program: ConeProgram, bound: Affine, vector: Affine) -> None:
    """``max |v_j| <= bound``, dual to the l1 norm."""
    program.nonnegative(bound.spread(len(vector)) - vector)
    program.nonnegative(bound.spread(len(vector)) + vector)


def bound_length(program: ConeProgram, bound: Affine, vector: Affine) -> None:
    """``||v||_2 <= bound``, dual to the l2 norm."""
    program.second_order(bound, vector)


def bound_sum(program: ConeProgram, bound: Affine, vector: Affine) -> None:
    """``sum |v_j| <= bound``, dual to the linf norm."""
    size = program.variables(len(vector))
    program.nonnegative(size - vector)
    program.nonnegative(size + vector)
    program.nonnegative(bound - size.mapped(np.ones(len(vector))))


DUAL_BOUNDS: dict[type[Norm], Callable[[ConeProgram, Affine, Affine], None]] = {
    L1Norm: bound_largest,
    L2Norm: bound_length,
    LinfNorm: bound_sum,
}
"""How ``||theta||_*`` is bounded, by the feature norm it is dual to."""


@dataclass(frozen=True)
class ScaledRows:
    """The rows of positive mass in units that suit a solver: columns and target of size one, centred where allowed.

    With ``x' = (x - shift) / scale`` and ``y' = (y - centre) / unit`` a model ``(phi, c)`` of the scaled rows stands
    for ``theta = unit phi / scale`` and ``b = unit c + centre - shift . theta``. Labels are left alone (unit 1,
    centre 0).
    """

    matrix: Any
    target: FloatArray
    masses: FloatArray
    kept: npt.NDArray[np.int64]
    shift: FloatArray
    scale: FloatArray
    centre: float
    unit: float

    @classmethod
    def of(cls, problem: Problem, data: Data) -> ScaledRows:
        """Scale the rows of positive mass."""
        kept = np.flatnonzero(data.masses)  # a row without mass adds a cone and constrains nothing
        matrix, y, w = data.rows.take(kept), data.y[kept], data.masses[kept]
        shift = np.zeros(data.rows.m)
        if sp.issparse(matrix):
            spread = np.sqrt(matrix.power(2).T @ w)  # centring would fill the matrix
        else:
            if problem.fit_intercept:
                shift = w @ matrix
                matrix = matrix - shift
            spread = np.sqrt(w @ matrix**2)
        constant = spread <= _CONSTANT * np.abs(shift)
        scale = np.where(constant, 1.0, spread)
        if sp.issparse(matrix):
            matrix = (matrix @ sp.diags_array(1.0 / scale)).tocsr()
        else:
            matrix /= scale
            matrix[:, constant] = 0.0
        centre, unit = 0.0, 1.0
        if not problem.is_classification:
            centre = float(w @ y) if problem.fit_intercept else 0.0
            size = float(w @ np.abs(y - centre))
            unit = size if size > _CONSTANT * abs(centre) else 1.0
            y = (y - centre) / unit
        return cls(matrix, y, w, kept, shift, scale, centre, unit)

    def model(self, phi: FloatArray, level: float) -> tuple[FloatArray, float]:
        """Return coefficients and intercept in the units of the data."""
        coef = self.unit * phi / self.scale
        return coef, float(self.unit * level + self.centre - self.shift @ coef)


class Sizes(NamedTuple):
    """Expected size of the risk, of the multiplier and of ``||theta||_*``.

    A rotated cone ``left * right >= middle^2`` adds its two sides, so digits are lost unless they are of one size.
    Inside a cone Clarabel's own scaling cannot help.
    """

    risk: float
    multiplier: float
    steepness: float

    @classmethod
    def at(cls, problem: Problem, solution: RawSolution, data: Data) -> Sizes:
        """Return the sizes at a rough solution; where one vanishes (no coefficients) all stay as they are."""
        risk, multiplier = problem.evaluate(solution.coef, solution.intercept, data)
        sizes = cls(risk, multiplier, problem.size(solution.coef))
        return sizes if all(_SMALLEST < size < 1.0 / _SMALLEST for size in sizes) else UNIT_SIZES


UNIT_SIZES = Sizes(1.0, 1.0, 1.0)


def may_flip(problem: Problem) -> bool:
    """Return whether labels may flip at a price: at radius 0 there is no budget to pay it."""
    return problem.is_classification and problem.radius > 0.0 and bool(np.isfinite(problem.geometry.label_cost))


@dataclass(frozen=True)
class Scene:
    """What a row-cone builder is given.

    Attributes
    ----------
    program : ConeProgram
    problem : Problem
    design : ScaledRows
    coef : Affine
        Coefficients of the scaled data, shape (m,).
    level : Affine or None
        Their intercept, where one is fitted.
    steepness : Affine or None
        Variable that is at least ``Lip max(||theta||_*, 2 / gamma)``, of order 2 without ``Lip``, in scaled units. Of
        order 1 it is the multiplier itself. None at radius 0, where the multiplier costs nothing.
    sizes : Sizes
        How large risk, multiplier and steepness are expected to be.
    """

    program: ConeProgram
    problem: Problem
    design: ScaledRows
    coef: Affine
    level: Affine | None
    steepness: Affine | None
    sizes: Sizes

    @classmethod
    def of(cls, problem: Problem, design: ScaledRows, sizes: Sizes) -> Scene:
        """Set up coefficients, the bound on their dual norm and the penalties that no row has a part in."""
        program = ConeProgram()
        coef = program.variables(design.scale.size)
        level = program.variables(1) if problem.fit_intercept else None
        first = problem.geometry.order == 1
        if problem.ridge > 0.0:
            # In scaled units the objective is divided by unit^order, and the ridge term by unit^2 already.
            left = design.unit ** (2.0 - problem.geometry.order)
            program.minimise_squares(problem.ridge * left / design.scale**2, coef)
        if problem.radius == 0.0:
            return cls(program, problem, design, coef, level, None, sizes)
        steepness = program.variables(1)
        rate = problem.loss.lipschitz if first else 1.0
        norm = problem.geometry.norm
        prices = design.scale if norm.weights is None else design.scale * norm.weights
        movable = np.isfinite(prices)
        if movable.any():
            DUAL_BOUNDS[type(norm)](program, steepness, (rate / prices[movable]) * coef[movable])
        floor = 0.0 if problem.is_classification else rate * problem.geometry.target_slope / design.unit
        program.nonnegative(steepness - floor)
        if first:
            program.minimise(problem.radius * steepness)
        return cls(program, problem, design, coef, level, steepness, sizes)

    @property
    def n(self) -> int:
        """How many rows carry mass."""
        return self.design.masses.size

    @property
    def flips(self) -> bool:
        """Whether labels may flip at a price."""
        return may_flip(self.problem)

    def predictor(self, matrix: Any, ones: FloatArray) -> Affine:
        """Return ``matrix @ coef + ones * level``."""
        linear = self.coef.mapped(matrix)
        return linear if self.level is None else linear + self.level.mapped(ones[:, None])

    def residual(self) -> Affine:
        """Return prediction minus target, shape (n,)."""
        return self.predictor(self.design.matrix, np.ones(self.n)) - self.design.target

    def signal(self) -> Affine:
        """Return margins or residuals as variables of their own, so that the data enter the program once."""
        signal = self.program.variables(self.n)
        if self.problem.is_classification:
            self.program.zero(self.design.target * self.predictor(self.design.matrix, np.ones(self.n)) - signal)
        else:
            self.program.zero(self.residual() - signal)
        return signal

    def epigraph(self) -> Affine:
        """Return ``t`` (n,) with ``sum_i w_i t_i`` in the objective."""
        t = self.program.variables(self.n)
        self.program.minimise(t.mapped(self.design.masses))
        return t

    def flip_price(self) -> Affine:
        """Return ``gamma lam``, one entry per row."""
        if self.steepness is None:
            raise ValueError("at radius 0 no row flips, so a flip has no price")
        return self.problem.geometry.label_cost * self.steepness.spread(self.n)
