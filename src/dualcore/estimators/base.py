"""What all estimators share: their parameters, training to a certified model, prediction."""

from __future__ import annotations

import logging
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import field, replace
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed

from dualcore.coresets.exact import CoresetBuilder, Optima
from dualcore.coresets.fit import as_sampler, is_auto, train_sampler
from dualcore.coresets.samplers import Round
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.data.sources import Source, open_source
from dualcore.estimators.columns import names_columns, numbered
from dualcore.estimators.evaluation import RowJudge, solution_certificate, total_certificate
from dualcore.estimators.logs import LOGGER, describe, logging_to_console
from dualcore.estimators.parameters import check_count, check_number, estimator, in_one_step
from dualcore.estimators.preparation import group_costs
from dualcore.estimators.reader import Opened, Prepared, Task
from dualcore.estimators.remarks import Fitted, remark, target_gap
from dualcore.estimators.saving import Saved
from dualcore.estimators.units import Units, checked
from dualcore.problem import Problem
from dualcore.problem.geometry import Norm
from dualcore.problem.losses import Loss
from dualcore.solvers import Solution, solve
from dualcore.solvers.assess import as_source


class Training(NamedTuple):
    """One solved problem: the model, its certificate on the full data, and the coreset, if one was asked for."""

    solution: Solution
    certificate: Any  # None where rows came in parts: those that are gone cannot be certified
    coreset: Any

    def rows_of(self, task: Task) -> Any:
        """Return rows, targets and weights for remarks: of a source those of the coreset, where there is one."""
        few = getattr(self.coreset, "rows", self.coreset) if isinstance(task.X, Source) else None  # or of `Optima`
        return task[:3] if few is None else (few.X, few.y, few.weights)


