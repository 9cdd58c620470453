"""Choice of the radius: by cross-validated loss, or by a rule that needs no fits at other radii.

In cross-validation over reads rows are assigned to folds by their keys, and every read serves all folds. One sample of
all rows is split into folds. One read computes, for every fold, the matched sums at the models of a few radii; one more
scores the models of all folds. The sample without a fold is corrected to the sums of all rows without that fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import KFold, StratifiedKFold, check_cv

from dualcore.coresets.fit import as_sampler, fit_coreset
from dualcore.coresets.matched import Matched, read_sums
from dualcore.coresets.path import path_models
from dualcore.coresets.radii import as_data, check_radii, constant_signal, evenly, open_targets, radius_grid, slopes
from dualcore.coresets.sample import WorkingSample, corrected, stack
from dualcore.coresets.samplers import DualCoreset, Sampler
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys, seed_from
from dualcore.data.rows import as_rows
from dualcore.data.sources import Source, is_source_like
from dualcore.data.sources.transform import Folds, TransformedSource
from dualcore.problem import Data, Problem
from dualcore.solvers import Solution, solve
from dualcore.solvers.choose import fold_tolerance

Indices = npt.NDArray[np.int64]
Scorer = Callable[[Problem, FloatArray, Any, Data], float]
# With more features the covariance matrix of the gradient is not computed; multipliers are drawn for every row.
_COVARIANCE_FEATURES = 2000
# Limit on these multipliers (256 MB). Few draws suffice, as norms of many features vary little between draws.
_MULTIPLIERS = 32_000_000


@dataclass(frozen=True)
class RadiusSelection:
    """The scores of every radius in cross-validation, and the chosen radius."""

    radius: float  # the chosen one
    radii: FloatArray  # ascending, shape (n_radii,)
    scores: FloatArray  # held-out scores, smaller is better, shape (n_radii, n_folds)
    rule: str  # how the choice was made

    @classmethod
    def by_rule(cls, radii: FloatArray, scores: FloatArray, rule: str, *, ends_idle: bool = False) -> RadiusSelection:
        """Return the selection by a rule; see `select_radius`.

        With ``ends_idle`` the model of the last radius is a constant. Then "one_standard_error" chooses only among
        radii whose improvement over the constant is at least a thousandth of that of the best radius.

        Examples
        --------
        >>> scores = np.array([[1.0, 2.0], [0.9, 1.9], [1.0, 2.0]])
        >>> [RadiusSelection.by_rule(np.arange(3.0), scores, rule).radius for rule in ("best", "one_standard_error")]
        [1.0, 2.0]
        """
        check_rule(rule)
        selection = cls(float("nan"), radii, scores, rule)
        mean = selection.mean
        best = int(mean.argmin())
        if rule == "one_standard_error":
            most = mean[best] + selection.standard_error[best]
            if ends_idle:
                most = min(most, mean[-1] - 1e-3 * (mean[-1] - mean[best]))
            best = int(np.flatnonzero(mean <= most)[-1])
        return cls(float(radii[best]), radii, scores, rule)

    @property
    def mean(self) -> FloatArray:
        """Mean score over the folds, shape (n_radii,)."""
        return np.asarray(self.scores.mean(axis=1), dtype=np.float64)

    @property
    def standard_error(self) -> FloatArray:
        """Standard error of that mean, shape (n_radii,)."""
        return np.asarray(self.scores.std(axis=1, ddof=1) / np.sqrt(self.scores.shape[1]), dtype=np.float64)


def check_rule(rule: str) -> None:
    """Raise ValueError where there is no such rule."""
    if rule not in ("best", "one_standard_error"):
        raise ValueError(f"Unknown rule {rule!r}. Use 'best' or 'one_standard_error'.")


def select_radius(
    problem: Problem,
    X: Any,
    y: Any,
    radii: npt.ArrayLike,
    cv: int | Iterable[tuple[Indices, Indices]] = 5,
    coreset: float | int | Sampler | None = None,
    scoring: str | Scorer = "loss",
    sample_weight: Any = None,
    *,
    rule: str = "best",
    random_state: Any = None,
    **settings: Any,
) -> RadiusSelection:
    """Choose a radius by cross-validation: a path on each training part, scored on the rows left out.

    Parameters
    ----------
    problem : Problem
        Its own radius is not used.
    X, y, sample_weight
        The full data, as `radius_path` takes them: arrays, frames, paths, sources.
    radii : array-like of shape (n_radii,)
    cv : int or iterable of (train, test) row numbers, default=5
        A number of shuffled folds, stratified in classification. For a source it must be a number: its rows are
        assigned to folds by their keys, independent of chunks, and one read scores the models of all folds.
    coreset : None, float, int or sampler, default=None
        As in `radius_path`, for each training part.
    scoring : {"loss", "error"} or callable, default="loss"
        "loss" is the mean loss of the held-out rows, without radius or ridge; "error" the share of wrong labels,
        or the mean absolute error in regression. A callable ``(problem, coef, intercept, data)`` returns a
        number; smaller is better. It needs rows in memory.
    rule : {"best", "one_standard_error"}, default="best"
        The radius of the smallest mean score, or the largest radius within one standard error of it, which is more
        robust. The second rule does not choose a radius at which the model is a constant.
    random_state : int, Generator or None
    **settings
        Passed to `path_models`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 5))
    >>> y = np.where(X[:, 0] + rng.normal(size=200) > 0, 1.0, -1.0)
    >>> chosen = select_radius(Problem("logistic"), X, y, [0.01, 0.1, 10.0], cv=4, random_state=0)
    >>> chosen.scores.shape, chosen.radius < 10.0
    ((3, 4), True)
    """
    order = check_radii(radii)
    measures = {"loss": "losses", "error": "errors"}  # names of methods of a family
    if not callable(scoring) and scoring not in measures:
        raise ValueError(f"Unknown scoring {scoring!r}. Use one of {sorted(measures)}, or a callable.")
    check_rule(rule)
    is_number = isinstance(cv, (int, np.integer)) and not isinstance(cv, bool)
    if is_number and cv < 2:  # type: ignore[operator]
        raise ValueError(f"cv must be at least 2 folds, got {cv!r}.")
    if is_source_like(X, y):
        if callable(scoring) or not is_number:
            raise TypeError(
                "Over a source cv is a number of folds and scoring 'loss' or 'error'. Other splits and scores need "
                "rows in memory: give those of a uniform sample."
            )
        source, folds = open_targets(problem, X, y, sample_weight), Folds(int(cv), seed_from(random_state, 3))  # type: ignore[arg-type]
        trained = _train_folds(problem, source, order, folds, coreset, random_state, settings)
        sums = read_sums(source, _HeldOut(problem, measures[scoring], trained), folds)
        if not (sums[:, 0] > 0.0).all():
            raise ValueError("A fold holds only rows of zero weight; use fewer folds or drop such rows.")
        scores = np.asarray((sums[:, 1:] / sums[:, :1]).T)
        given: tuple[Any, ...] = (source,)
    else:
        data = problem.validate(X, y, sample_weight)
        given = data.rows, data.y, data.weights
        splitter = check_cv(cv)
        if is_number:
            kind = StratifiedKFold if problem.is_classification else KFold
            splitter = kind(cv, shuffle=True, random_state=seed_from(random_state) % 2**32)
        score, columns = scoring if callable(scoring) else partial(held_out_mean, measure=measures[scoring]), []
        for train, test in splitter.split(np.zeros((data.rows.n, 1)), data.y):
            part, held = (_rows_of(data, rows) for rows in (train, test))
            models = path_models(problem, *part, order, coreset, random_state=random_state, **settings)
            columns.append([score(problem, model.coef, model.intercept, held) for model in models])
        if len(columns) < 2:
            raise ValueError(f"Cross-validation needs at least two folds, got {len(columns)}.")
        scores = np.array(columns).T
    ends_idle = rule != "best" and learns_nothing(problem, order[-1], *given)
    return RadiusSelection.by_rule(np.array(order), scores, rule, ends_idle=ends_idle)


def learns_nothing(problem: Problem, radius: float, X: Any, y: Any = None, sample_weight: Any = None) -> bool:
    """Return whether a radius is at least the largest of `radius_grid`; False for softmax problems."""
    if problem.family.n_outputs > 1:
        return False
    return bool(radius >= (1.0 - 1e-9) * radius_grid(problem, X, y, 2, sample_weight)[-1])


def _rows_of(data: Data, rows: Indices) -> Data:
    """Return some of the rows, with weights that sum to one."""
    weights = None if data.weights is None else data.weights[rows]
    if weights is not None:
        if not float(weights.sum()) > 0.0:
            raise ValueError("A fold holds only rows of zero weight; use fewer folds or drop such rows.")
        weights = weights / float(weights.sum())
    return Data(as_rows(data.rows.take(rows)), data.y[rows], weights)


def held_out_mean(problem: Problem, coef: FloatArray, intercept: Any, data: Data, measure: str = "losses") -> float:
    """Return the mean loss of a model, without radius or ridge, or its mean "errors"."""
    return float(data.masses @ getattr(problem.family, measure)(data.rows, data.y, coef, intercept))


def _train_folds(
    problem: Problem, source: Source, radii: list[float], folds: Folds, coreset: Any, random_state: Any, settings: Any
) -> list[list[Solution]]:
    """Return the models of every radius for each fold left out; the fold of a row depends only on its key.

    With a coreset it takes one read for a sample of all rows, and one for the sums of all folds.
    """
    sampler = None if coreset is None else as_sampler(coreset, random_state)
    if isinstance(sampler, DualCoreset):
        sample = WorkingSample.of(problem, source, seed_from(sampler.random_state), settings)
    if not isinstance(sampler, DualCoreset) or sample.is_thin:
        parts = [TransformedSource(source, folds=folds, left_out=fold) for fold in range(folds.count)]
        known: dict[str, Any] = {"random_state": random_state, **settings}
        return [path_models(problem, part, None, None, radii, coreset, **known) for part in parts]
    rows, some = sample.rows, [radii[k] for k in evenly(radii)]
    if not sample.is_whole:
        matched = Matched(stack(problem, some, sample.train(some)), sample.centre)
        sums = read_sums(source, matched.sums, folds)
    own, found = (row_keys(folds.seed, rows.rows) * folds.count).astype(np.intp), []
    for fold in range(folds.count):
        kept = np.flatnonzero(own != fold)
        part = rows.pick(kept, rows.weights[kept] / rows.weights[kept].sum())
        if not sample.is_whole:
            left = sums.sum(axis=0) - sums[fold]
            part = corrected(problem, part, matched.values(part.X, part.y), left[1:] / left[0])
        found.append(sample.train(radii, part))
    return found


@dataclass(frozen=True)
class _HeldOut:
    """Sums of a measure over the rows of every fold at its models, one for each radius; shape (n_folds, n_radii)."""

    problem: Problem
    measure: str  # a method of the family: one number a row
    models: list[list[Solution]]  # of every fold, one for each radius

    def __call__(self, X: Any, y: FloatArray, masses: FloatArray) -> FloatArray:
        measure = getattr(self.problem.family, self.measure)
        found = np.zeros((len(masses), len(self.models[0])))
        for fold, models in enumerate(self.models):
            held = np.flatnonzero(masses[fold])
            if held.size:  # a small block may have no row of a fold
                rows, own = as_rows(X[held]), masses[fold, held]
                found[fold] = [own @ measure(rows, y[held], model.coef, model.intercept) for model in models]
        return found


def suggest_radius(
    problem: Problem,
    X: Any,
    y: Any,
    confidence: float = 0.95,
    sample_weight: Any = None,
    *,
    coreset: float | int | Sampler | None = None,
    draws: int = 2000,
    random_state: Any = None,
) -> float:
    r"""Return the smallest radius that covers the noise of the sample, with a given confidence.

    .. math:: \sigma = \frac{1}{\mathrm{Lip}} \; Q_{1 - \alpha}\Bigl( \Bigl\| \sum_i w_i e_i s_i (x_i - \bar x) \Bigr\|
              \Bigr), \qquad e_i \sim N(0, 1)

    with ``s_i`` the slope of the loss at row i, ``||.||`` the feature norm and ``x-bar`` the mean of the features
    in the metric of the curvature (it profiles the intercept out).

    Why this rule: without flips the training objective is the mean loss plus ``sigma Lip ||theta||_*``, and its
    optimality condition asks for ``||gradient of the mean loss|| <= sigma Lip`` in the feature norm. At the best
    model of the whole population the mean gradient is pure noise; a radius above its ``confidence`` quantile makes
    that model satisfy the condition: the Wasserstein ball then contains a distribution for which it is optimal. The
    quantile is computed by a Gaussian multiplier bootstrap, so it depends on the scale of the features, their
    correlation, the norm and the noise; it shrinks like ``1 / sqrt(n)``. For the squared losses of order 2 the same
    argument for the root of the objective divides the slopes by their root mean square: the rule does not depend
    on the noise level. Labels and targets are not moved in this rule, at any label cost: moving them guards against
    wrong labels, not against sampling.

    The slopes are those of a model fitted at the radius that the rule suggests with the slopes of the constant model,
    which are the largest possible. So the rule also works for separable data, where the fit at radius 0 does not exist.

    Parameters
    ----------
    problem : Problem
        Its own radius is not used.
    X, y, sample_weight
        The data.
    confidence : float, default=0.95
    coreset : None, float, int or sampler, default=None
        As in `radius_path`, for training that model.
    draws : int, default=2000
        Draws of the bootstrap. With more than 2,000 features at most 256, and fewer with many rows.
    random_state : int, Generator or None

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 5))
    >>> y = np.where(X[:, 0] + rng.normal(size=4000) > 0, 1.0, -1.0)
    >>> few, many = (suggest_radius(Problem("logistic"), X[:n], y[:n], random_state=0) for n in (1000, 4000))
    >>> 1.5 < few / many < 2.7
    True
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}.")
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws!r}.")
    if is_source_like(X, y):
        X, y, sample_weight = open_targets(problem, X, y, sample_weight), None, None
    data = as_data(problem, X, y, sample_weight)
    rng = np.random.default_rng(seed_from(random_state))
    radius = _noise_quantile(problem, data, constant_signal(problem, data), confidence, draws, rng)
    if radius == 0.0:
        return 0.0
    at = problem.replace(radius=radius, label_cost=np.inf)
    if coreset is None:
        model = solve(at, X, y, sample_weight, tol=fold_tolerance(at, data, "auto", 1e-6))
    else:
        model = fit_coreset(at, X, y, coreset, sample_weight, random_state=random_state).solution
    t = problem.signal(model.coef, model.intercept, data)
    return _noise_quantile(problem, data, t, confidence, draws, rng)


