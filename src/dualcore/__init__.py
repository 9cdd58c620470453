"""Wasserstein-robust linear models on data too large to train on, with certificates about the full data."""

from __future__ import annotations

from dualcore.bounds import lipschitz_bounds, smooth_bounds
from dualcore.certificate import Certificate, certify
from dualcore.coreset import Anchor, Coreset
from dualcore.estimators import (
    WassersteinHuberRegressor,
    WassersteinLinearRegression,
    WassersteinLinearSVC,
    WassersteinLinearSVR,
    WassersteinLogisticRegression,
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
from dualcore.stream import CoresetStream
from dualcore.worstcase import WorstCase, worst_case_distribution

__all__ = [
    "Anchor",
    "Certificate",
    "Coreset",
    "CoresetFit",
    "CoresetStream",
    "DualCoreset",
    "ImportanceCoreset",
    "IncompatibleError",
    "LayeredCoreset",
    "Problem",
    "RadiusPath",
    "Solution",
    "UniformCoreset",
    "WassersteinHuberRegressor",
    "WassersteinLinearRegression",
    "WassersteinLinearSVC",
    "WassersteinLinearSVR",
    "WassersteinLogisticRegression",
    "WassersteinQuantileRegressor",
    "WorstCase",
    "certify",
    "check_loss",
    "fit_coreset",
    "grid_coreset",
    "lipschitz_bounds",
    "radius_path",
    "select_radius",
    "smooth_bounds",
    "solve",
    "suggest_radius",
    "worst_case_distribution",
]
__version__ = "0.1.0"
