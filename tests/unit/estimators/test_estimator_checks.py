"""scikit-learn's own checks, every one of them, for every estimator."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from dualcore import estimators
from dualcore.estimators import WassersteinLinearRegression, WassersteinLogisticRegression


@parametrize_with_checks([getattr(estimators, name)() for name in estimators.__all__])
def test_scikit_learn_check_passes(estimator, check):
    check(estimator)


@parametrize_with_checks([WassersteinLogisticRegression(label_cost=2.0), WassersteinLinearRegression(label_cost=2.0)])
def test_scikit_learn_check_passes_where_labels_move(estimator, check):
    check(estimator)