def _noise_quantile(
    problem: Problem, data: Data, t: FloatArray, confidence: float, draws: int, rng: np.random.Generator
) -> float:
    """Return the quantile of ``||sum_i w_i e_i s_i (x_i - x-bar)|| / Lip`` over Gaussian multipliers."""
    loss, masses = problem.loss, data.masses
    slope, bar = slopes(problem, data, t)
    if bar == 0.0:
        return 0.0
    centre = np.zeros(data.rows.m)
    if problem.fit_intercept:
        spread = float(np.sqrt(masses @ (t - float(masses @ t)) ** 2))
        width = max(spread, 1e-8) * data.rows.n**-0.2
        curvature = masses * np.maximum(loss.slope(t + width) - loss.slope(t - width), 0.0)
        if not curvature.sum() > 0.0:
            curvature = masses
        centre = data.rows.transpose_dot(curvature) / curvature.sum()
    weighted = masses * slope
    if data.rows.m <= _COVARIANCE_FEATURES:  # Gaussian multipliers: the sum is Gaussian with this covariance, exactly
        squares = weighted * weighted
        first = data.rows.transpose_dot(squares)
        covariance = data.rows.gram(squares) - np.outer(first, centre) - np.outer(centre, first)
        covariance += squares.sum() * np.outer(centre, centre)
        values, vectors = np.linalg.eigh(covariance)
        noise = rng.standard_normal((draws, values.size)) * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    else:
        count = min(draws, max(_MULTIPLIERS // data.rows.n, 32), 256)
        multipliers = rng.standard_normal((data.rows.n, count)) * weighted[:, None]
        noise = (data.rows.transpose_dot(multipliers) - np.outer(centre, multipliers.sum(axis=0))).T
    return float(np.quantile([problem.geometry.norm.value(row) for row in noise], confidence)) / bar
