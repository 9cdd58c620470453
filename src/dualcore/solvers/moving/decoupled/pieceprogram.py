r"""A convex programme whose rows are maxima of linear functions, and an interior point with the rows eliminated.

    min over v of  c . v + v' R v / 2 + sum_i w_i max_k ( f_ik(v) + o_ik )   subject to   G v >= g ,

where ``f_ik(v) = (x_i, 1) . (F v)`` with one of a few sparse matrices ``F``, the *forms*, so that no copy of the rows
is made: gradients are products with ``X``, and the Newton matrix is the weighted Gram matrices of ``(X, 1)``, one for
each pair of forms that meet in a row, between sparse matrices. With ``s_i`` above the pieces of row ``i``, slacks
``s_i - f_ik - o_ik`` and multipliers ``z_ik`` that sum to ``w_i``, the ``s_i`` are eliminated row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows
from dualcore.solvers.factor import DampedFactor

__all__ = ["PiecePath", "PiecePoint", "PieceProgram"]

# Share of the way to the boundary that a step takes.
_KEPT = 0.99
# How large a second-order correction of a product may be, in units of the mean product.
_MODEST = 3.0


@dataclass(frozen=True)
class PieceProgram:
    """The programme.

    Attributes
    ----------
    rows : Rows
        ``X``, shape (n, m).
    masses : ndarray of shape (n,)
        Positive.
    forms : sequence of csr_array of shape (m + 1, d)
    which : ndarray of shape (n, K)
        Number of the form of every piece; -1 where the piece is constant.
    offsets : ndarray of shape (n, K)
    linear, square : ndarray of shape (d,)
        ``c`` and the diagonal of ``R``.
    limits : csr_array of shape (q, d)
    least : ndarray of shape (q,)
        ``G`` and ``g``.
    free : ndarray of shape (d,)
        Which variables may change.
    """

    rows: Rows
    masses: FloatArray
    forms: Sequence[sp.csr_array]
    which: npt.NDArray[np.intp]
    offsets: FloatArray
    linear: FloatArray
    square: FloatArray
    limits: sp.csr_array
    least: FloatArray
    free: npt.NDArray[np.bool_]

    def heights(self, v: FloatArray, *, change: bool = False) -> FloatArray:
        """Return ``f_ik(v) + o_ik``, shape (n, K); with ``change`` without the offsets."""
        table = np.column_stack([form @ v for form in self.forms])
        values = self.rows.dot(table[:-1]) + table[-1]
        out = np.zeros(self.offsets.shape) if change else self.offsets.copy()
        for k in range(out.shape[1]):
            moving = self.which[:, k] >= 0
            out[moving, k] += np.take_along_axis(values, np.maximum(self.which[:, k : k + 1], 0), axis=1)[moving, 0]
        return out

    def by_form(self, z: FloatArray) -> FloatArray:
        """Return the sum of ``z_ik`` over the pieces of a row that have a form, shape (n, n_forms)."""
        out = np.zeros((z.shape[0], len(self.forms)))
        for form in range(len(self.forms)):
            for k in range(z.shape[1]):
                out[:, form] += np.where(self.which[:, k] == form, z[:, k], 0.0)
        return out

    def gradient(self, z: FloatArray) -> FloatArray:
        """Return ``sum_ik z_ik f_ik'``, shape (d,)."""
        shares = self.by_form(z)
        moments = np.vstack([self.rows.transpose_dot(shares), shares.sum(axis=0)])
        out = np.zeros(self.linear.size)
        for form, moment in zip(self.forms, moments.T, strict=True):
            out += form.T @ moment
        return out

    def hessian(self, stiff: FloatArray) -> FloatArray:
        """Return ``sum_i sum_kl (D_ik [k = l] - D_ik D_il / sum D_i) f_ik' f_il''``, shape (d, d)."""
        n, d = self.masses.size, self.linear.size
        total = stiff.sum(axis=1)
        shares = self.by_form(stiff)
        H = np.zeros((d, d))
        for first in range(len(self.forms)):
            for second in range(first + 1):
                weight = -shares[:, first] * (shares[:, second] / total)  # in this order nothing overflows
                if first == second:
                    weight = self._own(stiff, first, total)
                if not weight.any():
                    continue
                left, right = self.forms[first], self.forms[second]
                part = left.T @ (right.T @ self._gram(weight, n).T).T
                H += part if first == second else part + part.T
        return H

    def _own(self, stiff: FloatArray, form: int, total: FloatArray) -> FloatArray:
        """Return ``D (sum D - D) / sum D`` of the pieces of one form without cancellation."""
        own = np.where(self.which == form, stiff, 0.0).sum(axis=1)
        others = np.where(self.which != form, stiff, 0.0).sum(axis=1)
        return np.asarray(own * (others / total))

    def _gram(self, weight: FloatArray, n: int) -> FloatArray:
        """Return the weighted Gram matrix of ``(X, 1)``; rows without weight are left out."""
        m = self.rows.m
        out = np.empty((m + 1, m + 1))
        inner = np.zeros((m, m))
        for part, block in self.rows.blocks():
            own = weight[part]
            used = np.flatnonzero(own)
            if used.size == 0:
                continue
            if used.size < own.size:
                block, own = block[used], own[used]
            if sp.issparse(block):
                inner += (block.T @ block.multiply(own[:, None]).tocsr()).toarray()
            else:
                inner += block.T @ (block * own[:, None])
        out[:-1, :-1] = inner
        out[-1, :-1] = out[:-1, -1] = self.rows.transpose_dot(weight)
        out[-1, -1] = float(weight.sum())
        return out


