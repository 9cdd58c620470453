"""Wasserstein-robust linear models on data too large to train on, with certificates about the full data."""

from __future__ import annotations

# Before the imports that take long, for what it does on being imported.
from dualcore.cli import startup  # noqa: F401

# isort: split
from dualcore.certificates import Certificate
from dualcore.coresets.coreset import Coreset
from dualcore.coresets.path import RadiusPath, radius_path, select_radius, suggest_radius
from dualcore.coresets.refine import fit_coreset
from dualcore.coresets.samplers import (
    CoresetFit,
    DualCoreset,
    ImportanceCoreset,
    LayeredCoreset,
    UniformCoreset,
    grid_coreset,
)
from dualcore.coresets.stream import CoresetStream
from dualcore.data.renamed import install
from dualcore.data.sources import (
    ArraySource,
    CsvSource,
    DaskSource,
    ParquetSource,
    PartsSource,
    Source,
    SourceError,
    SvmlightSource,
    open_source,
)
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
from dualcore.problem import Problem
from dualcore.problem.anchor import Anchor
from dualcore.problem.bounds import lipschitz_bounds, smooth_bounds
from dualcore.problem.losses import check_loss
from dualcore.problem.worstcase import WorstCase, worst_case_distribution
from dualcore.reading.assess import assess, certify
from dualcore.solvers import IncompatibleError, Solution, solve

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
    "SvmlightSource",
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
install()
