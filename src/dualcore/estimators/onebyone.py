"""One class against the rest, class by class, from a source."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualcore.data.sources import ClassError, PreparedSource, Source, SourceError, open_labelled, open_source
from dualcore.data.sources.against import ClassSource, class_masses
from dualcore.problem import Problem

# A target with more different values is no class.
_MOST_CLASSES = 1000


def open_classes(
    estimator: Any, problem: Problem, X: Any, y: Any, sample_weight: Any, *, apart: bool = False
) -> list[Source]:
    """Return a source for every problem, as `known_classes` does, and note classes, class weights, features and units.

    With ``apart`` each of many classes has a source against the rest, also where they share one model.
    """
    try:
        source, labels = open_labelled(X, y, sample_weight)
        survey = source.survey()
        classes, masses = np.array(labels), {-1.0: survey.mass(-1.0), 1.0: survey.mass(1.0)}
    except ClassError as error:
        source, masses = _open_many(X, y, sample_weight, error)
        classes = np.array(list(masses)).astype(np.int64)
    estimator._note_features(source)
    estimator.classes_ = classes
    estimator.class_weight_ = estimator._weigh_classes(
        classes, np.arange(classes.size), np.array(list(masses.values()))
    )
    source = estimator._learn_units(problem, source)
    return _by_problem(estimator, source, joint=estimator._is_joint and not apart)


def known_classes(estimator: Any, X: Any, y: Any, sample_weight: Any) -> list[Source]:
    """Return a source for every problem of a trained classifier: rows with its targets, weighted by class.

    There is one problem for two classes, and for one model of all classes (their numbers are the targets); else one
    for each class against the rest.
    """
    if estimator.classes_.size == 2:
        source, _ = open_labelled(X, y, sample_weight, classes=estimator.classes_.tolist())
    else:
        source = open_source(X, y, sample_weight)
    estimator._match_features(source)
    source = source if estimator._units is None else estimator._units.rows(source)
    return _by_problem(estimator, source, joint=estimator._is_joint)


def _by_problem(estimator: Any, source: Source, *, joint: bool) -> list[Source]:
    classes, weights = estimator.classes_, estimator.class_weight_
    equal = bool((weights == 1.0).all())
    if classes.size == 2:
        return [source if equal else PreparedSource(source, factors=(float(weights[0]), float(weights[1])))]
    positives = [None] if joint else range(classes.size)
    values = classes.astype(np.float64)
    return [ClassSource(source, values, positive, None if equal else weights) for positive in positives]


def _open_many(X: Any, y: Any, sample_weight: Any, error: ClassError) -> tuple[Source, dict[float, float]]:
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
