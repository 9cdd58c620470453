"""Attacks: the budget to the row, the constraints to rounding, and more harm than chance does."""

import inspect
import warnings

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, NonlinearConstraint, minimize
from scipy.sparse import csr_matrix
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from dualcore.attacks import add_noise, alfa_attack, flip_labels, minmax_attack
from experiments.datasets import load_letter_authors, load_letter_pair, make_letter_standin
from pairs import every_pair, every_value


@pytest.fixture(scope="module")
def clean():
    return make_letter_standin(n_train=203, n_test=100)


def error_on_clean_test(X, y, data):
    """Share of the clean test rows that an ordinary SVM, trained on ``X, y``, gets wrong."""
    model = LinearSVC(C=1.0, loss="hinge", dual=True, max_iter=50_000, random_state=0).fit(X, y)
    return float(np.mean(model.predict(data.X_test) != data.y_test))


def by_chance(X, y, budget, rng):
    """Rows spoiled without a plan: labels flipped, copies with the other label, points anywhere in the box."""
    yield X, flip_labels(y, budget / len(y), rng)
    rows = rng.choice(len(y), size=budget, replace=False)
    yield np.vstack([X, X[rows]]), np.concatenate([y, -y[rows]])
    points = rng.uniform(X.min(axis=0), X.max(axis=0), size=(budget, X.shape[1]))
    yield np.vstack([X, points]), np.concatenate([y, rng.choice([-1, 1], size=budget)])


def class_statistics(X, y, label, quantile):
    """Mean, radius and slab of a class, straight from their definitions."""
    mean, normal = X[y == label].mean(axis=0), X[y != label].mean(axis=0) - X[y == label].mean(axis=0)
    offsets = X[y == label] - mean
    radius = np.quantile(np.linalg.norm(offsets, axis=1), quantile)
    return mean, radius, normal, np.quantile(np.abs(offsets @ normal), quantile)


# Noise and random flips


def test_noise_is_gaussian_of_the_asked_scale():
    # 40,000 draws: the mean is off by 0.01 and the deviation by 0.008 with probability below 1e-4.
    noise = add_noise(np.zeros((2000, 20)), scale=0.5, random_state=0)
    assert abs(noise.mean()) < 0.01
    assert noise.std() == pytest.approx(0.5, abs=0.008)
    np.testing.assert_array_equal(add_noise([[1, 2]], scale=0.0), [[1.0, 2.0]])


@pytest.mark.parametrize(
    ("n", "rate", "expected"), [(1145, 0.1, 114), (100, 0.29, 29), (10, 0.0, 0), (10, 1.0, 10), (7, 0.5, 3)]
)
def test_flips_are_exactly_the_budget(n, rate, expected):
    y = np.where(np.arange(n) % 3 == 0, 1, -1)
    flipped = flip_labels(y, rate, random_state=0)
    assert (flipped != y).sum() == expected
    assert set(flipped) <= {-1, 1}


def test_flips_keep_labels_of_any_kind_and_follow_the_seed(clean):
    y = np.array(["spam", "ham", "ham", "spam"])
    np.testing.assert_array_equal(flip_labels(y, 1.0), ["ham", "spam", "spam", "ham"])
    assert flip_labels(np.array([0, 1, 1], dtype=np.int8), 0.5).dtype == np.int8
    for spoil in (lambda s: add_noise(clean.X_train, 1.0, s), lambda s: flip_labels(clean.y_train, 0.1, s)):
        np.testing.assert_array_equal(spoil(7), spoil(7))
        np.testing.assert_array_equal(spoil(7), spoil(np.random.default_rng(7)))
        assert not np.array_equal(spoil(7), spoil(8))


# ALFA


@pytest.mark.parametrize(("rate", "expected"), [(0.1, 20), (0.25, 50), (0.004, 0), (0.0, 0)])
def test_alfa_flips_exactly_the_budget_and_changes_labels_only(rate, expected, clean):
    attack = alfa_attack(clean.X_train, clean.y_train, rate, random_state=0)
    assert attack.flipped.sum() == expected
    np.testing.assert_array_equal(attack.y != clean.y_train, attack.flipped)
    np.testing.assert_array_equal(attack.X, clean.X_train)
    assert attack.X is not clean.X_train
    assert attack.converged
    assert attack.n_iter <= 50


