"""A model that is not linear: Algorithm 1 from bounds alone, for a small neural network.

`grid_coreset` needs only a lower and an upper bound on each row's dual loss h. For a network whose loss is G-Lipschitz
in the features and an adversary that can move a row by at most D, h lies between the loss and the loss plus
(G - lam) D: `lipschitz_bounds`. Where gradients and their Lipschitz constant are known, `smooth_bounds` is tighter.
The coreset estimates the mean loss of networks better than as many uniform rows. Training on it is not better.
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

found = []
for seed in range(10):
    uniform = shuffled(2 + seed)[:SIZE]
    draw = grid_coreset(bounds.lower, bounds.upper, size=SIZE, random_state=seed)
    # MLPClassifier takes no weights: repeat rows in proportion, and the uniform ones as often, for as many steps.
    copies = np.repeat(draw.indices, np.maximum(1, np.round(draw.weights * 1000).astype(int)))
    nets = train(np.resize(uniform, len(copies)), seed=seed), train(copies, seed=seed)
    means = [
        (loss[uniform].mean(), draw.weights @ loss[draw.indices], loss.mean()) for loss in map(losses, (pilot, other))
    ]
    errors = [[abs(mean / whole - 1.0) for mean in both] for *both, whole in means]
    found.append([*errors, [net.score(X_test, y_test) for net in nets]])

print(f"{SIZE} of {len(y_train)} rows, mean of {len(found)} draws   uniform   grid coreset")
*errors, accuracies = np.mean(found, axis=0)
for name, (uniform_error, coreset_error) in zip(("pilot", "another network"), errors, strict=True):
    print(f"error of the mean loss, {name:15}   {uniform_error:.3f}          {coreset_error:.3f}")
print(f"test accuracy of networks trained on the rows: uniform {accuracies[0]:.3f}, grid coreset {accuracies[1]:.3f}")
