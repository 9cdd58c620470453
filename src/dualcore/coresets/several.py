"""Models of several radii from one sample, corrected together by reads of all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dualcore.coresets.anchors import anchor_at
from dualcore.coresets.matched import At, Matched, centre_of
from dualcore.coresets.recombine import find_means
from dualcore.coresets.training import MOST_NUMBERS, corrected, is_whole, working_rows, working_sample
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Source
from dualcore.problem import Problem
from dualcore.solvers import Solution, solve_quietly
from dualcore.solvers.pilot import Pilot


class RadiusModels:
    """A sample in memory that trains a model of any radius.

    Every correction moves the weights of the sample, as little as possible, so that it has the sums of all rows at the
    last model that was read of every radius. The radii of a path are close to each other: sums at a few of them correct
    the others too.

    Parameters
    ----------
    problem : Problem
        Its radius is not used.
    source : Source
    rows : Pilot
        A uniform sample of the rows.
    is_whole : bool
        Whether ``rows`` are all rows of positive mass; then there is nothing to correct.
    settings : dict
        Of `solve`.
    """

    def __init__(
        self, problem: Problem, source: Source, rows: Pilot, settings: dict[str, Any], *, is_whole: bool
    ) -> None:
        self.problem, self.source, self.rows, self.is_whole = problem, source, rows, is_whole
        self.settings = settings
        self.working = rows
        self._centre = centre_of(problem, rows.X, rows.weights)
        self._known: dict[float, tuple[At, FloatArray]] = {}  # by radius: the last model that was read, and its sums

    @classmethod
    def of(cls, problem: Problem, source: Source, seed: int, settings: dict[str, Any]) -> RadiusModels | None:
        """Return the models of a sample of the source, of all rows if they are few; None where they are too wide."""
        if min(working_rows(problem, source.n_features), source.n_rows) * source.n_features > MOST_NUMBERS:
            return None
        rows = working_sample(problem, source, seed)
        return cls(problem, source, rows, settings, is_whole=is_whole(problem, source))

    def train(
        self,
        radii: Sequence[float],
        rows: Any = None,
        starts: Sequence[Solution] | None = None,
        tell: Callable[[int], None] | None = None,
    ) -> list[Solution]:
        """Return the model of every radius, trained on the corrected sample or on other rows.

        Radii are ascending. Without ``starts`` each model sets out from that of the next larger radius. ``tell`` is
        called with the number of models that are done.
        """
        found: list[Solution] = []
        for number in reversed(range(len(radii))):
            start = (found[-1] if found else None) if starts is None else starts[number]
            at = self.problem.replace(radius=radii[number])
            given = self.working if rows is None else rows
            found.append(solve_quietly(at, given, warm_start=start, **self.settings))
            if tell is not None:
                tell(len(found))
        return found[::-1]

    def settle(self, radii: Sequence[float], rounds: int) -> list[Solution]:
        """Return models of these radii that are close to the optima on all rows: a read for each correction."""
        found = self.train(radii)
        risks = np.full(len(radii), np.inf)
        for _ in range(0 if self.is_whole else rounds):
            before, risks = risks, self.correct(radii, found)
            found = self.train(radii, starts=found)
            if (before - risks <= 1e-7 * np.abs(risks)).all():  # the next would fall by about the square of that
                break
        return found

    def correct(self, radii: Sequence[float], found: Sequence[Solution]) -> FloatArray:
        """Move the weights to the sums of all rows at these models too, and return about their risks: one read."""
        models = stack(self.problem, radii, found)
        matched = Matched(models, self._centre)
        means = find_means(self.source, matched)
        strata, blocks = means[: matched.n_strata], means[matched.n_strata :].reshape(len(models), -1)
        self._known |= {at.problem.radius: (at, block) for at, block in zip(models, blocks, strict=True)}
        known, sums = zip(*self._known.values(), strict=True)
        self.calibrate(Matched(known, self._centre), np.concatenate([strata, *sums]))
        paid = [at.problem.price * at.anchor.multiplier if at.problem.radius > 0.0 else 0.0 for at in models]
        return np.array([blocks[k, 0] + paid[k] + at.problem.penalty(at.anchor.coef) for k, at in enumerate(models)])

    def calibrate(self, matched: Matched, means: FloatArray) -> None:
        """Move the weights to these means of all rows, unless a class were lost by that."""
        self.working = corrected(self.problem, self.rows, matched.values(self.rows.X, self.rows.y), means)


def stack(problem: Problem, radii: Sequence[float], found: Sequence[Solution]) -> tuple[At, ...]:
    """Return problems of these radii, each with its model."""
    problems = [problem.replace(radius=radius) for radius in radii]
    return tuple(At(at, anchor_at(at, model)) for at, model in zip(problems, found, strict=True))
