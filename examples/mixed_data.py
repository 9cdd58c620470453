"""Categories at a price: a table of numbers and categories, trained against an adversary that changes categories.

The groups of one-hot columns are found in the fitted encoder. With price 1 the radius is the share of rows in which the
adversary may change one category, so it can be read off a believed error rate. Numbers are trusted more and cost 5.
"""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from dualcore import WassersteinLogisticRegression, changed_categories, find_categories, worst_case_distribution

rng = np.random.default_rng(0)
CITIES = np.array(["Bergen", "Lima", "Oslo", "Quito", "Rome", "Turin"])
EFFECT = dict(zip(CITIES, [2.5, -1.0, 1.0, -1.0, 0.5, -2.0], strict=True))
RATE = 0.2  # how often a wrong city is feared


def draw(rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return two numbers, a city, five binary marks that say nothing, and a label."""
    city = rng.choice(CITIES, rows)
    table = pd.DataFrame({"age": rng.normal(size=rows), "income": rng.normal(size=rows), "city": city})
    for mark in range(5):
        table[f"mark {mark}"] = rng.choice(["no", "yes"], rows)
    score = table["age"] + 0.5 * table["income"] + np.array([EFFECT[name] for name in city])
    return table, np.where(score + rng.logistic(size=rows) > 0.0, 1, -1)


def miscode(model: Any, table: pd.DataFrame, y: np.ndarray, share: float) -> pd.DataFrame:
    """Return the table with the city changed in a share of the rows, to the one that suits the label least."""
    scores = [model.decision_function(table.assign(city=name)) for name in CITIES]
    suits_least = CITIES[np.argmin(np.stack(scores) * y, axis=0)]
    changed = np.arange(len(y)) < share * len(y)  # rows are in no order
    return table.assign(city=np.where(changed, suits_least, table["city"]))


train, y_train = draw(80)
texts = [name for name in train.columns if name not in ("age", "income")]
prepare = ColumnTransformer(
    [("numbers", StandardScaler(), ["age", "income"]), ("texts", OneHotEncoder(handle_unknown="ignore"), texts)]
).fit(train)
groups = find_categories(prepare)
prices = np.where(np.char.startswith(prepare.get_feature_names_out().astype(str), "numbers"), 5.0, 1.0)
print(f"{len(groups)} groups of one-hot columns; the first is {groups[0]}")

models = {
    "plain": LogisticRegression(C=np.inf, max_iter=10_000),
    "tuned ridge": GridSearchCV(LogisticRegression(max_iter=10_000), {"C": np.logspace(-3, 3, 13)}),
    "numeric one-hot columns": WassersteinLogisticRegression(radius=RATE, feature_weights=prices),
    "categories at price 1": WassersteinLogisticRegression(radius=RATE, feature_weights=prices, categories=groups),
}
test, y_test = draw(20_000)
shares = (0.0, 0.1, RATE, 0.3)
print("accuracy where this share of the cities is changed against the model")
print(" " * 26 + "".join(f"{share:>8.2f}" for share in shares))
for title, model in models.items():
    fitted = make_pipeline(prepare, model).fit(train, y_train)
    scores = [fitted.score(miscode(fitted, test, y_test, share), y_test) for share in shares]
    print(f"{title:<26}" + "".join(f"{score:>8.3f}" for score in scores))

coded, labels = np.asarray(prepare.transform(train)), y_train.astype(float)
robust = models["categories at price 1"]
worst = worst_case_distribution(robust.problem_, robust.coef_[0], float(robust.intercept_[0]), coded, labels)
names = [name.split("__")[1] for name in prepare.get_feature_names_out()]
print("what the adversary changes most")
for change in changed_categories(robust.problem_, worst, coded)[:2]:
    ends = ["none" if column is None else names[column] for column in (change.before, change.after)]
    print(f"  {ends[0]} becomes {ends[1]} in {100 * change.mass:.1f} % of the rows")
