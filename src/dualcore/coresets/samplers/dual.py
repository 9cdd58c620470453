"""`DualCoreset`: a few weighted rows whose optimum is the model trained on all rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dualcore.coresets.anchors import check_size, check_whole
from dualcore.coresets.coreset import Coreset
from dualcore.coresets.exact import Optima
from dualcore.coresets.radii import radius_list
from dualcore.coresets.sample import REFINED, WorkingSample
from dualcore.coresets.samplers.base import CoresetFit, Sampler
from dualcore.coresets.training import Callback, train
from dualcore.data.sources import Source
from dualcore.problem import Problem
from dualcore.solvers.pilot import Pilot


@dataclass
class DualCoreset(Sampler):
    r"""A coreset that reproduces the model: any solver trains the same model on its rows and weights.

    A mean of vectors in ``R^d`` is a convex combination of ``d + 1`` of them (Caratheodory). The vectors here are the
    terms of a row in the optimality conditions of the model: slope times moved row, slope, transport spent, ``h``. So a
    few rows have the model as their optimum, for any number of all rows: ``m + 4`` for two classes and ``m`` features,
    more if the loss has kinks. Classifiers that tell each of ``K`` classes from the rest stack the vectors of all
    classes: ``K (m + 3)`` rows reproduce all models. See "Exact coresets" in the documentation.

    `fit` trains first, on a working sample of at least a dozen rows per parameter, whose weights are corrected by
    reads of all rows until the certified relative gap is at most ``target_gap``. ``size`` is the size of the coreset
    returned, not of this sample. The coreset is checked: a model is trained on it alone, and its excess risk on all
    rows is measured by a read (``excess``). Unless it is at most 1e-8 (1e-6 for softmax, 1e-5 on a box or with
    categories), a uniform draw of the same size, with calibrated weights and with its own, is measured too, and the
    best is returned.

    Parameters
    ----------
    size : int, float or None, default=None
        Number of rows, or fraction of them. None is the smallest number that reproduces the model. More rows reproduce
        models at other radii too, and then the objective around the model. From ten times the smallest number on, rows
        are drawn at random and their weights corrected so that they reproduce the model. With fewer rows than the
        smallest number the best draw is returned, and ``details["message"]`` states how many rows are needed.
    radii : sequence of float, int or None, default=None
        Radii whose models the coreset reproduces, in addition to that of the problem; or their number, on a grid up to
        the largest radius at which the model is not constant.
    rounds : int, default=4
        Limit on the corrections of the working sample, each followed by training.
    target_gap : float, default=1e-3
        Certified relative gap at which training stops.
    random_state : int, Generator or None
        The same seed yields the same coreset for any chunks of the data.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 3))
    >>> y = np.where(X[:, 0] + rng.normal(size=2000) > 0, 1.0, -1.0)
    >>> fit = DualCoreset(random_state=0).fit(Problem("logistic", radius=0.1), X, y)
    >>> len(fit.coreset) <= 12, abs(fit.coreset.excess) < 1e-6
    (True, True)
    """

    name = "DualCoreset"
    size: float | int | None = None
    radii: Any = None
    rounds: int = 4
    target_gap: float = 1e-3
    random_state: Any = None

    def draw(self, problem: Problem, source: Source, size: int, seed: int) -> Coreset:
        """Return a coreset of the model that `fit` trains."""
        return self.train(problem, source, seed, lambda _: None).built(source).coreset

    def train(self, problem: Problem, source: Source, seed: int, callback: Callback, **settings: Any) -> CoresetFit:
        """Train on a working sample and reads of all rows; the fit has `Optima` in the place of its coreset."""
        check_whole("rounds", self.rounds, 1)
        if not self.target_gap > 0.0:
            raise ValueError(f"target_gap must be positive, got {self.target_gap!r}.")
        size = None if self.size is None else super()._size(source)
        check_size(problem, self._size(source))
        settings |= {"rounds": self.rounds, "target_gap": self.target_gap}
        trained = train(problem, source, seed=seed, callback=callback, **settings)
        rows, others = self._others(problem, source, trained.rows)
        optima: Any = Optima([(problem, trained.on_rows), *others], rows, seed, size)
        return CoresetFit(replace(trained.solution, dual=None), trained.certificate, optima, trained.history)

    def _others(self, problem: Problem, source: Source, rows: Pilot) -> tuple[Pilot, list[Any]]:
        """Return the rows corrected to the sums at the models of all radii, and problems and models of other radii.

        It takes at most ``rounds`` reads.
        """
        if self.radii is None:
            return rows, []
        radii = sorted({*radius_list(problem, rows, self.radii), problem.radius})
        # Where rows move a smaller gap takes several times as long, and the coreset is no more exact.
        settings = {"tol": 1e-7 if problem.family.moves_rows else REFINED}
        sample = WorkingSample(problem, source, rows, settings, is_whole=len(rows.y) == source.n_rows)
        found = zip(radii, sample.train_corrected(radii, self.rounds), strict=True)
        others = [(problem.replace(radius=radius), model) for radius, model in found if radius != problem.radius]
        return sample.working, others

    def _size(self, source: Source) -> int:
        return source.n_rows if self.size is None else super()._size(source)
