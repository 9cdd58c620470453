"""scikit-learn estimators: validate, build the problem, train on the whole data or through a coreset, store."""

from __future__ import annotations

from dualcore.estimators.classifiers import WassersteinLinearSVC, WassersteinLogisticRegression
from dualcore.estimators.onehot import find_categories
from dualcore.estimators.regressors import (
    WassersteinHuberRegressor,
    WassersteinLinearRegression,
    WassersteinLinearSVR,
    WassersteinQuantileRegressor,
)
from dualcore.estimators.selection import (
    WassersteinHuberRegressorCV,
    WassersteinLinearSVCCV,
    WassersteinLogisticRegressionCV,
)

__all__ = [
    "WassersteinHuberRegressor",
    "WassersteinHuberRegressorCV",
    "WassersteinLinearRegression",
    "WassersteinLinearSVC",
    "WassersteinLinearSVCCV",
    "WassersteinLinearSVR",
    "WassersteinLogisticRegression",
    "WassersteinLogisticRegressionCV",
    "WassersteinQuantileRegressor",
    "find_categories",
]
