"""Groups of options that commands share: each option is written once, and commands name the groups they take.

Checks import what they need when they run, so that ``--help`` does not wait for it.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from dualcore.cli.outcome import Exit, OptionError

if TYPE_CHECKING:
    from dualcore.cli.rows import Given

_KINDS = "Rows: .csv, .tsv (also .gz, .bz2), .parquet, .feather, .svm, .npy, .npz, a folder of them, a glob or a URI."
DataFile = Annotated[str, typer.Argument(metavar="data", help=_KINDS)]
Weight = Annotated[str | None, typer.Option(help="Column of row weights; '' for equal weights.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the draws: the same seed gives the same model.")]
Separator = Annotated[str | None, typer.Option(help="Separator of a CSV file; tab is a tab.")]

# The estimator of every loss, and the parameter of its own.
_ESTIMATORS = {
    "logistic": ("WassersteinLogisticRegression", None),
    "hinge": ("WassersteinLinearSVC", None),
    "huber": ("WassersteinHuberRegressor", "delta"),
    "pinball": ("WassersteinQuantileRegressor", "quantile"),
    "epsilon_insensitive": ("WassersteinLinearSVR", "epsilon"),
    "squared": ("WassersteinLinearRegression", None),
}


@dataclass(frozen=True)
class DataOptions:
    """Where the rows are, and which columns are what."""

    path: DataFile
    target: Annotated[str | None, typer.Option("--target", "-t", help="Column to learn, by name or position.")] = None
    drop: Annotated[list[str] | None, typer.Option(help="Column that is not a feature; may be given again.")] = None
    weight: Weight = None
    standardize: Annotated[bool, typer.Option("--standardize", help="Measure features in standard deviations.")] = False
    fill: Annotated[str | None, typer.Option(help="What to put for missing features: mean, median or a number.")] = None
    drop_missing: Annotated[bool, typer.Option("--drop-missing", help="Leave out rows with missing values.")] = False
    separator: Separator = None

    def rows(self) -> Given:
        """Return the rows, as estimators take them."""
        from dualcore.cli.rows import find_rows

        columns = (self.target, self.weight, self.drop or ())
        return find_rows(self.path, *columns, separator=parse_separator(self.separator), drop_missing=self.drop_missing)


@dataclass(frozen=True)
class StreamData(DataOptions):
    """The rows of a stream, which come once: their deviations are not known."""

    standardize: bool = field(default=False, init=False)


@dataclass(frozen=True)
class ProblemOptions:
    """The problem, as options state it."""

    loss: Annotated[
        str, typer.Option(help="Classes: logistic, hinge; numbers: huber, pinball, epsilon_insensitive, squared.")
    ] = "logistic"
    radius: Annotated[float, typer.Option(help="How far rows may move on average; with 0 they stay.")] = 0.01
    norm: Annotated[str, typer.Option(help="How moving features is measured: l1, l2 or linf.")] = "l2"
    label_cost: Annotated[
        float, typer.Option(help="Price of one label flip, of numbers half of it for a move by one; inf forbids.")
    ] = math.inf
    category_cost: Annotated[
        list[str] | None, typer.Option(help="Price of changing a category: a number, inf, or COLUMN=PRICE, repeatedly.")
    ] = None
    ridge: Annotated[float, typer.Option(help="Adds ridge / 2 times the squared coefficients.")] = 0.0
    fit_intercept: Annotated[bool, typer.Option("--intercept/--no-intercept", help="Fit an intercept.")] = True
    delta: Annotated[float, typer.Option(help="Huber: where the loss turns linear.")] = 1.35
    quantile: Annotated[float, typer.Option(help="Pinball: which quantile.")] = 0.5
    epsilon: Annotated[float, typer.Option(help="Epsilon-insensitive: errors below cost nothing.")] = 0.1

    def estimator(self, data: DataOptions, training: TrainingOptions | None = None) -> Any:
        """Return the estimator that options describe, its parameters checked before a file is opened."""
        import dualcore

        if self.loss not in _ESTIMATORS:
            raise OptionError(f"--loss {self.loss} is unknown. Use one of: {', '.join(_ESTIMATORS)}.")
        kind, own = _ESTIMATORS[self.loss]
        names = ["radius", "norm", "label_cost", "ridge", "fit_intercept", *([] if own is None else [own])]
        costs = parse_costs(self.category_cost or ())
        if math.inf in costs.values() and not self.ridge > 0.0:
            raise OptionError("--category-cost inf needs --ridge: nothing else bounds coefficients that cannot move.")
        settings: dict[str, Any] = {name: getattr(self, name) for name in names}
        settings |= {"categories": "from_dtype", "category_cost": costs or 1.0, "fill": parse_fill(data.fill)}
        try:
            settings |= {} if training is None else training.settings()
            model = getattr(dualcore, kind)(feature_weights="std" if data.standardize else None, **settings)
            model.make_problem()
        except (TypeError, ValueError) as error:
            raise OptionError(str(error)) from None
        return model


@dataclass(frozen=True)
class PathProblem(ProblemOptions):
    """The problem of a radius path, which has its own option for radii."""

    radius: float = field(default=0.0, init=False)


@dataclass(frozen=True)
class TrainingOptions:
    """How to train."""

    coreset: Annotated[str | None, typer.Option(help="Train on a sample; rows or share of the coreset.")] = None
    rounds: Annotated[int, typer.Option(help="With a coreset: reads that correct the sample, at most.")] = 4
    gap: Annotated[float, typer.Option(help="With a coreset: certified relative gap at which to stop.")] = 1e-3
    seed: Seed = 0
    tol: Annotated[float, typer.Option(help="Relative gap at which the solver stops.")] = 1e-6
    max_iter: Annotated[int, typer.Option(help="Iterations of the solver at most.")] = 200

    def settings(self) -> dict[str, Any]:
        """Return the parameters of an estimator."""
        from dualcore import DualCoreset

        sampler = None
        if self.coreset is not None:
            size = parse_size(self.coreset)
            sampler = DualCoreset(size=size, rounds=self.rounds, target_gap=self.gap, random_state=self.seed)
        return {"coreset": sampler, "tol": self.tol, "max_iter": self.max_iter, "random_state": self.seed}


@dataclass(frozen=True)
class DrawOptions(TrainingOptions):
    """How to draw a coreset that is kept."""

    coreset: Annotated[str | None, typer.Option("--size", help="Rows to draw, or a share of them.")] = "0.05"


@dataclass(frozen=True)
class PathOptions(TrainingOptions):
    """How to train along a path, one round at each radius."""

    rounds: int = field(default=1, init=False)
    gap: float = field(default=1e-3, init=False)


def parse_size(text: str) -> float | int:
    """Return a size of a coreset: a whole number is a number of rows, any other a share of them.

    Examples
    --------
    >>> parse_size("5000"), parse_size("0.05")
    (5000, 0.05)
    """
    if text.isdecimal():
        return int(text)
    if not 0.0 < _as_float(text) <= 1.0:
        raise OptionError(f"A coreset size is a number of rows or a share in (0, 1], got {text!r}.")
    return float(text)


def _as_float(text: str) -> float:
    """Return a number, NaN where the text is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def parse_radii(text: str | None) -> list[float] | None:
    """Return radii from ``low:high:count`` (evenly spaced logarithms) or from a list with commas.

    Examples
    --------
    >>> parse_radii("0.2,0.1"), parse_radii("1:4:3")
    ([0.1, 0.2], [1.0, 2.0, 4.0])
    """
    import numpy as np

    if text is None:
        return None
    try:
        if ":" not in text:
            return sorted({float(part) for part in text.split(",")})
        low, high, count = text.split(":")
        return sorted(np.geomspace(float(low), float(high), int(count)).tolist())
    except ValueError:
        raise OptionError(f"--radii takes LOW:HIGH:COUNT or a list like 0.01,0.1,1, got {text!r}.") from None


