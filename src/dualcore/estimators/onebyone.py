"""One class against the rest, class by class, from a source."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualcore.data.sources import ClassError, Source, SourceError, open_source
from dualcore.data.sources.against import ClassSource, class_masses
from dualcore.problem import Problem

# A target with more different values is no class.
_MOST_CLASSES = 1000


def open_many(X: Any, y: Any, sample_weight: Any, error: ClassError) -> tuple[Source, dict[float, float]]:
    """Return a source of more than two classes, which are whole numbers, and their masses; else raise ``error``."""
    try:
        source = open_source(X, y, sample_weight)
    except SourceError:  # targets that are not numbers
        raise error from None
    masses = class_masses(source)
    whole = all(float(label).is_integer() for label in masses)
    if not 2 < len(masses) <= _MOST_CLASSES or not whole:
        raise error
    return source, masses


def fit_one_by_one(estimator: Any, problem: Problem, source: Source, masses: dict[float, float]) -> None:
    """Train a model for every class of a source against the rest, or one of all classes, and store what was found."""
    classes = np.array(list(masses))
    estimator._note_features(source)
    estimator.classes_ = classes.astype(np.int64)
    estimator.class_weight_ = estimator._weigh_classes(
        estimator.classes_, np.arange(classes.size), np.array(list(masses.values()))
    )
    estimator.problem_ = problem
    factors = None if (estimator.class_weight_ == 1.0).all() else estimator.class_weight_
    if estimator._joins(classes.size):
        estimator._fit_joint(problem, ClassSource(source, classes, None, factors), None, None)
        return
    found: list[Any] = []
    names, starts = estimator.classes_.tolist(), estimator._earlier(source.n_features, count=classes.size)
    for positive, (label, start) in enumerate(zip(names, starts, strict=True)):
        rows = ClassSource(source, classes, positive, factors)
        found.append(estimator._train(problem, rows, None, None, f"{label} against the rest", start=start))
    store(estimator, found)
    estimator._remark(problem, found, source, [None] * len(found), None, names)


def store(estimator: Any, found: list[Any]) -> None:
    """Keep the models of a classifier, each a `Training`: one for two classes, else one for each class."""
    solutions, certificates, coresets = zip(*found, strict=True)
    estimator._keep(*found[0])
    estimator.coef_ = np.vstack([solution.coef for solution in solutions])
    estimator.intercept_ = np.array([solution.intercept for solution in solutions])
    if len(found) > 1:
        in_parts, on_all_rows = certificates[0] is None, estimator.coreset is None and coresets[0] is None
        estimator.solution_, estimator.certificate_ = list(solutions), None if in_parts else list(certificates)
        estimator.coreset_ = None if on_all_rows else list(coresets)
        estimator.dual_variable_ = np.array([solution.dual_variable for solution in solutions])
        estimator.n_iter_ = np.array([solution.iterations for solution in solutions])
        risks = [solution.value if known is None else known.upper for solution, known, _ in found]
        estimator.worst_case_risk_ = np.array(risks)
