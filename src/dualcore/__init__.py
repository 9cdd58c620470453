"""Wasserstein-robust linear models, with certificates on all rows and coresets that reproduce the model."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualcore.certificates import Certificate
    from dualcore.coresets.coreset import Coreset
    from dualcore.coresets.fit import fit_coreset
    from dualcore.coresets.path import RadiusPath, radius_path
    from dualcore.coresets.samplers import (
        CoresetFit,
        DualCoreset,
        GridCoreset,
        ImportanceCoreset,
        LayeredCoreset,
        UniformCoreset,
        grid_coreset,
    )
    from dualcore.coresets.selection import select_radius, suggest_radius
    from dualcore.coresets.stream import CoresetStream, DriftWarning
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
        WassersteinLinearRegressionCV,
        WassersteinLinearSVC,
        WassersteinLinearSVCCV,
        WassersteinLinearSVR,
        WassersteinLinearSVRCV,
        WassersteinLogisticRegression,
        WassersteinLogisticRegressionCV,
        WassersteinQuantileRegressor,
        WassersteinQuantileRegressorCV,
        find_categories,
        load,
    )
    from dualcore.problem import Problem
    from dualcore.problem.anchor import Anchor
    from dualcore.problem.bounds import lipschitz_bounds, smooth_bounds
    from dualcore.problem.losses import check_loss
    from dualcore.problem.worstcase import WorstCase, changed_categories, worst_case_distribution
    from dualcore.solvers import IncompatibleError, Solution, solve
    from dualcore.solvers.assess import assess, certify

__all__ = [
    "Anchor",
    "ArraySource",
    "Certificate",
    "Coreset",
    "CoresetFit",
    "CoresetStream",
    "CsvSource",
    "DaskSource",
    "DriftWarning",
    "DualCoreset",
    "GridCoreset",
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
    "WassersteinLinearRegressionCV",
    "WassersteinLinearSVC",
    "WassersteinLinearSVCCV",
    "WassersteinLinearSVR",
    "WassersteinLinearSVRCV",
    "WassersteinLogisticRegression",
    "WassersteinLogisticRegressionCV",
    "WassersteinQuantileRegressor",
    "WassersteinQuantileRegressorCV",
    "WorstCase",
    "assess",
    "certify",
    "changed_categories",
    "check_loss",
    "find_categories",
    "fit_coreset",
    "grid_coreset",
    "lipschitz_bounds",
    "load",
    "open_source",
    "radius_path",
    "select_radius",
    "smooth_bounds",
    "solve",
    "suggest_radius",
    "worst_case_distribution",
]
__version__ = "0.2.0"

# Where the public names are. A name is imported when it is first used: most programs need few of them, and the command
# line none to say what it can do.
_MODULES = {
    "Anchor": "problem.anchor",
    "ArraySource": "data.sources",
    "Certificate": "certificates",
    "Coreset": "coresets.coreset",
    "CoresetFit": "coresets.samplers",
    "CoresetStream": "coresets.stream",
    "DriftWarning": "coresets.stream",
    "CsvSource": "data.sources",
    "DaskSource": "data.sources",
    "DualCoreset": "coresets.samplers",
    "GridCoreset": "coresets.samplers",
    "ImportanceCoreset": "coresets.samplers",
    "IncompatibleError": "solvers",
    "LayeredCoreset": "coresets.samplers",
    "ParquetSource": "data.sources",
    "PartsSource": "data.sources",
    "Problem": "problem",
    "RadiusPath": "coresets.path",
    "Solution": "solvers",
    "Source": "data.sources",
    "SourceError": "data.sources",
    "SvmlightSource": "data.sources",
    "UniformCoreset": "coresets.samplers",
    "WassersteinHuberRegressor": "estimators",
    "WassersteinHuberRegressorCV": "estimators",
    "WassersteinLinearRegression": "estimators",
    "WassersteinLinearRegressionCV": "estimators",
    "WassersteinLinearSVC": "estimators",
    "WassersteinLinearSVCCV": "estimators",
    "WassersteinLinearSVR": "estimators",
    "WassersteinLinearSVRCV": "estimators",
    "WassersteinLogisticRegression": "estimators",
    "WassersteinLogisticRegressionCV": "estimators",
    "WassersteinQuantileRegressor": "estimators",
    "WassersteinQuantileRegressorCV": "estimators",
    "WorstCase": "problem.worstcase",
    "assess": "solvers.assess",
    "changed_categories": "problem.worstcase",
    "certify": "solvers.assess",
    "check_loss": "problem.losses",
    "find_categories": "estimators",
    "fit_coreset": "coresets.fit",
    "grid_coreset": "coresets.samplers",
    "lipschitz_bounds": "problem.bounds",
    "load": "estimators",
    "open_source": "data.sources",
    "radius_path": "coresets.path",
    "select_radius": "coresets.selection",
    "smooth_bounds": "problem.bounds",
    "solve": "solvers",
    "suggest_radius": "coresets.selection",
    "worst_case_distribution": "problem.worstcase",
}

if not TYPE_CHECKING:  # a checker of types sees the imports above, and nothing that is not there

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            found = globals()[name] = getattr(import_module(f"dualcore.{_MODULES[name]}"), name)
            return found
        if not name.startswith("_") and find_spec(f"dualcore.{name}") is not None:
            return import_module(f"dualcore.{name}")
        raise AttributeError(f"module 'dualcore' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
