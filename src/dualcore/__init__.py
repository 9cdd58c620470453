"""Wasserstein-robust linear models on data too large to train on, with certificates about the full data."""

from __future__ import annotations

# Before the imports that take long, for what it does on being imported.
from dualcore import startup  # noqa: F401

# isort: split
from dualcore.assess import assess, certify
from dualcore.bounds import lipschitz_bounds, smooth_bounds
from dualcore.certificates import Certificate
from dualcore.coreset import Anchor, Coreset
from dualcore.estimators import (
    WassersteinHuberRegressor,
    WassersteinHuberRegressorCV,
    WassersteinLinearRegression,
    WassersteinLinearSVC,
    WassersteinLinearSVCCV,
    WassersteinLinearSVR,
    WassersteinLogisticRegression,
    WassersteinLogisticRegressionCV,
    WassersteinQuantileRegressor,
)
from dualcore.losses import check_loss
from dualcore.path import RadiusPath, radius_path, select_radius, suggest_radius
from dualcore.problem import Problem
from dualcore.refine import fit_coreset
from dualcore.samplers import (
    CoresetFit,
    DualCoreset,
    ImportanceCoreset,
    LayeredCoreset,
    UniformCoreset,
    grid_coreset,
)
from dualcore.solvers import IncompatibleError, Solution, solve
from dualcore.sources import (
    ArraySource,
    CsvSource,
    DaskSource,
    ParquetSource,
    PartsSource,
    Source,
    SourceError,
    open_source,
)
from dualcore.stream import CoresetStream
from dualcore.worstcase import WorstCase, worst_case_distribution

__all__ = [
    "Anchor",
    "ArraySource",
    "Certificate",
    "Coreset",
    "CoresetFit",
    "CoresetStream",
    "CsvSource",
    "DaskSource",
    "DualCoreset",
    "ImportanceCoreset",
    "IncompatibleError",
    "LayeredCoreset",
    "ParquetSource",
    "PartsSource",
    "Problem",
    "RadiusPath",
    "Solution",
    "Source",
    "SourceError",
    "UniformCoreset",
    "WassersteinHuberRegressor",
    "WassersteinHuberRegressorCV",
    "WassersteinLinearRegression",
    "WassersteinLinearSVC",
    "WassersteinLinearSVCCV",
    "WassersteinLinearSVR",
    "WassersteinLogisticRegression",
    "WassersteinLogisticRegressionCV",
    "WassersteinQuantileRegressor",
    "WorstCase",
    "assess",
    "certify",
    "check_loss",
    "fit_coreset",
    "grid_coreset",
    "lipschitz_bounds",
    "open_source",
    "radius_path",
    "select_radius",
    "smooth_bounds",
    "solve",
    "suggest_radius",
    "worst_case_distribution",
]
__version__ = "0.1.0"
