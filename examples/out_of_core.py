"""Data that do not fit in memory: a folder of Parquet files, read a few times in chunks.

The folder is given to the estimator by its path, with the name of the target; the labels are words. The model is the
one that the arrays would give.
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dualcore import WassersteinLogisticRegression, open_source

rng = np.random.default_rng(0)
n_files, n_rows, truth = 4, 50_000, np.array([1.0, -1.0, 0.5, 0.0, 0.0])
parts = []
with tempfile.TemporaryDirectory() as folder:
    for number in range(n_files):
        X = rng.normal(size=(n_rows, 5))
        label = np.where(X @ truth + rng.logistic(size=n_rows) > 0.0, "click", "pass")
        columns = {f"x{j}": X[:, j] for j in range(5)} | {"label": label}
        pq.write_table(pa.table(columns), Path(folder) / f"part-{number}.parquet")
        parts.append((X, label))

    model = WassersteinLogisticRegression(radius=0.02, coreset=2000, random_state=0).fit(folder, "label")
    source = open_source(folder, "label", labels=("click", "pass"))
    print(
        f"{source.n_rows} rows in {n_files} files, {len(model.coreset_)} in the coreset, {source.n_features} features"
    )
    print(f"classes {model.classes_.tolist()}, certified relative gap {model.certificate_.relative_gap:.1e}")
    print(f"reads of the data {model.certificate_.n_reads}")

whole = WassersteinLogisticRegression(radius=0.02, coreset=2000, random_state=0)
whole.fit(np.concatenate([X for X, _ in parts]), np.concatenate([label for _, label in parts]))
print(f"largest difference to the model from arrays {np.abs(model.coef_ - whole.coef_).max():.0e}")
