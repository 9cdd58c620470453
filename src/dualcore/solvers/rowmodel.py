r"""The rows in the Newton system: a smooth part, and a maximum over a few pieces, eliminated in closed form.

A row with signal ``z`` (margin or residual) is the epigraph ``t >= f_k(z) - price_k lam`` over pieces ``k``, with
slacks ``s_k = t - f_k(z) + price_k lam`` and multipliers ``p_k`` that sum to one. At given ``dz`` and ``dlam`` Newton's
equations of the row

.. math:: s_k dp_k + p_k ds_k = \tau_k - p_k s_k, \quad ds_k = dt - f_k' dz + price_k dlam - r_k, \quad
          \textstyle\sum_k (p_k + dp_k) = 1

(targets ``tau``, residuals ``r`` of the slacks) have a closed solution. With ``d_k = p_k / s_k`` and the means ``m`` of
slopes and prices under the weights ``d_k / sum d`` it is

.. math:: dp_k = c_k - d_k g + d_k v_k, \quad ds_k = g - r_k - v_k, \quad
          v_k = (f_k' - m') dz - (price_k - m_{price}) dlam

with ``c_k = (tau_k + p_k r_k) / s_k - p_k`` and ``g`` such that the ``p_k + dp_k`` sum to one. The row contributes a
2 x 2 curvature in (z, lam) to the Newton matrix, the covariance of slopes and prices under ``d``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualcore.certificates import DualPoint
from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem
from dualcore.problem.losses import Logistic, Loss


class Piece(NamedTuple):
    """A piece of every row at the current ``z``: value, slope, curvature, and its price per unit of lam."""

    value: FloatArray
    slope: FloatArray
    curvature: FloatArray | None
    price: float


class Pieces:
    """The split of ``h(z, lam)`` into a smooth part and a maximum of pieces.

    With ``pieces_only`` the smooth part is left out and the caller adds it. Without ``envelopes`` a Moreau envelope
    counts as smooth.
    """

    def __init__(self, problem: Problem, *, pieces_only: bool = False, envelopes: bool = True) -> None:
        self.loss: Loss = problem.loss
        self.label_cost = problem.geometry.label_cost
        self.flips = problem.family.flips
        self.logistic = isinstance(problem.loss, Logistic)
        self.polyhedral = problem.loss.pieces
        # The loss is a Moreau envelope, the minimum over ``v`` of a polyhedral function of ``z - v`` plus ``v^2 / 2``;
        # ``v`` is eliminated too.
        self.envelope = (
            envelopes and self.polyhedral is None and not self.flips and problem.loss.envelope_of is not None
        )
        if self.envelope:
            self.polyhedral = problem.loss.envelope_of
        # The loss itself is the smooth part; only flips need pieces. The logistic loss stays smooth even with flips,
        # because there ``h = L(z) + max(0, z - gamma lam)``.
        self.smooth = not pieces_only and (self.logistic or (self.polyhedral is None and not self.flips))
        # A full Newton step may overshoot and needs a line search.
        self.curved = not pieces_only and self.polyhedral is None and not (self.logistic and self.flips)
        # Slope, offset and price of the pieces, where they are lines.
        self.lines: tuple[tuple[float, float, float], ...] | None = None
        if self.logistic and self.flips:
            self.lines = ((0.0, 0.0, 0.0), (1.0, 0.0, self.label_cost))
        if self.polyhedral is not None:
            self.lines = tuple((slope, offset, 0.0) for slope, offset in self.polyhedral)
            if self.flips:  # the flat piece of a flipped row is below the flat piece of the row that stays
                self.lines += tuple(
                    (-slope, offset, self.label_cost) for slope, offset in self.polyhedral if slope != 0.0
                )

    def __call__(self, z: FloatArray) -> list[Piece]:
        """Return the pieces at ``z``."""
        if self.lines is not None:
            return [
                Piece(slope * z + offset, np.full_like(z, slope), None, price) for slope, offset, price in self.lines
            ]
        if not self.flips:
            return []
        stay, flip = self.loss.value_and_slope(z), self.loss.value_and_slope(-z)
        return [
            Piece(stay[0], stay[1], self.loss.curvature(z), 0.0),
            Piece(flip[0], -flip[1], self.loss.curvature(-z), self.label_cost),
        ]

    def dual(self, z: FloatArray, shares: FloatArray) -> DualPoint:
        """Return the dual point of the multipliers ``shares`` (k, n) of the pieces."""
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
    """Second derivatives of the eliminated rows: ``zz`` (n,), and with label flips ``z_lam`` (n,) and ``lam_lam``."""

    zz: FloatArray
    z_lam: FloatArray | None
    lam_lam: float
    # For an envelope: 1 / (1 + curvature of its pieces), the factor from dz to the change of z - v.
    compliance: FloatArray | None


class RowStep(NamedTuple):
    """The part of a row's step that does not depend on dz and dlam."""

    p: FloatArray  # (k, n): dp at dz = dlam = 0
    t: FloatArray  # (n,): dt at dz = dlam = 0
    slope: FloatArray  # (n,): the change of the rows' slopes, envelopes included
    v: FloatArray | None  # (n,): dv at dz = 0, for an envelope
    compliance: FloatArray | None  # (n,): as in RowCurvature, for an envelope