@estimator
class WassersteinLinearModel(RowJudge, Saved, BaseEstimator):
    """Base of the estimators; a subclass names its loss and stores what `_train` returns.

    Parameters
    ----------
    radius : float, default=0.01
        ``sigma >= 0``, in the units of the features, or of their deviations with ``feature_weights="std"``; 0 is plain
        empirical risk. The default is for deviations of about one.
    norm : {"l1", "l2", "linf"} or Norm, default="l2"
        Feature norm of the transport cost; its dual norm bounds the coefficients ("linf" makes them sparse).
    feature_weights : array-like of shape (n_features,), "std" or None, default=None
        Price of moving each feature by one unit; ``inf`` makes a feature immovable. "std" is one over the standard
        deviation, weighted by ``sample_weight``: the model is the one that standardised columns give, ridge included,
        in raw units. One-hot columns of ``categories`` stay as they are, and constant columns have the coefficient 0.
    label_cost : float, default=inf
        Twice the price of moving a target by one; ``inf`` leaves targets where they are.
    support : (low, high) or None, default=None
        Limits of the box that rows cannot leave: numbers or one per feature, ``inf`` for none. Rows must lie inside.
    categories : list of lists, "from_dtype" or None, default=None
        Groups of one-hot columns, by number or, where X is a frame, by name. The adversary changes a group from one
        category to any other at a price. None in a group stands for a category without a column. `find_categories`
        returns the groups of a fitted encoder. "from_dtype" codes the columns of text and of categories of frames,
        files and arrays of objects: each becomes a group. A value that did not occur in training is coded as zeros.
    category_cost : float, list of float or dict {column: float}, default=1.0
        Price of a change, for all groups or one for each; ``inf`` makes a group immovable. A dict is for "from_dtype";
        its entry None is the price of all columns that it does not name, else 1.
    fill : float, "mean", "median", dict of these by column, or None, default=None
        What to put for missing numbers; a missing text is then coded as zeros. None refuses missing values.
    source_options : dict, optional
        Options of `open_source` for files, datasets and tables with the target by name: ``features``, the columns to
        use; ``drop_missing=True``, which leaves out rows in which something is missing and not filled; ``separator`` of
        CSV files. Row numbers (of ``coreset_``, of worst cases) then count the rows that are kept. `predict` leaves out
        no row.
    ridge : float, default=0.0
        Adds ``ridge / 2 * ||coef||_2^2``; the intercept is never penalised.
    fit_intercept : bool, default=True
        Whether the model has an intercept, which is never penalised.
    coreset : None, float, int, sampler or "auto", default=None
        None trains on all rows. A share in (0, 1] or a number of rows is the size of a `DualCoreset`: the model is
        trained on a larger sample, whose weights are corrected by reads of all rows, up to a certified relative gap of
        1e-3, and ``coreset_`` has rows that reproduce it. If four corrections do not reach that gap, a
        ConvergenceWarning states the gap. A sampler trains as its class says. "auto" takes all rows or a coreset,
        whichever should be quicker, and says in ``solution_.solver`` what it took.
    solver : {"auto", "structured", "descent", "conic", "box"}, default="auto"
        The solver; "auto" chooses by the problem and the size of the data.
    tol : float, default=1e-6
        Relative gap between the risk and its lower bound at which the solver stops.
    max_iter : int, default=200
        Iterations of the solver.
    random_state : int, RandomState or None, default=None
        Seeds the draw of a coreset.
    warm_start : bool, default=False
        Whether `fit` starts from the model of the last fit, where that has as many features and classes. With
        `DualCoreset` it is the first model that is read on all rows; otherwise the solver starts from it.
    callback : callable, optional
        Called with a `Round` after every read of data trained on through a coreset, else with an `Iterate` after every
        read of a source or every iteration.
    verbose : int, default=0
        1 logs the rounds and the outcome, 2 the iterations of the solver too, by the logger "dualcore"; to standard
        output where logging is not set up.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of the data.
    intercept_ : float
        0 without an intercept.
    worst_case_risk_ : float
        Objective on the full data at the solution, ridge included.
    certificate_ : Certificate
        What is known on the full data: ``.upper``, ``.lower``, ``.gap``, ``.relative_gap``, ``.n_reads``. For a source
        ``n_reads`` counts all reads of the fit, those for ``coreset_`` too.
    certificates_ : list of Certificate
        Those of the problems that were solved: one, or one for each class against the rest, whose sum is
        ``certificate_``.
    dual_variable_ : float
        The multiplier lambda.
    coreset_ : Coreset or None
        A few weighted rows that stand for the data; see ``coreset``. None where the model was trained on all rows.
    solution_ : Solution
        How the solve went: status sentence, history. The per-row dual point is left out to keep models small.
    n_iter_ : int
        Iterations of the solver.
    problem_ : Problem
        What was solved, with the parameters of the fit, in the units of the data: with ``feature_weights="std"`` the
        deviations are its prices, and its ridge has a number for each feature.
    feature_weights_ : ndarray of shape (n_features,) or None
        The prices of the fit, learned where ``feature_weights`` is "std".
    n_features_in_ : int
        Number of raw columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the raw columns; only where X has them.
    target_ : str
        The column that was learned; only where ``y`` named one. Later data may then have columns in any order, and
        others.
    categories_ : dict of str to tuple
        The values of the coded columns, with ``categories="from_dtype"``.
    fill_ : dict of str to float
        What is put for missing values.
    n_rows_, n_dropped_ : int
        How many rows were trained on, and how many were left out because something is missing.
    """

    radius: float = 0.01
    norm: str | Norm = "l2"
    feature_weights: npt.ArrayLike | str | None = None
    label_cost: float = np.inf
    support: tuple[npt.ArrayLike, npt.ArrayLike] | None = None
    categories: Any = None
    category_cost: Any = 1.0
    fill: Any = None
    source_options: Any = None
    ridge: float = 0.0
    fit_intercept: bool = True
    coreset: Any = None
    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int = 200
    random_state: int | np.random.RandomState | None = None
    warm_start: bool = False
    callback: Callable[[Any], None] | None = None
    verbose: int = 0

    problem_: Problem = field(init=False)
    feature_weights_: FloatArray | None = field(init=False)
    # Units of the features in training, None where they are raw, and the problem in these units.
    _units: Units | None = field(init=False)
    _problem: Problem = field(init=False)

    @abstractmethod
    def _loss(self) -> Loss:
        """Return the loss, its own parameters checked."""

    @property
    def _title(self) -> str:
        """Whose fit it is, in what is logged and in warnings: this estimator's, or that of one which chose a radius."""
        return str(vars(self).get("_asked_by", type(self).__name__))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")

    def make_problem(self) -> Problem:
        """Check every parameter and return the problem they state, before any row is read.

        What refers to columns by name, or has to be learned, is not part of it yet; see ``problem_``.
        """
        for name in ("fit_intercept", "warm_start"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}.")
        if not check_number("tol", self.tol) > 0.0:
            raise ValueError(f"tol must be positive, got {self.tol!r}.")
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"callback must be callable, got {type(self.callback).__name__}.")
        check_count("max_iter", self.max_iter, least=1)
        check_count("verbose", self.verbose, least=0)
        if self.coreset is not None and not is_auto(self.coreset):
            as_sampler(self.coreset)
        check_random_state(self.random_state)
        named = self._codes_text or names_columns(self.categories)
        return Problem(
            self._loss(),
            radius=self.radius,
            norm=self.norm,
            feature_weights=None if self._is_standardising else self.feature_weights,
            label_cost=self.label_cost,
            support=self.support,
            categories=None if named else self.categories,
            category_cost=1.0 if named else self.category_cost,
            ridge=self.ridge,
            fit_intercept=self.fit_intercept,
        )

    def _with_columns(self, problem: Problem) -> Problem:
        """Return the problem with what refers to columns by name, or to raw ones, as coded columns."""
        known, names = self._preparation, getattr(self, "feature_names_in_", None)
        groups = known.groups if self._codes_text and known is not None else None
        if not self._codes_text:
            groups = numbered(self.categories, names if known is None else known.coded_names)
        costs = group_costs(self.category_cost, {} if known is None else known.coding)
        changes: dict[str, Any] = {"categories": groups, "category_cost": costs} if groups else {}
        if known is not None and known.coding:
            if self.feature_weights is not None and not self._is_standardising:
                changes["feature_weights"] = known.spread(self.feature_weights, 1.0)
            if self.support is not None:
                low, high = self.support
                changes["support"] = known.spread(low, -np.inf), known.spread(high, np.inf)
        try:
            return problem.replace(**changes) if changes else problem
        except (TypeError, ValueError) as error:
            if known is None or not known.coding:
                raise
            texts = ", ".join(known.coding)
            raise type(error)(f"{error} The columns of text are {texts}: leave them out, or code them first.") from None

    @property
    def _is_standardising(self) -> bool:
        """Whether the prices of the features are learned; what is wrong with them is said here."""
        if not isinstance(self.feature_weights, str):
            return False
        if self.feature_weights != "std":
            given = f"got {self.feature_weights!r}"
            raise ValueError(f"feature_weights must be 'std', None or one positive number (or inf) a feature, {given}.")
        if isinstance(self.norm, Norm) and self.norm.weights is not None:
            raise TypeError("norm has weights already: give it none with feature_weights='std'.")
        return True

    def _learn_units(self, problem: Problem, X: Any, weights: FloatArray | None = None) -> Any:
        """Learn the units of the features, and return rows or a source in them."""
        self._units = None
        if not self._is_standardising:
            return X
        groups = problem.geometry.categories
        keep = [column for group in (() if groups is None else groups.groups) for column in group if column is not None]
        self._units = Units.of(checked(X, problem), weights, keep, centred=problem.fit_intercept)
        return self._units.rows(X)

    def _model(self, coef: FloatArray, intercept: Any, multiplier: Any = np.nan) -> Any:
        """Return a raw model in the units of training."""
        if self._units is not None:
            coef, intercept = self._units.inside(coef, intercept)
        return SimpleNamespace(coef=coef, intercept=intercept, dual_variable=multiplier)

    @property
    def _shape(self) -> tuple[int, ...]:
        """The shape of the coefficients of one model."""
        outputs, width = self._problem.family.n_outputs, len(self.coef_names_)
        return (width,) if outputs == 1 else (outputs, width)

    def _models(self, shape: tuple[int, ...], count: int) -> list[Any]:
        """Return the models of this estimator in the units of training, if they are so many of this shape."""
        coefs, multipliers = self.coef_, np.atleast_1d(self.dual_variable_)
        coefs = coefs.reshape(-1, *coefs.shape[-len(shape) :])
        intercepts = np.atleast_1d(self.intercept_).reshape(coefs.shape[0], -1)
        if coefs.shape != (count, *shape) or multipliers.size != count:
            return [None] * count
        one = len(shape) == 1
        pairs = zip(coefs, intercepts, multipliers, strict=True)
        return [self._model(coef, float(b[0]) if one else b, float(at)) for coef, b, at in pairs]

    def _state(self, problem: Problem) -> Problem:
        """Keep a problem, stated for raw rows, and return it for rows in the units of training."""
        self.problem_ = self._problem = problem
        if self._units is not None:
            self.problem_, self._problem = self._units.stated(problem), self._units.problem(problem)
        self.feature_weights_ = self.problem_.geometry.norm.weights
        return self._problem

    # Training

    def _learn_targets(self, data: Opened) -> None:
        """Learn what there is to learn about the targets: nothing in regression."""

    @abstractmethod
    def _tasks(self, data: Opened, *, joint: bool = False) -> list[Task]:
        """Return the rows of every problem, with targets as solvers take them; ``joint``: as one problem."""

    @property
    def _classes(self) -> Any:
        """The classes, none of them before they are known; None in regression."""

    def _joined(self, problem: Problem) -> Problem:
        """Return the problem of all classes where they share a model, else the same problem."""
        return problem

    def _stacked(self, data: Opened, found: Sequence[Training]) -> Sequence[Training]:
        """Return what was trained, with one coreset that reproduces the models of all classes."""
        if not isinstance(found[0].coreset, Optima):  # one problem, all rows, or another sampler
            return found
        source = open_source(*self._tasks(data, joint=True)[0][:3])
        coreset = CoresetBuilder(source, *(one.coreset for one in found)).best()
        named = replace(coreset, details=coreset.details | {"labels": self._classes})
        return [one._replace(coreset=named) for one in found]

    @in_one_step
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train the model.

        Parameters
        ----------
        X : array, sparse matrix, data frame or table of shape (n_samples, n_features), or a source
            Frames of pandas and polars and tables of pyarrow are rows in memory. Everything else that `open_source`
            takes, a path, URI or glob, a dataset of pyarrow, a Dask collection, a function that returns parts, is read
            in chunks, a few times, and never all loaded. With a coreset memory does not grow with the rows; without one
            a few numbers of every row are kept (20 million rows of 20 features: 3.7 GB).
        y : array of shape (n_samples,), or str
            Targets, in classification labels of any kind; or the name of their column in ``X``. None where a source has
            its own.
        sample_weight : array of shape (n_samples,) or str, optional
            Masses of the rows; only their ratios matter. Or the name of their column.

        Returns
        -------
        self
        """
        problem = self.make_problem()
        before = copy(self) if self.warm_start and hasattr(self, "coef_") else None
        reads = X.n_reads if isinstance(X, Source) else 0
        problem, data = self._pose(problem, self._open(X, y, sample_weight, learn=True))
        tasks = self._tasks(data)
        starts = [None] * len(tasks)
        if before is not None:
            before._units = self._units
            starts = before._models(self._shape, len(tasks))
        many, seed = len(tasks) > 1, None if self.coreset is None else self._seed()
        seed = seed_from(None) if many and seed is None else seed  # the samples of all classes are the same rows
        found = Parallel(n_jobs=getattr(self, "n_jobs", None) if many and not isinstance(data.X, Source) else None)(
            delayed(self._train)(problem, task, seed=seed, start=start)
            for task, start in zip(tasks, starts, strict=True)
        )
        if isinstance(data.X, Source) and not many:  # what was read to find the columns and the classes counts
            total = (data.X.n_reads - reads) or found[0].certificate.n_reads
            found = [found[0]._replace(certificate=replace(found[0].certificate, n_reads=total))]
        self._store(self._stacked(data, found))
        self.n_rows_ = data.X.n_rows if isinstance(data.X, Source) else data.X.shape[0]
        self.n_dropped_ = getattr(data.X, "n_dropped", 0)
        self._remark(problem, found, tasks)
        return self

    def prepare(self, X: Any, y: Any = None, sample_weight: Any = None) -> Prepared:
        """Return the problem and the rows as training takes them: coded, filled, in the units of training.

        It is for functions of this package that take a `Problem` and rows, ``suggest_radius(*prepared[:3])`` for
        example. The data are what `fit` takes, and rows of a source stay in it. A fitted estimator prepares as in its
        fit. Another one learns columns, classes and units from these data.
        """
        model = copy(self)
        if hasattr(self, "_problem"):
            tasks = model._ready(X, y, sample_weight)
        else:
            tasks = model._tasks(model._pose(model.make_problem(), model._open(X, y, sample_weight, learn=True))[1])
        if len(tasks) > 1:
            each = f"One class against the rest is a problem for each of the {len(tasks)} classes, and one is asked for"
            raise ValueError(f"{each}. Keep the rows of two classes, or use multi_class='multinomial'.")
        self.__dict__ = model.__dict__
        return Prepared(self._problem, *tasks[0][:3], self._units)

    def _pose(self, problem: Problem, data: Opened) -> tuple[Problem, Opened]:
        """Learn classes and units from data that were opened, and return problem and data in these units."""
        self._learn_targets(data)
        problem = self._joined(self._with_columns(problem))
        data = data._replace(X=self._learn_units(problem, data.X, data.weights))
        return self._state(problem), data

    def _train(self, problem: Problem, task: Task, *, seed: Any = None, start: Any = None) -> Training:
        """Train on the whole data or through a coreset, as the parameter ``coreset`` says.

        ``seed`` is that of the draw; ``start`` is an earlier model.
        """
        title = self._title + (f" {task.name} against the rest" if task.name else "")
        settings = self._settings

        def tell(done: Any) -> None:
            is_read = isinstance(task.X, Source)
            level = logging.INFO if is_read or isinstance(done, Round) else logging.DEBUG
            LOGGER.log(level, "[%s] %s", title, describe(done, is_read=is_read))
            if self.callback is not None:
                self.callback(done)

        settings["callback"] = tell if self.verbose or self.callback is not None else None
        with logging_to_console(self.verbose), warnings.catch_warnings():
            if self.coreset is None or (is_auto(self.coreset) and problem.family.n_outputs > 1):
                warnings.simplefilter("ignore", ConvergenceWarning)  # `_remark` says it, once for all classes
                solution = solve(problem, task.X, task.y, task.weights, warm_start=start, **settings)
                training = Training(solution, solution_certificate(problem, solution), None)
            else:
                if is_auto(self.coreset):  # which may take all rows
                    warnings.simplefilter("ignore", ConvergenceWarning)
                source = as_source(problem, *task[:3])
                found = train_sampler(problem, source, self.coreset, seed, warm_start=start, **settings)
                found = found if task.name else found.built(source)  # of all classes together: see `_stacked`
                training = Training(found.solution, found.certificate, found.coreset)
            done = training.solution
            work = f"{done.iterations} iterations of the {done.solver} solver, {done.seconds:.2f} s"
            if self.verbose:
                LOGGER.info("[%s] %s %s. %s", title, done.status.value, work, training.certificate)
        # A dual point has a number for every row: without it a fitted model is as small as its coefficients.
        return training._replace(solution=replace(training.solution, dual=None))

    def _remark(self, problem: Problem, found: Sequence[Training], tasks: Sequence[Task]) -> None:
        """Warn of what the user should know about a fit."""
        fits = [Fitted(task.name, problem, *one, *one.rows_of(task)) for one, task in zip(found, tasks, strict=True)]
        remark(self._title, fits, tol=self.tol, target=target_gap(self.coreset))

    def _outside(self, training: Training) -> Training:
        """Return what was trained in raw units, the columns of the coreset named."""
        solution, certificate, coreset = training
        if self._units is not None:
            solution = replace(self._units.outside(solution), problem=self.problem_)
            coreset = None if coreset is None else self._units.coreset_outside(coreset)
        if coreset is not None:
            coreset = replace(coreset, details=coreset.details | self._provenance())
        return Training(solution, certificate, coreset)

    def _provenance(self) -> dict[str, Any]:
        """Return what turns the rows of a coreset into raw ones."""
        if not hasattr(self, "feature_names_in_"):
            return {}
        coding = {} if self._preparation is None else self._preparation.coding
        known = {"coding": {name: list(values) for name, values in coding.items()}} if coding else {}
        return known | {"feature_names": list(self.coef_names_)}

    def _store(self, found: Sequence[Training]) -> None:
        """Keep the models, each a `Training`. Without a certificate the risk is that on the coreset."""
        solutions, certificates, coresets = (list(part) for part in zip(*map(self._outside, found), strict=True))
        one = solutions[0] if len(found) == 1 else _total(solutions)
        self.coef_, self.intercept_, self.dual_variable_ = one.coef, one.intercept, one.dual_variable
        self.solution_, self.n_iter_, self.coreset_ = one, one.iterations, coresets[0]
        if len(found) > 1:
            self.dual_variable_ = np.array([solution.dual_variable for solution in solutions])
            self.n_iter_ = np.array([solution.iterations for solution in solutions])
            self.coreset_ = coresets[0] if found[0].coreset is found[1].coreset else coresets
        self.certificates_ = None if certificates[0] is None else certificates
        self.certificate_ = None if certificates[0] is None else total_certificate(certificates)
        self.worst_case_risk_ = self.solution_.value if self.certificate_ is None else self.certificate_.upper

    def _seed(self) -> int | None:
        """Return the seed of the draws; a RandomState yields a new one at every call."""
        if isinstance(self.random_state, np.random.RandomState):
            return int(self.random_state.randint(np.iinfo(np.int32).max))
        return self.random_state


def _total(solutions: list[Solution]) -> Solution:
    """Return the solutions of one class against the rest as one: that of the sum of their problems."""
    sums = {
        name: sum(getattr(solution, name) for solution in solutions)
        for name in ("dual_variable", "value", "lower_bound", "gap", "iterations", "seconds", "rounding", "n_reads")
    }
    sums["coef"] = np.vstack([solution.coef for solution in solutions])
    sums["intercept"] = np.array([solution.intercept for solution in solutions])
    status = next((one.status for one in solutions if not one.converged), solutions[0].status)
    return replace(solutions[0], status=status, history=(), **sums)
