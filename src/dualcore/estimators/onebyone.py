"""One class against the rest, class by class, from a source."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualcore.data.sources import Source, TransformedSource, open_labelled
from dualcore.data.sources.survey import BOTH
from dualcore.problem import Problem


def open_classes(
    estimator: Any, problem: Problem, X: Any, y: Any, sample_weight: Any, *, apart: bool = False
) -> list[Source]:
    """Return a source for every problem, as `known_classes` does, and note classes, class weights, features and units.

    With ``apart`` each of many classes has a source against the rest, also where they share one model.
    """
    source, labels = open_labelled(X, y, sample_weight)
    survey = source.survey()
    classes = np.array(labels)
    masses = [survey.mass(target) for target in (BOTH if classes.size == 2 else range(classes.size))]
    estimator._note_features(source)
    estimator.classes_ = classes
    estimator.class_weight_ = estimator._weigh_classes(classes, np.arange(classes.size), np.array(masses))
    source = estimator._learn_units(problem, source)
    return _by_problem(estimator, source, joint=estimator._is_joint and not apart)


def known_classes(estimator: Any, X: Any, y: Any, sample_weight: Any) -> list[Source]:
    """Return a source for every problem of a trained classifier: rows with its targets, weighted by class.

    There is one problem for two classes, and for one model of all classes (their numbers are the targets); else one
    for each class against the rest.
    """
    source, _ = open_labelled(X, y, sample_weight, classes=estimator.classes_.tolist())
    estimator._match_features(source)
    source = source if estimator._units is None else estimator._units.rows(source)
    return _by_problem(estimator, source, joint=estimator._is_joint)


def _by_problem(estimator: Any, source: Source, *, joint: bool) -> list[Source]:
    n_classes, weights = estimator.classes_.size, estimator.class_weight_
    factors = None if bool((weights == 1.0).all()) else weights
    if n_classes == 2:
        return [source if factors is None else TransformedSource(source, classes=BOTH, factors=factors)]
    codes = tuple(range(n_classes))
    if joint:
        return [source if factors is None else TransformedSource(source, classes=codes, factors=factors)]
    return [TransformedSource(source, classes=codes, positive=code, factors=factors) for code in codes]


def store(estimator: Any, found: list[Any]) -> None:
    """Keep the models of a classifier, each a `Training`: one for two classes, else one for each class."""
    solutions, certificates, coresets = zip(*(estimator._outside(one) for one in found), strict=True)
    estimator._keep(found[0])
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
