"""A row as the interior-point method sees it: a smooth part, and a maximum over a few pieces.

Every row is an epigraph ``t >= f_k(z) - price_k lam`` over pieces ``k``. Its height ``t``, the slacks ``s_k``
and the multipliers ``p_k`` (which sum to one) eliminate in closed form from the Newton system, leaving a
2 x 2 curvature in (z, lam).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualcore.certificates import DualPoint
from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem
from dualcore.problem.losses import Logistic, Loss

__all__ = ["Piece", "Pieces", "RowCurvature", "RowState", "RowStep"]


class Piece(NamedTuple):
    """One side of a row's epigraph at the current ``z``: value, slope, curvature, and its price per unit of lam."""

    value: FloatArray
    slope: FloatArray
    curvature: FloatArray | None
    price: float


class Pieces:
    """How ``h(z, lam)`` splits into a smooth part and a maximum of pieces.

    Attributes
    ----------
    smooth : bool
        The loss itself is the smooth part; only flips need pieces. The logistic loss stays smooth even with
        flips, because there ``h = L(z) + max(0, z - gamma lam)``.
    spring : bool
        The loss is a Moreau envelope: a polyhedral function of ``t - u`` plus ``u^2 / 2``; ``u`` is eliminated too.
    curved : bool
        A full Newton step may overshoot and needs a line search.

    With ``bare`` the smooth part is left out: the caller adds it. Without ``springs`` envelopes count as smooth.
    """

    def __init__(self, problem: Problem, *, bare: bool = False, springs: bool = True) -> None:
        self.loss: Loss = problem.loss
        self.label_cost = problem.geometry.label_cost
        self.flips = problem.is_classification and bool(np.isfinite(self.label_cost)) and problem.radius > 0.0
        self.logistic = isinstance(problem.loss, Logistic)
        self.polyhedral = problem.loss.pieces
        self.spring = springs and self.polyhedral is None and not self.flips and problem.loss.envelope_of is not None
        if self.spring:
            self.polyhedral = problem.loss.envelope_of
        self.smooth = not bare and (self.logistic or (self.polyhedral is None and not self.flips))
        self.curved = not bare and self.polyhedral is None and not (self.logistic and self.flips)
        # Slope, offset and price of the pieces, where they are lines.
        self.lines: tuple[tuple[float, float, float], ...] | None = None
        if self.polyhedral is not None:
            self.lines = tuple((slope, offset, 0.0) for slope, offset in self.polyhedral)
            if self.flips:  # the flat piece of a flipped row is below the flat piece of the row that stays
                self.lines += tuple(
                    (-slope, offset, self.label_cost) for slope, offset in self.polyhedral if slope != 0.0
                )
        self._slopes: list[FloatArray] = []

    def __call__(self, z: FloatArray) -> list[Piece]:
        """Return the pieces at ``z``."""
        if self.lines is not None:
            if not self._slopes or self._slopes[0].size != z.size:
                self._slopes = [np.full_like(z, slope) for slope, _, _ in self.lines]
            return [
                Piece(slope * z + offset, slopes, None, price)
                for (slope, offset, price), slopes in zip(self.lines, self._slopes, strict=True)
            ]
        if not self.flips:
            return []
        if self.logistic:
            zero = np.zeros_like(z)
            return [Piece(zero, zero, None, 0.0), Piece(z, np.ones_like(z), None, self.label_cost)]
        stay, flip = self.loss.value_and_slope(z), self.loss.value_and_slope(-z)
        return [
            Piece(stay[0], stay[1], self.loss.curvature(z), 0.0),
            Piece(flip[0], -flip[1], self.loss.curvature(-z), self.label_cost),
        ]

    def dual(self, z: FloatArray, shares: FloatArray) -> DualPoint:
        """Return the dual point that the multipliers ``shares`` (k, n) of the pieces stand for."""
        shares = shares / shares.sum(axis=0)
        if self.polyhedral is not None:
            slopes = np.array([slope for slope, _ in self.polyhedral])
            stay = slopes @ shares[: slopes.size]
            if not self.flips:
                return DualPoint(stay)
            flipping = shares[slopes.size :]
            return DualPoint(stay, -slopes[slopes != 0.0] @ flipping, flipping.sum(axis=0))
        share = shares[1]
        return DualPoint((1.0 - share) * self.loss.slope(z), -share * self.loss.slope(-z), share)


class RowCurvature(NamedTuple):
    """Second derivatives of the eliminated rows: ``zz``, and ``z_lam``, ``lam_lam`` where flips are priced."""

    zz: FloatArray
    z_lam: FloatArray | None
    lam_lam: float
    soft: FloatArray | None  # how much a spring in series gives, 1 / (1 + curvature of the pieces)


