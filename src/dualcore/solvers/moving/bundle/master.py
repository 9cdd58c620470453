"""The master programme of a bundle: the least value of cuts, by a primal-dual interior point of its own.

    minimise   cost . x + x' diag(curve) x / 2 + sum_g s_g
    subject to cuts_p(x) <= s_g   for every cut p of group g,
               low <= x <= high,   caps_k(x) <= 0 .

A cut is a convex function below the share of its group: a plane, or the loss of a row after a fixed move. There may be
as many groups as rows, each with a few cuts. The shares ``s`` are eliminated, so a step costs ``cuts * variables^2``. A
rough solution is the better query point: it lies in the middle of what the cuts leave open, where an exact one sits in
a corner that the next ones take away.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from dualcore.data.arrays import FloatArray

__all__ = ["MOST_STEPS", "Caps", "Cuts", "Found", "Master"]

# Interior-point steps of one solution; seldom more than thirty unless rounding slows them down.
MOST_STEPS = 80
# How near to the edge of the positive orthant a step may go.
_FRACTION = 0.995
# Of a group, how many Newton steps find the share that makes its multipliers sum to one.
_CENTRING = 12
# Further solutions with one factor that may lengthen a step.
_CORRECTIONS = 3
# Halvings of a step along which cuts bend, and how much of the complementarity their bending may add.
_SHORTENINGS, _EXCESS = 6, 0.3
# Times that multipliers are moved towards balance at the end.
_REPAIRS = 8
# Products up to which the constraints themselves are factored for it, and the least singular value that counts.
_FACTOR_WORK, _RANK = 1e7, 1e-14


class Cuts(Protocol):
    """Convex functions below the shares of the groups; every group owns at least one."""

    owner: npt.NDArray[np.intp]
    n_groups: int
    is_linear: bool

    def __len__(self) -> int: ...

    def at(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values (n,) and gradients (n, d)."""
        ...

    def curvature(self, x: FloatArray, multipliers: FloatArray) -> FloatArray | None:
        """Return the Hessian of ``multipliers . cuts``, or None where it is zero."""
        ...


