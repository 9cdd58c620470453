"""Estimators that choose their own radius by cross-validation, a radius path on each training part."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel, delayed

from dualcore.coresets.fit import choose_rows, is_auto
from dualcore.coresets.path import path_models
from dualcore.coresets.radii import radius_grid
from dualcore.coresets.selection import RadiusSelection, check_rule, held_out_mean, learns_nothing, select_radius
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.data.rows import as_rows, as_weights
from dualcore.data.sources import Source
from dualcore.data.sources.transform import Folds
from dualcore.estimators.base import WassersteinLinearModel
from dualcore.estimators.classifiers import WassersteinLinearSVC, WassersteinLogisticRegression
from dualcore.estimators.parameters import estimator, in_one_step
from dualcore.estimators.reader import Opened
from dualcore.estimators.regressors import (
    WassersteinHuberRegressor,
    WassersteinLinearRegression,
    WassersteinLinearSVR,
    WassersteinQuantileRegressor,
)
from dualcore.estimators.remarks import frames_within
from dualcore.problem import Data, Problem
from dualcore.solvers.overreads import is_small


@estimator
class RadiusSearch(WassersteinLinearModel):
    """What the estimators with a radius of their own choice share; the class they search for is ``plain_class``.

    ``tol`` is that of the model trained on all rows. Where features are so many that "descent" solves, models of folds
    are trained to a relative gap of a thousandth.

    Parameters
    ----------
    radii : int or array-like of shape (n_radii,), default=10
        The radii to choose from. A number stands for that many, evenly spaced in logarithm from a thousandth of the
        radius at which nothing is learned up to that one (see `dualcore.coresets.radii.radius_grid`).
    cv : int, splitter or iterable of (train, test), default=None
        As everywhere in scikit-learn: None is 5 folds, stratified in classification.
    scoring : str, callable or None, default=None
        A scorer of scikit-learn, larger is better. None is the held-out mean loss, negated: without radius or ridge,
        with the weights of rows and classes, the mean over the classes against the rest where there are more than two.
    refit : bool, default=True
        Whether to train on all rows afterwards; without it only ``radius_``, ``radii_`` and ``scores_`` are there.
    rule : {"best", "one_standard_error"}, default="best"
        The radius of the best mean score, or the largest one within a standard error of it: the more robust model
        where the data cannot tell them apart. The second rule does not choose a radius at which nothing is learned.
    n_jobs : int or None, default=None
        Processes for the folds, and then for more than two classes; -1 for all cores.

    Attributes
    ----------
    radius_ : float
        The chosen radius.
    radii_ : ndarray of shape (n_radii,)
        Ascending.
    scores_ : ndarray of shape (n_radii, n_folds)
        Held-out scores, larger is better.
    """

    plain_class: ClassVar[type[WassersteinLinearModel]]

    radius: float = field(init=False)  # chosen, no parameter
    warm_start: bool = field(init=False)  # every radius of a path starts from the last
    radii: int | npt.ArrayLike = 10
    cv: int | Iterable[Any] | None = None
    scoring: str | Callable[..., float] | None = None
    refit: bool = True
    rule: str = "best"
    n_jobs: int | None = None

    @in_one_step
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Choose a radius by cross-validation, then train on all rows with it.

        Parameters
        ----------
        X, y, sample_weight
            As in the estimators without CV; weights count in training and in scoring. The same rows are in the same
            folds wherever they are: up to two million numbers by the rules of scikit-learn, more by a hash of the row's
            number, if ``cv`` is a number of folds. Then a source is never all in memory, and ``scoring`` is None.
        groups : array of shape (n_samples,), optional
            Rows of one group stay together, where ``cv`` is a splitter for groups; for rows in memory.

        Returns
        -------
        self
        """
        check_rule(self.rule)
        plain = self._plain()
        problem = plain.make_problem()
        data = plain._open(X, y, sample_weight, learn=True).in_memory()
        apart = plain._with_columns(problem)
        problem, data = plain._pose(problem, data)
        if plain._units is not None:
            apart = plain._units.problem(apart)
        against = copy.copy(plain)
        against._problem = apart
        parts = [task[:3] for task in against._tasks(data)]
        self.radii_ = self._grid(apart, parts)
        score = self._score_source if isinstance(data.X, Source) else self._score_rows
        self.scores_ = score(plain, problem, data, groups)
        at_end = self.radii_.size > 1 and int(self.scores_.mean(axis=1).argmax()) == self.radii_.size - 1
        asked = at_end or self.rule != "best"
        ends_idle = asked and all(learns_nothing(apart, self.radii_[-1], *part) for part in parts)
        self.radius_ = RadiusSelection.by_rule(self.radii_, -self.scores_, self.rule, ends_idle=ends_idle).radius
        if at_end and not ends_idle:  # else the fit below says more
            text = f"cross-validation chose the largest of the radii, {self.radius_:g}: try larger ones."
            warnings.warn(f"{type(self).__name__}: {text}", UserWarning, stacklevel=frames_within())
        if self.refit:
            plain = self._plain().set_params(radius=self.radius_)
            plain._asked_by = type(self).__name__
            plain.fit(X, y, sample_weight)
            mine = {*self.get_params(deep=False), "radius", "warm_start", "_asked_by"}
            self.__dict__.update({name: value for name, value in vars(plain).items() if name not in mine})
        return self

    def make_problem(self) -> Problem:
        """Check every parameter and return the problem they state, at the chosen radius once there is one."""
        problem: Problem = self._plain().set_params(radius=getattr(self, "radius_", 0.0)).make_problem()
        return problem

    def _score_rows(self, plain: Any, problem: Problem, data: Opened, groups: Any) -> FloatArray:
        """Follow a path on each training part of rows in memory."""
        # Models of folds are trained in the units of all rows, where a radius means the same to all of them.
        scores = Parallel(n_jobs=self.n_jobs)(
            delayed(self._score_fold)(copy.copy(plain), data, train, test, plain._seed())
            for train, test in self._splits(data, groups, plain._seed())
        )
        if len(scores) < 2:
            raise ValueError(f"Cross-validation needs at least two folds, got {len(scores)}.")
        return np.array(scores).T

    def _splits(self, data: Opened, groups: Any, seed: Any) -> Iterable[tuple[Any, Any]]:
        """Return training and test rows of every fold; many rows are dealt as those of a source are."""
        if groups is not None or self._n_folds is None or is_small(data.X):
            return list(check_cv(self.cv, data.y, classifier=is_classifier(self)).split(data.X, data.y, groups))
        fold = Folds(self._n_folds, seed_from(seed or 0, 3)).of(0, data.X.shape[0])
        return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(self._n_folds)]

    @property
    def _n_folds(self) -> int | None:
        """The number of folds; None where ``cv`` is something else."""
        cv: Any = 5 if self.cv is None else self.cv
        return int(cv) if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool) else None

    def _score_source(self, plain: Any, problem: Problem, data: Opened, groups: Any) -> FloatArray:
        """Follow a path on each training part of a source; the mean over the classes where each has a problem."""
        if self.scoring is not None or groups is not None or self._n_folds is None:
            raise TypeError("Over a source cv is a number of folds, scoring is None; all else needs rows in memory.")
        settings = self._settings | {"random_state": plain._seed() or 0}
        known = (self.radii_, self._n_folds, self._size_for(problem, data.X.n_rows, data.X.n_features, in_memory=False))
        found = [select_radius(problem, task.X, None, *known, **settings) for task in plain._tasks(data)]
        return -np.asarray(np.mean([one.scores for one in found], axis=0), dtype=np.float64)

    def _plain(self) -> Any:
        """Return the estimator without a choice, with the parameters of this one."""
        mine, known = self.get_params(deep=False), self.plain_class().get_params(deep=False)
        return self.plain_class(**{name: mine[name] for name in known if name in mine})

    def _grid(self, problem: Problem, parts: list[tuple[Any, Any, Any]]) -> FloatArray:
        """Return the radii to try, ascending; ``parts`` are the rows, targets and masses of every problem."""
        if isinstance(self.radii, (int, np.integer)) and not isinstance(self.radii, (bool, np.bool_)):
            grids = [radius_grid(problem, X, y, int(self.radii), masses) for X, y, masses in parts]
            return max(grids, key=lambda grid: float(grid[-1]))
        radii = np.atleast_1d(np.asarray(self.radii, dtype=np.float64))
        if np.ndim(self.radii) != 1 or radii.size == 0:
            raise ValueError(f"radii must be a number of radii or a sequence of them, got {self.radii!r}.")
        return np.asarray(np.sort(radii))

    def _score_fold(self, plain: Any, data: Opened, train: Any, test: Any, seed: Any) -> list[float]:
        """Return the score of every radius on the rows ``test``, which are left out; larger is better."""
        rows = as_rows(data.X)
        part, left = (None, None) if data.weights is None else (data.weights[train], data.weights[test])
        models = self._along_path(plain, Opened(rows.take(train), data.y[train], part), self.radii_, seed)
        held = Opened(rows.take(test), data.y[test], as_weights(left, test.size))
        return [self._score(model, held) for model in models]

    def _along_path(self, plain: Any, data: Opened, radii: FloatArray, seed: Any) -> Iterator[Any]:
        """Yield a model for every radius, trained along a path; more classes have a path each."""
        rows, problem = as_rows(data.X), plain._problem
        missing = set(getattr(plain, "classes_", np.empty(0)).tolist()) - set(np.unique(data.y).tolist())
        if missing:
            raise ValueError(f"A training part holds no row of class {min(missing)!r}: use fewer folds.")
        plain._learn_targets(data)  # the weights of classes are those of the part
        known = (radii, self._size_for(problem, rows.n, rows.m, in_memory=True))
        paths = [
            path_models(problem, rows, task.y, task.weights, *known, random_state=seed, **self._settings)
            for task in plain._tasks(data)
        ]
        for solutions in zip(*paths, strict=True):
            model = copy.copy(plain)
            model.coef_, model.intercept_ = solutions[0].coef, solutions[0].intercept
            if problem.is_classification and problem.family.n_outputs == 1:
                model.coef_ = np.vstack([solution.coef for solution in solutions])
                model.intercept_ = np.array([solution.intercept for solution in solutions])
            # The rows are coded, and in its units, already.
            model._units, model._preparation, model.n_features_in_ = None, None, rows.m
            vars(model).pop("feature_names_in_", None)
            yield model

    def _size_for(self, problem: Problem, n: int, m: int, *, in_memory: bool) -> Any:
        """Return the coreset to train the models of a fold on; "auto" may choose all rows, None."""
        # Coresets of problems whose rows are moved one by one have no paths, nor do those of softmax problems.
        if in_memory and not (problem.family.is_closed and problem.family.n_outputs == 1):
            return None
        if not is_auto(self.coreset):
            return self.coreset
        return choose_rows(problem, n, m, in_memory=in_memory, tol=self.tol)[0]

    def _score(self, model: Any, held: Opened) -> float:
        """Return the score of a model on rows left out; larger is better."""
        if self.scoring is not None:
            extra = {} if held.weights is None else {"sample_weight": held.weights}
            return float(check_scoring(model, self.scoring)(model, held.X, held.y, **extra))
        models = [(model.coef_, model.intercept_)]
        if model._problem.family.n_outputs == 1:
            models = list(zip(np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_).tolist(), strict=True))
        tasks = [Data(as_rows(X), y, as_weights(weights, len(y))) for X, y, weights, _ in model._tasks(held)]
        losses = [held_out_mean(model._problem, *one, task) for one, task in zip(models, tasks, strict=True)]
        return -float(np.mean(losses))


