r"""The working sample: rows in memory whose weights reads of all rows correct.

It has a dozen rows or more for each parameter and trains a model of any radius. A correction moves its weights, as
little as possible, so that it has the mean ``h``, gradient and transport of all rows at models that were read.
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

# Relative gap of the models whose sums coresets match.
REFINED = 1e-9
# Rows that cost next to nothing, and most numbers (256 MB) of the sample.
_CHEAP_ROWS, MOST_NUMBERS = 20_000, 32_000_000


def working_size(problem: Problem, n_rows: int, n_features: int) -> int:
    """Return how many of ``n_rows`` rows the working sample has.

    A dozen for each parameter, more where ``h`` has kinks, near which only few of them lie; all rows as long as they
    are cheap: to correct a sample would take longer. Of more rows it is a part as long as these are few: a sample
    must cost less than its reads, and kinks take a larger one to be found in as few of them.

    Examples
    --------
    >>> [working_size(Problem("logistic", radius=0.1), n, 20) for n in (20_000, 50_000, 10**6)]
    [20000, 2560, 20000]
    """
    family = problem.family
    has_kinks = family.is_closed and problem.form.has_kinks
    least = (40 if has_kinks else 12) * family.n_outputs * (n_features + 1)
    rows = max(300 * (n_features + 1), _CHEAP_ROWS) if family.is_closed else _CHEAP_ROWS
    cheap = max(least, min(rows, MOST_NUMBERS // (6 * n_features)))
    part = n_rows // (8 if problem.loss.kinks else 24)
    return n_rows if n_rows <= cheap else max(least, min(cheap, max(part, 128 * n_features)))


def corrected(problem: Problem, rows: Pilot, values: FloatArray, means: FloatArray) -> Pilot:
    """Return rows with weights that are moved, as little as possible, so that ``values`` have these means.

    A mean that is NaN is not known. Weights that would leave a class next to no mass are not taken.
    """
    known = ~np.isnan(means)
    found = calibrate(rows.weights, values[:, known], means[known])
    classes = [rows.y == label for label in problem.family.strata]
    if any(float(found[own].sum()) < 1e-3 * float(rows.weights[own].sum()) for own in classes):
        return rows
    return rows.pick(found > 0.0, found[found > 0.0])


class WorkingSample:
    """A sample in memory that trains a model of any radius.

    Every correction moves the weights of the sample, as little as possible, so that it has the sums of all rows at the
    models that were read. The radii of a path are close to each other: sums at a few of them correct the others too.

    Parameters
    ----------
    problem : Problem
        Its radius is not used.
    source : Source
    rows : Pilot
        A uniform sample of the rows.
    settings : dict
        Of `solve`.
    is_whole : bool
        Whether ``rows`` are all rows of positive mass; then there is nothing to correct.

    Attributes
    ----------
    is_thin : bool
        Whether features are so many that ``rows``, which fit in memory, are too few to train a model.
    """

    def __init__(
        self, problem: Problem, source: Source, rows: Pilot, settings: dict[str, Any], *, is_whole: bool
    ) -> None:
        self.problem, self.source, self.rows, self.settings = problem, source, rows, settings
        self.is_whole = is_whole
        self.is_thin = working_size(problem, source.n_rows, source.n_features) * source.n_features > MOST_NUMBERS
        self.working = rows
        self.centre = centre_of(problem, rows.X, rows.weights)
        self.known: dict[float, tuple[MatchedModel, FloatArray]] = {}  # models that were read, and their sums

    @classmethod
    def of(cls, problem: Problem, source: Source, seed: int, settings: dict[str, Any]) -> WorkingSample:
        """Return a sample of the source, of all rows if they are few."""
        size = max(working_size(problem, source.n_rows, source.n_features), len(problem.family.strata), 1)
        most = max(MOST_NUMBERS // source.n_features, 1)
        # With the keys of the seed itself: a smaller draw of that seed is then in memory too.
        rows = draw_pilot(problem, source, min(size, most, source.n_rows), seed)
        return cls(problem, source, rows, settings, is_whole=min(size, most) >= source.n_rows)

    def train(
        self, radii: list[float], rows: Any = None, starts: Any = None, tell: Any = lambda _: None, between: float = 0.0
    ) -> list[Solution]:
        """Return the model of every radius, trained on the corrected sample or on other rows.

        Radii are ascending. Without ``starts`` each model starts from that of the next larger radius. ``tell`` is
        called with the number of models that are done. Every other model is one between its neighbours where that is
        within a relative gap of ``between``.
        """
        given, settings, found = self.working if rows is None else rows, self.settings, dict[int, Solution]()
        if rows is None and self.known and self.problem.family.is_closed:  # what was corrected may become a coreset
            settings = settings | {"tol": min(settings.get("tol", REFINED), REFINED)}
        problems = [self.problem.replace(radius=radius) for radius in radii]
        later = range(1, len(radii) - 1, 2) if between else range(0)
        for k in [*reversed([k for k in range(len(radii)) if k not in later]), *later]:
            start = found.get(k + 1, found.get(k + 2)) if starts is None else starts[k]
            if k in later:
                start = self._mean(problems[k - 1 : k + 2], found[k - 1], found[k + 1], given)
            if start is None or k not in later or start.gap > between * abs(start.value):
                own = {"solver": self._solver(problems[k]), "warm_start": start}
                start = solve_quietly(problems[k], given, **settings | own)
            found[k] = start
            tell(len(found))
        return [found[k] for k in range(len(radii))]

    def _mean(self, problems: Sequence[Problem], first: Solution, last: Solution, rows: Any) -> Solution:
        """Return the model between those of the first and of the last problem, for the one between them.

        The optimum is concave in the price of the budget: it is at least what the line between two lower bounds says.
        """
        below, at, above = problems
        share = (at.price - below.price) / (above.price - below.price)
        both = [(getattr(first, name), getattr(last, name)) for name in ("coef", "intercept", "lower_bound")]
        coef, intercept, lower = ((1.0 - share) * one + share * other for one, other in both)
        value, multiplier = at.evaluate(coef, intercept, at.validate(rows.X, rows.y, rows.weights))
        known = {"value": value, "lower_bound": lower, "gap": value - lower, "dual_variable": multiplier, "dual": None}
        return replace(first, coef=coef, intercept=intercept, **known)

    def _solver(self, problem: Problem) -> str:
        """Return the solver for some thousand rows: descent where risk and norm are smooth, else the interior point."""
        asked, m = str(self.settings.get("solver", "auto")), self.source.n_features
        if asked != "auto" or able_solver(problem) != "structured" or float(len(self.rows.y)) * m**2 > 1e10:
            return asked
        hard = problem.form.has_kinks or problem.geometry.norm.name != "l2" or sp.issparse(self.rows.X)
        return "structured" if hard or free_features(problem, m).any() else "descent"

    def train_corrected(self, radii: list[float], rounds: int) -> list[Solution]:
        """Return models of these radii that are close to the optima on all rows: train, correct, and repeat.

        Each correction is one read.
        """
        found = self.train(radii)
        for _ in range(0 if self.is_whole else rounds):
            self.correct(radii, found)
            before, found = found, self.train(radii, starts=found)
            pairs = [(new.coef, old.coef) for new, old in zip(found, before, strict=True)]
            if all(np.abs(new - old).max() <= 1e-5 * np.abs(new).max() for new, old in pairs):
                break  # convergence is quadratic
        return found

    def correct(self, radii: Sequence[float], found: Sequence[Solution]) -> None:
        """Move the weights to the sums of all rows at these models too: one read."""
        models, family = stack(self.problem, radii, found), self.problem.family
        if reads_together(self.problem) and family.linear_in_multiplier and not family.flips:
            reading = read_models(self.source, self.problem, found, None, 0.0)
            means = [reading.means(number) for number in range(len(found))]
            blocks = [np.append([h, 0.0, np.nan, slope], moment - slope * self.centre) for h, slope, moment in means]
        else:
            matched = Matched(models, self.centre)
            blocks = np.split(read_sums(self.source, matched.sums)[0, 1 + matched.n_strata :], len(found))
        self.known |= {radius: (at, block) for radius, at, block in zip(radii, models, blocks, strict=True)}
        self.recalibrate()

    def recalibrate(self) -> None:
        """Move the weights to all sums that are known; the masses of the classes stay."""
        models, blocks = zip(*self.known.values(), strict=True)
        matched = Matched(models, self.centre)
        values = matched.values(self.rows.X, self.rows.y)
        strata = self.rows.weights @ values[:, : matched.n_strata]
        self.working = corrected(self.problem, self.rows, values, np.concatenate([strata, *blocks]))


def stack(problem: Problem, radii: Sequence[float], found: Sequence[Solution]) -> tuple[MatchedModel, ...]:
    """Return problems of these radii, each with its model."""
    pairs = zip(radii, found, strict=True)
    return tuple(MatchedModel.of(problem.replace(radius=radius), model) for radius, model in pairs)
