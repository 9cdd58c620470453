"""The library's messages in the words of the command line: parameters of Python become options.

This table alone lists how the library spells parameters in its advice; a test checks that every entry still occurs in
some message.
"""

from __future__ import annotations

_CHECKED = ("radius", "label_cost", "ridge", "quantile", "epsilon", "rounds", "tol", "max_iter", "fill")
# Longer spellings come first: shorter ones are parts of them.
_SPELLED = {
    "features=[...], which an estimator takes in source_options": "--drop",
    ", or read it with pandas and pass the frame": "",
    "labels=(no, yes) of open_source codes them, as classifiers do": "use --loss logistic or hinge for these values",
    "coreset=DualCoreset(rounds=..., target_gap=...)": "--rounds and --gap",
    "coreset=None where": "leave out --coreset where",
    "a smaller tol": "a smaller --tol",
    "target_gap": "--gap",
    " (an estimator takes it in source_options)": "",
    "drop_missing=True": "--drop-missing",
    "code them with categories= (estimators: 'from_dtype'), ": "",
    "use separator=": "use --separator ",
    "fill=": "--fill ",
    "or categories=None": "or leave the columns of text out with --drop",
    "feature_weights='std'": "--standardize",
    "; class_weight='balanced' gives both the same": "; --weight can give both the same",
    ", or use multi_class='multinomial'": "",
    "suggest_radius and the estimators whose names end in CV choose one": "dualcore path --cv 5 or --suggest does",
    ", or scale the target by sklearn.compose.TransformedTargetRegressor": "",
    "Use a regressor,": "Use --loss huber,",
    "category_cost names": "--category-cost names",
    "delta=": "--delta ",
    "radius=": "--radius ",
} | {f"{name} must": f"--{name.replace('_', '-')} must" for name in _CHECKED}


def in_options(text: str) -> str:
    """Return a message of the library with its parameters spelled as options, on one line.

    Examples
    --------
    >>> in_options("Use feature_weights='std'.")
    'Use --standardize.'
    """
    for parameter, option in _SPELLED.items():
        text = text.replace(parameter, option)
    return " ".join(text.split())
