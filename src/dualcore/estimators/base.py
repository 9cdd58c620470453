"""What all estimators share: their parameters, the way from data to a certified model, prediction."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dualcore.certificates import Certificate
from dualcore.coresets.refine import as_sampler, fit_coreset, is_auto
from dualcore.coresets.samplers import Round
from dualcore.data.arrays import FloatArray, plain_array
from dualcore.data.rows import Rows, as_rows
from dualcore.data.sources import Source, is_source_like
from dualcore.estimators.chunks import Scored, open_features, score_chunks
from dualcore.estimators.columns import check_labels, naming_columns, numbered
from dualcore.estimators.parameters import estimator
from dualcore.estimators.remarks import Fitted, remark
from dualcore.problem import Problem
from dualcore.problem.geometry import Norm
from dualcore.problem.losses import Loss
from dualcore.solvers import Iterate, Solution, solve

# float32 data stay float32: rows are widened block by block where they are used.
_CONTAINERS: dict[str, Any] = {"accept_sparse": ("csr", "csc"), "dtype": [np.float64, np.float32]}
_LARGEST_SEED = 2**31 - 1


def _check_masks(**arrays: Any) -> None:
    """Refuse masked values: scikit-learn's validation would drop the mask and keep what is under it."""
    for name, values in arrays.items():
        if isinstance(values, np.ma.MaskedArray):
            plain_array(name, values)


class Training(NamedTuple):
    """One problem, solved: the model, what is known about it on the full data, and the coreset it came from."""

    solution: Solution
    certificate: Any  # None where rows came in parts: those that are gone cannot be certified
    coreset: Any


