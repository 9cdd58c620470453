"""Groups of one-hot columns, from the transformer that made them."""

from __future__ import annotations

from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import check_is_fitted


def find_categories(transformer: Any) -> list[list[int | None]]:
    """Return the groups of one-hot columns that a fitted transformer makes, as ``categories=`` takes them.

    Parameters
    ----------
    transformer : OneHotEncoder, ColumnTransformer or Pipeline
        Fitted. Of a ColumnTransformer every encoder is found, those at the end of a pipeline among them. Of a Pipeline
        the last step counts, or where that is a model, the one before it.

    Returns
    -------
    list of lists
        Column numbers of the output, a group for every feature that was encoded. ``None`` stands for a category
        without a column: the one that was dropped, or those that are unknown where the encoder codes them as zeros.

    Examples
    --------
    >>> encoder = OneHotEncoder(drop="first").fit([["Oslo", "red"], ["Rome", "blue"], ["Lima", "red"]])
    >>> find_categories(encoder)
    [[None, 0, 1], [None, 2]]
    """
    check_is_fitted(transformer)
    groups = _groups(transformer, 0)
    if groups is None:
        takes = "a fitted OneHotEncoder, a ColumnTransformer with one, or a Pipeline that ends in one"
        found = f"got {type(transformer).__name__}. Give categories= the column numbers instead"
        raise TypeError(f"find_categories needs {takes}, {found}.")
    if not groups:
        raise ValueError("No OneHotEncoder was found in the transformer, so there are no groups of one-hot columns.")
    return groups


def _groups(transformer: Any, first: int) -> list[list[int | None]] | None:
    """Return the groups of a transformer whose output begins at a column; None where it is of another kind."""
    if isinstance(transformer, OneHotEncoder):
        return _encoded(transformer, first)
    if isinstance(transformer, Pipeline):
        steps = [step for _, step in transformer.steps if step is not None and step != "passthrough"]
        if len(steps) > 1 and not hasattr(steps[-1], "transform"):  # a model: it takes the columns of the step before
            steps.pop()
        return _groups(steps[-1], first) if steps else None
    if isinstance(transformer, ColumnTransformer):
        out: list[list[int | None]] = []
        for name, part, _ in transformer.transformers_:
            out += _groups(part, int(transformer.output_indices_[name].start or 0)) or []
        return out
    return None


def _encoded(encoder: OneHotEncoder, first: int) -> list[list[int | None]]:
    groups: list[list[int | None]] = []
    rare = getattr(encoder, "infrequent_categories_", [None] * len(encoder.categories_))
    zeros = encoder.handle_unknown in ("ignore", "warn")
    for k, values in enumerate(encoder.categories_):
        dropped = encoder.drop_idx_ is not None and encoder.drop_idx_[k] is not None
        size = len(values) - int(dropped) - (0 if rare[k] is None else len(rare[k]) - 1)
        # Where rare categories share a column, unknown ones may be coded as they are.
        unknown = zeros or (encoder.handle_unknown == "infrequent_if_exist" and rare[k] is None)
        columns: list[int | None] = list(range(first, first + size))
        first += size
        if columns:
            groups.append([None, *columns] if dropped or unknown else columns)
    return groups
