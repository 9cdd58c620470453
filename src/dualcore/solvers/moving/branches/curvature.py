"""The Hessian of the smoothed worst case.

It has three parts: the curvature of the loss, the derivatives of the moves in the model, and the smoothed maximum over
branches, which adds the covariance of their gradients over ``mu``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.problem.losses import Loss
from dualcore.solvers.moving.branches.finding import STIFF, Branch
from dualcore.solvers.moving.branches.rowmoves import Follow, L1Moves, L2Moves
from dualcore.solvers.moving.covariance import covariance_rows

__all__ = ["BranchCurvature"]

# Branches of smaller shares are left out of the Hessian.
LIGHT = 1e-6
# Limit on derivatives of moves, which are unbounded at a coefficient of zero.
_LARGEST = 1e15

Rows = npt.NDArray[np.intp]
Table = npt.NDArray[np.float32]


class BranchCurvature:
    """Adds the Hessian of the sum over the rows of a block to ``hessian``, with products in single precision.

    Parameters
    ----------
    loss : Loss
    mu : float
        The width of the smoothed maximum.
    columns : ndarray of shape (c,)
        Features that move.
    sizes, per_cost : ndarray of shape (c,)
        ``|theta_j| / price_j``, and ``sign(theta_j) / price_j``: the movement of a feature for a unit of cost.
    X : ndarray of shape (n, m)
        The rows of the block.
    w : ndarray of shape (n,)
        Their masses.
    hessian : ndarray of shape (m + 2, m + 2)
        Changed in place.
    """

    def __init__(
        self,
        loss: Loss,
        mu: float,
        columns: Rows,
        sizes: FloatArray,
        per_cost: FloatArray,
        X: FloatArray,
        w: FloatArray,
        hessian: FloatArray,
    ) -> None:
        self.loss, self.mu, self.columns, self.sizes, self.per_cost = loss, mu, columns, sizes, per_cost
        self.X, self.w, self.H = X.astype(np.float32), w, hessian

    def add(self, blocks: list[Branch], portions: list[FloatArray]) -> None:
        """Add the curvature of branches, given their shares within rows, and that of the maximum over them."""
        tables, gradients, rows, shares = [], [], [], []
        for branch, portion in zip(blocks, portions, strict=True):
            heavy = np.flatnonzero((portion > LIGHT) & (self.w[branch.row] > 0.0))
            if not heavy.size:
                continue
            signals = self._signals(branch, heavy)
            tables += self._single(branch, heavy, self.w[branch.row[heavy]] * portion[heavy], signals)
            signals *= _column(branch.slope[heavy])
            signals[:, -1] -= branch.cost[heavy].astype(np.float32)
            gradients.append(signals)
            rows.append(branch.row[heavy])
            shares.append(portion[heavy])
        if not gradients:  # no row has mass
            return
        owner = np.concatenate(rows)
        weights = self.w[owner] * np.concatenate(shares) / self.mu
        tables.append(covariance_rows(np.concatenate(gradients), owner, weights))
        table = np.concatenate(tables)
        with np.errstate(over="ignore", invalid="ignore"):  # a Hessian that is not finite yields a zero step
            self.H += table.T @ table

    def _signals(self, branch: Branch, which: Rows) -> Table:
        """Return the derivatives (k, m + 2) of signals in the point, with the moves fixed."""
        row, m = branch.row[which], self.X.shape[1]
        push = branch.direction.push[row].astype(np.float32)
        out = np.zeros((row.size, m + 2), dtype=np.float32)
        np.multiply(self.X[row], push[:, None], out=out[:, :m])
        if branch.found is not None:
            out[:, self.columns] += (self.per_cost * branch.found.move[which]).astype(np.float32)
        out[:, m] = push
        return out

    def _single(self, branch: Branch, which: Rows, share: FloatArray, signals: Table) -> list[Table]:
        """Add the diagonal part of the Hessian of single branches; return tables ``T`` whose ``T'T`` is the rest."""
        a, tables = branch.slope[which], list[Table]()
        curvature = np.zeros(a.size)
        if self.loss.pieces is None:
            curvature = self.loss.curvature(branch.direction.sign * branch.signal[which])
        if branch.found is not None and branch.moves is not None:
            columns, per_cost, H = self.columns, self.per_cost, self.H
            moves, found, row = branch.moves, branch.found.some(which), branch.row[which]
            own, across, last = moves.diagonal(a, found, row, share)
            H[columns, columns] += own * per_cost**2
            H[columns, -1] += across * per_cost
            H[-1, columns] += across * per_cost
            H[-1, -1] += last
            if isinstance(moves, L2Moves):
                follow = moves.follow(a, found, row)
                tables.append(self._together(follow, a, share, signals.shape))
                if curvature.any():
                    signals, curvature = self._response(follow, a, curvature, signals)
            elif isinstance(moves, L1Moves) and curvature.any():
                drift, signals = moves.drift(found, row), signals.copy()
                signals[:, columns] += (per_cost * drift[:, :-1]).astype(np.float32)
                signals[:, -1] += drift[:, -1].astype(np.float32)
                curvature = np.where(found.position % 1.0 > 0.0, curvature, 0.0)  # beyond an interval `Curve` is linear
        if curvature.any():
            tables.append(signals * _column(np.sqrt(share * curvature)))
        return tables

    def _together(self, follow: Follow, a: FloatArray, share: FloatArray, shape: tuple[int, ...]) -> Table:
        root = np.sqrt(share * follow.weight)
        out = np.zeros(shape, dtype=np.float32)
        out[:, self.columns] = _held(follow.together * self.per_cost * (root * a)[:, None])
        out[:, -1] = _held(-root * follow.fixed)
        return out

    def _response(self, follow: Follow, a: FloatArray, curved: FloatArray, signals: Table) -> tuple[Table, FloatArray]:
        """Return the derivatives of signals including the response of moves to the slope, and the total curvature."""
        along = follow.single * self.sizes
        last = -np.vecdot(along, follow.shift)
        part = follow.weight * (follow.together @ self.sizes)
        along += part[:, None] * follow.together
        last -= part * follow.fixed
        signals = signals.copy()
        signals[:, self.columns] += _held(a[:, None] * along * self.per_cost).astype(np.float32)
        signals[:, -1] += _held(last).astype(np.float32)
        return signals, curved / np.maximum(1.0 - curved * (along @ self.sizes), STIFF)


def _column(factors: FloatArray) -> Table:
    return factors.astype(np.float32)[:, None]


def _held(entries: FloatArray) -> FloatArray:
    """Return entries clipped so that their squares are finite in single precision."""
    return np.clip(entries, -_LARGEST, _LARGEST)
