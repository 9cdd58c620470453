"""What one read of the data says: risk, gradient, line search, and a lower bound on the optimum."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from dualcore.certificates import LevelSet, SideSums, residual_size, side_bound, trivial_bound
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Source, SourceError
from dualcore.data.sums import FlipTail
from dualcore.problem.forms import MarginForm, SquaredForm, SquaredHingeForm
from dualcore.reading.summary import Extent, Layout, Pass, Summary, merge, summarise

__all__ = ["Reading", "read"]

# How often the mean of dual candidates is improved towards each of them.
_SWEEPS = 2
# What is left of a mass of one by rounding; more than that is a mass.
_NO_MASS = 2.0**-60


def read(source: Source, task: Pass, column_sizes: FloatArray | None = None) -> Reading:
    """Run ``task`` on every chunk of ``source``: one read.

    ``column_sizes`` are the root mean squares of the columns, where an earlier read has summed them. A lower bound
    needs them.
    """
    extent = Extent(source.n_rows, source.total_weight)
    with source.naming_rows():
        summary = source.fold(partial(summarise, task=task, extent=extent), partial(merge, task=task, extent=extent))
    if summary.n_rows != source.n_rows or summary.edges:
        raise SourceError(f"The source promised {source.n_rows} rows but gave {summary.n_rows}: did the data change?")
    return Reading(task, summary, column_sizes)


class Reading:
    """A finished read, with its answers."""

    def __init__(self, task: Pass, summary: Summary, column_sizes: FloatArray | None = None) -> None:
        if summary.sample is None:
            raise ValueError("Nothing was read.")
        self.task, self.summary = task, summary
        self.problem, self.anchor = task.problem, task.anchor
        m = self.anchor.coef.size
        vector = summary.sums.total()
        totals, self._line, self._duals, squares, masses = Layout(task, m, summary.weighted).split(vector)
        self.column_sizes = np.sqrt(squares) if task.sized else column_sizes
        self.mass, self.mean_loss, self.mean_h, self.slope, self.flipped = totals
        self.gradient = self._duals[0][6 : 6 + m] + self._duals[0][6 + m :]
        self.cell_count = summary.cell_count
        self.cell_mass = masses if summary.weighted else summary.cell_count / summary.n_rows
        self.sample = summary.sample.in_row_order()
        self.known_bound = -np.inf
        self.risk, self.multiplier = self._risk(self.anchor.coef, float(self.mean_loss), summary.tails[0])
        # With so many rows that may flip that they became a histogram the risk is bounded from above.
        self.is_exact = not summary.tails[0].bins.size

    def settle(self, risk: float, multiplier: float, lower: float) -> None:
        """Put what a closer look has found in the place of what sums could tell."""
        self.risk, self.multiplier, self.known_bound, self.is_exact = risk, multiplier, lower, True

    def bound_risk(self) -> None:
        """Put the bound that the anchor's own multiplier gives in the place of the risk: sums alone vouch for it."""
        self.multiplier = self.anchor.multiplier
        paid = self.problem.price * self.multiplier if self.problem.radius > 0.0 else 0.0
        self.risk, self.is_exact = paid + float(self.mean_h) + self.problem.penalty(self.anchor.coef), False

    def _risk(self, coef: FloatArray, mean_loss: float, tail: FlipTail) -> tuple[float, float]:
        """Return the risk, ridge included, and the multiplier, from the mean loss and the flip tail.

        Exact up to 65,536 rows in the tail, an upper bound beyond; see `FlipTail`.
        """
        problem, form, size = self.problem, self.problem.form, self.problem.size(coef)
        if isinstance(form, MarginForm):
            if tail.bins.size:
                at, gain = tail.candidates(form.kappa(size))
                values = problem.radius * at + mean_loss + problem.geometry.label_cost * gain
                best = int(np.argmin(values))
                value, multiplier = float(values[best]), float(at[best])
            else:
                value, multiplier = form.minimise_sums(mean_loss, *tail.sorted(), size)
        elif isinstance(form, SquaredHingeForm) and (tail.delta.size or tail.bins.size):
            value, multiplier = form.minimise(*_stand_ins(form, mean_loss, float(self.mass), tail), size)
        elif isinstance(form, SquaredForm):
            value, multiplier = form.minimise_mean(mean_loss, size)
        else:
            multiplier = form.kappa(size)
            value = problem.radius * multiplier + mean_loss
        return float(value + problem.penalty(coef)), float(multiplier)

    def line(self) -> list[tuple[float, float]]:
        """Return ``(step, risk)`` along the line search, exact on the full data."""
        origin = self.task.origin
        if origin is None:
            return []
        return [
            (step, self._risk(origin.coef + step * (self.anchor.coef - origin.coef), float(loss), tail)[0])
            for step, loss, tail in zip(self.task.steps, self._line, self.summary.tails[1:], strict=True)
        ]

    @property
    def duals(self) -> list[FloatArray]:
        """The sums of the dual candidates; a mean of such sums, over reads too, is one of a candidate again."""
        return [] if self.problem.geometry.order > 1 or not self.task.certified else list(self._duals)

    def lower_bound(self, upper: float, earlier: Sequence[FloatArray] = ()) -> float:
        """Return a lower bound on the optimal risk of the full data, from sums alone.

        Parameters
        ----------
        upper : float
            The risk of any model; it bounds the optimal multiplier, and so prices what is infeasible.
        earlier : sequence of ndarray
            `duals` of earlier reads. A mean of dual points is one, its conjugate sum at least the mean of theirs, and
            what makes them infeasible cancels in part: the best mean is looked for, one candidate after the other.
        """
        best = max(trivial_bound(self.problem), self.known_bound)
        if not self.task.certified:
            return best
        at = self._level_set(upper)
        if self.problem.geometry.order > 1:
            return max(best, *(self._bound(dual, at) for dual in self._duals))
        candidates = [*earlier, *self._duals]
        bounds = [self._bound(dual, at) for dual in candidates]
        order = np.argsort(bounds)[::-1]
        mean = candidates[order[0]]
        reached = self._bound(mean, at, closely=False)
        for _ in range(_SWEEPS if len(candidates) > 1 else 0):
            for other in order:
                toward = candidates[other] - mean
                shares = np.concatenate([np.geomspace(1e-3, 0.5, 10), np.linspace(0.55, 1.0, 4)])
                values = [self._bound(mean + share * toward, at, closely=False) for share in shares]
                top = int(np.argmax(values))
                if values[top] > reached:
                    mean, reached = mean + shares[top] * toward, values[top]
        return float(max(best, *bounds, self._bound(mean, at)))

    @property
    def rounding(self) -> float:
        """The error of the risk: that of the scores, and that of their sum."""
        return self._level_set(self.risk).risk_error(self.anchor.coef, self.anchor.intercept)

    def _score_size(self) -> float:
        """Return at least the root mean square of the scores at the anchor."""
        return float(np.abs(self.anchor.coef) @ self._sizes()) + abs(self.anchor.intercept)

    def _sizes(self) -> FloatArray:
        if self.column_sizes is None:
            raise RuntimeError("a lower bound needs the sizes of the columns: read them first")
        return self.column_sizes

    def _level_set(self, upper: float) -> LevelSet:
        targets = 0.0
        if not self.problem.is_classification:  # |y| <= |score| + |r|
            targets = self._score_size() + residual_size(self.problem, float(self.mean_loss))
        return LevelSet(self.problem, upper, self._sizes(), self.summary.n_rows, target_size=targets)

    def _bound(self, sums: FloatArray, at: LevelSet, *, closely: bool = True) -> float:
        problem, m = self.problem, self.anchor.coef.size
        order = problem.geometry.order
        if order > 1 and self.flipped:  # sums do not bound the transport of flipped rows of order 2
            return 0.0
        value, balance, extra = sums[:2], sums[2:4], sums[4:6]
        moment = np.stack([sums[6 : 6 + m], sums[6 + m :]])
        slopes = problem.loss.lipschitz if order == 1 else 2.0 * float(balance.sum())
        terms = float(self.mean_h) + slopes * self._score_size() + problem.price * self.multiplier
        flipped = float(extra[0]) if order == 1 else 0.0
        return side_bound(
            at, SideSums(value, balance, extra, moment, flipped), terms, self.summary.n_rows, closely=closely
        )


def _stand_ins(form: SquaredHingeForm, mean_loss: float, mass: float, tail: FlipTail) -> tuple[FloatArray, FloatArray]:
    """Return margins and masses whose risk is that of all rows: the tail's, and one for the rows that never flip.

    Rows that stay enter the risk through their mean loss alone. The one row that has it stays too: its margin is at
    most the largest of theirs.
    """
    value, masses, least = tail.brackets()
    margin = value - 1.0
    loss = max(mean_loss - float(least @ form.loss.value(margin)), 0.0)
    rest = max(mass - float(masses.sum()), _NO_MASS)
    return np.append(margin, 1.0 - np.sqrt(loss / rest)), np.append(masses, rest)
