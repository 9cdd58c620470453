"""Choosing a radius: by cross-validation, by the rule of one standard error, by the noise of the sample.

Breast-cancer data, standardised, 100 rows to train on. All three ways see the training rows only.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from dualcore import Problem, WassersteinLogisticRegression, WassersteinLogisticRegressionCV, suggest_radius

X, y = load_breast_cancer(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=100, random_state=0, stratify=y)
scaler = StandardScaler().fit(X_train)
X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)

best = WassersteinLogisticRegressionCV(radii=10, cv=5).fit(X_train, y_train)
robust = WassersteinLogisticRegressionCV(radii=10, cv=5, rule="one_standard_error").fit(X_train, y_train)
suggested = suggest_radius(Problem("logistic"), X_train, 2.0 * y_train - 1.0, random_state=0)
models = {
    "radius 0": WassersteinLogisticRegression(radius=0.0, ridge=1e-6).fit(X_train, y_train),
    "cross-validated": best,
    "one standard error": robust,
    "suggested": WassersteinLogisticRegression(radius=suggested).fit(X_train, y_train),
}
rng = np.random.default_rng(0)
drift = 0.5 * rng.normal(size=X_test.shape)

print("how the radius was chosen   radius   accuracy   with noise added")
for name, model in models.items():
    clean, noisy = model.score(X_test, y_test), model.score(X_test + drift, y_test)
    print(f"{name:26}  {model.problem_.radius:.4f}     {clean:.3f}     {noisy:.3f}")