class RowStep(NamedTuple):
    """The rows' answer to a centring target, before dz and dlam are known."""

    shares: FloatArray  # (k, n): dp at dz = dlam = 0
    height: FloatArray  # (n,): dt at dz = dlam = 0
    force: FloatArray  # (n,): what dp changes the slope of the rows by, springs accounted for
    slip: FloatArray | None  # (n,): what a spring gives at dz = 0


class RowState:
    """Margins ``z`` (n,), and, where there are pieces, heights, slacks and multipliers.

    These are ``t`` (n,), ``s`` and ``p`` (k, n).

    Parameters
    ----------
    pieces : Pieces
    weights : ndarray of shape (n,)
    z : ndarray of shape (n,)
    """

    def __init__(self, pieces: Pieces, weights: FloatArray, z: FloatArray) -> None:
        self.pieces = pieces
        self.w = weights
        self.v: FloatArray | None = np.zeros_like(z) if pieces.spring else None
        self.at(z)
        self.t = np.zeros_like(self.w)
        self.s = self.p = np.zeros((0, self.w.size))
        self._known: tuple[FloatArray, ...] = ()

    def rise(self, lam: float, spread: float) -> None:
        """Start ``spread`` above the epigraph, with the products of a row alike."""
        if self.now:
            heights = self.heights(lam)
            self.t = heights.max(axis=0) + spread
            self.s = self.t - heights
            self.p = 1.0 / self.s
            self.p /= self.p.sum(axis=0)

    def centre(self, lam: float, mu: float) -> None:
        """Start on the central path: the height at which ``p = mu / s`` sums to one."""
        if not self.now:
            return
        heights = self.heights(lam)
        top = heights.max(axis=0)
        below, rise = top - heights, np.full_like(top, mu)
        for _ in range(20):  # convex and decreasing in the rise: Newton approaches from below
            s = below + rise
            excess = (mu / s).sum(axis=0) - 1.0
            if float(excess.max(initial=0.0)) < 1e-10:
                break
            rise += excess / (mu / s**2).sum(axis=0)
        self.t, self.s = top + rise, below + rise
        self.p = mu / self.s
        self.p /= self.p.sum(axis=0)

    def at(self, z: FloatArray) -> None:
        """Evaluate pieces and smooth part at ``z``."""
        self.z = z
        self.now = self.pieces(z if self.v is None else z - self.v)
        self.value: FloatArray | None = None
        self.slope: FloatArray | None = None
        if self.pieces.smooth:
            self.value, self.slope = self.pieces.loss.value_and_slope(z)

    def heights(self, lam: float) -> FloatArray:
        """Return ``f_k(z) - price_k lam``, (k, n)."""
        return np.stack([piece.value - piece.price * lam for piece in self.now])

    def residual(self, lam: float) -> FloatArray:
        """Return what the slacks are off by, (k, n)."""
        return self.s - self.t + self.heights(lam) if self.now else self.s

    def mean_value(self) -> float:
        """Return the rows' part of the objective."""
        value = float(self.w @ self.t)
        if self.value is not None:
            value += float(self.w @ self.value)
        if self.v is not None:
            value += 0.5 * float(self.w @ (self.v * self.v))
        return value

    def gap(self, ds: FloatArray | float = 0.0, dp: FloatArray | float = 0.0) -> float:
        """Return ``sum_i w_i sum_k p_ik s_ik``, after a step where one is given."""
        return float(((self.p + dp) * (self.s + ds)).sum(axis=0) @ self.w) if self.now else 0.0

    def force(self, shares: FloatArray) -> FloatArray:
        """Return ``sum_k shares_k f_k'`` of the rows: their slope under given multipliers."""
        out = np.zeros_like(self.w)
        if self.pieces.lines is not None:
            for share, (slope, _, _) in zip(shares, self.pieces.lines, strict=True):
                if slope != 0.0:
                    out += share * slope
            return out
        for share, piece in zip(shares, self.now, strict=True):
            out += share * piece.slope
        return out

    def slopes(self) -> FloatArray:
        """Return the slope of every row in ``z`` at the current multipliers."""
        out = self.force(self.p)
        return out if self.slope is None else out + self.slope

    def priced(self, shares: FloatArray) -> float:
        """Return ``sum_i w_i sum_k shares_ik price_k``: minus the slope of the rows in lam."""
        return sum(
            piece.price * float(self.w @ share) for share, piece in zip(shares, self.now, strict=True) if piece.price
        )

    def _stiffness(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return ``p / s``, its sum over the pieces, and what the multipliers lack to a sum of one.

        They are the same for every direction from a point. The arrays of a point are replaced, never changed.
        """
        if not self._known or self._known[0] is not self.p or self._known[1] is not self.s:
            stiff = self.p / self.s
            self._known = self.p, self.s, stiff, stiff.sum(axis=0), 1.0 - self.p.sum(axis=0)
        return self._known[2], self._known[3], self._known[4]

    def curvature(self, *, cautious: bool = False) -> RowCurvature:
        """Return the second derivatives left once heights, slacks, multipliers and springs are eliminated.

        A ``cautious`` curvature is at least that of the parabola through the slopes at ``z`` and ``-z``, which bounds
        a loss like log-cosh from above: where such a loss is nearly linear its own curvature promises too long a step.
        """
        smooth = self.pieces.loss.curvature(self.z) if self.pieces.smooth else None
        if smooth is not None and cautious:
            far = np.maximum(np.abs(self.z), 1e-8)
            secant = (self.pieces.loss.slope(far) - self.pieces.loss.slope(-far)) / (2.0 * far)
            smooth = np.maximum(smooth, secant)
        if not self.now:
            return RowCurvature(np.zeros_like(self.w) if smooth is None else smooth, None, 0.0, None)
        stiff, total, _ = self._stiffness()
        zz, z_lam, lam_lam = np.zeros_like(total), np.zeros_like(total), 0.0
        for k, piece in enumerate(self.now):
            if piece.curvature is not None:
                zz += self.p[k] * piece.curvature
            for j in range(k):  # pairwise, so that rounding never makes it negative
                pair = stiff[j] * stiff[k] / total
                turn, price = piece.slope - self.now[j].slope, piece.price - self.now[j].price
                zz += pair * turn * turn
                if price:
                    z_lam -= pair * turn * price
                    lam_lam += price * price * float(self.w @ pair)
        soft = None
        if self.v is not None:
            soft = 1.0 / (1.0 + zz)
            zz *= soft
        return RowCurvature(zz if smooth is None else zz + smooth, z_lam if lam_lam else None, lam_lam, soft)

    def respond(self, residual: FloatArray, target: FloatArray | float, soft: FloatArray | None) -> RowStep:
        """Return how the rows move towards ``p s = target``, at dz = dlam = 0."""
        stiff, total, lack = self._stiffness()
        constant = self.p * residual
        constant += target
        constant /= self.s
        constant -= self.p
        height = (constant.sum(axis=0) - lack) / total
        shares = constant - stiff * height
        force = self.force(shares)
        if self.v is None or soft is None:
            return RowStep(shares, height, force, None)
        slip = self.force(self.p) + force - self.v
        return RowStep(shares, height, force * soft - (slip - force) * (1.0 - soft), slip)

    def finish(
        self, step: RowStep, residual: FloatArray, soft: FloatArray | None, dz: FloatArray, dlam: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return ``dt``, ``ds``, ``dp`` once ``dz`` and ``dlam`` are known."""
        if step.slip is not None and soft is not None:
            dz = (dz - step.slip) * soft
        stiff, total, _ = self._stiffness()
        moved = np.empty_like(stiff)
        for row, piece in zip(moved, self.now, strict=True):
            np.multiply(piece.slope, dz, out=row)
            if piece.price:
                row -= piece.price * dlam
        rise = (stiff * moved).sum(axis=0) / total
        away = np.subtract(rise, moved, out=moved)
        shares = stiff * away
        np.subtract(step.shares, shares, out=shares)
        away += step.height
        away -= residual
        return step.height + rise, away, shares

    def outliers(self, ds: FloatArray, dp: FloatArray, primal: float, dual: float, mu: float) -> FloatArray:
        """Return by how much to correct products that a longer step would leave far from ``mu`` (Gondzio)."""
        product = (self.s + primal * ds) * (self.p + dual * dp)
        inside = np.minimum(np.maximum(product, 0.1 * mu), 10.0 * mu)
        return np.asarray(np.maximum(inside - product, -10.0 * mu))

    def advance(
        self, dz: FloatArray, dt: FloatArray, ds: FloatArray, dp: FloatArray, primal: float, dual: float
    ) -> None:
        """Take a step."""
        if self.v is not None:  # the spring pulls with the force of the pieces, p + dp at a full step
            self.v = self.v + primal * (self.force(self.p + dp) - self.v)
        if self.now:
            self.t = self.t + primal * dt
            self.s = self.s + primal * ds
            self.p = self.p + dual * dp
        self.at(self.z + primal * dz)

    def dual(self, z: FloatArray, p: FloatArray) -> DualPoint:
        """Return the dual point of a recorded iterate, an entry for every row."""
        if not self.now:
            return DualPoint(self.pieces.loss.slope(z))
        return self.pieces.dual(z, p)