@estimator
class WassersteinLinearModel(BaseEstimator):
    """Base of the estimators; a subclass names its loss and stores what `_train` returns.

    Parameters
    ----------
    radius : float, default=0.01
        ``sigma >= 0``, in the units of the features; 0 is plain empirical risk. The default is for standardised ones.
    norm : {"l1", "l2", "linf"} or Norm, default="l2"
        Feature norm of the transport cost; its dual norm bounds the coefficients ("linf" makes them sparse).
    feature_weights : array-like of shape (n_features,), optional
        Price of moving each feature by one unit; ``inf`` makes a feature immovable.
    label_cost : float, default=inf
        Twice the price of moving a target by one; ``inf`` leaves targets where they are.
    support : (low, high) or None, default=None
        Walls that the adversary cannot pass: numbers or one per feature, ``inf`` for none. Rows must lie inside.
    categories : list of lists, optional
        Groups of one-hot columns, by number or, where X is a frame, by name. The adversary changes a group from one
        category to any other at a price. None in a group stands for a category without a column. `find_categories`
        returns the groups of a fitted encoder.
    category_cost : float or list of float, default=1.0
        Price of a change, for all groups or one for each; ``inf`` makes a group immovable.
    ridge : float, default=0.0
        Adds ``ridge / 2 * ||coef||_2^2``; the intercept is never penalised.
    fit_intercept : bool, default=True
        Whether the model has an intercept, which is never penalised.
    coreset : None, float, int, sampler or "auto", default=None
        None trains on the whole data; a share in (0, 1], a number of rows or a sampler trains on a coreset. "auto"
        takes what is quicker by measurement, and says in ``solution_.solver`` what it took. A share and a number ask
        for a certified relative gap of 1e-3; where four rounds do not reach it, a ConvergenceWarning says what they
        reached.
    solver : {"auto", "structured", "descent", "conic", "box", "power"}, default="auto"
        What trains the model; "auto" chooses by the problem and the size of the data.
    tol : float, default=1e-6
        Relative gap between the risk and its lower bound at which the solver stops.
    max_iter : int, default=200
        Iterations of the solver.
    random_state : int, RandomState or None, default=None
        Seeds the draw of a coreset.
    warm_start : bool, default=False
        Whether `fit` sets out from the model of the last fit, where that has as many features and classes: the solver
        from its coefficients, a coreset of a given size from it as anchor. A sampler keeps its own anchor.
    verbose : int, default=0
        1 prints the rounds and the outcome, 2 the iterations of the solver too: while they are made, with solver="box"
        afterwards.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of the data.
    intercept_ : float
        0 without an intercept.
    worst_case_risk_ : float
        Objective on the full data at the solution, ridge included.
    certificate_ : Certificate
        What is known on the full data: ``.upper``, ``.lower``, ``.gap``, ``.relative_gap``, ``.n_reads``.
    dual_variable_ : float
        The multiplier lambda.
    coreset_ : Coreset or None
        What the model was trained on; None for the whole data.
    solution_ : Solution
        How the solve went: status sentence, history. The per-row dual point is left out to keep models small.
    n_iter_ : int
        Iterations of the solver.
    problem_ : Problem
        What was solved, with the parameters of the fit.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only where X is a frame with string column names.
    """

    radius: float = 0.01
    norm: str | Norm = "l2"
    feature_weights: npt.ArrayLike | None = None
    label_cost: float = np.inf
    support: tuple[npt.ArrayLike, npt.ArrayLike] | None = None
    categories: Any = None
    category_cost: Any = 1.0
    ridge: float = 0.0
    fit_intercept: bool = True
    coreset: Any = None
    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int = 200
    random_state: int | np.random.RandomState | None = None
    warm_start: bool = False
    verbose: int = 0

    problem_: Problem = field(init=False)

    @abstractmethod
    def _loss(self) -> Loss:
        """Return the loss, its own parameters checked."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")

    def _make_problem(self, X: Any = None) -> Problem:
        """Check every parameter and return the problem they state about ``X``."""
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            raise TypeError(f"fit_intercept must be True or False, got {self.fit_intercept!r}.")
        if not check_number("tol", self.tol) > 0.0:
            raise ValueError(f"tol must be positive, got {self.tol!r}.")
        check_count("max_iter", self.max_iter, least=1)
        check_count("verbose", self.verbose, least=0)
        if self.coreset is not None and not is_auto(self.coreset):
            as_sampler(self.coreset)
        check_random_state(self.random_state)
        return Problem(
            self._loss(),
            radius=self.radius,
            norm=self.norm,
            feature_weights=self.feature_weights,
            label_cost=self.label_cost,
            support=self.support,
            categories=numbered(self.categories, X),
            category_cost=self.category_cost,
            ridge=self.ridge,
            fit_intercept=self.fit_intercept,
        )

    def _read_rows(self, X: Any) -> Rows:
        """Return row access to new features, checked against those of the fit."""
        check_is_fitted(self)
        _check_masks(X=X)
        with naming_columns(X):
            return as_rows(validate_data(self, X, reset=False, **_CONTAINERS))

    def _read_pair(self, X: Any, y: Any, *, reset: bool, y_numeric: bool) -> tuple[Any, Any]:
        """Return features (neither copied nor densified where they are floats already) and target, checked."""
        _check_masks(X=X, y=y)
        if not y_numeric:
            check_labels(y)
        with naming_columns(X):
            checked: tuple[Any, Any] = validate_data(self, X, y, reset=reset, y_numeric=y_numeric, **_CONTAINERS)
        return checked

    def _note_features(self, source: Source) -> None:
        """Keep number and names of the features, as `validate_data` does for rows in memory."""
        self.n_features_in_ = source.n_features
        if source.feature_names is not None:
            self.feature_names_in_ = np.array(source.feature_names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _match_features(self, source: Source) -> None:
        """See that a source has the features of the fit."""
        if source.n_features != self.n_features_in_:
            raise ValueError(
                f"The source has {source.n_features} features, {type(self).__name__} was trained on "
                f"{self.n_features_in_}."
            )
        known = getattr(self, "feature_names_in_", None)
        if known is not None and source.feature_names is not None and tuple(known) != source.feature_names:
            raise ValueError(
                "The features of the source are not those of the training data, in their order: "
                f"{list(source.feature_names[:5])} instead of {list(known[:5])}."
            )

    def _scores(self, X: Any) -> FloatArray:
        """Return ``X coef + intercept`` of rows in memory, or of a source, which is read once."""
        check_is_fitted(self)
        if is_source_like(X):
            return self._score_chunks(open_features(X, self)).scores
        return np.asarray(self._read_rows(X).dot(np.ascontiguousarray(self.coef_.T)) + self.intercept_)

    def _score_chunks(self, source: Source) -> Scored:
        """Return scores, targets and weights of the rows of a source with the features of the fit."""
        self._match_features(source)
        return score_chunks(source, np.ascontiguousarray(self.coef_.T), self.intercept_)

    def _train(
        self,
        problem: Problem,
        X: Any,
        y: FloatArray | None,
        weights: FloatArray | None,
        name: str = "",
        *,
        seed: Any = None,
        start: Any = None,
    ) -> Training:
        """Train on the whole data or through a coreset, as the parameter ``coreset`` says.

        ``seed`` is that of the draw, ``self._seed()`` if there is none; ``start`` is an earlier solution.
        """
        title = getattr(self, "_title", type(self).__name__) + (f" {name}" if name else "")
        say = partial(print, f"[{title}]", flush=True)
        shown = 0  # lines printed while it ran
        if self.coreset is None or (is_auto(self.coreset) and problem.family.n_outputs > 1):
            settings: dict[str, Any] = {"solver": self.solver, "tol": self.tol, "max_iter": self.max_iter}
            settings["warm_start"] = start
            if self.verbose and isinstance(X, Source):
                settings["callback"] = lambda done: say(_describe_read(done))
            elif self.verbose > 1:

                def show(done: Iterate) -> None:
                    nonlocal shown
                    shown += 1
                    say(_describe_iteration(done))

                settings["callback"] = show
            with warnings.catch_warnings():  # `_remark` says it, once for all classes
                warnings.simplefilter("ignore", ConvergenceWarning)
                solution = solve(problem, X, y, weights, **settings)
            # In memory an iteration reads all rows once, and so does the final score. Of many classes three reads come
            # first, and a step of Newton's method is one, with at most three for its bound and one for the risk.
            joint = problem.family.n_outputs > 1
            per_step, others = (5 if solution.solver == "structured" else 1, 3) if joint else (1, 1)
            reads = solution.n_reads or per_step * solution.iterations + others
            certificate = Certificate(solution.value, solution.lower_bound, reads, solution.rounding)
            training = Training(solution, certificate, None)
        else:
            seed = self._seed() if seed is None else seed
            with warnings.catch_warnings():
                if is_auto(self.coreset):  # which may take all rows
                    warnings.simplefilter("ignore", ConvergenceWarning)
                found = fit_coreset(
                    problem,
                    X,
                    y,
                    self.coreset,
                    sample_weight=weights,
                    warm_start=start,
                    solver=self.solver,
                    tol=self.tol,
                    max_iter=self.max_iter,
                    random_state=seed,
                    callback=(lambda done: say(_describe_round(done))) if self.verbose else None,
                )
            training = Training(found.solution, found.certificate, found.coreset)
        training = self._name_features(training)
        if self.verbose:
            done = training.solution
            for line in done.history if self.verbose > 1 and not shown else ():
                say(_describe_iteration(line))
            work = f"{done.iterations} iterations of the {done.solver} solver, {done.seconds:.2f} s"
            say(f"{done.status.value} {work}. {training.certificate}")
        # A dual point has a number for every row: without it a fitted model is as small as its coefficients.
        return training._replace(solution=replace(training.solution, dual=None))

    def _remark(
        self, problem: Problem, found: Sequence[Training], X: Any, ys: Any, weights: Any, names: Sequence[Any] = ("",)
    ) -> None:
        """Warn of what a user should look at: ``ys`` and ``names`` are those of the problems that were solved."""
        rows = [
            (X, y, weights) if not isinstance(X, Source) or few is None else (few.X, few.y, few.weights)
            for (_, _, few), y in zip(found, ys, strict=True)
        ]
        fits = [Fitted(str(name), problem, *one, *data) for name, one, data in zip(names, found, rows, strict=True)]
        remark(getattr(self, "_title", type(self).__name__), fits, tol=self.tol, target=target_gap(self.coreset))

    def _name_features(self, training: Training) -> Training:
        """Return the training with the names of the features in the coreset, where there are names."""
        names = getattr(self, "feature_names_in_", None)
        if training.coreset is None or names is None:
            return training
        details = training.coreset.details | {"feature_names": [str(name) for name in names]}
        return training._replace(coreset=replace(training.coreset, details=details))

    def _earlier(self, *shape: int, count: int = 1) -> list[Any]:
        """Return the solutions of the last fit to set out from, one for each model; None where there is none.

        ``shape`` is that of the coefficients of a model.
        """
        if not isinstance(self.warm_start, (bool, np.bool_)):
            raise TypeError(f"warm_start must be True or False, got {self.warm_start!r}.")
        found = getattr(self, "solution_", None) if self.warm_start else None
        found = found if isinstance(found, list) else [found]
        usable = len(found) == count and all(one is not None and one.coef.shape == shape for one in found)
        return found if usable else [None] * count

    def _keep(self, solution: Solution, certificate: Certificate | None, coreset: Any) -> None:
        """Store a model. Without a certificate the risk is that on the coreset."""
        self.coef_, self.intercept_ = solution.coef, solution.intercept
        self.solution_, self.certificate_, self.coreset_ = solution, certificate, coreset
        self.dual_variable_, self.n_iter_ = solution.dual_variable, solution.iterations
        self.worst_case_risk_ = solution.value if certificate is None else certificate.upper

    def _seed(self) -> int | None:
        """Return the seed of the draws; a RandomState yields a new one at every call."""
        if isinstance(self.random_state, np.random.RandomState):
            return int(self.random_state.randint(_LARGEST_SEED))
        return self.random_state


def _describe_read(done: Iterate) -> str:
    gap = done.gap / max(abs(done.value), np.finfo(float).tiny)
    return f"read {done.iteration}: worst-case risk {done.value:.8g}, certified relative gap {gap:.2e}"


def _describe_round(done: Round) -> str:
    known = f"worst-case risk {done.upper:.8g} on all rows, certified relative gap {done.relative_gap:.2e}"
    return f"read {done.read}: trained on {done.rows} rows, {known}"


def _describe_iteration(done: Iterate) -> str:
    return f"iteration {done.iteration}: value {done.value:.8g}, gap {done.gap:.2e}"


def check_number(name: str, value: Any) -> float:
    """Return ``value`` if it is a real number; the losses check its range.

    Examples
    --------
    >>> check_number("delta", 2)
    2.0
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}.")
    return float(value)


def check_count(name: str, value: Any, least: int) -> None:
    """Raise unless ``value`` is a whole number of at least ``least``."""
    if not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number, got {type(value).__name__}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value!r}.")


def target_gap(coreset: Any) -> float | None:
    """Return the certified gap that a coreset is asked for; None where a sampler is not asked for any.

    A size, or "auto" where it chose one, asks for that of the sampler it stands for.
    """
    if is_auto(coreset) or isinstance(coreset, (int, float, np.integer, np.floating)):
        coreset = as_sampler(1.0 if is_auto(coreset) else coreset, None)
    gap = getattr(getattr(coreset, "inner", coreset), "target_gap", None)
    return None if gap is None else float(gap)
