"""The distribution that attains the worst-case risk, order 1.

On unbounded features the radius is spent greedily: first on the label flips of largest gain per unit of cost, then on
moving one row along the steepest direction of the model. On a box every row makes its best move at the optimal
multiplier, and rows with two optimal moves mix them so that the radius is spent. What they leave of it moves a part of
one row along the features without a limit, under the label that this hurts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import SparseRows, as_rows
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily, Family, SoftmaxFamily
from dualcore.problem.families.softmax import row_terms
from dualcore.problem.normal import Normal, dense


@dataclass(frozen=True, eq=False)
class WorstCase:
    """A discrete distribution inside the Wasserstein ball.

    Attributes
    ----------
    X : ndarray or CSR matrix of shape (n_atoms, n_features)
    y : ndarray of shape (n_atoms,)
    weights : ndarray of shape (n_atoms,)
        Masses; they sum to one.
    source : ndarray of shape (n_atoms,)
        Row of the data each atom was moved from.
    transport_cost : float
        What moving the data here costs; at most the radius. With l2 and open sides of a support it is an upper bound:
        the sum of the costs of two moves of one row.
    expected_loss : float
        Mean loss under this distribution.
    gap : float
        Bound on worst-case risk minus ``expected_loss``; 0 where the supremum is attained. Without rows of positive
        weight of the one label that an open side of the support hurts, no distribution comes near the risk.
    attained : bool
        Whether the supremum is a maximum.

    Examples
    --------
    >>> X, y = np.array([[0.5], [-0.5]]), np.array([1.0, -1.0])
    >>> worst = worst_case_distribution(Problem("hinge", radius=0.25), [1.0], 0.0, X, y)
    >>> float(worst.expected_loss), float(worst.transport_cost), bool(worst.attained)
    (0.75, 0.25, True)
    >>> worst
    <WorstCase of 2 atoms: expected loss 0.75, transport cost 0.25, attained>
    """

    X: Any
    y: FloatArray
    weights: FloatArray
    source: npt.NDArray[np.int64]
    transport_cost: float
    expected_loss: float
    gap: float
    attained: bool

    def __repr__(self) -> str:
        """Return a summary: the number of atoms and the kinds of their moves, without the arrays."""
        ends = "attained" if self.attained else f"within {self.gap:.3g} of the supremum"
        return (
            f"<WorstCase of {len(self.weights)} atoms: expected loss {self.expected_loss:.6g}, "
            f"transport cost {self.transport_cost:.6g}, {ends}>"
        )


def worst_case_distribution(
    problem: Problem,
    coef: npt.ArrayLike,
    intercept: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    tol: float = 1e-7,
) -> WorstCase:
    """Return a distribution within the radius whose expected loss is the worst-case risk (ridge excluded).

    If the supremum is not attained (for the logistic loss it is approached by moving ever less mass ever farther), the
    expected loss is within ``tol * max(1, risk)`` of it, and ``gap`` is the difference.

    Parameters
    ----------
    problem : Problem
        Of order 1.
    coef, intercept
        The model.
    X, y, sample_weight
        The data.
    tol : float, default=1e-7
        How near to come where the supremum is not attained.

    Examples
    --------
    >>> problem = Problem("hinge", radius=0.5, label_cost=0.25)
    >>> worst = worst_case_distribution(problem, [1.0], 0.0, np.array([[1.0], [-1.0]]), np.array([1.0, -1.0]))
    >>> float(worst.expected_loss), float(worst.transport_cost)
    (2.25, 0.5)
    """
    if not 0.0 < tol < np.inf:
        raise ValueError(f"tol must be positive, got {tol!r}.")
    if not problem.family.linear_in_multiplier:
        raise ValueError(
            "Worst-case distributions are available for transport order 1; this problem has order "
            f"{problem.geometry.order:g}."
        )
    data = problem.validate(X, y, sample_weight)
    normal = Normal.of(problem, data, to_train=False)
    theta, offset = normal.inside(*problem.family.as_model(coef, intercept))
    problem, family = normal.problem, normal.problem.family
    if isinstance(family, BoxFamily):
        atoms, gap = _inside_box(problem, family, theta, offset, normal.data, tol)
    elif isinstance(family, SoftmaxFamily):
        atoms, gap = _among_classes(problem, family, theta, offset, normal.data, tol)
    else:
        atoms, gap = _anywhere(problem, family, theta, offset, normal.data, tol)
    expected = float(atoms.mass @ family.losses(as_rows(atoms.X), atoms.y, theta, offset))
    points = atoms.X
    if normal.centre is not None:
        points = points + normal.centre
        points = sp.csr_matrix(points) if isinstance(data.rows, SparseRows) else points
    cost, stays = float(atoms.mass @ atoms.cost), atoms.y == atoms.before
    target = np.where(stays, data.y[atoms.source], atoms.y + normal.target_shift)
    # On a box with l2 and a curved loss the supremum is found up to the width of its enclosure.
    attained = gap <= family.enclosure * max(1.0, expected)
    return WorstCase(points, target, atoms.mass, atoms.source, cost, expected, gap, attained)


class _Atoms(NamedTuple):
    """A distribution: points, labels or targets, masses, the rows they were moved from, and the cost of each move.

    ``before`` has the labels or targets of those rows.
    """

    X: Any
    y: FloatArray
    mass: FloatArray
    source: npt.NDArray[np.int64]
    cost: FloatArray
    before: FloatArray

    def pick(self, rows: npt.NDArray[np.int64], mass: FloatArray) -> _Atoms:
        """Return some of the atoms, with other masses."""
        return _Atoms(self.X[rows], self.y[rows], mass, self.source[rows], self.cost[rows], self.before[rows])

    def joined(self, other: _Atoms) -> _Atoms:
        """Return both together, without atoms that have no mass."""
        stack = sp.vstack if sp.issparse(self.X) else np.vstack
        parts: Any = (np.concatenate(pair) for pair in zip(self[1:], other[1:], strict=True))
        both = _Atoms(stack([self.X, other.X]), *parts)
        keep = np.flatnonzero(both.mass > 0.0)
        return both.pick(keep, both.mass[keep])

    def moved(self, atom: int, mass: float, shift: FloatArray, target: float, cost: float) -> _Atoms:
        """Return ``mass`` of one atom, moved by ``shift`` to a label or target at ``cost`` per unit of mass."""
        part = self.pick(np.array([atom]), np.array([mass]))
        X = part.X + (sp.csr_matrix(shift[None, :]) if sp.issparse(self.X) else shift)
        return part._replace(X=X, y=np.array([target]), cost=part.cost + cost)

    def pushed(self, push: _Push) -> tuple[_Atoms, float]:
        """Return the distribution with some mass of an atom moved, and the supremum of the gain minus its gain."""
        left = self.mass.copy()
        left[push.atom] -= push.moved.mass[0]
        return self._replace(mass=left).joined(push.moved), push.lost


class _Push(NamedTuple):
    """What some mass of ``atom`` becomes; ``lost`` is the supremum of the gain minus its gain."""

    atom: int
    moved: _Atoms
    lost: float


def _flipped(
    problem: Problem, data: Data, rows: npt.NDArray[np.int64], share: FloatArray, labels: FloatArray
) -> tuple[_Atoms, float]:
    """Return the data with parts of some rows under other labels, and the rest of the radius."""
    n, masses, flipped = data.rows.n, data.masses.copy(), share * data.masses[rows]
    masses[rows] = np.where(share >= 1.0, 0.0, masses[rows] - flipped)
    stay = _Atoms(data.rows.take(np.arange(n)), data.y, masses, np.arange(n), np.zeros(n), data.y)
    fee = np.full(rows.size, problem.geometry.label_cost)
    atoms = stay.joined(stay.pick(rows, flipped)._replace(y=labels, cost=fee))
    return atoms, max(problem.radius - float(flipped @ fee if rows.size else 0.0), 0.0)


def _anywhere(
    problem: Problem, family: Family, theta: FloatArray, intercept: float, data: Data, tol: float
) -> tuple[_Atoms, float]:
    """Flip the rows that gain most, then move a row along the dual direction of the coefficients."""
    t, size = problem.signal(theta, intercept, data), problem.size(theta)
    value = family.form.minimise(t, data.weights, size).value
    rows, share = family.form.flip_shares(t, data.weights, size)
    atoms, rest = _flipped(problem, data, rows, share, -data.y[rows])
    return atoms.pushed(_best_push(problem, theta, intercept, data, atoms, rest, tol * max(1.0, value)))


def _among_classes(
    problem: Problem, family: SoftmaxFamily, theta: FloatArray, intercept: FloatArray, data: Data, tol: float
) -> tuple[_Atoms, float]:
    """Change rows to the label of largest gain, largest gains first; then move a row between two classes.

    These are the two classes whose coefficients differ most. The supremum is approached by moving ever less mass of a
    row of one class ever farther towards the other.
    """
    gain, size = family.terms(data.rows, data.y, theta, intercept).gain, family.size(theta)
    value = family.minimise(data, theta, intercept).value
    rows, share = family.flip_form.flip_shares(gain, data.weights, size)
    scores = np.asarray(data.rows.take(rows) @ theta.T, dtype=np.float64) + intercept
    atoms, rest = _flipped(problem, data, rows, share, scores.argmin(axis=1).astype(np.float64))
    if rest <= 1e-15 * problem.radius or size == 0.0:
        return atoms, 0.0
    scores = np.asarray(atoms.X @ theta.T, dtype=np.float64) + intercept
    return atoms.pushed(_between_classes(family, theta, scores, atoms, rest, tol * max(1.0, value)))


def _between_classes(
    family: SoftmaxFamily, theta: FloatArray, scores: FloatArray, atoms: _Atoms, rest: float, tol: float
) -> _Push:
    """Spend ``rest`` on moving a row of one of the two classes that differ most, or a row changed to such a label.

    The loss of a row of class ``own`` is at least ``s_other - s_own``, which grows by ``kappa`` per unit of cost. The
    difference of the two at the start, times the mass moved, bounds the difference to the supremum.
    """
    size, j, k = family.widest(theta)
    loss = row_terms(scores, atoms.y.astype(np.int64)).loss
    found = []
    for own, other in ((j, k), (k, j)):
        fees = np.where(own == atoms.before, 0.0, family.geometry.label_cost) - atoms.cost
        lacks = loss - (scores[:, other] - scores[:, own]) + size * fees
        atom = int(np.argmin(lacks))
        found.append((float(lacks[atom]), atom, own, other, float(fees[atom])))
    short, atom, own, other, fee = min(found)
    if np.isinf(short):
        raise ValueError(
            f"No row is of class {j} or {k}, which differ most, and labels cannot change (label_cost inf): their "
            "difference bounds the risk, and no distribution attains the bound. Leave classes without rows out."
        )
    # As the mass goes to zero, the difference to the supremum is ``short`` per unit of mass.
    mass = min(float(atoms.mass[atom]), tol / max(short, 1e-300), rest / (2.0 * fee) if fee > 0.0 else np.inf)
    distance = rest / mass - fee
    shift = distance * family.geometry.norm.steepest(theta[other] - theta[own])
    return _Push(atom, atoms.moved(atom, mass, shift, float(own), distance + fee), mass * short)


def _best_push(
    problem: Problem, theta: FloatArray, intercept: float, data: Data, atoms: _Atoms, rest: float, tol: float
) -> _Push:
    """Spend ``rest`` on the atom of largest gain per unit of cost, which is ``kappa`` at the full slope of the loss.

    Such moves are along features without a limit, or change a target that may move. By convexity an atom farther out on
    the steep side of the loss gains more, so only the outermost atom of each direction is a candidate. Where no atom
    has the label that a direction hurts, or all have moved the other way, a row is moved from where the data have it.
    """
    family, norm, flipping = problem.family, problem.geometry.norm, problem.is_classification
    kappa, (least, most) = problem.kappa(theta), problem.loss.slope_range
    best = _Push(0, atoms.pick(np.zeros(1, dtype=np.int64), np.zeros(1)), kappa * rest)  # nothing moves
    if rest <= 1e-15 * problem.radius or kappa == 0.0:
        return best._replace(lost=0.0)
    if isinstance(family, BoxFamily):
        runs = list(family.unlimited(theta))
    else:
        runs = [(-least if flipping else most, theta), (-least, theta)]
    # Direction of the score, and the changes of score, features and target per unit of cost.
    choices = [
        (push, norm.dual(part), push * norm.steepest(part), 0.0)
        for push, (rate, part) in zip((1.0, -1.0), runs, strict=True)
        if rate * norm.dual(part) >= kappa * (1.0 - 1e-12)
    ]
    if not flipping and problem.loss.lipschitz * problem.geometry.target_slope >= kappa * (1.0 - 1e-12):
        push, speed = 1.0 if most >= -least else -1.0, problem.geometry.target_slope
        choices.append((push, speed, np.zeros_like(theta), -push * speed))
    signal = family.signal(as_rows(atoms.X), atoms.y, theta, intercept)
    change = signal - family.signal(data.rows, data.y, theta, intercept)[atoms.source]
    for push, speed, shift, target in choices:
        pool, able = atoms, atoms.y == -push if flipping else (atoms.cost == 0.0) | (change * push > 0.0)
        able = able & (atoms.mass > 0.0)
        if not able.any():
            rows, labels = data.rows.take(atoms.source), np.where(flipping, -push, atoms.y)
            fees = np.where(labels == atoms.before, 0.0, problem.geometry.label_cost)
            pool = atoms._replace(X=rows if sp.issparse(atoms.X) else dense(rows), y=labels, cost=fees)
            able = (atoms.mass > 0.0) & np.isfinite(fees)
            if not able.any():
                continue
        start, drift = family.signal(as_rows(pool.X), pool.y, theta, intercept), -speed if flipping else push * speed
        atom = int(np.argmax(np.where(able, np.sign(drift) * start, -np.inf)))
        ends, fee = (float(signal[atom]), float(start[atom])), float(pool.cost[atom] - atoms.cost[atom])
        mass, distance, lost = _spend(problem, *ends, drift, float(atoms.mass[atom]), rest, fee, kappa * rest, tol)
        if lost < best.lost:
            goal = float(pool.y[atom] + distance * target)
            best = _Push(atom, pool.moved(atom, mass, distance * shift, goal, distance), lost)
    return best


def _spend(
    problem: Problem, now: float, at: float, drift: float, mass: float, rest: float, fee: float, most: float, tol: float
) -> tuple[float, float, float]:
    """Halve the mass moved until its gain is within ``tol`` of ``most``; return mass, distance, difference.

    ``now`` and ``at`` are its margins or residuals before and after it gets another label for the fee.
    """
    mass = min(mass, 0.5 * rest / fee) if fee > 0.0 else mass
    for _ in range(100):
        distance = rest / mass - fee
        ends = problem.loss.value(np.array([now, at + drift * distance]))
        lost = most - mass * float(ends[1] - ends[0])
        if lost <= tol:
            break
        mass *= 0.5
    if lost <= 1e-14 * (most + mass * abs(float(ends[0]))):  # rounding: the full slope was earned
        lost = 0.0
    return mass, distance, lost


class CategoryChange(NamedTuple):
    """A change of category and the mass of the rows that make it.

    ``group``: number of the group. ``before``, ``after``: columns of the two categories; None is the one without a
    column.
    """

    group: int
    before: int | None
    after: int | None
    mass: float


def changed_categories(problem: Problem, worst: WorstCase, X: Any) -> list[CategoryChange]:
    """Return which categories become which in a worst case, the largest mass first.

    Parameters
    ----------
    problem : Problem
        With categories.
    worst : WorstCase
        Of `worst_case_distribution`.
    X
        The features that it was made from.

    Examples
    --------
    >>> problem = Problem("hinge", radius=0.25, categories=[[0, 1]])
    >>> X, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0])
    >>> worst = worst_case_distribution(problem, [1.0, -1.0], 0.0, X, y)
    >>> changed_categories(problem, worst, X)
    [CategoryChange(group=0, before=0, after=1, mass=0.25)]
    """
    groups = problem.geometry.categories
    if groups is None:
        raise ValueError("This problem has no categories: nothing changes. Give Problem(categories=...).")
    rows = as_rows(X)
    before, after = (
        np.asarray(part.toarray() if sp.issparse(part) else part, dtype=np.float64)
        for part in (rows.take(worst.source), worst.X)
    )
    found: list[CategoryChange] = []
    for number, columns in enumerate(groups.columns):
        old, new = (_chosen(part[:, columns]) for part in (before, after))
        for pair in {*zip(old[old != new].tolist(), new[old != new].tolist(), strict=True)}:
            mass = float(worst.weights[(old == pair[0]) & (new == pair[1])].sum())
            ends = [None if index < 0 else int(columns[index]) for index in pair]
            found.append(CategoryChange(number, ends[0], ends[1], mass))
    return sorted(found, key=lambda change: (-change.mass, change.group, str(change.before), str(change.after)))


def _chosen(block: FloatArray) -> npt.NDArray[np.intp]:
    """Return the index of the one in every row; -1 where there is none."""
    return np.where(block.any(axis=1), block.argmax(axis=1), -1)


def _inside_box(
    problem: Problem, box: BoxFamily, theta: FloatArray, intercept: float, data: Data, tol: float
) -> tuple[_Atoms, float]:
    """Take the cheaper of two nearly equal best moves of each row, then the more expensive ones by decreasing gain."""
    problem.signal(theta, intercept, data)
    (value, multiplier), bracket = box.search(data.rows, data.y, data.weights, theta, intercept)
    atoms, losses = _moved(problem, box, theta, intercept, data, bracket.high)
    rest = problem.radius - float(atoms.mass @ atoms.cost)
    if bracket.low == bracket.high and multiplier > 0.0:
        return atoms.pushed(_best_push(problem, theta, intercept, data, atoms, rest, tol * max(1.0, value)))
    dear, dear_losses = _moved(problem, box, theta, intercept, data, bracket.low)
    extra, earned = dear.cost - atoms.cost, dear_losses - losses
    rows = np.flatnonzero((extra > 0.0) & (atoms.mass > 0.0))
    rows = rows[np.argsort(-earned[rows] / extra[rows], kind="stable")]
    price = atoms.mass[rows] * extra[rows]
    share = np.clip((rest - (np.cumsum(price) - price)) / price, 0.0, 1.0)
    left, moved = atoms.mass.copy(), share * atoms.mass[rows]
    left[rows] *= 1.0 - share
    losses = np.concatenate([left * losses, moved * dear_losses[rows]])
    atoms = atoms._replace(mass=left).joined(dear.pick(rows, moved))
    lost = max(value - float(losses.sum()), 0.0)
    return atoms, 0.0 if lost <= 1e-12 * max(1.0, value) else lost


def _moved(
    problem: Problem, box: BoxFamily, theta: FloatArray, intercept: float, data: Data, multiplier: float
) -> tuple[_Atoms, FloatArray]:
    """Return every row after its best move, and its loss there."""
    n, m = data.rows.n, data.rows.m
    X, y, cost, losses = np.empty((n, m)), np.empty(n), np.empty(n), np.empty(n)
    for part, found in box.sweep(data.rows, data.y, theta, intercept, multiplier, points=True):
        X[part], y[part], cost[part], losses[part] = found.X, found.label, found.cost, problem.loss.value(found.signal)
    return _Atoms(X, y, data.masses, np.arange(n), cost, data.y), losses
