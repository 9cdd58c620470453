"""What is run and what is shown: studies, and the tables that are read off them.

A `Study` is a set of runs that are stored together; a `Table` is one column of numbers of it, laid out like the
paper's. Table 1 and two tables of the appendix are three views of one study.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from dualcore.problem import Problem
from experiments.data import DataKey

ALL = "all"
# Worst-case risk, test accuracy (or loss), CPU time over that of Whole, risk over that of Whole minus one.
Value = Literal["risk", "score", "seconds", "excess"]
SAMPLERS = ("UniSamp", "ImpSamp", "LayerSamp", "DualCore", "Coreset alone", "Fit")


@dataclass(frozen=True)
class Case:
    """One row of a table: on which data, which problem, how large a coreset."""

    data: DataKey  # a loader of `experiments.data.LOADERS` and its arguments
    problem: Problem
    share: float  # coreset rows over training rows, ``c`` in the paper; rounded down to whole rows, as there
    whole: str = ALL  # under which row the training on all rows is stored
    by_trial: bool = False  # whether the number of the trial is a last argument of the loader (one letter a trial)
    most: int | None = None  # more trials than this are not run

    def key(self, trial: int) -> DataKey:
        """Return what names the data of a trial."""
        return (*self.data, trial) if self.by_trial else self.data

    def trials(self, asked: int) -> int:
        """Return how many trials to run."""
        return asked if self.most is None else min(asked, self.most)


@dataclass(frozen=True)
class Study:
    """Runs that belong together."""

    name: str  # also the name of the file of its records
    title: str
    cases: dict[str, Case]  # by row
    methods: tuple[str, ...] = SAMPLERS  # in the order of the columns
    repeats: int = 5  # how often the training on all rows is timed
    conic: tuple[str, ...] = (ALL,)  # rows whose Whole is timed with the conic solver too: it can take minutes
    tol: float = 1e-6  # relative gap asked of every solve

    def wholes(self) -> dict[str, Case]:
        """Return one case for each Whole there is, by the row it is stored under."""
        found: dict[str, Case] = {}
        for case in self.cases.values():
            found.setdefault(case.whole, case)
        return found


@dataclass(frozen=True)
class Table:
    """A view of a study.

    Where ``own_split`` is set the rows trained on are not the paper's: means cannot be compared with the printed ones,
    only distances from Whole.
    """

    name: str  # also the file of the printed figures below ``paper/``, where the paper prints it
    title: str
    study: str
    value: Value
    better: Literal["lower", "higher"] = "lower"
    offset: float = 0.0  # subtracted from what is shown, ours and theirs
    digits: int = 5  # decimals shown
    printed: bool = True  # whether the paper prints it
    head: str = "c"  # of the first column
    own_split: bool = False


LABEL_COST = 7.0
LOGISTIC = Problem("logistic", radius=0.3, norm="l1", label_cost=LABEL_COST)
# The paper's text does not mention the ridge; its released code has it, and Whole needs it.
SVM = Problem("hinge", radius=0.1, norm="l2", label_cost=LABEL_COST, ridge=1.0 / 200.0)
# The radius is so large that ||coef|| <= 2 / label_cost is a constraint, and the penalty a constant.
HUBER = Problem("huber", radius=100.0, norm="l2", label_cost=LABEL_COST, delta=1.0)
HUBER_PENALTY = 100.0 * 2.0 / LABEL_COST
PERCENTS = {f"{k}%": k / 100.0 for k in range(1, 11)}


def _by_share(data: DataKey, problem: Problem) -> dict[str, Case]:
    return {row: Case(data, problem, share) for row, share in PERCENTS.items()}


def _mnist_pairs() -> dict[str, Case]:
    return {
        f"{a} vs {b}": Case(("mnist-pair", a, b), LOGISTIC, 0.005, whole=f"{a} vs {b}", most=3)
        for a, b in combinations(range(10), 2)
    }


def _label_costs() -> dict[str, Case]:
    """Table 1's and Table 2's problems with cheaper labels."""
    cases = {}
    for name, problem in (("logistic", LOGISTIC), ("SVM", SVM)):
        for cost in (1.0, 2.0):
            whole = f"{name}, label cost {cost:g}"
            for share in (0.02, 0.05, 0.1):
                priced = problem.replace(label_cost=cost)
                cases[f"{whole}, {share:.0%}"] = Case(("letter", "minmax"), priced, share, whole)
    return cases


def _boxes() -> dict[str, Case]:
    """LETTER in [0, 1], and an adversary who may not leave it either."""
    problems = {
        "SVM, l1": Problem("hinge", radius=0.2, norm="l1", label_cost=1.0, support=(0.0, 1.0)),
        "logistic, linf": Problem("logistic", radius=0.05, norm="linf", label_cost=1.0, support=(0.0, 1.0)),
    }
    return {
        f"{whole}, {share:.0%}": Case(("letter-unit", "minmax"), problem, share, whole)
        for whole, problem in problems.items()
        for share in (0.05, 0.1)
    }


def _scales() -> dict[str, Case]:
    """Thousands of rows and more: all letters, Adult, all of MNIST."""
    problem = Problem("logistic", radius=0.02, norm="l2", label_cost=LABEL_COST)
    groups: tuple[tuple[str, DataKey, bool, int], ...] = (
        ("LETTER, one against 25", ("letter-against-rest",), True, 26),
        ("a9a", ("adult",), False, 5),
        ("MNIST, odd against even", ("mnist-parity",), False, 3),
    )
    return {
        f"{whole}, {share:.1%}": Case(data, problem, share, whole, by_trial, most)
        for whole, data, by_trial, most in groups
        for share in (0.005, 0.01, 0.02, 0.05)
    }


def _studies() -> list[Study]:
    minmax, alfa, energy = ("letter", "minmax"), ("letter", "alfa"), ("energy", 0)
    wide, small = SVM.replace(radius=0.2), HUBER.replace(loss="huber", delta=0.2)
    by_share: tuple[tuple[str, str, DataKey, Problem], ...] = (
        ("letter-minmax-logistic", "logistic regression, LETTER under Min-Max, radius 0.3", minmax, LOGISTIC),
        ("letter-minmax-svm", "SVM, LETTER under Min-Max, radius 0.1", minmax, SVM),
        ("letter-minmax-svm-wide", "SVM, LETTER under Min-Max, radius 0.2", minmax, wide),
        ("letter-alfa-logistic", "logistic regression, LETTER under ALFA, radius 0.3", alfa, LOGISTIC),
        ("letter-alfa-svm", "SVM, LETTER under ALFA, radius 0.1", alfa, SVM),
        ("energy", "Huber regression with delta = 1, Appliances Energy, radius 100", energy, HUBER),
        ("energy-small-delta", "Huber regression with delta = 0.2, Appliances Energy, radius 100", energy, small),
    )
    pairs = "logistic regression, MNIST pairs with noise and flipped labels, radius 0.3, c = 0.5 %"
    box = "LETTER under Min-Max in [0, 1], on that support, label cost 1"
    large, some = (
        "logistic regression, radius 0.02, l2, on larger data",
        ("UniSamp", "LayerSamp", "DualCore", "Coreset alone", "Fit"),
    )
    return [
        *(Study(name, title, _by_share(data, problem)) for name, title, data, problem in by_share),
        Study("mnist", pairs, _mnist_pairs(), repeats=1, tol=1e-4, methods=some, conic=()),
        Study("label-cost", "LETTER under Min-Max with label costs 1 and 2", _label_costs(), conic=()),
        Study("box", box, _boxes(), repeats=3, methods=some, conic=()),
        Study("scale", large, _scales(), repeats=1, methods=("UniSamp", *some[2:]), conic=()),
    ]


STUDIES: dict[str, Study] = {study.name: study for study in _studies()}


def _table(name: str, study: str, value: Value, what: str, **more: Any) -> Table:
    return Table(name, f"{what}: {STUDIES[study].title}", study, value, **more)


def _appendix(name: str, study: str, score: str = "accuracy", head: str = "c", **more: Any) -> tuple[Table, Table]:
    """Return the two tables that the appendix has of a study: what it scores on the test rows, and its time."""
    what = "Test accuracy (%)" if score == "accuracy" else "Test Huber loss, summed"
    shown: dict[str, Any] = {"better": "higher", "digits": 2, "head": head} | more
    return (
        _table(f"{name}-{score}", study, "score", what, **shown),
        _table(f"{name}-time", study, "seconds", "CPU time over that of Whole", digits=3, head=head),
    )


def _tables() -> tuple[Table, ...]:
    risk, ours = "Worst-case risk", {"printed": False, "head": "setting"}
    less = {"offset": HUBER_PENALTY, "own_split": True}
    return (
        _table("table1", "letter-minmax-logistic", "risk", risk),
        _table("table2", "letter-minmax-svm", "risk", risk),
        _table("table3", "energy", "risk", f"{risk} less {HUBER_PENALTY:.4f}", **less),
        *_appendix("mnist", "mnist", head="pair"),
        *_appendix("letter-minmax-logistic", "letter-minmax-logistic"),
        *_appendix("letter-alfa-logistic", "letter-alfa-logistic"),
        *_appendix("letter-alfa-svm", "letter-alfa-svm"),
        *_appendix("letter-minmax-svm", "letter-minmax-svm-wide"),
        *_appendix("energy", "energy-small-delta", "loss", better="lower", digits=3, own_split=True),
        _table("label-cost", "label-cost", "risk", risk, **ours),
        _table("box", "box", "risk", risk, **ours),
        _table("scale", "scale", "excess", "Relative excess risk over Whole", digits=6, printed=False, head="data, c"),
    )


TABLES: dict[str, Table] = {table.name: table for table in _tables()}


def get_table(name: str) -> Table:
    """Return a table by name, or say which there are.

    Examples
    --------
    >>> get_table("table1").study
    'letter-minmax-logistic'
    """
    if name not in TABLES:
        raise ValueError(f"There is no table {name!r}. Use one of: {', '.join(TABLES)}.")
    return TABLES[name]
