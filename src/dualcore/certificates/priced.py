r"""The optimum on a box with linf, and a bound on it, by Newton's method where moves pay a quadratic price as well.

The loss is a maximum of linear pieces ``a e - L*(a)`` in the signal ``e`` along a move; of a curved loss these are
tangents, which lie below it. Where a row's score gains ``c.v`` by a move ``v``, a piece is worth

    a e - L*(a) + G ,    G = max over v of  a c.v - lam ||v||_inf - nu/2 ||v||_2^2 .

With the quadratic price ``nu`` (`dualcore.certificates.pricedmoves`) the best move is a continuous function of the
model, and the kinks of the risk where coefficients are zero are smooth. The maximum over the pieces is smoothed to
``mu log sum exp(. / mu)``. Newton's method, damped, minimises the sum over the rows, at widths that fall with the gap,
tangents nearer to each other at every width. Shares of pieces, their slopes and moves are a distribution of moved rows,
and its plane (`dualcore.certificates.plane`) is the lower bound: at the minimum of the smoothed sum its slopes vanish.
The planes of the last steps are mixed, so that what is left of their slopes cancels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.certificates.plane import NewtonResult, Plane
from dualcore.certificates.pricedmoves import LinfMoves, Response
from dualcore.certificates.psd import solve_damped
from dualcore.certificates.smoothed import Progress, Smoothed
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily
from dualcore.problem.families.categories import CategoriesFamily
from dualcore.problem.geometry import LinfNorm

__all__ = ["can_use_prices", "run_prices"]

# The first width, relative to the risk, and by how much it falls.
_FIRST_WIDTH, _FALL = 0.1, 0.3
# Planes whose mixture is the bound.
_KEPT = 40
# Coefficients that a level of this many mean costs does not move to it are zero.
_BLURRED = (1.0, 4.0)
_MOST_STAGES, _MOST_STEPS, _TRIES = 8, 80, 20
# Share of the curvature itself in the scale of steps.
_LEAST_SCALE = 1e-3
# The damping of a step: the least, what follows a step that fails or does well, and by which ratios of decrease.
_DAMPED, _HARDER, _EASIER = 1e-2, 4.0, 8.0
_ACCEPTED, _POOR, _GOOD = 0.05, 0.25, 0.7
# Newton's method at one width ends where it promises less than this, in widths: at first, and where it may be the last.
_ROUGH, _SETTLED = 1e-2, 1e-6
# A width of this many gaps that are asked for may be the last; a bound this many gaps below is near enough.
_LAST, _ENOUGH = 1.2, 0.6
# Branches this many widths below the best of their row have no share.
_NEGLIGIBLE = 16.0
# Tangents of a curved loss: the square of their distance, in widths, at least so many, and around shares of this size
# those within so many distances of the widths before.
_APART, _FEWEST, _SHARED, _AROUND = 4.0, 6, 1e-3, 1.5
# Of a risk near zero the widths ask for more tangents than this, or shares of all rows in them: planes are faster.
_MOST_TANGENTS, _MOST_SHARES = 5000, 2e8
# A share of this size of the largest mass has no curvature.
_LIGHT = 1e-7
# The multiplier comes no nearer to the least one in a step than by this share.
_DEEPEST = 0.9
# More features make too large a Hessian. Fewer numbers, and fewer features, are quicker by planes: 1,000 x 110 rows by
# three to four times.
_MOST_FEATURES, _FEW_FEATURES, _FEW_NUMBERS = 2500, 250, 100_000


def can_use_prices(problem: Problem, data: Data) -> bool:
    """Whether there is a box with linf, a polyhedral loss or a curved one of margins, enough rows, two walls each."""
    family, m = problem.family, data.rows.m
    if not isinstance(family, BoxFamily) or isinstance(family, CategoriesFamily):
        return False
    is_curved = problem.loss.pieces is None
    if not isinstance(problem.geometry.norm, LinfNorm) or (is_curved and not problem.is_classification):
        return False
    if is_curved and problem.loss.kinks:
        return False
    if not _FEW_FEATURES <= m <= _MOST_FEATURES or data.rows.n * m < _FEW_NUMBERS or problem.radius == 0.0:
        return False
    low, high = family.support.spread(m)
    return bool((np.isfinite(high - low) | np.isinf(family.prices(m))).all())


class _Way(NamedTuple):
    """A direction for the rows of a block: ``e`` rises along ``push``, the loss is ``L(sign e)``."""

    number: int
    push: FloatArray
    e: FloatArray
    sign: float
    label: FloatArray
    price: float


class _Branch(NamedTuple):
    """Branches of some rows of a block, the same way for all of them.

    ``found`` is None where no row moves.
    """

    way: _Way
    piece: int
    row: Any
    slope: float
    cost: FloatArray
    value: FloatArray
    found: Response | None
    moves: LinfMoves | None


class _Sums(NamedTuple):
    """Value and gradient of the smoothed objective, the plane of its shares, the mean square of moves, the Hessian.

    ``secant`` holds what moves add to the gradient, over the coefficients.
    """

    value: float
    gradient: FloatArray
    plane: Plane
    square: float
    hessian: FloatArray
    secant: FloatArray


class _Smoothed(Smoothed):
    """The objective with priced moves and a smoothed maximum over the branches."""

    def __init__(self, problem: Problem, family: BoxFamily, data: Data) -> None:
        super().__init__(problem, family, data)
        prices = family.prices(self.m)
        self.low, self.high = family.support.spread(self.m)
        self.movable = np.isfinite(prices) & (self.high > self.low)
        self.prices = np.where(self.movable, prices, 1.0)
        self.mu = self.nu = 1.0
        #: tangents of a curved loss, which rows use each, and with which shares
        self.angles, self.used, self.shares = np.zeros(0), np.zeros((0, 0), dtype=bool), np.zeros((0, 0))
        # Levels of the last evaluation, by way and piece: where the next one begins.
        self._levels: dict[tuple[int, int], FloatArray] = {}

    def set_widths(self, mu: float, nu: float) -> None:
        """Choose the widths."""
        self.mu, self.nu = mu, nu

    # Branches of a block

    def _ways(self, score: FloatArray, y: FloatArray) -> Iterator[_Way]:
        if not self.problem.is_classification:
            for number, side in enumerate((1.0, -1.0)):
                yield _Way(number, np.full(y.size, side), side * (score - y), side, y, 0.0)
            return
        yield _Way(0, -y, -y * score, -1.0, y, 0.0)
        if self.problem.family.flips:
            yield _Way(1, y, y * score, -1.0, -y, self.problem.geometry.label_cost)

    def _columns(self, x: FloatArray) -> tuple[Any, FloatArray]:
        """Return the features that may move, and the sizes of their coefficients."""
        sizes = np.where(self.movable, np.abs(x[: self.m]) / self.prices, 0.0)
        columns = np.flatnonzero(self.movable)
        return columns, sizes[columns]

    def _paths(self, X: FloatArray, way: _Way, x: FloatArray) -> LinfMoves:
        columns, sizes = self._columns(x)
        side = np.where(x[columns] < 0.0, -1.0, 1.0)
        ends = np.where(side > 0.0, self.high[columns], self.low[columns])
        others = np.where(side > 0.0, self.low[columns], self.high[columns])
        caps = np.stack([ends, others])[(way.push < 0.0).astype(np.intp)]
        caps -= X[:, columns]
        caps *= side * self.prices[columns]
        caps *= way.push[:, None]
        np.maximum(caps, 0.0, out=caps)
        return LinfMoves(sizes, caps, float(x[-1]), self.nu)

    def branches(self, part: slice, X: FloatArray, x: FloatArray) -> list[_Branch]:
        """Return the branches of a block: one for every linear piece, rows that move apart from those that stay."""
        n, out = X.shape[0], list[_Branch]()
        for way in self._ways(X @ x[: self.m] + x[-2], self.data.y[part]):
            moves = self._paths(X, way, x)
            for number, (slope, offset, rows) in enumerate(self._pieces(part, n)):
                rate = way.sign * slope
                # Nothing is gained by another way that costs; a falling piece belongs to the other side of a residual.
                if rate < 0.0 or (rate == 0.0 and way.number):
                    continue
                goes = rate * moves.open[rows] > moves.lam
                row = rows[~goes]
                if row.size:
                    value = rate * way.e[row] + offset - moves.lam * way.price
                    out.append(_Branch(way, number, row, rate, np.full(row.size, way.price), value, None, None))
                row = rows[goes]
                if row.size:
                    levels = self._levels.setdefault((way.number, number), np.zeros(self.data.rows.n))
                    found = moves.respond(np.full(row.size, rate), levels[part][row], row)
                    levels[part.start + row] = found.level
                    cost = found.cost + way.price
                    value = rate * (way.e[row] + found.gain) + offset - moves.lam * cost - 0.5 * self.nu * found.square
                    out.append(_Branch(way, number, row, rate, cost, value, found, moves))
        return out

    def _pieces(self, part: slice, n: int) -> Iterator[tuple[float, float, npt.NDArray[np.intp]]]:
        """Yield slope and offset of linear pieces of the loss, and the rows of a block they are for.

        Of a curved loss these are tangents.
        """
        if self.problem.loss.pieces is not None:
            for slope, offset in self.problem.loss.pieces:
                yield slope, offset, np.arange(n)
            return
        own = np.clip(self.problem.loss.slope_range[0] * np.sin(self.angles) ** 2, *self.problem.loss.slope_range)
        for number, (slope, conjugate) in enumerate(zip(own, self.problem.loss.conjugate(own), strict=True)):
            yield float(slope), -float(conjugate), np.flatnonzero(self.used[part, number])

    def has_tangents(self, mu: float) -> bool:
        """Whether a width asks for no more tangents than there may be."""
        most = min(_MOST_TANGENTS, _MOST_SHARES / self.data.rows.n)
        return self.problem.loss.pieces is not None or _n_tangents(mu) <= most

    def place_tangents(self) -> None:
        """Choose the tangents of a curved loss, and those of every row: near the ones that have a share of it now.

        In ``a = sin^2 phi`` tangents ``d`` apart are off by at most ``d^2 / 8`` of a logistic loss.
        """
        if self.problem.loss.pieces is not None:
            return
        n, last, count = self.data.rows.n, self.angles, max(int(np.ceil(_n_tangents(self.mu))), _FEWEST)
        self.angles = np.linspace(0.0, 0.5 * np.pi, count + 1)
        used = np.ones((n, count + 1), dtype=bool)
        if last.size:
            near = np.abs(last[:, None] - self.angles) <= _AROUND * (last[1] - last[0])
            near |= np.abs(last[:, None] - self.angles) <= 1.01 * (self.angles[1] - self.angles[0])
            used = (self.shares > _SHARED).astype(np.float32) @ near.astype(np.float32) > 0.0
            used[:, :: max(count // _FEWEST, 1)] = True
        self.used, self.shares = used, np.zeros((n, count + 1), dtype=np.float32)
        self._levels.clear()

    # Sums

    def at(self, x: FloatArray, *, with_hessian: bool) -> _Sums:
        """Return the smoothed objective and its derivatives, one pass over the rows."""
        problem, m, d, mu = self.problem, self.m, self.m + 2, self.mu
        gradient, H = np.zeros(d), np.zeros((d, d) if with_hessian else (0, 0))
        secant = np.zeros(d)
        total = offset = size = steepness = spent = square = 0.0
        widest, count = np.where(self.movable, np.maximum(np.abs(self.low), np.abs(self.high)), 0.0), 0
        columns, _ = self._columns(x)
        side = np.where(x[columns] < 0.0, -1.0, 1.0) / self.prices[columns]
        for part, X in self.data.rows.dense_blocks():
            w, blocks = self.w[part], self.branches(part, X, x)
            best, weight = _soft(blocks, X.shape[0], mu)
            total += float(w @ (best + mu * np.log(weight)))
            widest = np.maximum(widest, np.abs(X).max(axis=0, initial=0.0))
            push_sum, ties = np.zeros(X.shape[0]), []
            for branch in blocks:
                row, push = branch.row, branch.way.push[branch.row]
                portion = np.exp((branch.value - best[row]) / mu) / weight[row]
                share = w[row] * portion
                steep = share * branch.slope
                np.add.at(push_sum, row, steep * push)
                if branch.found is not None:
                    moment = steep @ branch.found.move
                    gradient[columns] += side * moment
                    far = np.maximum(np.abs(x[columns]), 1e-300)
                    secant[columns] += np.abs(side) * moment / far
                    square += float(share @ branch.found.square)
                gradient[m] += float(steep @ push)
                gradient[-1] -= float(share @ branch.cost)
                own = np.clip(np.array([branch.way.sign * branch.slope]), *problem.loss.slope_range)
                conjugate = share * problem.loss.conjugate(own)
                goal = np.zeros(0)
                if not problem.is_classification:
                    goal = steep * push * (branch.way.label[row] - self.below.middle)
                offset -= float(conjugate.sum()) + float(goal.sum())
                size += float(np.abs(conjugate).sum()) + float(np.abs(goal).sum())
                steepness, spent = steepness + float(np.abs(steep).sum()), spent + float(share @ branch.cost)
                count += row.size
                if with_hessian:
                    ties.append(portion)
                    if self.shares.size:
                        self.shares[part.start + row, branch.piece] = portion
                    self._bend(H, branch, share, columns, side)
            gradient[:m] += X.T @ push_sum
            if with_hessian:
                self._tie(H, w, X, blocks, ties, columns, side)
        plane = Plane(offset, size, gradient[:-1].copy(), steepness, spent, 2.0 * widest, count)
        if with_hessian:
            H[:] = 0.5 * (H + H.T)
            self.complete_derivatives(x, mu, gradient, H)
        else:
            self.complete_derivatives(x, mu, gradient, np.zeros((d, d)))
        return _Sums(self.complete(x, mu, total), gradient, plane, square, H, secant)

    def _signals(self, X: FloatArray, branch: _Branch, which: Any, columns: Any, side: FloatArray) -> FloatArray:
        """Return the derivatives of signals at fixed moves, in single precision: they are for Hessians."""
        row = branch.row[which]
        Z = np.zeros((row.size, self.m + 2), dtype=np.float32)
        push = branch.way.push[row]
        Z[:, : self.m] = X[row]
        Z[:, : self.m] *= push[:, None].astype(np.float32)
        if branch.found is not None:
            Z[:, columns] += side * branch.found.move[which]
        Z[:, self.m] = push
        return Z

    def _tie(
        self,
        H: FloatArray,
        w: FloatArray,
        X: FloatArray,
        blocks: list[_Branch],
        portions: list[FloatArray],
        columns: Any,
        side: FloatArray,
    ) -> None:
        """Add the curvature of the maximum: the covariance of the gradients of branches, over the width."""
        n = X.shape[0]
        largest = np.zeros(n)
        for branch, portion in zip(blocks, portions, strict=True):
            np.maximum.at(largest, branch.row, portion)
        tied = largest < 1.0 - 1e-7
        place = np.cumsum(tied) - 1
        mean = np.zeros((int(tied.sum()), self.m + 2), dtype=np.float32)
        if not mean.size:
            return
        kept: list[tuple[Any, FloatArray, Any]] = []
        for branch, portion in zip(blocks, portions, strict=True):
            which = np.flatnonzero(tied[branch.row])
            row = branch.row[which]
            if not which.size:
                continue
            if branch.slope == 0.0 and not branch.cost.any():
                kept.append((row, portion[which], None))  # its gradient is zero
                continue
            G = self._signals(X, branch, which, columns, side)
            G *= np.float32(branch.slope)
            G[:, -1] -= branch.cost[which]
            share = portion[which].astype(np.float32)
            mean[place[row]] += share[:, None] * G
            kept.append((row, portion[which], G))
        for row, portion, own in kept:
            off = -mean[place[row]] if own is None else own - mean[place[row]]
            off *= np.sqrt(w[row] * portion / self.mu).astype(np.float32)[:, None]
            H += off.T @ off

    def _bend(self, H: FloatArray, branch: _Branch, share: FloatArray, columns: Any, side: FloatArray) -> None:
        """Add the Hessians of branches, moves following the model."""
        heavy = np.flatnonzero(share > _LIGHT * self.w.max())
        if branch.found is None or branch.moves is None or not heavy.size:
            return
        slope, share = np.full(heavy.size, branch.slope), share[heavy]
        single, together, rho = branch.moves.free(slope, _some(branch.found, heavy), branch.row[heavy])
        H[columns, columns] += ((share * slope * slope) @ single) * side**2
        root = np.sqrt(share * rho)
        E = (together * side * (root * slope)[:, None]).astype(np.float32)
        last = root.astype(np.float32)
        H[np.ix_(columns, columns)] += E.T @ E
        cross = E.T @ last
        H[columns, -1] -= cross
        H[-1, columns] -= cross
        H[-1, -1] += float(last @ last)

    def largest_curvature(self) -> FloatArray:
        """Return a diagonal that the maximum over pieces can have: that of all rows between two of them."""
        squares = np.append(self.data.rows.column_squares(self.w), [1.0, self.problem.radius**2])
        return np.asarray(self.problem.loss.lipschitz**2 / self.mu * squares)

    def sharpened(self, x: FloatArray, plane: Plane) -> Iterator[FloatArray]:
        """Yield models with coefficients of zero that the widths blur."""
        sizes = np.where(self.movable, np.abs(x[: self.m]) / self.prices, np.inf)
        for factor in _BLURRED:
            out = x.copy()
            out[: self.m][sizes < factor * self.nu * plane.spent] = 0.0
            yield out


def _n_tangents(mu: float) -> float:
    return float(0.5 * np.pi / np.sqrt(_APART * mu))


def _some(found: Response, which: Any) -> Response:
    return Response(*(each[which] for each in found))


def _soft(blocks: list[_Branch], n: int, mu: float) -> tuple[FloatArray, FloatArray]:
    """Return the best branch of every row and the sum of all, relative to it, whose logarithm smoothing adds."""
    best, weight = np.full(n, -np.inf), np.zeros(n)
    for branch in blocks:
        np.maximum.at(best, branch.row, branch.value)
    for branch in blocks:
        np.add.at(weight, branch.row, np.exp((branch.value - best[branch.row]) / mu))
    return best, weight


def _minimise(
    smoothed: _Smoothed, x: FloatArray, settled: float, planes: list[Plane]
) -> tuple[FloatArray, _Sums, bool]:
    """Return the minimiser at the widths, the sums there, and whether Newton's method got there.

    Steps are damped by a share of the diagonal (Levenberg and Marquardt), which follows how much of the decrease of the
    quadratic model comes true. The diagonal is that of secants: a coefficient that a step would take across zero, where
    the curvature of its moves is, has none where it is.
    """
    sums = smoothed.at(x, with_hessian=True)
    damping, most = 0.0, smoothed.largest_curvature()
    for _ in range(_MOST_STEPS):
        scale = sums.secant + _LEAST_SCALE * (np.diag(sums.hessian) + most)
        slack = 1e-14 * abs(sums.value)
        for _ in range(_TRIES):
            step = -solve_damped(sums.hessian + np.diag(damping * scale), sums.gradient)
            promised = -float(sums.gradient @ step)
            if promised <= settled * smoothed.mu and damping <= _DAMPED:
                return x, sums, True
            step *= min(1.0, _DEEPEST * smoothed.slack(x) / max(-float(step[-1]), 1e-300))
            expected = -float(sums.gradient @ step + 0.5 * step @ sums.hessian @ step)
            trial = smoothed.at(x + step, with_hessian=False)
            ratio = (sums.value - trial.value + slack) / (max(expected, 0.0) + slack)
            if ratio > _ACCEPTED:
                break
            damping = max(_HARDER * damping, _DAMPED)
        else:
            return x, sums, False
        if ratio > _GOOD:
            damping = damping / _EASIER if damping > _DAMPED / _EASIER else 0.0
        elif ratio < _POOR:
            damping = max(2.0 * damping, _DAMPED)
        x = x + step
        sums = smoothed.at(x, with_hessian=True)
        planes.append(sums.plane)
    return x, sums, False


def run_prices(problem: Problem, data: Data, coef: FloatArray, intercept: float, tol: float) -> NewtonResult:
    """Close the gap to ``tol`` (relative) from a model on, or go as far as this goes."""
    smoothed = _Smoothed(problem, BoxFamily.of(problem.family), data)
    progress = Progress(smoothed, coef, intercept)
    if not progress.upper > 0.0:  # no width is a share of nothing
        return progress.result()
    x, width = progress.best, _FIRST_WIDTH * progress.upper
    if not smoothed.has_tangents(width):
        return progress.result()
    square, planes = _first_square(smoothed, x, width), list[Plane]()
    least = progress.upper
    for _ in range(_MOST_STAGES):
        if not smoothed.has_tangents(width):
            break
        smoothed.set_widths(width, 2.0 * width / square)
        smoothed.place_tangents()
        # A bound needs slopes that vanish. Where it is there, or the width too large, a rough minimum will do.
        is_bounded = min(least, progress.upper) - progress.lower <= _ENOUGH * tol * progress.upper
        rough = is_bounded or width > 1.01 * _LAST * tol * progress.upper
        x, sums, _ = _minimise(smoothed, x, _ROUGH if rough else _SETTLED, planes)
        planes = planes[-_KEPT:]
        plane = sums.plane
        if problem.ridge == 0.0 and len(planes) > 1:
            plane = smoothed.below.best_mixture(planes, progress.upper)
        progress.record(x, plane)
        least = sums.value
        for other in smoothed.sharpened(x, sums.plane):
            progress.look(other)
        if progress.is_within(tol):
            break
        square, last = max(sums.square, 0.1 * square), _LAST * tol * progress.upper
        width = max(_FALL * width, last) if width > 1.01 * last else _FALL * width
    return progress.result()


def _first_square(smoothed: _Smoothed, x: FloatArray, width: float) -> float:
    """Return the mean square of the moves to begin with, from moves that hardly pay the quadratic price."""
    smoothed.set_widths(width, 1e-3 * width / smoothed.problem.radius)
    smoothed.place_tangents()
    sums = smoothed.at(x, with_hessian=True)
    return max(sums.square, 0.1 * smoothed.problem.radius)
