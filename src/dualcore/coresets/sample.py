r"""The working sample: rows in memory whose weights are corrected by reads of all rows.

It has at least a dozen rows for each parameter, and models of all radii are trained on it. A correction changes its
weights as little as possible so that it has the mean ``h``, gradient and transport of all rows at the models read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.certificates.rounding import free_features
from dualcore.coresets.matched import Matched, MatchedModel, centre_of, read_sums
from dualcore.coresets.weights import calibrate
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Source
from dualcore.problem import Problem
from dualcore.reading.models import read_models, reads_together
from dualcore.solvers import Solution, solve_quietly
from dualcore.solvers.base import able_solver
from dualcore.solvers.pilot import Pilot, draw_pilot

# Relative gap to which models are solved before their sums are matched.
REFINED = 1e-9
# Number of rows on which training takes little time, and limit on the numbers (256 MB) of the sample.
_CHEAP_ROWS, MOST_NUMBERS = 20_000, 32_000_000


def working_size(problem: Problem, n_rows: int, n_features: int, target_gap: float = 1e-3) -> int:
    """Return the number of rows of the working sample.

    At least 12 per parameter, or 40 if ``h`` has kinks, because few rows are near a kink. All rows if training on them
    is as fast as correcting a sample. Otherwise a 24th of the rows, or an eighth with kinks, within a limit: training
    on the sample should take less time than the reads. With kinks the gradient of the sample jumps by the mass of a
    row. The optimum is therefore wrong by a multiple of ``1 / n``, and its excess of ``1 / n^2``, whatever sums the
    sample matches: the limit grows with ``1 / sqrt(target_gap)``.

    Examples
    --------
    >>> [working_size(Problem("logistic", radius=0.1), n, 20) for n in (20_000, 50_000, 10**6)]
    [20000, 2560, 20000]
    >>> working_size(Problem("logistic", radius=0.1, label_cost=1.0), 10**6, 20, target_gap=1e-6)
    105000
    """
    family = problem.family
    has_kinks = family.is_closed and problem.form.has_kinks
    least = (40 if has_kinks else 12) * family.n_outputs * (n_features + 1)
    near_kinks = 5.0 / np.sqrt(target_gap) if has_kinks and target_gap > 0.0 else 0.0
    rows = max(round(max(300.0, near_kinks) * (n_features + 1)), _CHEAP_ROWS) if family.is_closed else _CHEAP_ROWS
    cheap = max(least, min(rows, MOST_NUMBERS // (6 * n_features)))
    part = n_rows // (8 if problem.loss.kinks or near_kinks > 300.0 else 24)
    return n_rows if n_rows <= cheap else max(least, min(cheap, max(part, 128 * n_features)))


def corrected(problem: Problem, rows: Pilot, values: FloatArray, means: FloatArray) -> Pilot:
    """Return rows with the nearest weights for which ``values`` (n, d) have the means ``means`` (d,).

    Means that are NaN are ignored. If the new weights leave a class almost no mass, the old ones are returned.
    """
    known = ~np.isnan(means)
    found = calibrate(rows.weights, values[:, known], means[known])
    if any((found - 1e-3 * rows.weights)[rows.y == label].sum() < 0.0 for label in problem.family.strata):
        return rows
    return rows.pick(found > 0.0, found[found > 0.0])


class WorkingSample:
    """A sample in memory on which models of all radii are trained.

    A correction changes the weights of the sample as little as possible so that it has the sums of all rows at the
    models read. Neighbouring radii of a path have similar models, so sums at a few of them suffice.

    Parameters
    ----------
    problem : Problem
        Its radius is not used.
    source : Source
    rows : Pilot
        A uniform sample of the rows.
    settings : dict
        Settings of `solve`.
    is_whole : bool
        Whether ``rows`` are all rows of positive mass; then no correction is needed.

    Attributes
    ----------
    is_thin : bool
        Whether there are so many features that the rows that fit into memory are too few to train a model.
    """

    def __init__(
        self, problem: Problem, source: Source, rows: Pilot, settings: dict[str, Any], *, is_whole: bool
    ) -> None:
        self.problem, self.source, self.rows, self.settings = problem, source, rows, settings
        self.is_whole, self.working = is_whole, rows
        self.is_thin = working_size(problem, source.n_rows, source.n_features) * source.n_features > MOST_NUMBERS
        self.centre = centre_of(problem, rows.X, rows.weights)
        self.known: dict[float, tuple[MatchedModel, FloatArray]] = {}  # models that were read, and their sums

    @classmethod
    def of(
        cls, problem: Problem, source: Source, seed: int, settings: dict[str, Any], target_gap: float = 1e-3
    ) -> WorkingSample:
        """Return a sample of the source, of all rows if they are few."""
        size = working_size(problem, source.n_rows, source.n_features, target_gap)
        size = max(size, len(problem.family.strata), 1)
        most = max(MOST_NUMBERS // source.n_features, 1)
        # The same seed as for coresets, so that a smaller uniform draw is part of the sample.
        rows = draw_pilot(problem, source, min(size, most, source.n_rows), seed)
        return cls(problem, source, rows, settings, is_whole=min(size, most) >= source.n_rows)

    def train(
        self, radii: list[float], rows: Any = None, starts: Any = None, tell: Any = lambda _: None, between: float = 0.0
    ) -> list[Solution]:
        """Return the model of every radius, trained on the corrected sample or on other rows.

        Radii are ascending. Without ``starts`` each model starts from that of the next larger radius. ``tell`` is
        called with the number of models done. With ``between > 0`` radii are bisected: the model in the middle is
        interpolated between the two around it, and trained only if its relative gap then exceeds ``between``.
        """
        given, settings, found = self.working if rows is None else rows, self.settings, dict[int, Solution]()
        if rows is None and self.known and self.problem.family.is_closed:  # coresets may match these models
            settings = settings | {"tol": min(settings.get("tol", REFINED), REFINED)}
        problems, last = [self.problem.replace(radius=radius) for radius in radii], len(radii) - 1
        # Each position but the ends halves a span; half its length is ``k & -k``, the lowest bit of the position.
        for k in sorted(range(last, -1, -1), key=lambda k: (0 < k < last, -(k & -k)) if between else (False, 0)):
            start = found.get(k + 1) if starts is None else starts[k]
            if is_between := between > 0.0 and 0 < k < last:
                low, high = k - (k & -k), min(k + (k & -k), last)
                start = self._mean([problems[j] for j in (low, k, high)], found[low], found[high], given)
            if start is None or not is_between or start.gap > between * abs(start.value):
                own = {"solver": self._solver(problems[k]), "warm_start": start}
                start = solve_quietly(problems[k], given, **settings | own)
            found[k] = start
            tell(len(found))
        return [found[k] for k in range(len(radii))]

    def _mean(self, problems: Sequence[Problem], first: Solution, last: Solution, rows: Any) -> Solution:
        """Return the interpolation between the models of the first and the last problem, for the middle one.

        The optimum is concave in ``price = radius^p``, so the line between two lower bounds is a lower bound.
        """
        below, at, above = problems
        share = (at.price - below.price) / (above.price - below.price)
        both = [(getattr(first, name), getattr(last, name)) for name in ("coef", "intercept", "lower_bound")]
        coef, intercept, lower = ((1.0 - share) * one + share * other for one, other in both)
        value, multiplier = at.evaluate(coef, intercept, at.validate(rows.X, rows.y, rows.weights))
        known = {"value": value, "lower_bound": lower, "gap": value - lower, "dual_variable": multiplier, "dual": None}
        return replace(first, coef=coef, intercept=intercept, **known)

    def _solver(self, problem: Problem) -> str:
        """Return the solver for a few thousand rows: descent if risk and norm are smooth, else the interior point."""
        asked, m = str(self.settings.get("solver", "auto")), self.source.n_features
        if asked != "auto" or able_solver(problem) != "structured" or float(len(self.rows.y)) * m**2 > 1e10:
            return asked
        hard = problem.form.has_kinks or problem.geometry.norm.name != "l2" or sp.issparse(self.rows.X)
        return "structured" if hard or free_features(problem, m).any() else "descent"

    def train_corrected(self, radii: list[float], rounds: int) -> list[Solution]:
        """Return models of these radii close to the optima on all rows, by alternating training and correction.

        Each correction is one read.
        """
        found = self.train(radii)
        for _ in range(0 if self.is_whole else rounds):
            self.correct(radii, found)
            before, found = found, self.train(radii, starts=found)
            pairs = [(new.coef, old.coef) for new, old in zip(found, before, strict=True)]
            if all(np.abs(new - old).max() <= 1e-5 * np.abs(new).max() for new, old in pairs):
                break  # convergence is quadratic, so the next change would be negligible
        return found

    def correct(self, radii: Sequence[float], found: Sequence[Solution]) -> None:
        """Correct the weights to the sums of all rows at these models and at those read before: one read."""
        models, problem = stack(self.problem, radii, found), self.problem.replace(radius=max(radii))
        if reads_together(problem) and problem.family.linear_in_multiplier and not problem.family.flips:
            reading = read_models(self.source, problem, found, None, 0.0)
            means = [reading.means(number) for number in range(len(found))]
            blocks = [np.append([h, 0.0, np.nan, slope], moment - slope * self.centre) for h, slope, moment in means]
        else:
            matched = Matched(models, self.centre)
            blocks = np.split(read_sums(self.source, matched.sums)[0, 1 + matched.n_strata :], len(found))
        self.known |= {radius: (at, block) for radius, at, block in zip(radii, models, blocks, strict=True)}
        self.recalibrate()

    def recalibrate(self) -> None:
        """Correct the weights to all known sums, with the masses of the classes unchanged."""
        models, blocks = zip(*self.known.values(), strict=True)
        matched = Matched(models, self.centre)
        values = matched.values(self.rows.X, self.rows.y)
        strata = self.rows.weights @ values[:, : matched.n_strata]
        self.working = corrected(self.problem, self.rows, values, np.concatenate([strata, *blocks]))


def stack(problem: Problem, radii: Sequence[float], found: Sequence[Solution]) -> tuple[MatchedModel, ...]:
    """Return problems of these radii, each with its model."""
    return tuple(MatchedModel.of(problem.replace(radius=own), model) for own, model in zip(radii, found, strict=True))