def parse_fill(text: str | None) -> float | str | None:
    """Return what is put for missing values: "mean", "median" or a number.

    Examples
    --------
    >>> parse_fill("mean"), parse_fill("0"), parse_fill(None)
    ('mean', 0.0, None)
    """
    return text if text is None or math.isnan(_as_float(text)) else float(text)


def parse_costs(texts: Sequence[str]) -> dict[str | None, float]:
    """Return the price of a change by column, None for all others, from texts like ``2`` and ``city=inf``.

    Examples
    --------
    >>> parse_costs(["2", "city=inf"])
    {None: 2.0, 'city': inf}
    """
    costs: dict[str | None, float] = {}
    for text in texts:
        name, equals, price = text.rpartition("=")
        cost = _as_float(price)
        if not cost > 0.0:
            raise OptionError(f"--category-cost takes a positive number, inf, or COLUMN=PRICE, got {text!r}.")
        costs[name if equals else None] = cost
    return costs


def parse_separator(text: str | None) -> str | None:
    r"""Return what stands between values; ``tab`` and ``\t`` are a tab.

    Examples
    --------
    >>> parse_separator("tab"), parse_separator(";")
    ('\t', ';')
    """
    return {"tab": "\t", "\\t": "\t", "space": " "}.get(text or "", text)


def grouped(command: Callable[..., Exit]) -> Callable[..., Exit]:
    """Show the fields of the option groups that a command takes as options of their own.

    Typer reads a command's options from its signature. There a parameter that is a dataclass is replaced by the fields
    of that class, and the command gets an instance of it.

    Examples
    --------
    >>> @dataclass
    ... class Size:
    ...     width: int = 2
    >>> @grouped
    ... def draw(size: Size, colour: str = "red") -> Exit:
    ...     print(size, colour)
    ...     return Exit.OK
    >>> print(inspect.signature(draw))
    (*, width: int = 2, colour: str = 'red') -> dualcore.cli.outcome.Exit
    >>> draw(width=3, colour="blue")
    Size(width=3) blue
    <Exit.OK: 0>
    """
    signature, hints = inspect.signature(command), get_type_hints(command, include_extras=True)
    groups: dict[str, list[str]] = {}
    shown: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if not is_dataclass(hints[name]):
            shown.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))
            continue
        options = [option for option in fields(hints[name]) if option.init]
        groups[name] = [option.name for option in options]
        types = get_type_hints(hints[name], include_extras=True)
        shown += [
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if option.default is MISSING else option.default,
                annotation=types[option.name],
            )
            for option in options
        ]

    @functools.wraps(command)
    def run(**values: Any) -> Exit:
        for name, options in groups.items():
            values[name] = hints[name](**{option: values.pop(option) for option in options})
        return command(**values)

    returned = hints["return"]
    run.__signature__ = signature.replace(parameters=shown, return_annotation=returned)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown} | {"return": returned}
    return run
