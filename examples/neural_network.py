"""A model that is not linear: Algorithm 1 from bounds alone, for a small neural network.

`grid_coreset` needs only a lower and an upper bound on each row's dual loss h. For a network whose loss is G-Lipschitz
in the features and an adversary that can move a row by at most D, h lies between the loss and the loss plus
(G - lam) D: `lipschitz_bounds`. Where gradients and their Lipschitz constant are known, `smooth_bounds` is tighter.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from dualcore import grid_coreset, lipschitz_bounds

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16.0, y % 2, test_size=0.3, random_state=0)
pilot = MLPClassifier((16,), max_iter=60, random_state=0, early_stopping=False, tol=1e-2)
rows = np.random.default_rng(0).permutation(len(y_train))[:300]
pilot.fit(X_train[rows], y_train[rows])

# Log-loss at the pilot, and a Lipschitz constant: the product of the layers' spectral norms.
chance = np.clip(pilot.predict_proba(X_train)[np.arange(len(y_train)), y_train], 1e-12, 1.0)
loss = -np.log(chance)
lipschitz = float(np.prod([np.linalg.norm(layer, 2) for layer in pilot.coefs_]))
bounds = lipschitz_bounds(loss, lipschitz, multiplier=0.5 * lipschitz, diameter=0.1)
draw = grid_coreset(bounds.lower, bounds.upper, size=250, random_state=0)

# MLPClassifier takes no weights: repeat rows in proportion, which is the same in expectation.
copies = np.maximum(1, np.round(draw.weights * 1000).astype(int))
chosen = np.repeat(draw.indices, copies)
retrained = MLPClassifier((16,), max_iter=60, random_state=0, tol=1e-2).fit(X_train[chosen], y_train[chosen])
uniform = MLPClassifier((16,), max_iter=60, random_state=0, tol=1e-2).fit(X_train[rows[:250]], y_train[rows[:250]])
print(f"test accuracy of a network trained on 250 of {len(y_train)} rows")
print(f"  uniform rows          {uniform.score(X_test, y_test):.3f}")
print(f"  weighted grid coreset {retrained.score(X_test, y_test):.3f}")
