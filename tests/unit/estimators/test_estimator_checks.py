"""scikit-learn's own checks, every one of them, for every estimator."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from dualcore import estimators
from dualcore.estimators import WassersteinLinearRegression, WassersteinLinearSVC, WassersteinLogisticRegression


def quick(name):
    """An estimator at its defaults; of those that search, with fewer fits.

    The radii are given: the weight check asks for eight digits of a model of 15 rows with 30 features, which the
    smallest radii of a grid do not determine that well.
    """
    return getattr(estimators, name)(**({"radii": [0.05, 0.5], "cv": 2} if name.endswith("CV") else {}))


@parametrize_with_checks([quick(name) for name in estimators.__all__ if name.startswith("Wasserstein")])
def test_scikit_learn_check_passes(estimator, check):
    check(estimator)


def too_exact(estimator):
    """Cone programs find the risk to ten digits and more, but coefficients to five; asked are seven."""
    if getattr(estimator, "multi_class", None) == "multinomial":
        reason = "the risks agree to 1e-13 and the probabilities to 2e-6, where 1e-7 is asked"
        return {"check_sample_weight_equivalence_on_sparse_data": reason}
    if getattr(estimator, "loss", None) != "squared_hinge":
        return {}
    reason = "coefficients agree to 1e-5 where 1e-7 is asked"
    return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")}


@parametrize_with_checks(
    [
        WassersteinLogisticRegression(label_cost=2.0),
        WassersteinLogisticRegression(multi_class="multinomial", radius=0.1),
        WassersteinLinearRegression(label_cost=2.0, radius=0.1),
        WassersteinLinearSVC(loss="squared_hinge"),
    ],
    expected_failed_checks=too_exact,
)
def test_scikit_learn_check_passes_for_other_settings(estimator, check):
    check(estimator)
