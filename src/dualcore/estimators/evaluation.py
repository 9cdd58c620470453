"""What a fitted estimator computes for rows: scores, worst-case risk, certificate, worst-case distribution."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from dualcore.certificates import Certificate
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows, as_weights, refuse_lazy
from dualcore.data.sources import Source, is_source_like
from dualcore.estimators.reader import RowReader, Task, loaded, open_features, score_chunks
from dualcore.estimators.units import checked
from dualcore.problem import Data, Problem
from dualcore.problem.worstcase import WorstCase, worst_case_distribution
from dualcore.reading.rowdata import source_data
from dualcore.solvers import Solution, solve
from dualcore.solvers.assess import assess, certify_in_memory
from dualcore.solvers.overreads import is_small


class RowJudge(RowReader):
    """The part of an estimator that evaluates its model on rows."""

    coef_: FloatArray
    intercept_: Any
    problem_: Problem
    solver: str
    tol: float
    max_iter: int
    _problem: Problem
    _models: Any
    _shape: Any
    _tasks: Any

    @property
    def _settings(self) -> dict[str, Any]:
        """The settings that solvers get."""
        return {"solver": self.solver, "tol": self.tol, "max_iter": self.max_iter}

    def _scores(self, X: Any) -> FloatArray:
        """Return ``X coef + intercept`` of rows in memory, or of a source, which is read once."""
        check_is_fitted(self)
        coef = np.ascontiguousarray(self.coef_.T)
        refuse_lazy(X)
        if not is_source_like(X):
            return np.asarray(as_rows(self._read(X)).dot(coef) + self.intercept_)
        source = open_features(X, self._options_for(X, targets=False))
        self._match_features(source)
        return np.asarray(score_chunks(source, coef, self.intercept_).X)

    def _scored(self, X: Any, y: Any, sample_weight: Any) -> tuple[FloatArray, Any, FloatArray | None]:
        """Return scores, targets and weights of rows, a source read once."""
        check_is_fitted(self)
        data = self._open(X, y, sample_weight)
        coef = np.ascontiguousarray(self.coef_.T)
        if isinstance(data.X, Source):
            _, scores, y, weights = score_chunks(data.X, coef, self.intercept_)
            return scores, data.decoded(y), weights
        return np.asarray(as_rows(data.X).dot(coef) + self.intercept_), data.y, data.weights

    def _evaluations(self, X: Any, y: Any, sample_weight: Any) -> list[tuple[Any, Task]]:
        """Return the models of the fit in the units of training, each with the rows of its problem."""
        check_is_fitted(self)
        tasks = self._ready(X, y, sample_weight)
        return list(zip(self._models(self._shape, len(tasks)), tasks, strict=True))

    def _ready(self, X: Any, y: Any, sample_weight: Any) -> list[Task]:
        """Return the rows of every problem of the fit, in the units of training."""
        data = self._open(X, y, sample_weight)
        return list(self._tasks(data._replace(X=self._in_units(data.X))))

    def _in_units(self, X: Any) -> Any:
        """Return raw rows, or a source of them, in the units of training; a row outside the support is an error."""
        return X if self._units is None else self._units.rows(checked(X, self.problem_))

    def worst_case_risk(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the training objective of this model on other data: worst-case risk, ridge included.

        The data are what `fit` takes; a source is read once for each problem. With one class against the rest it is the
        sum over the classes. Rows are weighted as in training.
        """
        return float(sum(self._risk(model, task) for model, task in self._evaluations(X, y, sample_weight)))

    def _risk(self, model: Any, task: Task) -> float:
        if not self._problem.family.is_closed:
            task = task.in_memory()
        if not isinstance(task.X, Source):
            rows = as_rows(task.X)  # which may be of one class only
            data = Data(rows, np.asarray(task.y, dtype=np.float64), as_weights(task.weights, rows.n))
        elif self._problem.family.moves_rows:  # a bound, which `assess` finds too, would take many reads
            data = source_data(task.X)
        else:
            return assess(self._problem, model, task.X).upper
        return self._problem.minimum(model.coef, model.intercept, data).value

    def certify(self, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
        """Return the worst-case risk of this model on other data, and a lower bound on that of any model.

        The data are what `fit` takes. Up to two million numbers are trained on where the bound that the model itself
        gives is not within ``tol``: it is then as tight as that of a fit, and takes as long. More rows are read a few
        times, those of a source once. See `dualcore.certify`.
        """
        return total_certificate([self._certify(*pair) for pair in self._evaluations(X, y, sample_weight)])

    def _certify(self, model: Any, task: Task) -> Certificate:
        problem, rows = self._problem, task.in_memory()[:3]
        if isinstance(rows[0], Source):
            return assess(problem, model, rows[0])
        known = certify_in_memory(problem, model, *rows)
        # Of a box and of categories the bound comes from training already.
        if known.relative_gap <= self.tol or not (problem.family.is_closed and is_small(rows[0])):
            return known
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            best = solution_certificate(problem, solve(problem, *rows, warm_start=model, **self._settings))
        if best.lower <= known.lower:
            return known
        rounding = known.rounding + best.rounding
        return Certificate(known.upper, min(best.lower, known.upper), known.n_reads + best.n_reads, rounding)

    def worst_case_distribution(self, X: Any, y: Any = None, sample_weight: Any = None) -> WorstCase:
        """Return the distribution within the radius around these data that is worst for this model (order 1).

        The data are what `fit` takes; rows of a source are loaded, for as many are returned. Moved rows are coded as
        the columns of ``coef_names_``; ``source`` is their number among the rows that were not left out.
        """
        check_is_fitted(self)
        [task] = self._tasks(self._open(X, y, sample_weight))
        rows = loaded(task.X) if isinstance(task.X, Source) else task[:3]
        coef, intercept = self.coef_, self.intercept_
        if self.problem_.family.n_outputs == 1:
            coef, intercept = np.ravel(coef), float(np.squeeze(intercept))
        return worst_case_distribution(self.problem_, coef, intercept, *rows)


def solution_certificate(problem: Problem, solution: Solution) -> Certificate:
    """Return the certificate of a solution on all rows."""
    # In memory an iteration reads all rows once, and so does the final score. Of many classes three reads come first,
    # and a step of Newton's method is one, with at most three for its bound and one for the risk.
    joint = problem.family.n_outputs > 1
    per_step, others = (5 if solution.solver == "structured" else 1, 3) if joint else (1, 1)
    reads = solution.n_reads or per_step * solution.iterations + others
    return Certificate(solution.value, solution.lower_bound, reads, solution.rounding)


def total_certificate(parts: Sequence[Certificate]) -> Certificate:
    """Return what is known about the sum of problems from what is known about each."""
    sums = (sum(getattr(part, name) for part in parts) for name in ("upper", "lower", "n_reads", "rounding"))
    return Certificate(*sums)