class _Ratios(NamedTuple):
    """Quantities common to all directions from a point: ``d = p / s``, and deviations from the means under ``d``."""

    d: FloatArray  # (k, n)
    total: FloatArray  # (n,): sum of d
    missing: FloatArray  # (n,): one minus the sum of the multipliers
    slope: FloatArray  # (n,): mean slope
    slopes: FloatArray  # (k, n): slopes less their mean
    price: FloatArray | None  # (n,): mean price; None where all are 0
    prices: FloatArray | None  # (k, n): prices less their mean


class RowState:
    """Signals ``z`` (n,) and, where there are pieces, heights ``t`` (n,), slacks ``s`` and multipliers ``p`` (k, n)."""

    def __init__(self, pieces: Pieces, weights: FloatArray, z: FloatArray) -> None:
        self.pieces = pieces
        self.w = weights
        self.v: FloatArray | None = np.zeros_like(z) if pieces.envelope else None
        self.slopes = np.zeros((0, 1))  # (k, 1) for lines, else (k, n)
        self.prices = np.zeros(0)
        self._offsets: FloatArray | None = None
        if pieces.lines is not None:
            lines = np.array(pieces.lines)
            self.slopes, self._offsets, self.prices = lines[:, :1].copy(), lines[:, 1:2].copy(), lines[:, 2].copy()
        self.now: list[Piece] = []
        self.at(z)
        self.t = np.zeros_like(self.w)
        self.s = self.p = np.zeros((0, self.w.size))
        self._known: tuple[FloatArray, FloatArray, _Ratios] | None = None

    @property
    def count(self) -> int:
        """Number of pieces."""
        return self.slopes.shape[0]

    def start_above(self, lam: float, distance: float) -> None:
        """Start ``distance`` above the highest piece, with equal products ``p s`` within a row."""
        if self.count:
            heights = self.heights(lam)
            self.t = heights.max(axis=0) + distance
            self.s = self.t - heights
            self.p = 1.0 / self.s
            self.p /= self.p.sum(axis=0)

    def at(self, z: FloatArray) -> None:
        """Evaluate pieces and smooth part at ``z``."""
        self.z = z
        if self.pieces.lines is None:
            self.now = self.pieces(z)
            if self.now:
                self.slopes = np.stack([piece.slope for piece in self.now])
                self.prices = np.array([piece.price for piece in self.now])
        self.value: FloatArray | None = None
        self.slope: FloatArray | None = None
        if self.pieces.smooth:
            self.value, self.slope = self.pieces.loss.value_and_slope(z)

    def heights(self, lam: float) -> FloatArray:
        """Return ``f_k(z) - price_k lam``, (k, n)."""
        if self._offsets is not None:
            reached = self.z if self.v is None else self.z - self.v
            return np.asarray(self.slopes * reached + (self._offsets - lam * self.prices[:, None]))
        return np.stack([piece.value - piece.price * lam for piece in self.now])

    def residual(self, lam: float) -> FloatArray:
        """Return the residuals ``s - t + f_k(z) - price_k lam`` of the slacks, (k, n)."""
        return self.s - self.t + self.heights(lam) if self.count else self.s

    def mean_value(self) -> float:
        """Return the rows' part of the objective."""
        value = float(self.w @ self.t)
        if self.value is not None:
            value += float(self.w @ self.value)
        if self.v is not None:
            value += 0.5 * float(self.w @ (self.v * self.v))
        return value

    def gap(self, ds: FloatArray | None = None, dp: FloatArray | None = None) -> float:
        """Return ``sum_i w_i sum_k p_ik s_ik``, after a step where one is given."""
        if not self.count:
            return 0.0
        p, s = self.p if dp is None else self.p + dp, self.s if ds is None else self.s + ds
        return float((p * s @ self.w).sum())

    def combine(self, p: FloatArray) -> FloatArray:
        """Return ``sum_k p_k f_k'`` of the rows: their slopes under given multipliers."""
        if self.slopes.shape[1] == 1:
            return np.asarray(self.slopes[:, 0] @ p)
        return np.asarray((self.slopes * p).sum(axis=0)) if self.count else np.zeros_like(self.w)

    def total_slopes(self) -> FloatArray:
        """Return the slope of every row in ``z`` at the current multipliers."""
        if not self.count:
            return np.zeros_like(self.w) if self.slope is None else self.slope
        out = self.combine(self.p)
        return out if self.slope is None else out + self.slope

    def priced(self, p: FloatArray) -> float:
        """Return ``sum_i w_i sum_k p_ik price_k``: minus the slope of the rows in lam."""
        return float(self.prices @ (p @ self.w)) if self.prices.any() else 0.0

    def _ratios(self) -> _Ratios:
        """Return the common quantities, cached until ``p`` or ``s`` is replaced; these arrays are never changed."""
        if self._known is not None and self._known[0] is self.p and self._known[1] is self.s:
            return self._known[2]
        d = self.p / self.s
        total = d.sum(axis=0)
        missing = 1.0 - self.p.sum(axis=0)
        slope, price, prices = self.combine(d) / total, None, None
        if self.prices.any():
            price = self.prices @ d / total
            prices = self.prices[:, None] - price
        ratios = _Ratios(d, total, missing, slope, self.slopes - slope, price, prices)
        self._known = self.p, self.s, ratios
        return ratios

    def curvature(self, *, cautious: bool = False) -> RowCurvature:
        """Return the second derivatives after elimination of heights, slacks, multipliers and envelopes.

        A ``cautious`` curvature is at least that of the parabola with the slopes of the loss at ``z`` and ``-z``. For
        losses like log-cosh this parabola is an upper bound; their own curvature is tiny where they are nearly linear,
        and Newton's steps would be too long.
        """
        smooth = self.pieces.loss.curvature(self.z) if self.pieces.smooth else None
        if smooth is not None and cautious:
            far = np.maximum(np.abs(self.z), 1e-8)
            secant = (self.pieces.loss.slope(far) - self.pieces.loss.slope(-far)) / (2.0 * far)
            smooth = np.maximum(smooth, secant)
        if not self.count:
            return RowCurvature(np.zeros_like(self.w) if smooth is None else smooth, None, 0.0, None)
        d, _, _, _, slopes, _, prices = self._ratios()
        weighed = d * slopes
        # Sums of squares, so that rounding never makes them negative.
        zz = (weighed * slopes).sum(axis=0)
        for p, piece in zip(self.p, self.now, strict=False):
            if piece.curvature is not None:
                zz += p * piece.curvature
        z_lam, lam_lam = None, 0.0
        if prices is not None:
            z_lam = -(weighed * prices).sum(axis=0)
            lam_lam = float((d * prices * prices @ self.w).sum())
        compliance = None
        if self.v is not None:
            compliance = 1.0 / (1.0 + zz)
            zz *= compliance
        return RowCurvature(zz if smooth is None else zz + smooth, z_lam, lam_lam, compliance)

    def respond(
        self, residual: FloatArray | None, target: FloatArray | float, compliance: FloatArray | None
    ) -> RowStep:
        """Return the step towards ``p s = target`` at dz = dlam = 0; ``residual`` None stands for zeros."""
        d, total, missing, *_ = self._ratios()
        if residual is None:
            p = target / self.s
        else:
            p = self.p * residual
            p += target
            p /= self.s
        p -= self.p
        t = p.sum(axis=0)
        t -= missing
        t /= total
        p -= d * t
        slope = self.combine(p)
        if self.v is None or compliance is None:
            return RowStep(p, t, slope, None, None)
        off = self.combine(self.p) - self.v
        return RowStep(p, t, slope * compliance - off * (1.0 - compliance), off + slope, compliance)

    def finish(
        self, step: RowStep, residual: FloatArray | None, dz: FloatArray, dlam: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return ``ds`` and ``dp`` once ``dz`` and ``dlam`` are known."""
        if step.v is not None and step.compliance is not None:
            dz = (dz - step.v) * step.compliance
        d, _, _, _, slopes, _, prices = self._ratios()
        v = slopes * dz
        if prices is not None:
            v -= prices * dlam
        dp = d * v
        dp += step.p
        ds = np.subtract(step.t, v, out=v)
        if residual is not None:
            ds -= residual
        return ds, dp

    def outliers(self, ds: FloatArray, dp: FloatArray, primal: float, dual: float, mu: float) -> FloatArray:
        """Return corrections (k, n) of the products that a longer step would leave far from ``mu`` (Gondzio)."""
        product = primal * ds
        product += self.s
        other = dual * dp
        other += self.p
        product *= other
        inside = np.minimum(np.maximum(product, 0.1 * mu, out=other), 10.0 * mu, out=other)
        inside -= product
        return np.asarray(np.maximum(inside, -10.0 * mu, out=inside))

    def height_step(self, step: RowStep, dz: FloatArray, dlam: float) -> FloatArray:
        """Return ``dt`` once ``dz`` and ``dlam`` are known."""
        if step.v is not None and step.compliance is not None:
            dz = (dz - step.v) * step.compliance
        ratios = self._ratios()
        dt = step.t + ratios.slope * dz
        return dt if ratios.price is None else dt - ratios.price * dlam

    def advance(
        self,
        step: RowStep | None,
        dz: FloatArray,
        ds: FloatArray,
        dp: FloatArray,
        dlam: float,
        lengths: tuple[float, float],
    ) -> None:
        """Take a step of the given primal and dual length."""
        primal, dual = lengths
        if step is not None:
            self.t = self.t + primal * self.height_step(step, dz, dlam)
            if self.v is not None:  # v is the slope of the pieces: at a full step under p + dp
                self.v = self.v + primal * (self.combine(self.p + dp) - self.v)
            self.s = self.s + primal * ds
            self.p = self.p + dual * dp
        self.at(self.z + primal * dz)

    def dual(self, z: FloatArray, p: FloatArray) -> DualPoint:
        """Return the dual point of a recorded iterate, an entry for every row."""
        if not self.count:
            return DualPoint(self.pieces.loss.slope(z))
        return self.pieces.dual(z, p)
