"""The optimum on a box with l2, and a bound on it, by Newton's method on the worst case itself.

Where the score of a row may gain ``s`` at the cost ``phi(s)``, the row's dual loss is

    h = max over s of  L(t + s) - lam phi(s) = max over slopes a of  a t - L*(a) + g(a u, lam) ,

``g`` the most that a linear loss of slope ``a`` earns within the walls, ``u`` the sizes of the coefficients. The row
answers a model by a move that changes with it, smoothly: with a free features ``c = a u``, ``Q = |c_free|^2``,

    g_cc = k I_free + k / (lam^2 - Q) c c' ,    k c_j = v_j the move of a free feature ,

and ``g`` is homogeneous in ``(c, lam)``, which gives the derivatives in ``lam``. Moves that are held fixed, as planes
and atoms hold them, would have to learn this curvature from many passes. A row has a few local maxima, its *branches*:
to stay, to go far, and for either label. Of a polyhedral loss every linear piece is a branch, its slope held fixed: the
maximum over slopes is one over the pieces. The maximum of all branches is smoothed,

    h ~ mu log sum_b exp(h_b / mu) ,

and Newton's method minimises the sum, at widths ``mu`` that fall with the gap. The shares of the branches, their moves
and the slopes there are a distribution inside the ball; its plane (`dualcore.certificates.plane`) is the lower bound.
At the minimum of the smoothed sum its slopes vanish.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.certificates.plane import NewtonResult, Plane
from dualcore.certificates.psd import solve_damped
from dualcore.certificates.smoothed import Progress, Smoothed, Sums
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily
from dualcore.problem.families.box import Way
from dualcore.problem.families.boxmoves import L2Path

__all__ = ["can_use_branches", "run_branches"]

# The first width, relative to the risk.
_FIRST_WIDTH = 0.03
# How the width falls: to this share of what the gap asks for, within limits.
_SHARE, _FALLS = 0.4, (0.03, 0.3)
_MOST_STAGES, _MOST_LOOKS, _SHORTENINGS, _SHORTER = 8, 40, 8, 0.3
# Steps without progress after which a width is given up, and widths after which all are.
_IDLE, _GIVEN_UP = 3, 3
# Newton's method at one width ends where it promises less than this, in widths.
_SETTLED = 1e-10
# Branches this many widths below the best of their row have no share.
_NEGLIGIBLE = 30.0
# Steps that find a stationary slope, the first of them without derivative, and how near it is.
_ANSWERS, _PLAIN, _NEAR = 12, 2, 1e-13
# The least slope of the equation for a stationary slope: where it is less two branches are about to meet.
_STIFF = 0.05
# The multiplier falls by no more than this share in a step.
_DEEPEST = 0.9
# More features than these make too large a Hessian; fewer numbers are quick by planes.
_MOST_FEATURES, _FEW_NUMBERS = 2500, 5000


def can_use_branches(problem: Problem, data: Data) -> bool:
    """Whether there is a box with l2, a curved or polyhedral loss, enough rows, and two walls where features move."""
    family = problem.family
    if (
        not isinstance(family, BoxFamily)
        or not family.is_curved
        or (problem.loss.kinks and problem.loss.pieces is None)
    ):
        return False
    m = data.rows.m
    if m > _MOST_FEATURES or data.rows.n * m < _FEW_NUMBERS:
        return False
    low, high = family.support.spread(m)
    return bool((np.isfinite(high - low) | np.isinf(family.prices(m))).all())


class _Branches(NamedTuple):
    """Branches of the rows of a block, the same way for all of them.

    ``row`` in the block; ``label``, ``push``, ``side``: see `Way`. ``key``: of the path, ``slope``: of the loss along
    the move, ``signal`` after it, ``cost`` with the label's, ``value``: ``h_b``.
    """

    row: npt.NDArray[np.intp]
    label: FloatArray
    push: FloatArray
    side: float
    key: FloatArray
    slope: FloatArray
    signal: FloatArray
    cost: FloatArray
    value: FloatArray

    def keep(self, which: npt.NDArray[Any]) -> _Branches:
        """Return some of them."""
        at = {name: part[which] for name, part in self._asdict().items() if name != "side"}
        return self._replace(**at)


class _Smoothed(Smoothed):
    """The objective with a smoothed maximum over the branches."""

    def __init__(self, problem: Problem, family: BoxFamily, data: Data) -> None:
        super().__init__(problem, family, data)
        prices = family.prices(self.m)
        self.ease = np.where(np.isfinite(prices), 1.0 / prices, 0.0)

    # Branches of a block

    def branches(self, X: FloatArray, y: FloatArray, x: FloatArray, mu: float) -> list[_Branches]:
        """Return the branches that have a share."""
        out: list[_Branches] = []
        best = np.full(y.size, -np.inf)
        stays = np.zeros(y.size, dtype=bool)
        for number, (way, path) in enumerate(self.family.paths(X, y, x[:-2], float(x[-2]))):
            if not isinstance(path, L2Path):
                raise TypeError("branches need the l2 norm")
            known: list[FloatArray] = []
            for key, slope, offset in self._answers(path, way, float(x[-1]), number):
                new = np.ones(y.size, dtype=bool)
                if offset is None:
                    # Without a move both ways of a residual are the same branch.
                    if number and not self.problem.is_classification:
                        new = ~stays | (key > 0.0)
                    for other in known:
                        new &= np.abs(key - other) > 1e-9 * (1.0 + key)
                    if not known:
                        stays |= key == 0.0
                    known.append(key)
                v = path.displacement(key)
                cost = np.sqrt(np.vecdot(v, v))
                signal = way.start + way.side * (v @ path.slopes)
                loss = self.problem.loss.value(signal) if offset is None else way.side * slope * signal + offset
                value = loss - float(x[-1]) * (cost + way.price)
                found = _Branches(
                    np.arange(y.size), way.label, way.push, way.side, key, slope, signal, cost + way.price, value
                )
                found = found.keep(np.flatnonzero(new))
                np.maximum.at(best, found.row, found.value)
                out.append(found)
        some = (found.keep(np.flatnonzero(found.value >= best[found.row] - _NEGLIGIBLE * mu)) for found in out)
        return [found for found in some if found.row.size]

    def _answers(
        self, path: L2Path, way: Way, lam: float, number: int
    ) -> Iterator[tuple[FloatArray, FloatArray, float | None]]:
        """Yield keys and slopes of one branch a row, and the offset where it is a linear piece of the loss."""
        pieces = self.problem.loss.pieces
        if pieces is None:
            for start in self._starts(path, way.start, way.side, lam):
                yield *self._answer(path, start, way.start, way.side, lam), None
            return
        for slope, offset in pieces:
            rate = way.side * slope
            # A flat piece is never left for another way; a falling one belongs to the other side of the residual.
            if rate > 0.0 or (rate == 0.0 and number == 0):
                rates = np.full(way.start.size, rate)
                yield np.zeros(rates.size), rates, offset
                if rate > 0.0:
                    # A row that moves at all goes to its first wall: where that begins to pay the branches share.
                    yield np.maximum(path.respond(rates, lam).key, path.first_wall()), rates, offset

    def _starts(self, path: L2Path, start: FloatArray, side: float, lam: float) -> list[FloatArray]:
        """Return slopes from which branches are looked for: to stay, to go to the end, the best corner between."""
        loss = self.problem.loss
        stay = np.maximum(side * loss.slope(start), 0.0)
        end = start + side * path.longest()
        if lam >= float(np.max(side * loss.slope(end), initial=0.0)) * path.length:
            return [stay]
        gain, cost = path.corners()
        value = loss.value(start[:, None] + side * gain) - lam * cost
        best = gain[np.arange(start.size), value.argmax(axis=1)]
        return [stay, *(np.maximum(side * loss.slope(start + side * far), 0.0) for far in (path.longest(), best))]

    def _answer(
        self, path: L2Path, slope: FloatArray, start: FloatArray, side: float, lam: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the keys of moves that are best for the slope of the loss after them, and these slopes."""
        loss = self.problem.loss
        for count in range(_ANSWERS):
            move = path.respond(slope, lam)
            signal = start + side * move.gain
            off = slope - np.maximum(side * loss.slope(signal), 0.0)
            if float(np.abs(off).max(initial=0.0)) <= _NEAR * loss.lipschitz:
                break
            stiff = 1.0 - loss.curvature(signal) * _growth(slope, move.key, move.free, lam)
            # Without a derivative the slopes come nearer from one side, and stay with their branch.
            safe = (stiff > _STIFF) & (count >= _PLAIN)
            slope = np.clip(slope - off / np.where(safe, stiff, 1.0), 0.0, loss.lipschitz)
        return path.respond(slope, lam).key, slope

    # Sums

    def at(self, x: FloatArray, mu: float) -> tuple[float, list[list[_Branches]]]:
        """Return the smoothed objective, and the branches behind it, block by block; infinite below the least lam."""
        if not self.slack(x) > 0.0:
            return np.inf, []
        total, found = 0.0, []
        for part, X in self.data.rows.dense_blocks():
            blocks = self.branches(X, self.data.y[part], x, mu)
            best, weight = _soft(blocks, X.shape[0], mu)
            total += float(self.w[part] @ (best + mu * np.log(weight)))
            found.append(blocks)
        return self.complete(x, mu, total), found

    def sums(self, x: FloatArray, mu: float, value: float, found: list[list[_Branches]]) -> Sums:
        """Return the derivatives of the smoothed objective and the plane of its shares."""
        problem, m, d = self.problem, self.m, self.m + 2
        gradient, H = np.zeros(d), np.zeros((d, d))
        offset = size = steepness = spent = 0.0
        widest, count = np.zeros(m), 0
        for (part, X), blocks in zip(self.data.rows.dense_blocks(), found, strict=True):
            best, weight = _soft(blocks, X.shape[0], mu)
            w = self.w[part]
            mean = np.zeros((X.shape[0], d))
            shared = weight > 1.0 + 1e-12
            for branch in blocks:
                row = branch.row
                share = w[row] * np.exp((branch.value - best[row]) / mu) / weight[row]
                moved = self._moved(X, x, branch)
                if problem.loss.pieces is None:
                    own = np.clip(problem.loss.slope(branch.signal), *problem.loss.slope_range)
                else:
                    own = branch.side * branch.slope
                sign = branch.label if problem.is_classification else np.ones(row.size)
                G = np.column_stack([moved * (own * sign)[:, None], own * sign, -branch.cost])
                gradient += share @ G
                tie = shared[row]
                root = np.sqrt(share[tie] / mu)[:, None] * G[tie]
                H += root.T @ root
                mean[row[tie]] += share[tie, None] * G[tie]
                self._bend(H, x, branch, X[row], moved, share, sign)
                conjugate = share * problem.loss.conjugate(own)
                mixed = share * own * sign
                target = np.zeros(0) if problem.is_classification else mixed * (branch.label - self.below.middle)
                offset -= float(conjugate.sum()) + float(target.sum())
                size += float(np.abs(conjugate).sum()) + float(np.abs(target).sum())
                steepness, spent = steepness + float(np.abs(mixed).sum()), spent + float(share @ branch.cost)
                widest = np.maximum(widest, np.abs(moved).max(axis=0, initial=0.0))
                count += row.size
            tied = np.flatnonzero(shared & (w > 0.0))
            mean = mean[tied] / np.sqrt(mu * w[tied])[:, None]
            H -= mean.T @ mean
        plane = Plane(offset, size, gradient[:-1].copy(), steepness, spent, widest, count)
        self.complete_derivatives(x, mu, gradient, H)
        return Sums(value, gradient, H, plane)

    def _moved(self, X: FloatArray, x: FloatArray, branch: _Branches) -> FloatArray:
        """Return rows after their moves."""
        return self.family.displaced(X[branch.row], x[:-2], branch.push, branch.key)

    def _bend(
        self,
        H: FloatArray,
        x: FloatArray,
        branch: _Branches,
        X: FloatArray,
        moved: FloatArray,
        share: FloatArray,
        sign: FloatArray,
    ) -> None:
        """Add the Hessians of branches, moves and slopes following the model."""
        m, lam, a = self.m, float(x[-1]), branch.slope
        u = np.abs(x[:-2]) * self.ease
        side = np.where(x[:-2] < 0.0, -1.0, 1.0) * self.ease
        k = np.divide(branch.key, a, out=np.zeros_like(a), where=a > 0.0)
        low, high = self.family.walls(X)
        caps = np.where(branch.push[:, None] * side > 0.0, high - X, X - low)
        free = (branch.key[:, None] * (u * self.ease) < (1.0 - 1e-12) * caps) & (self.ease > 0.0)
        free &= (k > 0.0)[:, None]
        steep = free * u
        square = (steep * steep).sum(axis=1)
        excess = np.maximum(lam * lam - a * a * square, 1e-12 * lam * lam)
        weight = share * a * a * k
        H[np.arange(m), np.arange(m)] += (weight @ free) * self.ease**2
        across = -(weight @ steep) * side / lam
        H[:m, -1] += across
        H[-1, :m] += across
        H[-1, -1] += float(weight @ square) / lam**2
        far = np.flatnonzero(k > 0.0)
        root = np.sqrt(weight / excess) * a
        E = np.column_stack([steep[far] * side, np.zeros(far.size), -square[far] / lam]) * root[far, None]
        H += E.T @ E
        if self.problem.loss.pieces is not None:
            return
        growth = _growth(a, branch.key, square, lam)
        curvature = self.problem.loss.curvature(branch.signal)
        Z = np.column_stack([moved, np.ones(a.size), np.zeros(a.size)]) * (branch.side * sign)[:, None]
        Z[:, :m] += (a * k * (1.0 + a * a * square / excess))[:, None] * steep * side
        Z[:, -1] = -a / lam * growth
        Z *= np.sqrt(share * curvature / np.maximum(1.0 - curvature * growth, _STIFF))[:, None]
        H += Z.T @ Z


