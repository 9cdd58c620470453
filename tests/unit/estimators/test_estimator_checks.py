"""scikit-learn's own checks, every one of them, for every estimator."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from dualcore import estimators
from dualcore.estimators import WassersteinLinearRegression, WassersteinLogisticRegression


def quick(name):
    """An estimator at its defaults; of those that search, with fewer fits.

    The radii are given: the weight check asks for eight digits of a model of 15 rows with 30 features, which the
    smallest radii of a grid do not determine that well.
    """
    return getattr(estimators, name)(**({"radii": [0.05, 0.5], "cv": 2} if name.endswith("CV") else {}))


@parametrize_with_checks([quick(name) for name in estimators.__all__])
def test_scikit_learn_check_passes(estimator, check):
    check(estimator)


@parametrize_with_checks([WassersteinLogisticRegression(label_cost=2.0), WassersteinLinearRegression(label_cost=2.0)])
def test_scikit_learn_check_passes_where_labels_move(estimator, check):
    check(estimator)
