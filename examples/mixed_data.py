"""Categories at a price: a table of numbers and categories, trained against an adversary that changes categories.

The groups of one-hot columns are found in the fitted encoder. With price 1 the radius is the share of rows in which the
adversary may change one category, so it can be read off a believed error rate. Numbers are trusted more and cost 5.
"""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from dualcore import WassersteinLogisticRegression, changed_categories, find_categories, worst_case_distribution

CITIES = np.array(["Bergen", "Lima", "Oslo", "Quito", "Rome", "Turin"])
EFFECT = dict(zip(CITIES, [2.5, -1.0, 1.0, -1.0, 0.5, -2.0], strict=True))
RATE = 0.2  # how often a wrong city is feared
SHARES = (0.0, 0.1, RATE, 0.3)


def draw(rows: int, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Return two numbers, a city, five binary marks that say nothing, and a label."""
    city = rng.choice(CITIES, rows)
    table = pd.DataFrame({"age": rng.normal(size=rows), "income": rng.normal(size=rows), "city": city})
    for mark in range(5):
        table[f"mark {mark}"] = rng.choice(["no", "yes"], rows)
    score = table["age"] + 0.5 * table["income"] + np.array([EFFECT[name] for name in city])
    return table, np.where(score + rng.logistic(size=rows) > 0.0, 1, -1)


def accuracies(model: Any, table: pd.DataFrame, y: np.ndarray) -> list[float]:
    """Return the accuracy where the city is changed in a share of the rows, to the one that suits the label least."""
    scores = [model.decision_function(table.assign(city=name)) for name in CITIES]
    suits_least = CITIES[np.argmin(np.stack(scores) * y, axis=0)]
    place = np.arange(len(y)) / len(y)  # rows are in no order
    return [
        float(model.score(table.assign(city=np.where(place < share, suits_least, table["city"])), y))
        for share in SHARES
    ]


def tuned_ridge() -> GridSearchCV:
    return GridSearchCV(LogisticRegression(max_iter=10_000), {"C": np.logspace(-3, 3, 7)})


found = []
numbers = ("numbers", StandardScaler(), ["age", "income"])
texts = ["city", *(f"mark {mark}" for mark in range(5))]
for seed in range(6):
    rng = np.random.default_rng(seed)
    (train, y_train), (test, y_test) = draw(80, rng), draw(4_000, rng)
    prepare = ColumnTransformer([numbers, ("texts", OneHotEncoder(handle_unknown="ignore"), texts)]).fit(train)
    groups = find_categories(prepare)
    prices = np.where(np.char.startswith(prepare.get_feature_names_out().astype(str), "numbers"), 5.0, 1.0)
    robust = WassersteinLogisticRegression(radius=RATE, feature_weights=prices, categories=groups)
    models = {
        "plain": make_pipeline(prepare, LogisticRegression(C=np.inf, max_iter=10_000)),
        "tuned ridge": make_pipeline(prepare, tuned_ridge()),
        "tuned ridge, numbers alone": make_pipeline(ColumnTransformer([numbers]), tuned_ridge()),
        "numeric one-hot columns": make_pipeline(prepare, clone(robust).set_params(categories=None)),
        "categories at price 1": make_pipeline(prepare, robust),
    }
    found.append([accuracies(model.fit(train, y_train), test, y_test) for model in models.values()])

print(f"{len(groups)} groups of one-hot columns; the first is {groups[0]}")
print(f"accuracy where this share of the cities is changed against the model, mean of {len(found)} draws")
print(" " * 26 + "".join(f"{share:>8.2f}" for share in SHARES))
for title, scores in zip(models, np.mean(found, axis=0), strict=True):
    print(f"{title:<26}" + "".join(f"{score:>8.3f}" for score in scores))

coded, labels = np.asarray(prepare.transform(train)), y_train.astype(float)
worst = worst_case_distribution(robust.problem_, robust.coef_[0], float(robust.intercept_[0]), coded, labels)
names = [name.split("__")[1] for name in prepare.get_feature_names_out()]
print("what the adversary changes most, in the last draw")
for change in changed_categories(robust.problem_, worst, coded)[:2]:
    ends = ["none" if column is None else names[column] for column in (change.before, change.after)]
    print(f"  {ends[0]} becomes {ends[1]} in {100 * change.mass:.1f} % of the rows")
