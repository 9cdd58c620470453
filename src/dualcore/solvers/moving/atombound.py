"""Lower bounds from atoms: a plane whose shares and slopes are those of the multipliers, made to balance."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.certificates.plane import Plane
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows
from dualcore.solvers.factor import DampedFactor, solve_damped
from dualcore.solvers.moving.atomset import AtomSet, Heights, Limits
from dualcore.solvers.moving.covariance import covariance_rows, rough_gram

# Steps that reduce the gradient of the plane, and how much more easily than slopes the categories change that a group
# is changed to.
_REPAIRS, _EASE = 3, 10.0


class _AtomTable:
    """Features of some rows, then of atoms, as one table with a column of ones.

    The extremes of atoms (n_atoms, width) are shared among the features as ``targets`` (n_extremes, m) says.
    """

    def __init__(self, rows: Rows, which: npt.NDArray[np.intp], atoms: FloatArray, targets: Any) -> None:
        self.rows, self.which, self.atoms, self.targets = rows, which, atoms, targets
        self.X = atoms[:, : rows.m] + atoms[:, rows.m :] @ targets

    def retargeted(self, rates: FloatArray, direction: FloatArray) -> _AtomTable:
        """Return the table with other categories that groups are changed to, by ``rates`` more along a direction."""
        new, mean = self.targets.copy(), self.targets @ direction
        of = np.repeat(np.arange(mean.size), np.diff(new.indptr))
        rest = np.maximum(1.0 - new.sum(axis=1), 0.0)  # the share of the category without a column
        new.data = new.data * np.clip(1.0 + rates[of] * (direction[new.indices] - mean[of]), 0.1, 10.0)
        new.data /= (new.sum(axis=1) + rest * np.clip(1.0 - rates * mean, 0.1, 10.0))[of]
        return _AtomTable(self.rows, self.which, self.atoms, new)

    def _by_row(self, values: FloatArray) -> FloatArray:
        out = np.zeros(self.rows.n)
        out[self.which] = values[: self.which.size]
        return out

    def along(self, direction: FloatArray) -> FloatArray:
        """Return ``(x, 1) . direction``."""
        rows = self.rows.dot(direction[:-1])[self.which]
        return np.asarray(np.append(rows, self.X @ direction[:-1]) + direction[-1])

    def moment(self, slope: FloatArray) -> FloatArray:
        """Return ``sum slope (x, 1)``."""
        own = self.rows.transpose_dot(self._by_row(slope))
        return np.append(own + slope[self.which.size :] @ self.X, slope.sum())

    def gram(self, weight: FloatArray) -> FloatArray:
        """Return ``sum weight (x, 1) (x, 1)'``."""
        m = self.X.shape[1]
        out = np.empty((m + 1, m + 1))
        out[:-1, :-1] = rough_gram(self.rows, self._by_row(weight))
        out[:-1, :-1] += (self.X * weight[self.which.size :, None]).T @ self.X
        out[-1] = out[:, -1] = self.moment(weight)
        return out


def bound_of(
    atoms: AtomSet, x: FloatArray, own: Heights, z: FloatArray, limits: Limits, y: FloatArray, upper: float
) -> tuple[float, float]:
    """Return the lower bound of the plane of shares and slopes, and a bound on its rounding.

    ``own`` are the heights of the rows, and ``limits`` the limits, at the point ``x``. The mass of a row is shared
    among its atoms in proportion to ``z`` (n_atoms,), which is positive. ``y`` (n_limits,) are multipliers of the
    limits; those of the extremes say in which proportions the categories are used. ``upper`` is the risk of some
    model.
    """
    problem, data, m = atoms.problem, atoms.data, atoms.m
    shown, last = atoms.used[atoms.extremes.of - m], atoms.linear.shape[0]
    by_limit = np.zeros(shown.size)
    by_limit[shown] = y[atoms.n_numeric : last]
    targets, paid = atoms.extremes.targets(by_limit)
    costs = atoms.costs + np.abs(atoms.X[:, m:]) @ paid
    numeric = y.copy()
    numeric[atoms.n_numeric : last] = 0.0
    wanted = limits.gradient(numeric)[:m] - problem.ridge * x[:m]
    sent, fare = _sent(atoms, limits, y)
    share = z * (atoms.masses / atoms.total(z))[atoms.owner]
    if atoms.is_polyhedral and atoms.width == m:
        share = _repaired(atoms, share, x, np.append(wanted, [0.0, fare - problem.radius]))
    spent, allowed = float(share @ costs), max(problem.radius - fare, 0.0)
    if spent > allowed:  # some of what moved goes back
        kept = allowed / spent
        if paid.any():
            targets, costs = kept * targets, atoms.costs + kept * (costs - atoms.costs)
        back = np.where(atoms.costs > 0.0, (1.0 - kept) * share, 0.0)
        share = share - back
        share[atoms.own_atom] += atoms.total(back)
    # Rows without atoms, then the atoms.
    alone = np.flatnonzero(atoms.others)
    share, labels = np.append(atoms.w[alone], share), np.append(data.y[alone], atoms.labels)
    slope = share * np.append(own.slope[alone], atoms.heights(x).slope)
    score = np.append(data.rows.dot(x[:m])[alone] + x[-2], atoms.along(x[:-1]))
    table = _AtomTable(atoms.data.rows, alone, atoms.X, targets)
    spent = float(share[alone.size :] @ costs) + fare
    goals = [wanted]
    has_choice = not atoms.is_polyhedral and bool(atoms.bounds.open.any())  # else slopes are given, or nothing is open
    if has_choice and spent < problem.radius and has_budget_left(atoms, x, upper):
        # Next to a model without features the budget pays for more than features without limits need: their
        # moment may stay as it is.
        shrunk = problem.ridge * x[:m]
        moment = np.where(atoms.bounds.open, table.moment(slope)[:m] + shrunk, 0.0)
        paid_for = problem.geometry.norm.project(moment, problem.loss.lipschitz * (problem.radius - spent))
        goals.append(np.where(atoms.bounds.open, paid_for - shrunk, wanted))
    used = share > 0.0
    signs = labels if problem.is_classification else np.ones(labels.size)
    found = []
    for goal in goals:
        there, mixed = table, slope
        if not atoms.is_polyhedral:
            there, mixed = _balanced(atoms, table, share, score, labels, goal)
        steep = np.zeros(share.size)
        steep[used] = np.clip(mixed[used] / share[used] * signs[used], *problem.loss.slope_range)
        mixed = steep * signs * share
        conjugate = share[used] * problem.loss.conjugate(steep[used])
        target = np.zeros(0) if problem.is_classification else mixed * (labels - atoms.bounds.middle)
        plane = Plane(
            -float(conjugate.sum()) - float(target.sum()),
            float(np.abs(conjugate).sum()) + float(np.abs(target).sum()),
            there.moment(mixed) + np.append(sent, 0.0),
            float(np.abs(mixed).sum()),
            spent,
            np.maximum(atoms.widest, np.abs(there.X).max(axis=0, initial=0.0)),
            share.size,
        )
        found.append(atoms.bounds.least(plane, x[:m], upper))
    return max(found, key=lambda each: each[0] - each[1])


