"""Groups of options that commands share: each option is written once, and commands name the groups they take.

Checks import what they need when they run, so that ``--help`` does not wait for it.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from dualcore.cli.commands.outcome import Exit, OptionError

if TYPE_CHECKING:
    from dualcore import DualCoreset
    from dualcore.cli.coding import Coding
    from dualcore.cli.commands.layout import Reading

DataFile = Annotated[
    Path,
    typer.Argument(
        metavar="data",
        help="Rows: .csv or .tsv with a line of names (also .gz, .bz2), .parquet, .svm, .npy, .npz, or a folder.",
    ),
]
Weight = Annotated[str | None, typer.Option(help="Column of row weights.")]
Seed = Annotated[int, typer.Option(help="Seed of the draws: the same seed gives the same model.")]
Separator = Annotated[str | None, typer.Option(help="What stands between the values of a CSV file; tab is a tab.")]


@dataclass(frozen=True)
class DataOptions:
    """Where the rows are, and which columns are what."""

    path: DataFile
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", help="Column to learn, by name or position; SVMlight text has its own."),
    ] = None
    drop: Annotated[list[str] | None, typer.Option(help="Column that is not a feature; may be given again.")] = None
    weight: Weight = None
    standardize: Annotated[
        bool, typer.Option("--standardize", help="Scale features to mean 0 and deviation 1 first.")
    ] = False
    fill: Annotated[str | None, typer.Option(help="What to put for missing features: mean, median or a number.")] = None
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Leave out rows in which something is missing and not filled.")
    ] = False
    separator: Separator = None

    @property
    def reading(self) -> Reading:
        """How the rows are read, checked."""
        from dualcore.cli.commands.layout import Reading
        from dualcore.cli.commands.options import parse_fill, parse_separator

        return Reading(parse_fill(self.fill), self.drop_missing, parse_separator(self.separator))


@dataclass(frozen=True)
class StreamData(DataOptions):
    """The rows of a stream, which come once: what they are scaled by is not known."""

    standardize: bool = field(default=False, init=False)


@dataclass(frozen=True)
class ProblemOptions:
    """The problem, as options state it."""

    loss: Annotated[
        str, typer.Option(help="Classes: logistic, hinge. Numbers: huber, pinball, epsilon_insensitive, squared.")
    ] = "logistic"
    radius: Annotated[float, typer.Option(help="How far the adversary may move the data; 0 trusts them.")] = 0.01
    norm: Annotated[str, typer.Option(help="How moving features is measured: l1, l2 or linf.")] = "l2"
    label_cost: Annotated[float, typer.Option(help="Price of one label flip; inf forbids flips.")] = math.inf
    category_cost: Annotated[
        list[str] | None,
        typer.Option(
            help="Price of changing a category of a text column: a number (1 unless given; inf forbids changes), or "
            "COLUMN=PRICE; may be given again."
        ),
    ] = None
    ridge: Annotated[float, typer.Option(help="Adds ridge / 2 times the squared coefficients.")] = 0.0
    fit_intercept: Annotated[bool, typer.Option("--intercept/--no-intercept", help="Whether to fit an intercept.")] = (
        True
    )
    delta: Annotated[float, typer.Option(help="Huber: where the loss turns linear.")] = 1.35
    quantile: Annotated[float, typer.Option(help="Pinball: which quantile.")] = 0.5
    epsilon: Annotated[float, typer.Option(help="Epsilon-insensitive: errors below cost nothing.")] = 0.1

    def settings(self, coding: Coding | None = None, columns: Sequence[str] = ()) -> dict[str, Any]:
        """Return the arguments of `Problem`, checked; of the parameters of losses only that of the loss asked for.

        ``coding`` holds the values of the columns of text, None where they are not known yet; ``columns`` are all that
        are features.
        """
        from dualcore import Problem
        from dualcore.cli.coding import coded_groups
        from dualcore.cli.commands.options import ESTIMATORS, OWN_PARAMETER, category_costs

        if self.loss not in ESTIMATORS:
            raise OptionError(f"--loss {self.loss} is unknown. Use one of: {', '.join(ESTIMATORS)}.")
        foreign = {"category_cost", *OWN_PARAMETER.values()} - {OWN_PARAMETER.get(self.loss)}
        settings = {name: value for name, value in vars(self).items() if name not in foreign}
        costs = category_costs(self.category_cost or (), coding)
        if math.inf in costs and not self.ridge > 0.0:
            raise OptionError("--category-cost inf needs --ridge: nothing else bounds coefficients that cannot move.")
        if coding:
            settings |= {"categories": coded_groups(columns, coding), "category_cost": costs}
        try:
            Problem(**settings)
        except (TypeError, ValueError) as error:
            found = f" The columns of text are {', '.join(coding)}; --drop leaves a column out." if coding else ""
            raise OptionError(f"{error}{found}") from None
        return settings

    @property
    def is_classification(self) -> bool:
        """Whether the target holds labels."""
        from dualcore.problem.losses import LOSSES, MarginLoss

        return issubclass(LOSSES[self.loss], MarginLoss)


@dataclass(frozen=True)
class PathProblem(ProblemOptions):
    """The problem of a radius path, which has its own option for radii."""

    radius: float = field(default=0.0, init=False)


@dataclass(frozen=True)
class TrainingOptions:
    """How to train."""

    coreset: Annotated[
        str | None, typer.Option(help="Train on a sample, and choose a coreset of so many rows or such a share.")
    ] = None
    rounds: Annotated[int, typer.Option(help="How often at most the sample that trains is corrected by a read.")] = 4
    gap: Annotated[float, typer.Option(help="Stop as soon as the certified relative gap is below.")] = 1e-3
    seed: Seed = 0
    tol: Annotated[float, typer.Option(help="Relative gap at which the solver stops.")] = 1e-6
    max_iter: Annotated[int, typer.Option(help="Iterations of the solver at most.")] = 200

    def sampler(self) -> DualCoreset | None:
        """Return the sampler, None for the whole data."""
        from dualcore import DualCoreset
        from dualcore.cli.commands.options import parse_size

        if self.rounds < 1 or not self.gap > 0.0:
            raise OptionError("--rounds must be at least 1, and --gap positive.")
        if self.seed < 0:
            raise OptionError(f"--seed must not be negative, got {self.seed}.")
        if not self.tol > 0.0 or self.max_iter < 1:
            raise OptionError("--tol must be positive, and --max-iter at least 1.")
        if self.coreset is None:
            return None
        return DualCoreset(
            size=parse_size(self.coreset), rounds=self.rounds, target_gap=self.gap, random_state=self.seed
        )


@dataclass(frozen=True)
class DrawOptions(TrainingOptions):
    """How to draw a coreset that is kept: of the size asked for, in few rounds."""

    coreset: Annotated[str | None, typer.Option("--size", help="Rows to draw, or a share of them.")] = "0.05"
    rounds: Annotated[int, typer.Option(help="How often at most the sample that trains is corrected by a read.")] = 2
    gap: float = field(default=1e-9, init=False)
    tol: float = field(default=1e-6, init=False)
    max_iter: int = field(default=200, init=False)


@dataclass(frozen=True)
class PathOptions(TrainingOptions):
    """How to train along a path, one round at each radius."""

    rounds: int = field(default=1, init=False)
    gap: float = field(default=1e-3, init=False)


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
    (*, width: int = 2, colour: str = 'red') -> dualcore.cli.commands.outcome.Exit
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
