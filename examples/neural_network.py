"""A model that is not linear: Algorithm 1 from bounds alone, for a small neural network.

`grid_coreset` needs only a lower and an upper bound on each row's dual loss h. For a network whose loss is G-Lipschitz
in the features and an adversary that can move a row by at most D, h lies between the loss and the loss plus
(G - lam) D: `lipschitz_bounds`. Where gradients and their Lipschitz constant are known, `smooth_bounds` is tighter.
The coreset estimates the mean loss of networks better than as many uniform rows, but no better than rows drawn in the
order of the pilot's loss, which cost as much. Networks trained on it are not better.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from dualcore import grid_coreset, lipschitz_bounds

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16.0, y % 2, test_size=0.3, random_state=0)
SIZE = 250


def train(rows: np.ndarray, epochs: int = 60, seed: int = 0) -> MLPClassifier:
    return MLPClassifier((16,), max_iter=epochs, random_state=seed, tol=1e-2).fit(X_train[rows], y_train[rows])


def losses(net: MLPClassifier) -> np.ndarray:
    chances = net.predict_proba(X_train)[np.arange(len(y_train)), y_train]
    return np.asarray(-np.log(np.clip(chances, 1e-12, 1.0)))


def shuffled(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(len(y_train))


# Log-loss at a pilot, and a Lipschitz constant: the product of the layers' spectral norms.
pilot, other = train(shuffled(0)[:300]), train(shuffled(1)[:500], epochs=180, seed=1)
lipschitz = float(np.prod([np.linalg.norm(layer, 2) for layer in pilot.coefs_]))
bounds = lipschitz_bounds(losses(pilot), lipschitz, multiplier=0.5 * lipschitz, diameter=0.1)

pilot_losses, other_losses = losses(pilot), losses(other)
by_loss, errors, accuracies = np.argsort(pilot_losses), [], []
for seed in range(100):
    uniform = shuffled(2 + seed)[:SIZE]
    places = (np.random.default_rng(seed).random() + np.arange(SIZE)) * len(y_train) / SIZE
    sorted_draw = by_loss[places.astype(int)]  # rows at equal distances in the order of the pilot's loss
    draw = grid_coreset(bounds.lower, bounds.upper, size=SIZE, random_state=seed)
    for loss in (pilot_losses, other_losses):
        means = np.array([loss[uniform].mean(), loss[sorted_draw].mean(), draw.weights @ loss[draw.indices]])
        errors.append(np.abs(means / loss.mean() - 1.0))
    if seed < 10:
        # MLPClassifier takes no weights: repeat rows in proportion, and the others as often, for as many steps.
        copies = np.repeat(draw.indices, np.maximum(1, np.round(draw.weights * 1000).astype(int)))
        chosen = (np.resize(uniform, len(copies)), np.resize(sorted_draw, len(copies)), copies)
        accuracies.append([train(rows, seed=seed).score(X_test, y_test) for rows in chosen])

print(f"{SIZE} of {len(y_train)} rows                   uniform   sorted by loss   grid coreset")
pilot_errors, other_errors = np.mean(np.reshape(errors, (-1, 2, 3)), axis=0)
for name, values in {"error, pilot": pilot_errors, "error, another network": other_errors}.items():
    print(f"{name:32}" + "".join(f"{value:.3f}           " for value in values).rstrip())
accuracy = ", ".join(f"{value:.3f}" for value in np.mean(accuracies, axis=0))
print(f"test accuracy of networks trained on these rows: {accuracy}")
