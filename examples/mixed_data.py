"""Categories at a price: a table of numbers and categories, a pipeline, and what an adversary who changes them teaches.

The groups of one-hot columns are found in the fitted encoder. With price 1 the radius is the share of rows in which the
adversary may change one category, so it can be read off a believed error rate.
"""

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from dualcore import WassersteinLogisticRegression, changed_categories, find_categories, worst_case_distribution

rng = np.random.default_rng(0)
CITIES = np.array(["Bergen", "Lima", "Oslo", "Quito", "Rome", "Turin"])
EFFECT = dict(zip(CITIES, [2.5, -1.0, 1.0, -1.0, 0.5, -2.0], strict=True))
RATE = 0.1  # how often a clerk enters a wrong city


def draw(rows: int, wrong: float) -> tuple[pd.DataFrame, np.ndarray]:
    """Two numbers, a city and five binary marks that say little; some cities are entered wrongly."""
    city = rng.choice(CITIES, rows)
    table = pd.DataFrame({"age": rng.normal(size=rows), "income": rng.normal(size=rows), "city": city})
    for mark in range(5):
        table[f"mark {mark}"] = rng.choice(["no", "yes"], rows)
    score = table["age"] + 0.5 * table["income"] + np.array([EFFECT[name] for name in city])
    y = np.where(score + rng.logistic(size=rows) > 0.0, 1, -1)
    mistaken = rng.random(rows) < wrong
    table.loc[mistaken, "city"] = rng.choice(CITIES, int(mistaken.sum()))
    return table, y


train, y_train = draw(80, 0.0)
texts = [name for name in train.columns if name not in ("age", "income")]
prepare = ColumnTransformer(
    [("numbers", StandardScaler(), ["age", "income"]), ("texts", OneHotEncoder(handle_unknown="ignore"), texts)]
).fit(train)
groups = find_categories(prepare)
print(f"{len(groups)} groups of one-hot columns; the first is {groups[0]}")

models = {
    "plain": LogisticRegression(C=np.inf, max_iter=10_000),
    "numeric one-hot columns": WassersteinLogisticRegression(radius=RATE),
    "categories at price 1": WassersteinLogisticRegression(radius=RATE, categories=groups),
}
tests = {"as in training": draw(20_000, 0.0), "a tenth of the cities wrong": draw(20_000, RATE)}
print("accuracy" + "".join(f"{name:>30}" for name in tests))
for title, model in models.items():
    fitted = make_pipeline(prepare, model).fit(train, y_train)
    print(f"{title:<26}" + "".join(f"{fitted.score(X, y):>24.3f}" for X, y in tests.values()))

coded, labels = np.asarray(prepare.transform(train)), y_train.astype(float)
robust = models["categories at price 1"]
worst = worst_case_distribution(robust.problem_, robust.coef_[0], float(robust.intercept_[0]), coded, labels)
names = [name.split("__")[1] for name in prepare.get_feature_names_out()]
print("what the adversary changes most")
for change in changed_categories(robust.problem_, worst, coded)[:3]:
    ends = ["none" if column is None else names[column] for column in (change.before, change.after)]
    print(f"  {ends[0]} becomes {ends[1]} in {100 * change.mass:.1f} % of the rows")
