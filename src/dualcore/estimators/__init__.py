"""scikit-learn estimators: validate, build the problem, train on the whole data or through a coreset, store."""

from __future__ import annotations

from dualcore.estimators.classifiers import WassersteinLinearSVC, WassersteinLogisticRegression
from dualcore.estimators.regressors import (
    WassersteinHuberRegressor,
    WassersteinLinearRegression,
    WassersteinLinearSVR,
    WassersteinQuantileRegressor,
)

__all__ = [
    "WassersteinHuberRegressor",
    "WassersteinLinearRegression",
    "WassersteinLinearSVC",
    "WassersteinLinearSVR",
    "WassersteinLogisticRegression",
    "WassersteinQuantileRegressor",
]