@estimator
class WassersteinLogisticRegressionCV(RadiusSearch, WassersteinLogisticRegression):
    """`WassersteinLogisticRegression` with a radius chosen by cross-validation.

    On every training part a model is trained for each radius, starting from the one before, and with ``coreset`` on one
    sample whose weights are corrected by reads of all rows. The radius that is best on the rows left out is taken, and
    the model is trained on all rows with it.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = WassersteinLogisticRegressionCV(radii=[0.001, 0.01, 0.1], cv=3).fit(scale(X), y)
    >>> model.radius_, model.scores_.shape
    (0.01, (3, 3))
    """

    plain_class = WassersteinLogisticRegression


@estimator
class WassersteinLinearSVCCV(RadiusSearch, WassersteinLinearSVC):
    """`WassersteinLinearSVC` with a radius chosen by cross-validation.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = WassersteinLinearSVCCV(radii=[0.01, 0.1, 1.0], cv=3, scoring="accuracy").fit(X[:100], y[:100])
    >>> model.radius_, model.score(X[:100], y[:100])
    (0.01, 1.0)
    """

    plain_class = WassersteinLinearSVC


@estimator
class WassersteinHuberRegressorCV(RadiusSearch, WassersteinHuberRegressor):
    """`WassersteinHuberRegressor` with a radius chosen by cross-validation.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = WassersteinHuberRegressorCV(delta=50.0, radii=4, cv=3).fit(X, y)
    >>> model.radii_.size, bool(model.radius_ < model.radii_[-1])
    (4, True)
    """

    plain_class = WassersteinHuberRegressor


@estimator
class WassersteinQuantileRegressorCV(RadiusSearch, WassersteinQuantileRegressor):
    """`WassersteinQuantileRegressor` with a radius chosen by cross-validation.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> WassersteinQuantileRegressorCV(quantile=0.9, radii=3, cv=3).fit(X, y).scores_.shape
    (3, 3)
    """

    plain_class = WassersteinQuantileRegressor


@estimator
class WassersteinLinearRegressionCV(RadiusSearch, WassersteinLinearRegression):
    """`WassersteinLinearRegression` with a radius chosen by cross-validation.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> WassersteinLinearRegressionCV(radii=3, cv=3).fit(X, y).scores_.shape
    (3, 3)
    """

    plain_class = WassersteinLinearRegression


@estimator
class WassersteinLinearSVRCV(RadiusSearch, WassersteinLinearSVR):
    """`WassersteinLinearSVR` with a radius chosen by cross-validation.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> WassersteinLinearSVRCV(epsilon=10.0, radii=3, cv=3).fit(X, y).scores_.shape
    (3, 3)
    """

    plain_class = WassersteinLinearSVR
