"""The classifiers: any labels, two classes or more, weights, probabilities, the adversary in the user's own labels."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_iris, make_classification

from dualcore import WassersteinLinearSVC, WassersteinLogisticRegression, certify, solve
from estimator_cases import CLASSIFIERS
from expected import warns_of_radius
from pairs import every_value


@pytest.fixture(scope="module")
def pair():
    return make_classification(120, 5, n_informative=3, n_redundant=0, flip_y=0.1, random_state=0)


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@every_value(cls=CLASSIFIERS, names=[("no", "yes"), (False, True), (-7, 3), (1.0, 2.0)])
def test_any_two_labels_give_the_same_model(pair, cls, names):
    X, y = pair
    plain = cls(label_cost=1.0).fit(X, y)
    named = cls(label_cost=1.0).fit(X, np.array(names)[y])
    np.testing.assert_array_equal(named.coef_, plain.coef_)
    np.testing.assert_array_equal(named.classes_, np.array(names))
    np.testing.assert_array_equal(named.predict(X), np.array(names)[plain.predict(X)])
    assert named.score(X, np.array(names)[y]) == plain.score(X, y)


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_more_than_two_classes_are_trained_one_against_the_rest(iris, cls):
    X, y = iris
    labels = np.array(["setosa", "versicolor", "virginica"])
    extra = {"multi_class": "ovr"} if cls is WassersteinLogisticRegression else {}
    model = cls(radius=0.02, label_cost=3.0, **extra).fit(X, labels[y])
    assert model.coef_.shape == model.solution_.coef.shape == (3, 4)
    assert model.intercept_.shape == model.dual_variable_.shape == model.n_iter_.shape == (3,)
    assert len(model.certificates_) == 3
    # One certificate: that of the sum of the problems.
    assert model.certificate_.upper == model.worst_case_risk_ == sum(part.upper for part in model.certificates_)
    assert model.certificate_.lower == model.solution_.lower_bound == sum(part.lower for part in model.certificates_)
    assert model.solution_.converged
    assert model.coreset_ is None
    assert model.decision_function(X).shape == (150, 3)
    with pytest.raises(ValueError, match="each of the 3 problems has its own"):
        model.worst_case_distribution(X, labels[y])
    with pytest.raises(TypeError, match=rf"{cls.__name__} has no coef; for an estimator use estimator\.certify"):
        certify(model.problem_, model, X, y)
    assert model.score(X, labels[y]) > 0.9
    np.testing.assert_allclose(model.worst_case_risk(X, labels[y]), model.worst_case_risk_, rtol=1e-12)
    for k in range(3):
        alone = cls(radius=0.02, label_cost=3.0).fit(X, y == k)
        np.testing.assert_array_equal(model.coef_[k], alone.coef_[0])
        np.testing.assert_allclose(model.decision_function(X)[:, k], alone.decision_function(X), rtol=1e-10)
        assert model.certificates_[k] == alone.certificate_


@every_value(cls=CLASSIFIERS, n=[900, 60_000], label_cost=[np.inf, 3.0])
def test_one_coreset_reproduces_the_models_of_all_classes(cls, n, label_cost):
    """Of 60,000 rows a sample is trained on, with other weights for each class."""
    rng = np.random.default_rng(0)
    X, extra = rng.normal(size=(n, 4)), {"multi_class": "ovr"} if cls is WassersteinLogisticRegression else {}
    y = np.array(["a", "b", "c"])[np.argmax(X[:, :3] + rng.gumbel(size=(n, 3)), axis=1)]
    model = cls(radius=0.02, label_cost=label_cost, coreset=200, random_state=0, **extra).fit(X, y)
    few, known = model.coreset_, model.certificates_
    np.testing.assert_array_equal(model.classes_[few.y.astype(int)], y[few.indices])
    assert (len(few) <= 200, few.exact_at) == (True, (0.02,))
    for k, label in enumerate("abc"):
        alone = solve(model.problem_, few.X, np.where(few.y == k, 1.0, -1.0), few.weights, tol=1e-9)
        risk = model.problem_.risk(alone.coef, alone.intercept, X, np.where(y == label, 1.0, -1.0))
        assert risk / known[k].upper - 1.0 <= few.excess + 1e-7 < 1e-6
    assert "too few to reproduce the models" in model.set_params(coreset=9).fit(X, y).coreset_.details["message"]


@warns_of_radius
@every_value(cls=CLASSIFIERS, settings=[{"label_cost": 7.0}, {"norm": "l1"}, {"norm": "linf"}])
def test_rows_are_certified_as_tightly_as_by_a_fit(iris, cls, settings):
    """Where the loss has kinks, or labels flip, the model alone does not determine a dual point."""
    X, y = iris
    model = cls(radius=0.05, **settings).fit(X, y)
    again = model.certify(X, y)
    assert again.relative_gap <= 1e-6
    assert again.upper == pytest.approx(model.worst_case_risk_, rel=1e-9)
    best = cls(radius=0.05, **settings).fit(X[::2], y[::2]).certificate_
    found = model.certify(X[::2], y[::2])
    assert found.lower <= best.upper <= found.upper * (1.0 + 1e-9)
    assert found.lower == pytest.approx(best.lower, rel=1e-4)


@pytest.mark.parametrize("data", ["pair", "iris"])
def test_probabilities_are_the_softmax_of_scores_and_survive_far_away_points(data, request):
    X, y = request.getfixturevalue(data)
    model = WassersteinLogisticRegression().fit(X, y)
    scores = model.decision_function(X)
    expected = softmax(scores if data == "iris" else np.column_stack([np.zeros(len(X)), scores]), axis=1)
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-12)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), expected, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), model.classes_[expected.argmax(axis=1)])
    far = 1e6 * model.coef_[[-1]]
    log_p = model.predict_log_proba(np.vstack([far, -far]))
    assert np.isfinite(log_p).all()
    assert log_p.min() < -1e4
    np.testing.assert_allclose(model.predict_proba(np.vstack([far, -far])).sum(axis=1), 1.0)


@warns_of_radius
@every_value(cls=CLASSIFIERS, classes=[2, 3])
def test_class_weights_are_sample_weights(iris, cls, classes):
    X, y = iris
    X, y = X[y < classes][20:], y[y < classes][20:]
    model = cls(class_weight={0: 3.0, 1: 0.5}).fit(X, y)
    same = cls().fit(X, y, sample_weight=np.array([3.0, 0.5, 1.0])[y])
    np.testing.assert_allclose(model.coef_, same.coef_, rtol=1e-9)
    np.testing.assert_array_equal(model.class_weight_, [3.0, 0.5, 1.0][:classes])
    np.testing.assert_allclose(model.worst_case_risk(X, y), model.worst_case_risk_, rtol=1e-9)


def test_balanced_class_weights_count_mass_not_rows(pair):
    X, y = pair
    weights = np.random.default_rng(0).integers(0, 4, y.size)
    model = WassersteinLogisticRegression(class_weight="balanced").fit(X, y, sample_weight=weights)
    repeat = np.repeat(np.arange(y.size), weights)
    same = WassersteinLogisticRegression(class_weight="balanced").fit(X[repeat], y[repeat])
    np.testing.assert_allclose(model.coef_, same.coef_, rtol=1e-6)
    masses = np.bincount(y, weights) * model.class_weight_
    assert masses[0] == pytest.approx(masses[1])


def test_the_risk_can_be_asked_of_rows_of_one_class(pair):
    X, y = pair
    model = WassersteinLogisticRegression().fit(X, y)
    share = (y == 1).mean()
    no, yes = (model.worst_case_risk(X[y == k], y[y == k]) for k in (0, 1))
    assert (1 - share) * no + share * yes == pytest.approx(model.worst_case_risk_, rel=1e-12)


@warns_of_radius
def test_the_adversary_speaks_the_labels_of_the_user(pair):
    X, y = pair
    names = np.array(["cat", "dog"])[y]
    model = WassersteinLinearSVC(radius=0.3, label_cost=0.2).fit(X, names)
    worst = model.worst_case_distribution(X, names)
    assert set(worst.y) == {"cat", "dog"}
    flipped = worst.y != names[worst.source]
    assert flipped.any()
    assert worst.weights.sum() == pytest.approx(1.0)
    assert worst.transport_cost <= 0.3 + 1e-12
    assert worst.expected_loss + worst.gap == pytest.approx(model.worst_case_risk_, rel=1e-9)
    margins = np.where(worst.y == "dog", 1.0, -1.0) * model.decision_function(worst.X)
    assert worst.weights @ np.maximum(1.0 - margins, 0.0) == pytest.approx(worst.expected_loss)


def test_labels_never_seen_are_named(pair):
    X, y = pair
    model = WassersteinLogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match=r"The target is 2, but the classes are 0 and 1 \(row \d+\)"):
        model.worst_case_risk(X, y + 1)
    with pytest.raises(ValueError, match=r"The target is '[01]', but the classes are 0 and 1"):
        model.worst_case_distribution(X, y.astype(str))


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ("even", "class_weight must be None, 'balanced' or a dict"),
        ([1.0, 2.0], "class_weight must be None, 'balanced' or a dict"),
        ({0: -1.0}, "finite, non-negative"),
        ({0: np.inf}, "finite, non-negative"),
        ({1: 0.0}, "Every row of class .*1.* has zero weight"),
        ({"zero": 2.0}, "not in class_weight"),
    ],
)
def test_a_wrong_class_weight_is_refused_at_fit(pair, class_weight, message):
    model = WassersteinLogisticRegression(class_weight=class_weight)
    with pytest.raises(ValueError, match=message):
        model.fit(*pair)


def test_a_class_emptied_by_weights_is_named(pair):
    X, y = pair
    with pytest.raises(ValueError, match=r"class np.str_\('b'\) has zero weight|class 'b' has zero weight"):
        WassersteinLinearSVC().fit(X, np.array(["a", "b"])[y], sample_weight=1.0 - y)
    with pytest.raises(ValueError, match="one class only"):
        WassersteinLinearSVC().fit(X, np.zeros(len(X)))
