"""Lower bounds from atoms (see `atomset`).

The multipliers of atoms are a distribution in the ball, and the losses' tangents under it add up to a plane (an affine
function of the model) below the risk of every model. Shares and slopes are first changed so that the gradient of the
plane nearly vanishes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.certificates.plane import Plane
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows
from dualcore.solvers.factor import DampedFactor, solve_damped
from dualcore.solvers.moving.atomset import AtomSet, Heights
from dualcore.solvers.moving.covariance import covariance_rows, rough_gram

# Newton steps that reduce the gradient of the plane, and the weight of changes of the target categories of groups
# relative to changes of slopes.
_REPAIRS, _EASE = 3, 10.0


class _AtomTable:
    """Features of some rows, then of atoms, as one table with a column of ones.

    ``targets`` (n_extremes, m), sparse, replaces the columns of extremes in ``atoms`` (n_atoms, width) by features.
    """

    def __init__(self, rows: Rows, which: npt.NDArray[np.intp], atoms: FloatArray, targets: Any) -> None:
        self.rows, self.which, self.atoms, self.targets = rows, which, atoms, targets
        self.X = atoms[:, : rows.m] + atoms[:, rows.m :] @ targets

    def retargeted(self, rates: FloatArray, direction: FloatArray) -> _AtomTable:
        """Return the table with targets multiplied by ``1 + rates (direction - mean)`` and normalised."""
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
    atoms: AtomSet, x: FloatArray, own: Heights, z: FloatArray, y: FloatArray, upper: float
) -> tuple[float, float]:
    """Return the lower bound of the plane of shares and slopes, and a bound on its rounding.

    ``own`` are the heights of the rows at the point ``x``. The mass of a row is split among its atoms in proportion to
    ``z`` (n_atoms,), which is positive. ``y`` (n_limits,) are multipliers of the limits; those of the extremes are the
    proportions in which a group changes to its categories. ``upper`` is the risk of some model.
    """
    problem, data, m = atoms.problem, atoms.data, atoms.m
    shown, last = atoms.used[atoms.extremes.of - m], atoms.linear.shape[0]
    by_limit = np.zeros(shown.size)
    by_limit[shown] = y[atoms.n_numeric : last]
    targets, paid = atoms.extremes.targets(by_limit)
    costs = atoms.costs + np.abs(atoms.X[:, m:]) @ paid
    share = z * (atoms.masses / atoms.total(z))[atoms.owner]
    if atoms.is_polyhedral and not atoms.extremes.sizes.size:  # `_repaired` does not handle lifted moves
        X = atoms.X[:, :m] + atoms.X[:, m:] @ targets
        share = _repaired(atoms, share, X, costs, x, y, upper)
    spent = float(share @ costs)
    if spent > problem.radius:  # return mass from moved atoms to the unmoved ones, to meet the budget
        kept = problem.radius / spent
        if paid.any():
            targets, costs = kept * targets, atoms.costs + kept * (costs - atoms.costs)
        back = np.where(atoms.costs > 0.0, (1.0 - kept) * share, 0.0)
        share = share - back
        share[atoms.own_atom] += atoms.total(back)
    # From here on arrays hold rows without atoms first, then atoms.
    alone = np.flatnonzero(atoms.others)
    share, labels = np.append(atoms.w[alone], share), np.append(data.y[alone], atoms.labels)
    slope = share * np.append(own.slope[alone], atoms.heights(x).slope)
    table, spent = _AtomTable(atoms.data.rows, alone, atoms.X, targets), float(share[alone.size :] @ costs)
    if not atoms.is_polyhedral:  # the slopes of linear pieces cannot be changed
        sent, fare = _sent(atoms, table.moment(slope), x, y)
        sent *= min(1.0, max(problem.radius - spent, 0.0) / max(fare, 1e-300))
        score = np.append(data.rows.dot(x[:m])[alone] + x[-2], atoms.along(x[:-1]))
        table, slope = _balanced(atoms, table, share, score, labels, -sent - problem.ridge * x[:m])
    used = share > 0.0
    signs = labels if problem.is_classification else np.ones(labels.size)
    steep = np.zeros(share.size)
    steep[used] = np.clip(slope[used] / share[used] * signs[used], *problem.loss.slope_range)
    slope = steep * signs * share
    conjugate = share[used] * problem.loss.conjugate(steep[used])
    target = np.zeros(0) if problem.is_classification else slope * (labels - atoms.bounds.middle)
    sent, fare = _sent(atoms, table.moment(slope), x, y)
    plane = Plane(
        -float(conjugate.sum()) - float(target.sum()),
        float(np.abs(conjugate).sum()) + float(np.abs(target).sum()),
        table.moment(slope) + np.append(sent, 0.0),
        float(np.abs(slope).sum()),
        spent + fare,
        float(np.abs(slope[: alone.size]).sum()) * atoms.widest + np.abs(slope[alone.size :]) @ np.abs(table.X),
        share.size,
    )
    return atoms.bounds.least(plane, upper)


def has_budget_left(atoms: AtomSet, x: FloatArray, upper: float) -> bool:
    """Whether the multiplier is near its lower limit, as near the zero model, where the budget need not be spent."""
    return bool(atoms.problem.radius * (x[-1] - atoms.family.floor()) <= 0.01 * upper)


def _repaired(
    atoms: AtomSet, share: FloatArray, X: FloatArray, costs: FloatArray, x: FloatArray, y: FloatArray, upper: float
) -> FloatArray:
    """Return shares (n_atoms,) whose moment, with that of `_sent`, nearly vanishes, and that spend the budget.

    The slopes of a polyhedral loss are fixed, so mass moves between the atoms of a row.
    """
    slope, radius = atoms.heights(x).slope, atoms.problem.radius
    gradients = np.column_stack([X * slope[:, None], slope, -costs])
    moment = share @ gradients
    sent, fare = _sent(atoms, moment[:-1], x, y)
    known = sum(float(y[of].sum()) for of in atoms.side_limits)
    kept = min(1.0, max(radius + moment[-1], known) / max(fare, 1e-300))
    # y[0] is the dual variable of lam >= floor: the part of the budget that is not spent.
    spent = max(radius - y[0] - kept * fare, 0.0)
    wanted = np.concatenate([-kept * sent - atoms.problem.ridge * x[: atoms.m], [0.0, -spent]])
    free = np.append(atoms.free_coef, [atoms.problem.fit_intercept, not has_budget_left(atoms, x, upper)])
    wanted, gradients = wanted[free], gradients[:, free]
    for _ in range(_REPAIRS):
        left = wanted - share @ gradients
        rows = covariance_rows(gradients, atoms.owner, share)
        along = gradients @ solve_damped(rows.T @ rows, left)
        along -= (atoms.total(share * along) / atoms.masses)[atoms.owner]
        share = share * np.maximum(1.0 + along, 0.01)  # shares stay positive
        share *= (atoms.masses / atoms.total(share))[atoms.owner]
    return share


def _sent(atoms: AtomSet, moment: FloatArray, x: FloatArray, y: FloatArray) -> tuple[FloatArray, float]:
    """Return the moment (m,) of vanishing mass moved to infinity along features without a limit, and its cost.

    It cancels these features in ``moment`` (m + 1,), up to the gradient of the ridge. Where both open sides can carry a
    feature, they are used in proportion to their multipliers ``y``.
    """
    missing = atoms.bounds.centre * moment[-1] - moment[:-1] - atoms.problem.ridge * x[: atoms.m]
    rates = [np.where(missing > 0.0, side.up, side.down) for side in atoms.open_sides]
    parts = [(rate > 0.0) * (y[of].sum() + 1e-300) for rate, of in zip(rates, atoms.side_limits, strict=True)]
    total, length, cost = np.sum(parts, axis=0), type(atoms.problem.geometry.norm)().value, 0.0
    for rate, part in zip(rates, parts, strict=True):
        carried = np.divide(np.abs(missing) * part, rate * total, out=np.zeros(atoms.m), where=rate > 0.0)
        cost += length(carried)
    return np.where(total > 0.0, missing, 0.0), cost


def _balanced(
    atoms: AtomSet, places: _AtomTable, share: FloatArray, score: FloatArray, labels: FloatArray, wanted: FloatArray
) -> tuple[_AtomTable, FloatArray]:
    """Return the table and slopes times shares (n,) whose moment is nearly ``wanted`` (m,).

    The slopes are those at scores changed along Newton directions. The target categories of groups are changed too:
    that costs nothing, and it is the only way to balance a category whose rows are all of one class.
    """
    free, m, last = np.append(atoms.free_coef, atoms.problem.fit_intercept), atoms.m, 0.0
    direction, goal, rates = np.zeros(m + 1), np.append(wanted, 0.0), np.zeros(0)
    for _ in range(_REPAIRS):
        _, slope, curvature = (share * each for each in atoms.heights_at(score, labels))
        left = (goal - places.moment(slope))[free]
        size = float(np.abs(left).max(initial=0.0))
        if not size < 0.1 * last:  # else progress is fast, and the previous factor is reused
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