def test_alfa_ends_where_no_swap_of_flips_helps(clean):
    attack = alfa_attack(clean.X_train, clean.y_train, 0.1, random_state=0)

    def flip_score(labels):
        model = LinearSVC(C=1.0, loss="hinge", dual=True, max_iter=200_000, tol=1e-6, random_state=0)
        margin = clean.y_train * model.fit(clean.X_train, labels).decision_function(clean.X_train)
        return np.maximum(0.0, 1.0 + margin) - np.maximum(0.0, 1.0 - margin)

    score = flip_score(attack.y) - flip_score(clean.y_train)
    assert score[attack.flipped].max() <= score[~attack.flipped].min() + 0.05


def test_alfa_says_when_it_was_cut_short(clean):
    with pytest.warns(ConvergenceWarning, match="max_iter=1 models"):
        attack = alfa_attack(clean.X_train, clean.y_train, 0.1, max_iter=1, random_state=0)
    assert (attack.converged, attack.n_iter, attack.flipped.sum()) == (False, 1, 20)


def test_alfa_survives_the_loss_of_a_class():
    X = np.vstack([np.zeros((3, 2)), np.ones((9, 2))])
    y = np.repeat([0, 1], [3, 9])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for rate in (0.25, 0.75, 1.0):
            attack = alfa_attack(X, y, rate, random_state=0)
            assert attack.flipped.sum() == int(12 * rate)


# Min-Max


@pytest.mark.parametrize(("rate", "expected"), [(0.1, 20), (0.35, 71), (0.002, 0), (0.0025, 1), (0.0, 0)])
def test_minmax_adds_exactly_the_budget_behind_the_clean_rows(rate, expected, clean):
    attack = minmax_attack(clean.X_train, clean.y_train, rate, random_state=0)
    n = len(clean.y_train)
    assert attack.X.shape == (n + expected, 16)
    np.testing.assert_array_equal(attack.X[:n], clean.X_train)
    np.testing.assert_array_equal(attack.y[:n], clean.y_train)
    np.testing.assert_array_equal(attack.poisoned, np.arange(n + expected) >= n)
    assert set(attack.y[n:]) <= {-1, 1}
    assert attack.n_iter == -(-expected // 2)


@every_pair(slab=[False, True], quantile=[0.5, 0.9], box=[None, (-0.5, 0.5), (np.full(16, -2.0), np.full(16, np.inf))])
def test_minmax_poison_lies_in_ball_box_and_slab(slab, quantile, box, clean):
    X, y = clean.X_train, clean.y_train
    attack = minmax_attack(X, y, 0.2, quantile=quantile, slab=slab, box=box, random_state=0)
    low, high = (X.min(axis=0), X.max(axis=0)) if box is None else box
    slab_was_needed = False
    for label in (-1, 1):
        poison = attack.X[attack.poisoned & (attack.y == label)]
        mean, radius, normal, width = class_statistics(X, y, label, quantile)
        assert (poison >= low).all()
        assert (poison <= high).all()
        assert (np.linalg.norm(poison - mean, axis=1) <= radius * (1.0 + 1e-9)).all()
        reach = np.abs((poison - mean) @ normal)
        slab_was_needed |= bool((reach > width * (1.0 + 1e-9)).any())
    assert slab_was_needed != slab


@every_value(slab=[False, True], width=[0.4, 0.6, 5.0])
def test_minmax_first_point_is_the_strongest_feasible_one(slab, width, clean):
    # Against a general-purpose solver, for a box that cuts much, some or none of the ball.
    X, y = clean.X_train, clean.y_train
    model = LinearSVC(C=1.0, loss="hinge", dual=True, max_iter=50_000, tol=1e-8, random_state=0).fit(X, y)
    coef, intercept = model.coef_[0], model.intercept_[0]
    attack = minmax_attack(X, y, 1.0 / len(y), slab=slab, box=(-width, width), random_state=0)
    point, label = attack.X[-1], attack.y[-1]
    losses = []
    for sign in (-1, 1):
        mean, radius, normal, reach = class_statistics(X, y, sign, 0.9)
        ball = NonlinearConstraint(lambda v: v @ v, -np.inf, radius**2, jac=lambda v: 2.0 * v)
        layer = LinearConstraint(normal, -reach, reach)
        solved = minimize(
            lambda v, s=sign: s * coef @ v,
            np.zeros(16),
            jac=lambda v, s=sign: s * coef,
            bounds=np.column_stack([-width - mean, width - mean]),
            constraints=[ball, layer] if slab else [ball],
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-12},
        )
        losses.append(1.0 - sign * (coef @ mean + intercept) - solved.fun)
    # The attack trains with a looser tolerance, so its model differs in the fourth digit.
    assert 1.0 - label * (coef @ point + intercept) == pytest.approx(max(losses), rel=5e-3)


