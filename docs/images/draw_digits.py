"""Train on digits, attack, and draw the picture of the gallery: ``PYTHONPATH=. python docs/images/draw_digits.py``.

Threes and eights of scikit-learn's digits, pixels in [0, 1], one half to train on. Logistic models: plain, a ridge that
cross-validation tunes and one of fixed strength, robust (radius 0.1 in the linf norm, and half of it), and robust in a
box (radius 0.1 and ``support=(0, 1)``). For a linear model the worst move within linf distance r inside the box is
exact: every pixel moves by r against the model, or up to its limit.
The accuracies are kept in ``docs/data/digits.json``.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from benchmarks.fingerprint import fingerprint
from dualcore import WassersteinLogisticRegression

HERE = Path(__file__).resolve().parent
STORED = HERE.parent / "data" / "digits.json"
RADIUS = 0.1
ATTACKS = np.round(np.arange(0.0, 0.51, 0.02), 2)
LINES = {
    "plain": "#777777",
    "tuned ridge": "#b08d2e",
    "fixed ridge": "#6b8e4e",
    "robust, radius 0.1": "#1f6fb4",
    "robust, radius 0.05": "#7fb0d8",
    "robust, in the box": "#c4421a",
}


def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows and labels to train on, and to attack: -1 is a three, +1 an eight."""
    X, y = load_digits(return_X_y=True)
    kept = np.isin(y, (3, 8))
    X, y = X[kept] / 16.0, np.where(y[kept] == 8, 1, -1)
    order = np.random.default_rng(0).permutation(len(y))
    half = len(y) // 2
    return X[order[:half]], y[order[:half]], X[order[half:]], y[order[half:]]


def attacked(model: Any, X: np.ndarray, y: np.ndarray, radius: Any) -> np.ndarray:
    """Return the worst images within a distance: no pixel leaves [0, 1]."""
    step = np.multiply.outer(np.broadcast_to(radius, len(y)) * y, np.sign(model.coef_[0]))
    return np.clip(X - step, 0.0, 1.0)


def least_attack(model: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return, for every image, the least radius at which the model is wrong, by halving; at most 1."""
    low, high = np.zeros(len(y)), np.ones(len(y))
    for _ in range(30):
        middle = 0.5 * (low + high)
        wrong = model.predict(attacked(model, X, y, middle)) != y
        low, high = np.where(wrong, low, middle), np.where(wrong, middle, high)
    return high


def show(axes: Axes, image: np.ndarray, title: str, *, moved: bool = False) -> None:
    style = {"cmap": "RdBu_r", "vmin": -0.5, "vmax": 0.5} if moved else {"cmap": "gray_r", "vmin": 0.0, "vmax": 1.0}
    axes.imshow(image.reshape(8, 8), interpolation="nearest", **style)
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=9)
    for spine in axes.spines.values():
        spine.set_color("#cccccc")


def main() -> None:
    """Write ``digits.svg`` beside this file, and the accuracies."""
    X, y, X_test, y_test = rows()
    robust = partial(WassersteinLogisticRegression, norm="linf", tol=1e-4)
    ridge = GridSearchCV(LogisticRegression(max_iter=10_000), {"C": np.logspace(-4, 4, 17)}, scoring="neg_log_loss")
    models = {
        "plain": LogisticRegression(C=1e4, max_iter=10_000).fit(X, y),
        "tuned ridge": ridge.fit(X, y).best_estimator_,
        "fixed ridge": LogisticRegression(C=0.1).fit(X, y),  # the best of several under the attack of the page
        "robust, radius 0.1": robust(radius=RADIUS).fit(X, y),
        "robust, radius 0.05": robust(radius=0.5 * RADIUS).fit(X, y),
        "robust, in the box": robust(radius=RADIUS, support=(0.0, 1.0)).fit(X, y),
    }
    accuracy = {
        name: [float(model.score(attacked(model, X_test, y_test, r), y_test)) for r in ATTACKS]
        for name, model in models.items()
    }
    stored = {
        "code": fingerprint("digits"),
        "radius": RADIUS,
        "rows": len(y),
        "attacks": ATTACKS.tolist(),
        "accuracy": accuracy,
    }
    STORED.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")

    shown = {"plain": models["plain"], "robust, in the box": models["robust, in the box"]}
    least = {name: least_attack(model, X_test, y_test) for name, model in shown.items()}
    with rc_context({"svg.hashsalt": "digits", "font.size": 10, "svg.fonttype": "path"}):
        figure = Figure(figsize=(10.2, 4.2), layout="constrained")
        left, right = figure.subfigures(1, 2, width_ratios=(1.5, 1.0))
        grid = left.subplots(2, 5, gridspec_kw={"width_ratios": (1.0, 1.15, 1.15, 1.15, 1.15)})
        for place, (label, name, other) in enumerate(((-1, "three", "eight"), (1, "eight", "three"))):
            own = np.flatnonzero((y_test == label) & (least["plain"] > 0.0))
            # A typical image: the one whose least attacks are nearest to the medians of its class.
            far = sum(np.abs(least[kind][own] - np.median(least[kind][own])) for kind in shown)
            one = own[np.argmin(far)]
            image = X_test[one]
            show(grid[place, 0], image, f"{'a' if label < 0 else 'an'} {name}")
            for k, (kind, model) in enumerate(shown.items()):
                radius = least[kind][one] + 1e-3
                worst = attacked(model, X_test[[one]], y_test[[one]], radius)[0]
                show(grid[place, 1 + 2 * k], worst - image, f"{kind}:\npixels move by {radius:.2f}", moved=True)
                grid[place, 1 + 2 * k].title.set_color(LINES[kind])
                show(grid[place, 2 + 2 * k], worst, f'and it says\n"{other}"')
                grid[place, 2 + 2 * k].title.set_color(LINES[kind])
        left.suptitle("The least change that makes a model wrong", fontsize=11)
        axes = right.subplots()
        for kind, colour in LINES.items():
            axes.plot(ATTACKS, 100.0 * np.array(accuracy[kind]), color=colour, label=kind, linewidth=2)
        right.suptitle("Images never seen, under attack", fontsize=11)
        axes.set(xlabel="radius of attack (1 is white to black)", ylabel="accuracy (%)", ylim=(0, 102), xlim=(0, 0.5))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        figure.savefig(HERE / "digits.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
