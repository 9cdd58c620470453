"""Robust linear regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Self

from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.metaestimators import available_if

from dualcore.data.arrays import FloatArray
from dualcore.estimators.base import Training, WassersteinLinearModel
from dualcore.estimators.parameters import estimator, in_one_step
from dualcore.estimators.reader import Opened, Task
from dualcore.estimators.remarks import remark_delta
from dualcore.estimators.streaming import add_part, learns_in_parts
from dualcore.problem import Problem
from dualcore.problem.losses import EpsilonInsensitive, Huber, Loss, Pinball, Power, Squared

# For residuals of deviation one. If they are normal the model has 95 % of the efficiency of least squares.
_DELTA = 1.35


@estimator
class WassersteinRegressor(RegressorMixin, WassersteinLinearModel):
    """Everything the regressors share but their loss."""

    coef_: FloatArray = field(init=False)
    intercept_: float = field(init=False)

    def _tasks(self, data: Opened, *, joint: bool = False) -> list[Task]:
        return [Task(data.X, data.y, data.weights)]

    @available_if(learns_in_parts)  # type: ignore[untyped-decorator]
    @in_one_step
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Take in a part of the rows, and train on a coreset of all parts so far.

        A `CoresetStream` keeps some rows and sums over all; ``coreset`` says how many rows train the model, 5,000 if
        it is None. The first call after `fit`, or of a new estimator, begins anew. ``worst_case_risk_`` is that on the
        coreset and ``certificate_`` is None, as earlier rows are not kept. If the distribution of the rows drifts, a
        `DriftWarning` says so.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        sample_weight : array of shape (n_samples,), optional
            Either all parts have weights or none.

        Returns
        -------
        self
        """
        add_part(self, X, y, sample_weight)
        return self

    def predict(self, X: Any) -> FloatArray:
        """Return ``X coef + intercept``, shape (n_samples,).

        ``X`` is arrays or whatever `open_source` takes; a source, a path or a Dask collection is read once, in chunks.
        Of a file with names the columns that the model knows are taken.
        """
        return self._scores(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the coefficient of determination; the data are what `fit` takes, a source is read once in chunks."""
        scores, targets, weights = self._scored(X, y, sample_weight)
        return float(r2_score(targets, scores, sample_weight=weights))


@estimator
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

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.arange(6.0)[:, None], np.array([1.0, 3.0, 5.0, 7.0, 9.0, 90.0])
    >>> model = WassersteinHuberRegressor(delta=0.5, radius=0.01).fit(X, y)
    >>> model.predict([[10.0]]).round(1)
    array([22.3])
    """

    delta: float = _DELTA

    def _loss(self) -> Loss:
        return Huber(self.delta)

    def _remark(self, problem: Problem, found: Sequence[Training], tasks: Sequence[Task]) -> None:
        super()._remark(problem, found, tasks)
        if self.delta == _DELTA:  # the default
            remark_delta(self._title, self.delta, found[0].solution, *found[0].rows_of(tasks[0]))


@estimator
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

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.zeros((5, 1)), np.array([1.0, 2.0, 3.0, 4.0, 50.0])
    >>> model = WassersteinQuantileRegressor(quantile=0.5).fit(X, y)
    >>> model.predict([[0.0]]).round(4)
    array([3.])
    """

    quantile: float = 0.5

    def _loss(self) -> Loss:
        return Pinball(self.quantile)


@estimator
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
    support : None
        Not available for orders above 1: other values are refused.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([1.0, 2.0, 2.0, 3.0])
    >>> model = WassersteinLinearRegression(radius=0.0).fit(X, y)
    >>> model.coef_.round(4), round(model.worst_case_risk_, 4)
    (array([0.6]), 0.05)
    """

    power: float = 2.0

    def _loss(self) -> Loss:
        return Squared() if self.power == 2.0 else Power(self.power)


@estimator
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

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0.0, 2.0, 4.0, 6.0])
    >>> model = WassersteinLinearSVR(epsilon=0.0, radius=0.01).fit(X, y)
    >>> model.coef_.round(4)
    array([2.])
    """

    epsilon: float = 0.1

    def _loss(self) -> Loss:
        return EpsilonInsensitive(self.epsilon)