def test_no_poison_exceeds_the_upper_bound(clean):
    X, y, n = clean.X_train, clean.y_train, len(clean.y_train)
    bound = minmax_attack(X, y, 0.1, step=0.3, max_iter=400, random_state=0).upper_bound
    rng = np.random.default_rng(0)
    for _ in range(5):
        labels = rng.choice([-1, 1], size=20)
        poison = np.array([X[y == label].mean(axis=0) for label in labels])
        poison_X, poison_y = np.vstack([X, poison]), np.concatenate([y, labels])
        model = LinearSVC(C=1.0, loss="hinge", dual=True, max_iter=50_000, random_state=0).fit(poison_X, poison_y)
        hinge = np.maximum(0.0, 1.0 - poison_y * model.decision_function(poison_X))
        assert 0.5 * (model.coef_**2).sum() / n + hinge.sum() / n <= bound
    for step in (0.03, 0.1):
        attack = minmax_attack(X, y, 0.1, step=step, random_state=0)
        assert attack.train_loss <= min(bound, attack.upper_bound)


def test_minmax_handles_degenerate_classes():
    # Single rows have a ball of radius 0; equal means have no slab direction; no variance in one feature.
    X = np.array([[0.0, 1.0, 5.0], [1.0, 0.0, 5.0]])
    attack = minmax_attack(X, [0, 1], 1.0, slab=True, random_state=0)
    assert all(any(np.array_equal(row, clean_row) for clean_row in X) for row in attack.X)
    X = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    attack = minmax_attack(X, [0, 0, 1, 1], 0.5, slab=True, random_state=0)
    assert np.isfinite(attack.X).all()
    # A slab of width 0: the classes differ in the first feature and spread in the second only.
    X = np.array([[0.0, 1.0], [0.0, -1.0], [1.0, 2.0], [1.0, -2.0]])
    attack = minmax_attack(X, [0, 0, 1, 1], 1.0, slab=True, random_state=0)
    np.testing.assert_allclose(attack.X[attack.poisoned, 0], attack.y[attack.poisoned], atol=1e-12)


# Both attacks


@pytest.mark.parametrize("attack", [alfa_attack, minmax_attack])
def test_attacks_repeat_under_a_seed_and_leave_their_inputs_alone(attack, clean):
    X, y = clean.X_train.copy(), clean.y_train.copy()
    X.setflags(write=False)
    y.setflags(write=False)
    one, two, generator = (attack(X, y, 0.1, random_state=seed) for seed in (5, 5, np.random.default_rng(5)))
    for other in (two, generator):
        np.testing.assert_array_equal(one.X, other.X)
        np.testing.assert_array_equal(one.y, other.y)
    one.X[:] = 0.0
    one.y[:] = 0
    np.testing.assert_array_equal(X, clean.X_train)
    np.testing.assert_array_equal(y, clean.y_train)


def test_attacks_hurt_an_svm_more_than_chance_does():
    # Summed over twenty data sets: on a single one Min-Max may do no more harm than a lucky draw.
    error = np.zeros(7)
    for seed in range(20):
        data = make_letter_standin(n_train=400, n_test=2000, seed=seed)
        X, y, rng = data.X_train, data.y_train, np.random.default_rng(seed)
        noisy = np.vstack([add_noise(X[:40], 1.0, rng), X[40:]])
        attacks = [attack(X, y, 0.1, random_state=seed) for attack in (alfa_attack, minmax_attack)]
        spoiled = [(X, y), (noisy, y), *by_chance(X, y, 40, rng), *((attack.X, attack.y) for attack in attacks)]
        error += [error_on_clean_test(*rows, data) for rows in spoiled]
    *chance, alfa, minmax = error
    assert alfa > 2.0 * max(chance)
    assert minmax > 1.3 * max(chance)