class Caps(Protocol):
    """Convex functions of the point that must not be positive."""

    def __len__(self) -> int: ...

    def at(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values (k,) and gradients (k, d)."""
        ...

    def curvature(self, x: FloatArray, multipliers: FloatArray) -> FloatArray | None:
        """Return the Hessian of ``multipliers . caps``, or None where it is zero."""
        ...


class Found(NamedTuple):
    """A point and the multipliers that bound the programme from below without its outer walls.

    Attributes
    ----------
    x, value
        The point and the value of the programme there.
    mix : ndarray of shape (cuts,)
        Multipliers of the cuts, or of their tangents at ``x``, summing to one in each group.
    weights, gradients : ndarrays of shapes (caps,) and (caps, d)
        Multipliers of the caps and their gradients at ``x``.
    gap : float
        Twice what the multipliers' bound lacks of ``value``.
    left : ndarray of shape (d,)
        Gradient that no multiplier balances.
    spans : ndarray of shape (k,)
    stray : ndarray of shape (k, d)
        How far the directions asked about can go. Wherever the programme is below ``upper``,
        ``|b_j . (x' - x)| <= spans_j (upper - value + gap + |left| . |x' - x|) + |stray_j| . |x' - x|``.
    """

    x: FloatArray
    value: float
    mix: FloatArray
    weights: FloatArray
    gradients: FloatArray
    gap: float
    left: FloatArray
    spans: FloatArray
    stray: FloatArray
    steps: int


class _MasterState(NamedTuple):
    """Point, shares, and slack and multiplier of every constraint: cuts, lower walls, upper walls, caps."""

    x: FloatArray
    shares: FloatArray
    slack: FloatArray
    mult: FloatArray


class Master:
    """The programme over one set of cuts.

    Parameters
    ----------
    cuts : Cuts
    cost, curve, low, high : ndarrays of shape (d,)
        With ``low < high``.
    caps : Caps
    firm : ndarray of bool, shape (d,)
        Which lower walls are constraints of the problem. All other walls only keep the point from going far; they are
        expected to hold nothing at the solution.
    directions : ndarray of shape (k, d), optional
        ``b``, what `Found.spans` is about; by default every variable.
    bend : (ndarray of shape (d, d), ndarray of shape (d,)), optional
        A quadratic form and its centre that draw the point as curvature which cuts do not know yet would. It is no
        part of value and bound.
    """

    def __init__(
        self,
        cuts: Cuts,
        cost: FloatArray,
        curve: FloatArray,
        low: FloatArray,
        high: FloatArray,
        caps: Caps,
        firm: npt.NDArray[np.bool_],
        bend: tuple[FloatArray, FloatArray] | None = None,
        directions: FloatArray | None = None,
    ) -> None:
        self.cuts, self.owner, self.n_groups = cuts, cuts.owner, cuts.n_groups
        self.cost, self.curve, self.low, self.high, self.caps = cost, curve, low, high, caps
        n, d = len(cuts), cost.size
        self.n, self.d = n, d
        # Cuts at the point in hand.
        self.heights, self.A = np.empty(n), np.empty((n, d))
        self.gather = sp.csr_array((np.ones(n), (self.owner, np.arange(n))), shape=(self.n_groups, n))
        # Steps of different length for point and multipliers suit linear programmes, and cuts that bend.
        self.is_linear = not curve.any() and bend is None
        self.bend, self.centre = bend if bend is not None else (np.zeros((d, d)), np.zeros(d))
        self.counts = np.concatenate([np.ones(n, dtype=bool), firm, np.zeros(d, dtype=bool), np.ones(len(caps), bool)])
        self.slopes = np.empty((len(caps), d))
        self.boldness = 1.0
        self.directions = np.eye(d) if directions is None else directions

    def solve(self, start: FloatArray, *, gap: float, target: float) -> Found:
        """Solve to an absolute ``target``, from a ``start`` that is thought to be ``gap`` away."""
        state = self._begin(start, gap)
        steps = 0
        while steps < MOST_STEPS:
            steps += 1
            caps, self.slopes = self.caps.at(state.x)
            residual = self._residual(state, caps)
            in_x = self._gradient(state)
            complement = float(state.slack @ state.mult)
            near = np.minimum(state.x - self.low, self.high - state.x)
            off = float(np.abs(in_x) @ near) + float(np.abs(residual) @ state.mult)
            if complement + off <= target:
                break
            after = self._step(state, residual, in_x, complement, target)
            if after is None:
                break
            state = after
        _, self.slopes = self.caps.at(state.x)
        return self._finish(state, steps)

    # Building blocks; constraints are stacked as cuts, lower walls, upper walls, caps

    def _sums(self, values: FloatArray) -> FloatArray:
        return np.bincount(self.owner, values, self.n_groups).astype(np.float64, copy=False)

    def _along(self, dx: FloatArray) -> FloatArray:
        """Return how all constraints change along ``dx``, the shares at rest."""
        return np.concatenate([self.A @ dx, -dx, dx, self.slopes @ dx])

    def _pull(self, mult: FloatArray) -> FloatArray:
        """Return what the multipliers add to the gradient."""
        n, d = self.n, self.d
        return np.asarray(
            mult[:n] @ self.A - mult[n : n + d] + mult[n + d : n + 2 * d] + mult[n + 2 * d :] @ self.slopes
        )

    def _gradient(self, state: _MasterState) -> FloatArray:
        return self.cost + self.curve * state.x + self.bend @ (state.x - self.centre) + self._pull(state.mult)

    def _residual(self, state: _MasterState, caps: FloatArray) -> FloatArray:
        """Return by how much slack and constraint disagree."""
        cuts = self.heights - state.shares[self.owner]
        return np.concatenate([cuts, self.low - state.x, state.x - self.high, caps]) + state.slack

    def _begin(self, start: FloatArray, gap: float) -> _MasterState:
        """Return a point of the central path, but for the gradient, wide enough for the gradient not to matter."""
        width = self.high - self.low
        x = np.clip(start, self.low + 0.05 * width, self.high - 0.05 * width)
        (self.heights, self.A), (caps, self.slopes) = self.cuts.at(x), self.caps.at(x)
        walls = np.concatenate([x - self.low, self.high - x])
        near, count = np.minimum(walls[: self.d], walls[self.d :]), self.n + 2 * self.d + len(self.caps)
        mu = gap / count
        for _ in range(4):
            shares = self._central_shares(self.heights, mu)
            room = np.maximum(-caps, np.sqrt(mu) + 0.1 * np.abs(caps))
            # Multipliers that sum to one leave no slack below the width, but for rounding, which may leave none at all.
            slack = np.concatenate([np.maximum(shares[self.owner] - self.heights, mu), walls, room])
            state = _MasterState(x, shares, slack, mu / slack)
            off = float(np.abs(self._gradient(state)) @ near)
            if off <= mu * count:
                break
            mu = 2.0 * off / count
        return state

    def _central_shares(self, heights: FloatArray, mu: float) -> FloatArray:
        """Return shares ``s`` with ``sum_p mu / (s_g - height_p) = 1``: multipliers that sum to one."""
        below, rise = self._tops(heights)[self.owner] - heights, np.full(self.n_groups, mu)
        for _ in range(_CENTRING):  # from the left Newton's method never passes the root
            room = rise[self.owner] + below
            rise += (mu * self._sums(1.0 / room) - 1.0) / (mu * self._sums(1.0 / room**2))
        return np.asarray(self._tops(heights) + rise)

    def _tops(self, heights: FloatArray) -> FloatArray:
        top = np.full(self.n_groups, -np.inf)
        np.maximum.at(top, self.owner, heights)
        return top

    def _centred(self, D: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return gradients of cuts relative to the mean of their group, and the sums of the weights."""
        total = self._sums(D)
        mean = (self.gather @ (self.A * D[:, None])) / total[:, None]
        return self.A - mean[self.owner], total

    def _hessian(self, D: FloatArray, centred: FloatArray) -> FloatArray:
        """Return the matrix of the normal equations, shares eliminated, for weights ``D = mult / slack``."""
        n, d = self.n, self.d
        root = centred * np.sqrt(D[:n])[:, None]
        H = root.T @ root
        H[np.diag_indices(d)] += D[n : n + d] + D[n + d : n + 2 * d]
        H += (self.slopes * D[n + 2 * d :, None]).T @ self.slopes
        return H

    # One step

    def _step(
        self, state: _MasterState, residual: FloatArray, in_x: FloatArray, complement: float, target: float
    ) -> _MasterState | None:
        """Predict, correct, and go; None where rounding leaves nowhere to go."""
        n, count = self.n, state.slack.size
        D = state.mult / state.slack
        centred, total = self._centred(D[:n])
        H = self._hessian(D, centred)
        H[np.diag_indices(self.d)] += self.curve
        H += self.bend
        bent = [self.cuts.curvature(state.x, state.mult[:n])]
        bent.append(self.caps.curvature(state.x, state.mult[-len(self.caps) :]) if len(self.caps) else None)
        for part in bent:
            H = H if part is None else H + part
        factor = _factor(H)
        if factor is None:
            return None
        together = not self.is_linear or bent[1] is not None

        def direction(wanted: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
            """Return the changes of point, shares, slacks and multipliers that make ``slack * mult`` as wanted."""
            push = wanted / state.slack - state.mult + D * residual
            lift = (self._sums(push[:n]) - 1.0 + self._sums(state.mult[:n])) / total
            fixed = push.copy()
            fixed[:n] -= D[:n] * lift[self.owner]
            dx = -factor.solve(in_x + self._pull(fixed))
            along = self._along(dx)
            shares = lift + self._sums(D[:n] * along[:n]) / total
            along[:n] -= shares[self.owner]
            return dx, shares, -residual - along, push + D * along

        def lengths(slack: FloatArray, mult: FloatArray) -> tuple[float, float]:
            primal, dual = _longest(state.slack, slack), _longest(state.mult, mult)
            return (min(primal, dual), min(primal, dual)) if together else (primal, dual)

        _, _, slack, mult = direction(np.zeros(count))
        primal, dual = lengths(slack, mult)
        ahead = float((state.slack + primal * slack) @ (state.mult + dual * mult))
        centre = complement / count * min(max(ahead / complement, 0.0) ** 3 + 1e-3, self.boldness)
        centre = max(centre, 0.1 * target / count)
        wanted = centre - primal * dual * slack * mult  # of a step that is cut short, less of the second order
        move = direction(wanted)
        primal, dual = lengths(*move[2:])
        for _ in range(_CORRECTIONS):
            # Products far from the centre would stop a longer step: ask for better ones there.
            ahead_p, ahead_d = min(1.0, 1.3 * primal + 0.1), min(1.0, 1.3 * dual + 0.1)
            product = (state.slack + ahead_p * move[2]) * (state.mult + ahead_d * move[3])
            change = np.clip(np.clip(product, 0.1 * centre, 10.0 * centre) - product, -10.0 * centre, None)
            again = direction(wanted + change)
            new_primal, new_dual = lengths(*again[2:])
            if new_primal + new_dual < primal + dual + 0.02:
                break
            wanted, move, primal, dual = wanted + change, again, new_primal, new_dual
        dx, shares, slack, mult = move
        primal, dual = _FRACTION * primal, _FRACTION * dual
        # After a long step the target of the next one can be more ambitious.
        short = min(primal, dual)
        if short > 0.7:
            self.boldness = max(0.1, 0.5 * self.boldness)
        elif short < 0.3:
            self.boldness = min(1.0, 3.0 * self.boldness)
        if not min(primal, dual) > 1e-8:
            return None
        heights, A = self.cuts.at(state.x + primal * dx)
        higher, missing = np.zeros(self.n_groups), np.zeros(n)
        if not self.cuts.is_linear:
            # Cuts that bend are higher than expected. The shares are raised by as much, so that no slack is less than
            # it was to be; a step for which that costs much of what it gains is too long.
            climb = self.A @ dx
            for left in reversed(range(_SHORTENINGS + 1)):
                missing = heights - self.heights - primal * climb
                higher = self._tops(np.maximum(missing, 0.0))
                if higher.sum() <= _EXCESS * complement or not left:
                    break
                primal, dual = 0.5 * primal, 0.5 * dual
                heights, A = self.cuts.at(state.x + primal * dx)
        self.heights, self.A = heights, A
        slack = state.slack + primal * slack
        slack[:n] += higher[self.owner] - missing
        x, shares = state.x + primal * dx, state.shares + primal * shares + higher
        return _MasterState(x, shares, slack, state.mult + dual * mult)

    # The end

    def _finish(self, state: _MasterState, steps: int) -> Found:
        """Let go of the walls that only kept the point from going far, and say how far the rest holds it."""
        n, x, slack = self.n, state.x, state.slack
        mult = self._normal(np.where(self.counts, state.mult, 0.0))
        rest = self.cost + self.curve * x
        for _ in range(_REPAIRS):
            off = rest + self._pull(mult)
            D = mult / slack
            centred, total = self._centred(D[:n])
            factor = _factor(self._hessian(D, centred), 1e-14)
            if factor is None:
                break
            along = self._along(-factor.solve(off))
            along[:n] -= (self._sums(D[:n] * along[:n]) / total)[self.owner]
            new = self._normal(np.maximum(mult + D * along, 0.1 * mult))
            if not np.abs(rest + self._pull(new)).sum() < 0.9 * np.abs(off).sum():
                break
            mult = new
        mult = self._balanced(mult, slack, rest)
        spans, stray = self._reach(mult, slack)
        caps, tops = self.caps.at(x)[0], self._tops(self.heights)
        value = float(rest @ x - 0.5 * self.curve @ (x * x) + tops.sum())
        weights = mult[n + 2 * self.d :]
        held = mult[n : n + self.d] @ (x - self.low) + weights @ np.abs(caps)
        gap = 2.0 * float(mult[:n] @ (tops[self.owner] - self.heights) + held)
        left = rest + self._pull(mult)
        return Found(x, value, mult[:n], weights, self.slopes, gap, left, spans, stray, steps)

    def _balanced(self, mult: FloatArray, slack: FloatArray, rest: FloatArray) -> FloatArray:
        """Return multipliers moved as little as possible, relative to ``mult / slack``, to balance the gradient.

        A lower wall that counts takes whatever positive slope is left, so only the others have to be moved away.
        """
        n, d = self.n, self.d
        firm = self.counts[n : n + d]

        def walled(mult: FloatArray) -> tuple[FloatArray, FloatArray]:
            """Return the multipliers with those of the walls as they should be, and the slope that is left."""
            slope = rest + self._pull(mult) + mult[n : n + d]
            out = mult.copy()
            out[n : n + d] = np.where(firm, np.maximum(slope, 0.0), 0.0)
            return out, slope - out[n : n + d]

        if n * d**2 > _FACTOR_WORK:
            return mult
        mult, off = walled(mult)
        for _ in range(_REPAIRS):
            D = mult / slack
            D[n : n + d] = np.where(firm, np.maximum(mult[n : n + d], np.abs(off).max()), 0.0) / slack[n : n + d]
            solver = _Weighted(self._constraints(D), D) if off.any() else None
            if solver is None or not solver.is_finite:
                break
            new, after = walled(self._normal(np.maximum(mult - solver.solve(off[:, None])[:, 0], 0.1 * mult)))
            if not np.abs(after).sum() < 0.9 * np.abs(off).sum():
                break
            mult, off = new, after
        return mult

    def _constraints(self, D: FloatArray) -> FloatArray:
        """Return the gradients of all constraints, those of cuts relative to the mean of their group."""
        walls = np.eye(self.d)
        return np.vstack([self._centred(D[: self.n])[0], -walls, walls, self.slopes])

    def _reach(self, mult: FloatArray, slack: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return `Found.spans` and `Found.stray`: multipliers moved along each direction, by 0.9 of their size."""
        B = self.directions
        D = mult / slack
        gradients = self._constraints(D)
        if self.n * self.d**2 <= _FACTOR_WORK:
            solver = _Weighted(gradients, D)
            moved = solver.solve(np.ascontiguousarray(B.T)) if solver.is_finite else None
        else:
            factor = _factor(self._hessian(D, gradients[: self.n]), 1e-14)
            moved = None if factor is None else D[:, None] * (gradients @ factor.solve(np.ascontiguousarray(B.T)))
        if moved is None:
            return np.full(len(B), np.inf), np.zeros(B.shape)
        held = mult > 0.0
        spans = (np.abs(moved[held]) / mult[held, None]).max(axis=0, initial=0.0) / 0.9
        return spans, (gradients.T @ moved).T - B

    def _normal(self, mult: FloatArray) -> FloatArray:
        """Return multipliers that sum to one in every group."""
        out = mult.copy()
        out[: self.n] /= self._sums(mult[: self.n])[self.owner]
        return out


class _Weighted:
    """Least changes of multipliers: ``min sum_p c_p^2 / D_p`` subject to ``A' c = b``, by singular vectors.

    The matrix of the normal equations, ``A' diag(D) A``, squares the condition. Near a vertex, where the weights ``D``
    differ most, it holds nothing of the weaker constraints.
    """

    def __init__(self, A: FloatArray, D: FloatArray) -> None:
        self.roots = np.sqrt(D)
        table = self.roots[:, None] * A
        self.sizes = np.linalg.norm(table, axis=0)
        self.sizes[self.sizes == 0.0] = 1.0
        self.is_finite = bool(np.isfinite(self.sizes).all())
        if self.is_finite:
            left, values, axes = np.linalg.svd(table / self.sizes, full_matrices=False)
            keep = values > _RANK * values.max(initial=0.0)
            self.left, self.inverse = left[:, keep], axes[keep] / values[keep, None]

    def solve(self, right: FloatArray) -> FloatArray:
        """Return the changes for right sides ``b`` in the columns."""
        return np.asarray(self.roots[:, None] * (self.left @ (self.inverse @ (right / self.sizes[:, None]))))


def _longest(values: FloatArray, change: FloatArray) -> float:
    """Return how far along ``change`` the values stay positive, but no further than a full step."""
    falls = change < 0.0
    with np.errstate(over="ignore"):  # the smallest changes leave room without end
        return float(min(1.0 / _FRACTION, (-values[falls] / change[falls]).min(initial=np.inf)))


class _Factor:
    """A Cholesky factor of a matrix with unit diagonal, and the scale that makes it so."""

    def __init__(self, H: FloatArray, damping: float) -> None:
        size = np.sqrt(np.diag(H))
        self.scale = np.where(size > 0.0, size, 1.0)
        unit = H / np.outer(self.scale, self.scale)
        unit[np.diag_indices(len(H))] += damping
        self.factor = cho_factor(unit, lower=True)

    def solve(self, right: FloatArray) -> FloatArray:
        """Return the solution for one or more right sides."""
        scale = self.scale if right.ndim == 1 else self.scale[:, None]
        return np.asarray(cho_solve(self.factor, right / scale) / scale)


def _factor(H: FloatArray, least: float = 0.0) -> _Factor | None:
    """Return a factor of a matrix moved by as little as rounding asks for; None where it is no number."""
    if not np.isfinite(H).all():
        return None
    for damping in (least, 1e-15, 1e-13, 1e-11, 1e-9):
        try:
            return _Factor(H, damping)
        except LinAlgError:
            continue
    return None
