"""Robust linear regression."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dualcore.data.arrays import FloatArray
from dualcore.data.sources import is_source_like, open_source
from dualcore.estimators.base import WassersteinLinearModel, check_number
from dualcore.problem.geometry import Norm
from dualcore.problem.losses import EpsilonInsensitive, Huber, Loss, Pinball, Power, Squared
from dualcore.problem.worstcase import WorstCase, worst_case_distribution
from dualcore.reading.assess import assess

__all__ = [
    "WassersteinHuberRegressor",
    "WassersteinLinearRegression",
    "WassersteinLinearSVR",
    "WassersteinQuantileRegressor",
]


class WassersteinRegressor(RegressorMixin, WassersteinLinearModel):
    """Everything the regressors share but their loss."""

    coef_: FloatArray
    intercept_: float

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train the regressor.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features), or a source
            Whatever `open_source` takes: a source, the path of a Parquet file or folder, a Dask collection, a function
            that returns parts. It is read in chunks, a few times, and never all loaded, with or without a coreset.
        y : array of shape (n_samples,)
            With a source what `open_source` takes for it: None where the source has targets, the name of a column.
        sample_weight : array of shape (n_samples,), optional
            Masses of the rows; only their ratios matter. With a source as ``y``.

        Returns
        -------
        self
        """
        problem = self._make_problem()
        if is_source_like(X):
            X = open_source(X, y, sample_weight)
            self._note_features(X)
            y = sample_weight = None
        else:
            X, y = self._read_pair(X, y, reset=True, y_numeric=True)
        solution, certificate, coreset = self._train(problem, X, y, sample_weight)
        self.problem_, self.solution_, self.certificate_, self.coreset_ = problem, solution, certificate, coreset
        self.coef_, self.intercept_ = solution.coef, solution.intercept
        self.dual_variable_, self.n_iter_ = solution.dual_variable, solution.iterations
        self.worst_case_risk_ = certificate.upper
        return self

    def predict(self, X: Any) -> FloatArray:
        """Return ``X coef + intercept``, shape (n_samples,)."""
        return self._read_rows(X).dot(self.coef_) + self.intercept_

    def worst_case_risk(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the training objective of this model on other data: worst-case risk, ridge included.

        The data are arrays, or a source, which is read once.
        """
        check_is_fitted(self)
        if is_source_like(X):
            source = open_source(X, y, sample_weight)
            self._match_features(source)
            return assess(self.problem_, SimpleNamespace(coef=self.coef_, intercept=self.intercept_), source).upper
        X, y = self._read_pair(X, y, reset=False, y_numeric=True)
        return self.problem_.risk(self.coef_, self.intercept_, X, y, sample_weight)

    def worst_case_distribution(self, X: Any, y: Any, sample_weight: Any = None) -> WorstCase:
        """Return the distribution within the radius around these data that is worst for this model (order 1)."""
        check_is_fitted(self)
        X, y = self._read_pair(X, y, reset=False, y_numeric=True)
        return worst_case_distribution(self.problem_, self.coef_, self.intercept_, X, y, sample_weight)


class WassersteinHuberRegressor(WassersteinRegressor):
    r"""Huber regression against the worst distribution within a Wasserstein ball.

    .. math:: \min_{\theta, b} \; \sup_{W_1(Q, P_n) \le \sigma} E_Q L_\delta(\theta \cdot x + b - y)
              + \tfrac{\rho}{2} \|\theta\|_2^2

    ``L_delta(r)`` is ``r^2 / 2`` up to ``delta``, ``delta (|r| - delta / 2)`` beyond. Where targets cannot move
    (``label_cost=inf``) this is the mean loss plus ``radius * delta * ||theta||_*``.

    Parameters
    ----------
    delta : float, default=1.35
        Residual, in the units of the target, where the loss turns from quadratic to linear.
    radius : float, default=0.1
        ``sigma >= 0``, in the units of the features; 0 is plain empirical risk.
    norm : {"l1", "l2", "linf"} or Norm, default="l2"
        Feature norm of the transport cost; its dual norm bounds the coefficients ("linf" makes them sparse).
    feature_weights : array-like of shape (n_features,), optional
        Price of moving each feature by one unit; ``inf`` makes a feature immovable (a category, for example).
    label_cost : float, default=inf
        Twice the price of moving a target by one; ``inf`` leaves targets where they are.
    support : (low, high) or None, default=None
        Walls that the adversary cannot pass: numbers or one per feature, ``inf`` for none. Rows must lie inside.
    ridge : float, default=0.0
        Adds ``ridge / 2 * ||coef||_2^2``; the intercept is never penalised.
    fit_intercept : bool, default=True
    coreset : None, float, int, sampler or "auto", default=None
        None trains on the whole data; a share in (0, 1], a number of rows or a sampler trains on a coreset. "auto"
        takes what is quicker by measurement, and says in ``solution_.solver`` what it took.
    solver : {"auto", "structured", "descent", "conic", "box", "power"}, default="auto"
    tol : float, default=1e-6
        Relative gap between the risk and its lower bound at which the solver stops.
    max_iter : int, default=200
        Iterations of the solver.
    random_state : int, RandomState or None, default=None
        Seeds the draw of a coreset.
    verbose : int, default=0
        1 prints the rounds and the outcome, 2 the iterations of the solver too.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    worst_case_risk_ : float
        Objective on the full data at the solution, ridge included.
    certificate_ : Certificate
        What is known on the full data: ``.upper``, ``.lower``, ``.gap``, ``.relative_gap``, ``.n_reads``.
    dual_variable_ : float
        The multiplier lambda.
    coreset_ : Coreset or None
        What the model was trained on; None for the whole data.
    solution_ : Solution
        How the solve went: status sentence, history. The per-row dual point is left out to keep models small.
    n_iter_ : int
    problem_ : Problem
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only where X is a frame with string column names.

    Examples
    --------
    >>> X, y = np.arange(6.0)[:, None], np.array([1.0, 3.0, 5.0, 7.0, 9.0, 90.0])
    >>> model = WassersteinHuberRegressor(delta=0.5, radius=0.01).fit(X, y)
    >>> model.predict([[10.0]]).round(1)
    array([22.3])
    """

    def __init__(
        self,
        *,
        delta: float = 1.35,
        radius: float = 0.1,
        norm: str | Norm = "l2",
        feature_weights: npt.ArrayLike | None = None,
        label_cost: float = np.inf,
        support: Any = None,
        ridge: float = 0.0,
        fit_intercept: bool = True,
        coreset: Any = None,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 200,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            radius=radius,
            norm=norm,
            feature_weights=feature_weights,
            label_cost=label_cost,
            support=support,
            ridge=ridge,
            fit_intercept=fit_intercept,
            coreset=coreset,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
            verbose=verbose,
        )
        self.delta = delta

    def _loss(self) -> Loss:
        return Huber(check_number("delta", self.delta))


class WassersteinQuantileRegressor(WassersteinRegressor):
    r"""Quantile regression against the worst distribution within a Wasserstein ball.

    .. math:: \min_{\theta, b} \sup_{W_1(Q, P_n) \le \sigma} E_Q \max(q e, (q - 1) e) + \tfrac{\rho}{2} \|\theta\|_2^2,
              \; e = y - \theta \cdot x - b

    Where targets cannot move (``label_cost=inf``) this is the mean pinball loss plus
    ``radius * max(q, 1 - q) * ||theta||_*``.

    Parameters
    ----------
    quantile : float, default=0.5
        ``q``, strictly between 0 and 1; 0.5 is the median.
    radius : float, default=0.1
        ``sigma >= 0``, in the units of the features; 0 is plain empirical risk.
    norm : {"l1", "l2", "linf"} or Norm, default="l2"
        Feature norm of the transport cost; its dual norm bounds the coefficients ("linf" makes them sparse).
    feature_weights : array-like of shape (n_features,), optional
        Price of moving each feature by one unit; ``inf`` makes a feature immovable (a category, for example).
    label_cost : float, default=inf
        Twice the price of moving a target by one; ``inf`` leaves targets where they are.
    support : (low, high) or None, default=None
        Walls that the adversary cannot pass: numbers or one per feature, ``inf`` for none. Rows must lie inside.
    ridge : float, default=0.0
        Adds ``ridge / 2 * ||coef||_2^2``; the intercept is never penalised.
    fit_intercept : bool, default=True
    coreset : None, float, int, sampler or "auto", default=None
        None trains on the whole data; a share in (0, 1], a number of rows or a sampler trains on a coreset. "auto"
        takes what is quicker by measurement, and says in ``solution_.solver`` what it took.
    solver : {"auto", "structured", "descent", "conic", "box", "power"}, default="auto"
    tol : float, default=1e-6
        Relative gap between the risk and its lower bound at which the solver stops.
    max_iter : int, default=200
        Iterations of the solver.
    random_state : int, RandomState or None, default=None
        Seeds the draw of a coreset.
    verbose : int, default=0
        1 prints the rounds and the outcome, 2 the iterations of the solver too.

    Attributes
    ----------
    coef_, intercept_, worst_case_risk_, certificate_, dual_variable_, coreset_, solution_, n_iter_, problem_, \
n_features_in_, feature_names_in_
        As in `WassersteinHuberRegressor`.

    Examples
    --------
    >>> X, y = np.zeros((5, 1)), np.array([1.0, 2.0, 3.0, 4.0, 50.0])
    >>> model = WassersteinQuantileRegressor(quantile=0.5).fit(X, y)
    >>> model.predict([[0.0]]).round(4)
    array([3.])
    """

    def __init__(
        self,
        *,
        quantile: float = 0.5,
        radius: float = 0.1,
        norm: str | Norm = "l2",
        feature_weights: npt.ArrayLike | None = None,
        label_cost: float = np.inf,
        support: Any = None,
        ridge: float = 0.0,
        fit_intercept: bool = True,
        coreset: Any = None,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 200,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            radius=radius,
            norm=norm,
            feature_weights=feature_weights,
            label_cost=label_cost,
            support=support,
            ridge=ridge,
            fit_intercept=fit_intercept,
            coreset=coreset,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
            verbose=verbose,
        )
        self.quantile = quantile

    def _loss(self) -> Loss:
        return Pinball(check_number("quantile", self.quantile))


class WassersteinLinearRegression(WassersteinRegressor):
    r"""Least squares, or another power, against the worst distribution within a Wasserstein ball of the same order.

    .. math:: \min_{\theta, b} \; \sup_{W_2(Q, P_n) \le \sigma} E_Q (\theta \cdot x + b - y)^2
              + \tfrac{\rho}{2} \|\theta\|_2^2 = \min_{\theta, b} \Bigl(\sqrt{\tfrac{1}{n} \textstyle\sum_i r_i^2}
              + \sigma \max(\|\theta\|_*, 2 / \gamma)\Bigr)^2 + \tfrac{\rho}{2} \|\theta\|_2^2

    The square-root lasso where ``norm="linf"``. With another ``power`` both squares become that power, the root the
    mean of that order, and the ball one of that order. ``worst_case_distribution`` is not available for orders above 1.

    Parameters
    ----------
    power : float, default=2.0
        Of the residual, above 1: nearer to 1 outliers count less, with large powers the largest residual counts alone.
    radius : float, default=0.1
        ``sigma >= 0``, in the units of the features; 0 is plain empirical risk.
    norm : {"l1", "l2", "linf"} or Norm, default="l2"
        Feature norm of the transport cost; its dual norm bounds the coefficients ("linf" makes them sparse).
    feature_weights : array-like of shape (n_features,), optional
        Price of moving each feature by one unit; ``inf`` makes a feature immovable (a category, for example).
    label_cost : float, default=inf
        Twice the price of moving a target by one; ``inf`` leaves targets where they are.
    support : None
        Orders above 1 know no support; other values are refused.
    ridge : float, default=0.0
        Adds ``ridge / 2 * ||coef||_2^2``; the intercept is never penalised.
    fit_intercept : bool, default=True
    coreset : None, float, int, sampler or "auto", default=None
        None trains on the whole data; a share in (0, 1], a number of rows or a sampler trains on a coreset. "auto"
        takes what is quicker by measurement, and says in ``solution_.solver`` what it took.
    solver : {"auto", "structured", "descent", "conic", "box", "power"}, default="auto"
    tol : float, default=1e-6
        Relative gap between the risk and its lower bound at which the solver stops.
    max_iter : int, default=200
        Iterations of the solver.
    random_state : int, RandomState or None, default=None
        Seeds the draw of a coreset.
    verbose : int, default=0
        1 prints the rounds and the outcome, 2 the iterations of the solver too.

    Attributes
    ----------
    coef_, intercept_, worst_case_risk_, certificate_, dual_variable_, coreset_, solution_, n_iter_, problem_, \
n_features_in_, feature_names_in_
        As in `WassersteinHuberRegressor`.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([1.0, 2.0, 2.0, 3.0])
    >>> model = WassersteinLinearRegression(radius=0.0).fit(X, y)
    >>> model.coef_.round(4), round(model.worst_case_risk_, 4)
    (array([0.6]), 0.05)
    """

    def __init__(
        self,
        *,
        power: float = 2.0,
        radius: float = 0.1,
        norm: str | Norm = "l2",
        feature_weights: npt.ArrayLike | None = None,
        label_cost: float = np.inf,
        support: Any = None,
        ridge: float = 0.0,
        fit_intercept: bool = True,
        coreset: Any = None,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 200,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            radius=radius,
            norm=norm,
            feature_weights=feature_weights,
            label_cost=label_cost,
            support=support,
            ridge=ridge,
            fit_intercept=fit_intercept,
            coreset=coreset,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
            verbose=verbose,
        )
        self.power = power

    def _loss(self) -> Loss:
        power = check_number("power", self.power)
        return Squared() if power == 2.0 else Power(power)


class WassersteinLinearSVR(WassersteinRegressor):
    r"""Support vector regression against the worst distribution within a Wasserstein ball.

    .. math:: \min_{\theta, b} \; \sup_{W_1(Q, P_n) \le \sigma} E_Q \max(0, |\theta \cdot x + b - y| - \varepsilon)
              + \tfrac{\rho}{2} \|\theta\|_2^2

    Where targets cannot move (``label_cost=inf``) this is the mean loss plus ``radius * ||theta||_*``. With
    ``radius=0`` and ``ridge = 1 / (C n)`` it is the usual support vector regression.

    Parameters
    ----------
    epsilon : float, default=0.1
        Half-width, in the units of the target, of the tube in which errors cost nothing.
    radius : float, default=0.1
        ``sigma >= 0``, in the units of the features; 0 is plain empirical risk.
    norm : {"l1", "l2", "linf"} or Norm, default="l2"
        Feature norm of the transport cost; its dual norm bounds the coefficients ("linf" makes them sparse).
    feature_weights : array-like of shape (n_features,), optional
        Price of moving each feature by one unit; ``inf`` makes a feature immovable (a category, for example).
    label_cost : float, default=inf
        Twice the price of moving a target by one; ``inf`` leaves targets where they are.
    support : (low, high) or None, default=None
        Walls that the adversary cannot pass: numbers or one per feature, ``inf`` for none. Rows must lie inside.
    ridge : float, default=0.0
        Adds ``ridge / 2 * ||coef||_2^2``; the intercept is never penalised.
    fit_intercept : bool, default=True
    coreset : None, float, int, sampler or "auto", default=None
        None trains on the whole data; a share in (0, 1], a number of rows or a sampler trains on a coreset. "auto"
        takes what is quicker by measurement, and says in ``solution_.solver`` what it took.
    solver : {"auto", "structured", "descent", "conic", "box", "power"}, default="auto"
    tol : float, default=1e-6
        Relative gap between the risk and its lower bound at which the solver stops.
    max_iter : int, default=200
        Iterations of the solver.
    random_state : int, RandomState or None, default=None
        Seeds the draw of a coreset.
    verbose : int, default=0
        1 prints the rounds and the outcome, 2 the iterations of the solver too.

    Attributes
    ----------
    coef_, intercept_, worst_case_risk_, certificate_, dual_variable_, coreset_, solution_, n_iter_, problem_, \
n_features_in_, feature_names_in_
        As in `WassersteinHuberRegressor`.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0.0, 2.0, 4.0, 6.0])
    >>> model = WassersteinLinearSVR(epsilon=0.0, radius=0.01).fit(X, y)
    >>> model.coef_.round(4)
    array([2.])
    """

    def __init__(
        self,
        *,
        epsilon: float = 0.1,
        radius: float = 0.1,
        norm: str | Norm = "l2",
        feature_weights: npt.ArrayLike | None = None,
        label_cost: float = np.inf,
        support: Any = None,
        ridge: float = 0.0,
        fit_intercept: bool = True,
        coreset: Any = None,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 200,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            radius=radius,
            norm=norm,
            feature_weights=feature_weights,
            label_cost=label_cost,
            support=support,
            ridge=ridge,
            fit_intercept=fit_intercept,
            coreset=coreset,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
            verbose=verbose,
        )
        self.epsilon = epsilon

    def _loss(self) -> Loss:
        return EpsilonInsensitive(check_number("epsilon", self.epsilon))