def test_attacks_hurt_an_svm_on_letter_as_those_of_the_authors_do(shared_data):
    data = load_letter_pair(data_home=shared_data)
    X, y, rng = data.X_train, data.y_train, np.random.default_rng(0)
    alfa, minmax = alfa_attack(X, y, 0.1, random_state=0), minmax_attack(X, y, 0.1, random_state=0)
    assert (alfa.flipped.sum(), minmax.poisoned.sum()) == (114, 115)
    assert len(np.unique(minmax.X[minmax.poisoned], axis=0)) == 58
    chance = max(error_on_clean_test(*rows, data) for _ in range(5) for rows in by_chance(X, y, 115, rng))
    assert chance < 0.03
    for name, ours in (("alfa", alfa), ("minmax", minmax)):
        theirs = load_letter_authors(name, shared_data)
        error = error_on_clean_test(ours.X, ours.y, data)
        assert error > 2.0 * chance
        assert error > 0.6 * error_on_clean_test(theirs.X_train, theirs.y_train, data)


# Wrong arguments


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"rate": 1.5}, ValueError, r"rate must lie in \[0, 1\], got 1.5. Write 10 % as 0.1"),
        ({"rate": float("nan")}, ValueError, "rate must lie in"),
        ({"rate": "0.1"}, TypeError, "rate must be a number, got str"),
        ({"rate": True}, TypeError, "rate must be a number, got bool"),
        ({"C": 0.0}, ValueError, "C must be positive and finite, got 0.0"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1, got 0"),
        ({"max_iter": 2.0}, TypeError, "max_iter must be a whole number, got float"),
        ({"X": np.zeros(4)}, ValueError, r"got shape \(4,\)"),
        ({"X": np.array([[np.nan], [0.0], [1.0], [2.0]])}, ValueError, "NaN or infinite"),
        ({"X": np.zeros((3, 1))}, ValueError, "3 rows but y has 4 labels"),
        ({"X": csr_matrix(np.eye(4))}, TypeError, r"sparse matrix.*X\.toarray\(\)"),
        ({"y": [1, 1, 1, 1]}, ValueError, "exactly two labels, found 1"),
        ({"y": [1, 2, 3, 1]}, ValueError, "exactly two labels, found 3"),
        ({"y": [[1, 2], [1, 2]]}, ValueError, r"one-dimensional, got shape \(2, 2\)"),
        ({"quantile": 0.0}, ValueError, "quantile must be positive"),
        ({"quantile": 90}, ValueError, "quantile must be at most 1, got 90. Use 0.9"),
        ({"step": -1.0}, ValueError, "step must be positive and finite, got -1.0"),
        ({"box": 3.0}, TypeError, r"pair \(low, high\) or None, got 3.0"),
        ({"box": (0.0, [1.0, 2.0])}, ValueError, r"arrays of shape \(1,\)"),
        ({"box": (3.0, 0.0)}, ValueError, "low > high"),
        ({"box": (1.0, 3.0)}, ValueError, r"leaves out the mean of a class: feature 0 has mean 0.5.*Widen"),
        ({"scale": -1}, ValueError, "scale must be finite and at least 0, got -1"),
        ({"scale": "1"}, TypeError, "scale must be a number, got str"),
    ],
)
def test_wrong_arguments_are_explained(changes, error, words):
    arguments = {"X": np.arange(4.0)[:, None], "y": [0, 0, 1, 1], "rate": 0.5, "random_state": 0} | changes
    for call in (add_noise, flip_labels, alfa_attack, minmax_attack):
        names = inspect.signature(call).parameters
        if set(changes) <= set(names) and (call, [*changes]) != (add_noise, ["X"]):
            with pytest.raises(error, match=words):
                call(**{name: value for name, value in arguments.items() if name in names})