class PiecePoint(NamedTuple):
    """Variables, the rows' values, multipliers of pieces and of limits."""

    v: FloatArray
    s: FloatArray
    z: FloatArray
    y: FloatArray


class _PieceDirection(NamedTuple):
    v: FloatArray
    s: FloatArray
    z: FloatArray
    y: FloatArray
    gap: FloatArray
    slack: FloatArray


class PiecePath:
    """Mehrotra's predictor and corrector along the central path, the products weighted by the masses of their rows.

    The point is feasible from the start on, and the multipliers of a row sum to its mass: only the gradient is not
    zero.

    Parameters
    ----------
    program : PieceProgram
    v : ndarray of shape (d,)
        Strictly inside the limits.
    unit : float
        Size of the objective.
    """

    def __init__(self, program: PieceProgram, v: FloatArray, unit: float) -> None:
        self.program = program
        values = program.heights(v)
        s = values.max(axis=1) + unit
        z = 1.0 / (s[:, None] - values)
        z *= (program.masses / z.sum(axis=1))[:, None]
        self.by_piece = np.repeat(program.masses[:, None], z.shape[1], axis=1)
        self.by_limit = np.full(program.least.size, 1.0 / max(program.least.size, 1))
        self.degree = float(self.by_piece.sum() + self.by_limit.sum())
        slack = program.limits @ v - program.least
        mean = float(np.sum(z * (s[:, None] - values))) / float(self.by_piece.sum())
        self.point = PiecePoint(v, s, z, mean * self.by_limit / slack)
        self.gap, self.slack = s[:, None] - values, slack

    @property
    def total(self) -> float:
        """Sum of the products of slacks and multipliers: how far the objective is from its bound."""
        return float(np.sum(self.point.z * self.gap) + self.point.y @ self.slack)

    def advance(self) -> float:
        """Take one step, and return the share of it that was taken."""
        program, point = self.program, self.point
        total = self.total
        mean = total / self.degree
        stiff, taut = point.z / self.gap, point.y / self.slack
        limits = program.limits
        H = program.hessian(stiff)
        H += (limits.T @ (limits.multiply(taut[:, None])).tocsr()).toarray()
        H[np.diag_indices(H.shape[0])] += program.square
        factor = DampedFactor(H[np.ix_(program.free, program.free)])
        first = self._direction(H, factor, stiff, np.zeros_like(self.gap), np.zeros_like(self.slack))
        primal, dual = self._longest(first)
        after = float(
            np.sum((point.z + dual * first.z) * (self.gap + primal * first.gap))
            + (point.y + dual * first.y) @ (self.slack + primal * first.slack)
        )
        goal = mean * min(max(after / total, 0.0), 1.0) ** 3
        by_piece, by_limit = self.by_piece, self.by_limit
        second = np.clip(-first.z * first.gap, -_MODEST * mean * by_piece, _MODEST * mean * by_piece)
        curved = np.clip(-first.y * first.slack, -_MODEST * mean * by_limit, _MODEST * mean * by_limit)
        step = self._direction(H, factor, stiff, goal * by_piece + second, goal * by_limit + curved)
        primal, dual = self._longest(step)
        if min(primal, dual) < 0.1:  # far from the path: back towards it first
            step = self._direction(H, factor, stiff, mean * by_piece, mean * by_limit)
            primal, dual = self._longest(step)
        v, s = point.v + primal * step.v, point.s + primal * step.s
        values = program.heights(v)
        slack = limits @ v - program.least
        gap = s[:, None] - values
        # Slacks from the variables themselves; where rounding spoils one it is the one that the step foresaw.
        self.gap = np.where(gap > 0.5 * (self.gap + primal * step.gap), gap, self.gap + primal * step.gap)
        self.slack = np.where(slack > 0.5 * (self.slack + primal * step.slack), slack, self.slack + primal * step.slack)
        self.point = PiecePoint(v, s, point.z + dual * step.z, point.y + dual * step.y)
        return min(primal, dual)

    def _direction(
        self, H: FloatArray, factor: DampedFactor, stiff: FloatArray, pieces: FloatArray, limits: FloatArray
    ) -> _PieceDirection:
        """Return the step to products as given."""
        program, point, gap, slack = self.program, self.point, self.gap, self.slack
        z, y = pieces / gap, limits / slack
        total = stiff.sum(axis=1)
        over = (z.sum(axis=1) - program.masses) / total
        gradient = program.linear + program.square * point.v - program.limits.T @ y
        gradient += program.gradient(z - stiff * over[:, None])
        free = program.free
        step = np.zeros(gradient.size)
        step[free] = factor.solve(-gradient[free])
        left = -(gradient + H @ step)
        step[free] += factor.solve(left[free])  # one refinement: the factor is damped
        rise = program.heights(step, change=True)
        value = over + (stiff * rise).sum(axis=1) / total
        widened = value[:, None] - rise
        loosened = program.limits @ step
        return _PieceDirection(
            step, value, z - point.z - stiff * widened, y - point.y - point.y / slack * loosened, widened, loosened
        )

    def _longest(self, step: _PieceDirection) -> tuple[float, float]:
        """Return the shares of a step that keep slacks and multipliers positive; one share where there is a ridge."""

        def most(here: FloatArray, change: FloatArray) -> float:
            limits = -change > _KEPT * here
            return _KEPT * float((here[limits] / -change[limits]).min()) if limits.any() else 1.0

        primal = min(most(self.gap, step.gap), most(self.slack, step.slack))
        dual = min(most(self.point.z, step.z), most(self.point.y, step.y))
        return (min(primal, dual),) * 2 if self.program.square.any() else (primal, dual)
