"""scikit-learn's own checks, every one of them, for every estimator."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from dualcore import estimators
from dualcore.estimators import WassersteinLinearRegression, WassersteinLinearSVC, WassersteinLogisticRegression


@parametrize_with_checks([getattr(estimators, name)() for name in estimators.__all__])
def test_scikit_learn_check_passes(estimator, check):
    check(estimator)


@parametrize_with_checks(
    [
        WassersteinLogisticRegression(label_cost=2.0),
        WassersteinLogisticRegression(multi_class="multinomial"),
        WassersteinLinearRegression(label_cost=2.0),
        WassersteinLinearSVC(loss="squared_hinge"),
    ]
)
def test_scikit_learn_check_passes_for_other_settings(estimator, check):
    check(estimator)