def _growth(slope: FloatArray, key: FloatArray, free: FloatArray, lam: float) -> FloatArray:
    """Return how fast the gain of the best move grows with the slope: ``u' g_cc u``."""
    excess = lam * lam - slope * slope * free
    moves = (key > 0.0) & (excess > 0.0) & (slope > 0.0)
    return np.divide(key * free * lam * lam, slope * excess, out=np.zeros_like(key), where=moves)


def _soft(blocks: list[_Branches], n: int, mu: float) -> tuple[FloatArray, FloatArray]:
    """Return the best branch of every row and the sum of all, relative to it, whose logarithm smoothing adds."""
    best, weight = np.full(n, -np.inf), np.zeros(n)
    for branch in blocks:
        np.maximum.at(best, branch.row, branch.value)
    for branch in blocks:
        weight += np.bincount(branch.row, np.exp((branch.value - best[branch.row]) / mu), n)
    return best, weight


def _minimise(smoothed: _Smoothed, x: FloatArray, mu: float) -> tuple[FloatArray, Sums, bool]:
    """Return the minimiser at one width, the sums there, and whether Newton's method got there."""
    value, found = smoothed.at(x, mu)
    sums = smoothed.sums(x, mu, value, found)
    # Where branches of a curved loss meet the sum jumps by a row's share of a width; linear pieces are always there.
    jump = mu * float(smoothed.w.max()) if smoothed.problem.loss.pieces is None else 0.0
    slack = 2.0 * jump + 1e-14 * abs(value)
    looks, least, before, idle = 1, value, np.inf, 0
    while idle < _IDLE:
        step = -solve_damped(sums.hessian, sums.gradient)
        promised = -float(sums.gradient @ step)
        if promised <= _SETTLED * mu:
            return x, sums, True
        length = min(1.0, _DEEPEST * float(x[-1]) / max(-float(step[-1]), 1e-300))
        for _ in range(_SHORTENINGS):
            value, found = smoothed.at(x + length * step, mu)
            looks += 1
            if value <= sums.value - 0.1 * length * promised + slack:
                break
            length *= _SHORTER
        else:
            return x, sums, False
        if looks > _MOST_LOOKS:
            return x, sums, False
        # Steps between two sides of such a jump lead nowhere.
        idle = 0 if value < least - slack or promised < 0.5 * before else idle + 1
        least, before = min(least, value), min(before, promised)
        x = x + length * step
        sums = smoothed.sums(x, mu, value, found)
    return x, sums, False


def run_branches(problem: Problem, data: Data, coef: FloatArray, intercept: float, tol: float) -> NewtonResult:
    """Close the gap to ``tol`` (relative) from a model on, or go as far as this goes."""
    smoothed = _Smoothed(problem, BoxFamily.of(problem.family), data)
    progress = Progress(smoothed, coef, intercept)
    if not progress.upper > 0.0:  # no width is a share of nothing
        return progress.result()
    x, mu, failed = progress.best, _FIRST_WIDTH * progress.upper, 0
    for _ in range(_MOST_STAGES):
        x, sums, settled = _minimise(smoothed, x, mu)
        value, known = progress.record(x, sums.plane)
        failed = 0 if settled else failed + 1
        if progress.is_within(tol) or failed == _GIVEN_UP:
            break
        wanted = float(np.clip(_SHARE * tol * progress.upper / max(value - known, 1e-300), *_FALLS))
        mu *= wanted if settled else _FALLS[1]
    return progress.result()
