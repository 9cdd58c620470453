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
from dualcore.estimators.saving import load
from dualcore.estimators.selection import (
    WassersteinHuberRegressorCV,
    WassersteinLinearRegressionCV,
    WassersteinLinearSVCCV,
    WassersteinLinearSVRCV,
    WassersteinLogisticRegressionCV,
    WassersteinQuantileRegressorCV,
)

__all__ = [
    "WassersteinHuberRegressor",
    "WassersteinHuberRegressorCV",
    "WassersteinLinearRegression",
    "WassersteinLinearRegressionCV",
    "WassersteinLinearSVC",
    "WassersteinLinearSVCCV",
    "WassersteinLinearSVR",
    "WassersteinLinearSVRCV",
    "WassersteinLogisticRegression",
    "WassersteinLogisticRegressionCV",
    "WassersteinQuantileRegressor",
    "WassersteinQuantileRegressorCV",
    "find_categories",
    "load",
]