def has_budget_left(atoms: AtomSet, x: FloatArray, upper: float) -> bool:
    """Whether the multiplier is next to zero, as near a model without features."""
    return bool(atoms.problem.radius * x[-1] <= 0.01 * upper)


def _repaired(atoms: AtomSet, share: FloatArray, x: FloatArray, wanted: FloatArray) -> FloatArray:
    """Return shares of atoms whose moment is nearly ``wanted``: coefficients, intercept, and minus the cost.

    The slopes of a polyhedral loss are fixed, so the mass of a row goes from one of its atoms to another.
    """
    slope = atoms.heights(x).slope
    gradients = np.column_stack([atoms.X * slope[:, None], slope, -atoms.costs])[:, atoms.free]
    wanted = wanted[atoms.free]
    for _ in range(_REPAIRS):
        left = wanted - share @ gradients
        rows = covariance_rows(gradients, atoms.owner, share)
        along = gradients @ solve_damped(rows.T @ rows, left)
        along -= (atoms.total(share * along) / atoms.masses)[atoms.owner]
        share = share * np.maximum(1.0 + along, 0.01)  # no row loses all of its mass
        share *= (atoms.masses / atoms.total(share))[atoms.owner]
    return share


def _sent(atoms: AtomSet, limits: Limits, y: FloatArray) -> tuple[FloatArray, float]:
    """Return the moment of no mass sent to infinity along features with one limit, and what that costs.

    It is what the multipliers ``y`` of the open sides stand for. Features without any limit are left to the bound.
    """
    out, cost, length = np.zeros(atoms.m), 0.0, type(atoms.problem.geometry.norm)().value
    for side, rows in zip(atoms.open_sides, atoms.side_limits, strict=True):
        own = np.zeros(y.size)
        own[rows] = y[rows]
        moment = -limits.gradient(own)[: atoms.m]
        rates = np.where(moment > 0.0, side.up, side.down)
        out += moment
        cost += length(np.divide(np.abs(moment), rates, out=np.zeros(atoms.m), where=rates > 0.0))
    return out, cost


def _balanced(
    atoms: AtomSet, places: _AtomTable, share: FloatArray, score: FloatArray, labels: FloatArray, wanted: FloatArray
) -> tuple[_AtomTable, FloatArray]:
    """Return the table and slopes times shares whose moment is nearly ``wanted``.

    Slopes are those of scores that change along Newton directions. Shares of the categories that a group is changed to
    change too: that costs nothing, and nothing else balances a category whose rows are all of one class.
    """
    free, m, last = np.append(atoms.free_coef, atoms.problem.fit_intercept), atoms.m, 0.0
    direction, goal, rates = np.zeros(m + 1), np.append(wanted, 0.0), np.zeros(0)
    for _ in range(_REPAIRS):
        _, slope, curvature = (share * each for each in atoms.heights_at(score, labels))
        left = (goal - places.moment(slope))[free]
        size = float(np.abs(left).max(initial=0.0))
        if size >= 0.1 * last:  # else the matrix is good enough
            K = places.gram(curvature)
            if atoms.extremes.groups:
                rates = _EASE * (slope[places.which.size :] @ atoms.X[:, m:])
                weighed = places.targets.T * np.abs(rates)
                K[:m, :m] += np.diag(weighed.sum(axis=1)) - (weighed @ places.targets).toarray()
            factor = DampedFactor(K[np.ix_(free, free)])
        direction[free], last = factor.solve(left), size
        score = score + np.clip(places.along(direction), -3.0, 3.0)
        if rates.size:
            places = places.retargeted(_EASE * np.sign(rates), direction[:m])
    return places, share * atoms.heights_at(score, labels).slope
