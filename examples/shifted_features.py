"""Drifting features: they move between training and use.

Few rows, many features, and a test distribution whose features moved against the model, as a Wasserstein ball allows.
The radius is chosen by `suggest_radius`, from the training data alone. Without label flips the robust
model of the norm linf is a lasso, so the strongest alternatives are penalties tuned by cross-validation: a ridge, and
this lasso.
"""

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from dualcore import Problem, WassersteinLogisticRegression, WassersteinLogisticRegressionCV, suggest_radius

rng = np.random.default_rng(0)
n, m = 200, 40
truth = np.zeros(m)
truth[:4] = 1.0


def draw(rows: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(rows, m))
    return X, np.where(X @ truth + rng.normal(size=rows) > 0, 1.0, -1.0)


X_train, y_train = draw(n)
X_test, y_test = draw(20_000)
radius = suggest_radius(Problem("logistic", norm="linf"), X_train, y_train, random_state=0)
strengths = {"C": np.logspace(-3, 2, 6)}
ridge = GridSearchCV(LogisticRegression(max_iter=10_000), strengths, scoring="neg_log_loss").fit(X_train, y_train)
models = {
    "plain": LogisticRegression(C=np.inf, max_iter=10_000).fit(X_train, y_train),
    "tuned ridge": ridge.best_estimator_,
    "tuned lasso": WassersteinLogisticRegressionCV(norm="linf").fit(X_train, y_train),
    "robust, suggested radius": WassersteinLogisticRegression(radius=radius, norm="linf").fit(X_train, y_train),
}

shifts = (0.0, 0.2, 0.4)
print(f"suggested radius {radius:.4f}; accuracy by the shift of every feature against the model's coefficients")
print(" " * 24, *(f"{shift:6.1f}" for shift in shifts))
for name, model in models.items():
    moved = [X_test - shift * y_test[:, None] * np.sign(model.coef_) for shift in shifts]
    print(f"{name:24}", *(f"{np.mean(model.predict(X) == y_test):6.3f}" for X in moved))
