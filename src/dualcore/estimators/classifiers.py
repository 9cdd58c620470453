"""Robust linear classifiers for any two labels, one-vs-rest for more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import log_expit, log_softmax, logsumexp
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows, as_weights
from dualcore.data.sources import Source, is_source_like, open_labelled, open_source
from dualcore.estimators.base import WassersteinLinearModel
from dualcore.estimators.chunks import named_features
from dualcore.estimators.columns import check_labels
from dualcore.estimators.onebyone import known_classes, open_classes, store
from dualcore.estimators.parameters import estimator
from dualcore.estimators.streaming import (
    all_or_nothing,
    keep_streams,
    learns_in_parts,
    open_streams,
    train_on_streams,
)
from dualcore.problem import Data, Problem
from dualcore.problem.losses import Hinge, Logistic, Loss, Softmax, SquaredHinge
from dualcore.problem.worstcase import WorstCase, worst_case_distribution
from dualcore.solvers.assess import assess

_HINGES: dict[str, type[Loss]] = {"hinge": Hinge, "squared_hinge": SquaredHinge}


@estimator
class WassersteinClassifier(ClassifierMixin, WassersteinLinearModel):
    """Labels in, margins out: everything the classifiers share but their loss.

    Parameters
    ----------
    label_cost : float, default=inf
        Price of one label flip, in units of the feature norm; ``inf`` forbids flips.
    class_weight : dict {label: weight} or "balanced", optional
        Multiplies ``sample_weight``; "balanced" gives every class the same mass.
    n_jobs : int or None, default=None
        Processes for more than two classes, one against the rest, of rows in memory; -1 for all cores. It has no effect
        on a source: its classes are trained one after another.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    coef_ : ndarray of shape (1, n_features), or (n_classes, n_features) with more than two classes
        With two classes the scores of the second one; with more, a row for each class against the rest.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        0 without an intercept.
    worst_case_risk_ : float or ndarray of shape (n_classes,)
        Objective on the full data at the solution, ridge included; with more than two classes one per class.
    certificate_ : Certificate or list of Certificate, one per class
        What is known on the full data: ``.upper``, ``.lower``, ``.gap``, ``.relative_gap``, ``.n_reads``.
    dual_variable_ : float or ndarray of shape (n_classes,)
        The multiplier lambda.
    coreset_ : Coreset, list of Coreset, or None
        What the model was trained on; None for the whole data.
    solution_ : Solution or list of Solution
        How the solve went: status sentence, history. The per-row dual point is left out to keep models small.
    n_iter_ : int or ndarray of shape (n_classes,)
        Iterations of the solver.
    class_weight_ : ndarray of shape (n_classes,)
        What ``sample_weight`` is multiplied by; all 1 without ``class_weight``.
    """

    class_weight: Mapping[Any, float] | str | None = None
    n_jobs: int | None = None

    classes_: npt.NDArray[Any] = field(init=False)
    class_weight_: FloatArray = field(init=False)
    coef_: FloatArray = field(init=False)
    intercept_: FloatArray = field(init=False)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train the classifier.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features), or a source
            Whatever `open_source` takes: a source, the path of a Parquet file or folder, a Dask collection, a function
            that returns parts. It is read in chunks, a few times, and never all loaded, with or without a coreset. More
            than two classes in a source are whole numbers, and every class against the rest takes reads of its own.
        y : array of shape (n_samples,)
            Labels of any kind, two or more different ones. With a source what `open_source` takes for it: None where
            the source has targets, the name of a column.
        sample_weight : array of shape (n_samples,), optional
            Masses of the rows; only their ratios matter. With a source as ``y``.

        Returns
        -------
        self
        """
        problem = self._make_problem(X)
        self.__dict__.pop("_streams", None)
        if is_source_like(X):
            return self._fit_source(problem, X, y, sample_weight)
        X, y = self._read_pair(X, y, reset=True, y_numeric=False)
        check_classification_targets(y)
        self.classes_, code = np.unique(y, return_inverse=True)
        if self.classes_.size < 2:
            raise ValueError(f"y holds one class only ({self.classes_[0]!r}); a classifier needs rows of two classes.")
        weights = as_weights(sample_weight, code.size)
        self.class_weight_ = self._weigh_classes(y, code, weights)
        self.problem_ = problem
        if self._is_joint:
            self._fit_joint(problem, X, code, self._row_weights(code, weights))
            return self
        binary = self.classes_.size == 2
        positives = range(1 if binary else 0, self.classes_.size)
        masses, starts = self._row_weights(code, weights), self._earlier(X.shape[1], count=len(positives))
        targets = [np.where(code == positive, 1.0, -1.0) for positive in positives]
        names = ["" if binary else str(self.classes_[positive]) for positive in positives]
        tasks = [
            delayed(self._train)(
                problem,
                X,
                target,
                masses,
                "" if binary else f"{name} against the rest",
                seed=None if self.coreset is None else self._seed(),
                start=start,
            )
            for target, name, start in zip(targets, names, starts, strict=True)
        ]
        found = list(Parallel(n_jobs=None if binary else self.n_jobs)(tasks))
        store(self, found)
        self._remark(problem, found, X, targets, masses, names)
        return self

    @available_if(learns_in_parts)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Take in a part of the rows, and train on a coreset of all parts so far.

        A `CoresetStream` keeps some rows and sums over all; ``coreset`` says how many rows train the model, 5,000 if
        it is None. The first call after `fit`, or of a new estimator, begins anew. ``worst_case_risk_`` is that on the
        coreset and ``certificate_`` is None: what holds on rows that are gone is not known. Rows whose distribution
        drifts are a `DriftWarning`. There is no model until rows of every class have come.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        classes : array of shape (n_classes,)
            All labels there will be; needed in the first call, unless `fit` was called before and they are the same.
        sample_weight : array of shape (n_samples,), optional
            Either all parts have weights or none.

        Returns
        -------
        self
        """
        first = not hasattr(self, "_streams")
        classes = getattr(self, "classes_", None) if first and classes is None else classes
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs the share of every class, which is not known before the last part. Pass "
                "a dict, or sample_weight."
            )
        with all_or_nothing(self):
            problem = self._make_problem(X)
            X, y = self._read_pair(X, y, reset=first, y_numeric=False)
            if classes is not None:
                check_labels(classes, "classes")
            if first:
                self.classes_ = np.unique(classes)
                if self.classes_.size < 2:
                    raise ValueError(f"classes must hold two labels or more, got {classes!r}.")
            elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise ValueError(f"classes={classes!r} are not those of the first call, {self.classes_!r}.")
            code = self._codes(y)
            self.class_weight_ = self._weigh_classes(self.classes_, np.arange(self.classes_.size), None)
            binary, joint = self.classes_.size == 2, self._is_joint
            positives = [-1] if joint else list(range(1 if binary else 0, self.classes_.size))
            weights = self._row_weights(
                code, as_weights(sample_weight, code.size) if sample_weight is not None else None
            )
            problem = self._joint_problem(problem) if joint else problem
            streams = open_streams(self, problem, len(positives))
            targets = [code.astype(np.float64) if joint else np.where(code == one, 1.0, -1.0) for one in positives]
            names = ["" if binary or joint else str(self.classes_[positive]) for positive in positives]
            found: list[Any] = train_on_streams(self, streams, X, targets, weights, names)
            keep_streams(self, problem, streams)
            if all(one is not None for one in found):
                if joint:
                    self._keep(*found[0])
                else:
                    store(self, found)
        return self

    def _fit_source(self, problem: Problem, X: Any, y: Any, sample_weight: Any) -> Self:
        """Train on the rows of a source."""
        before = X.n_reads if isinstance(X, Source) else 0
        sources = open_classes(self, X, y, sample_weight)
        self.problem_ = problem
        if self._is_joint:
            self._fit_joint(problem, sources[0], None, None)
            return self
        binary, starts = len(sources) == 1, self._earlier(sources[0].n_features, count=len(sources))
        names = [""] if binary else [str(label) for label in self.classes_]
        found = [
            self._train(problem, source, None, None, "" if binary else f"{name} against the rest", start=start)
            for source, name, start in zip(sources, names, starts, strict=True)
        ]
        store(self, found)
        if binary:  # a source without a count of its rows was read once more, to find the labels
            reads = (sources[0].n_reads - before) or found[0].certificate.n_reads
            self.certificate_ = replace(found[0].certificate, n_reads=reads)
        self._remark(problem, found, sources[0], [None] * len(found), None, names)
        return self

    def _fit_joint(self, problem: Problem, X: Any, code: Any, weights: FloatArray | None) -> None:
        """Train one softmax model of all classes: ``X`` is rows, or a source with class numbers as targets."""
        [start] = self._earlier(self.classes_.size, self.n_features_in_)
        joint = self.problem_ = self._joint_problem(problem)
        found = self._train(joint, X, code, weights, start=start)
        self._keep(*found)
        self._remark(joint, [found], X, [code], weights)

    def _joint_problem(self, problem: Problem) -> Problem:
        """Return the softmax problem with the radius, norm, label cost, ridge and intercept of a logistic one."""
        return problem.replace(loss=Softmax(int(self.classes_.size)))

    def decision_function(self, X: Any) -> FloatArray:
        """Return ``X coef + intercept``, shape (n_samples,), or (n_samples, n_classes) with more than two classes.

        ``X`` is arrays or whatever `open_source` takes; a source, a path or a Dask collection is read once, in chunks.
        Of a file with names the columns that the model knows are taken.
        """
        scores = self._scores(X)
        return scores[:, 0] if self.classes_.size == 2 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the label of every row, shape (n_samples,); ``X`` as in `decision_function`."""
        return self._labels(self._scores(X))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy; the data are arrays, or what `fit` takes, read once in chunks."""
        if not is_source_like(X):
            check_labels(y)
            return float(super().score(X, y, sample_weight))
        check_is_fitted(self)
        known = named_features(X, self)
        source: Source
        if self.classes_.size == 2:
            source, _ = open_labelled(X, y, sample_weight, classes=self.classes_.tolist(), **known)
        else:
            source = open_source(X, y, sample_weight, **known)
        found = self._score_chunks(source)
        labels = self.classes_[(found.y > 0.0).astype(np.int64)] if self.classes_.size == 2 else found.y
        return float(accuracy_score(labels, self._labels(found.scores), sample_weight=found.weights))

    def _labels(self, scores: FloatArray) -> npt.NDArray[Any]:
        chosen = (scores[:, 0] > 0.0).astype(np.int64) if self.classes_.size == 2 else scores.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def worst_case_risk(self, X: Any, y: Any = None, sample_weight: Any = None) -> float | FloatArray:
        """Return the training objective of this model on other data: worst-case risk, ridge included.

        Rows are weighted by ``class_weight_`` times ``sample_weight``. With more than two classes there is one risk for
        each class against the rest, shape (n_classes,); a multinomial model has one. The data are arrays or a source,
        which is read once for each risk.
        """
        if is_source_like(X):
            check_is_fitted(self)
            sources = known_classes(self, X, y, sample_weight)
            self._match_features(sources[0])
            if self._is_joint:
                model = SimpleNamespace(coef=self.coef_, intercept=self.intercept_)
                return assess(self.problem_, model, sources[0]).upper
            found = [
                assess(self.problem_, SimpleNamespace(coef=coef, intercept=float(b)), source).upper
                for coef, b, source in zip(self.coef_, self.intercept_, sources, strict=True)
            ]
            return found[0] if len(found) == 1 else np.array(found)
        X, code = self._read_labels(X, y)
        rows, weights = as_rows(X), self._row_weights(code, as_weights(sample_weight, code.size))
        if self._is_joint:
            return self.problem_.risk(self.coef_, self.intercept_, rows, code, weights)
        first = 1 if self.classes_.size == 2 else 0
        risks = [
            self.problem_.minimum(coef, float(b), Data(rows, np.where(code == positive, 1.0, -1.0), weights)).value
            for positive, (coef, b) in enumerate(zip(self.coef_, self.intercept_, strict=True), start=first)
        ]
        return risks[0] if self.classes_.size == 2 else np.array(risks)

    def worst_case_distribution(self, X: Any, y: Any, sample_weight: Any = None) -> WorstCase:
        """Return the distribution within the radius around these data that is worst for this model.

        Its labels are labels of yours. For more than two classes it needs one model of all of them
        (``multi_class="multinomial"``): one class against the rest is a problem, and so an adversary, for every class.
        """
        X, code = self._read_labels(X, y)
        weights = self._row_weights(code, as_weights(sample_weight, code.size))
        if self._is_joint:
            worst = worst_case_distribution(self.problem_, self.coef_, self.intercept_, X, code, weights)
            return replace(worst, y=self.classes_[worst.y.astype(np.int64)])
        if self.classes_.size != 2:
            raise ValueError(
                "worst_case_distribution is about one adversary, and with one class against the rest each of the "
                f"{self.classes_.size} problems has its own. Use multi_class='multinomial', or fit a classifier on "
                "(y == label) to see the worst case of one class against the rest."
            )
        worst = worst_case_distribution(
            self.problem_, self.coef_[0], float(self.intercept_[0]), X, np.where(code == 1, 1.0, -1.0), weights
        )
        return replace(worst, y=self.classes_[(worst.y > 0.0).astype(np.int64)])

    @property
    def _is_joint(self) -> bool:
        """Whether all classes share one softmax model; with two classes that is the binary model itself."""
        return self._joins(self.classes_.size)

    def _joins(self, n_classes: int) -> bool:
        """Return whether so many classes share one softmax model."""
        return False

    def _read_labels(self, X: Any, y: Any) -> tuple[Any, npt.NDArray[np.int64]]:
        """Return features and the number of every label in ``classes_``."""
        check_is_fitted(self)
        X, y = self._read_pair(X, y, reset=False, y_numeric=False)
        return X, self._codes(y)

    def _codes(self, y: Any) -> npt.NDArray[np.int64]:
        """Return the number of every label in ``classes_``."""
        known = {label: number for number, label in enumerate(self.classes_.tolist())}
        labels, code = np.unique(y, return_inverse=True)
        unknown = [label for label in labels.tolist() if label not in known]
        if unknown:
            raise ValueError(
                f"y holds labels that the model was not trained on: {unknown[:5]}. Known: {list(known)[:5]}."
            )
        return np.array([known[label] for label in labels.tolist()])[code]

    def _weigh_classes(self, y: Any, code: npt.NDArray[np.int64], weights: FloatArray | None) -> FloatArray:
        """Return the weight of every class, and see that each is left with some mass."""
        masses = np.bincount(code, weights=weights, minlength=self.classes_.size)
        if self.class_weight is None:
            factors = np.ones(self.classes_.size)
        elif isinstance(self.class_weight, Mapping):
            factors = compute_class_weight(dict(self.class_weight), classes=self.classes_, y=y)
            if not (np.isfinite(factors).all() and (factors >= 0.0).all()):
                raise ValueError(f"class_weight must hold finite, non-negative numbers, got {self.class_weight!r}.")
        elif self.class_weight == "balanced":
            equal = masses.sum() / masses.size
            factors = np.divide(equal, masses, out=np.zeros(masses.size), where=masses > 0.0)
        else:
            raise ValueError(
                f"class_weight must be None, 'balanced' or a dict {{label: weight}}, got {self.class_weight!r}."
            )
        empty = self.classes_[factors * masses <= 0.0]
        if empty.size:
            raise ValueError(f"Every row of class {empty[0]!r} has zero weight; a classifier needs mass in each class.")
        return np.asarray(factors, dtype=np.float64)

    def _row_weights(self, code: npt.NDArray[np.int64], weights: FloatArray | None) -> FloatArray | None:
        """Return masses times class weights; None where all rows weigh the same."""
        if (self.class_weight_ == 1.0).all():
            return weights
        factors = self.class_weight_[code]
        return as_weights(factors if weights is None else factors * weights, code.size)


@estimator
class WassersteinLogisticRegression(WassersteinClassifier):
    r"""Logistic regression against the worst distribution within a Wasserstein ball.

    .. math:: \min_{\theta, b} \; \sup_{W_1(Q, P_n) \le \sigma} E_Q \log(1 + e^{-y (\theta \cdot x + b)})
              + \tfrac{\rho}{2} \|\theta\|_2^2

    Where labels cannot flip (``label_cost=inf``) this is the mean loss plus ``radius * ||theta||_*``. With more than
    two classes and ``multi_class="multinomial"`` the loss is that of the softmax, ``log sum_k exp(s_k) - s_y``, and
    the norm becomes ``max_{j,k} ||theta_j - theta_k||_*``.

    Parameters
    ----------
    multi_class : {"ovr", "multinomial"}, default="ovr"
        With more than two classes: a model for each class against the rest, or one softmax model of all classes with
        one worst-case risk and one certificate. A multinomial model takes every ``coreset`` but an `ImportanceCoreset`
        and epsilon mode. Neither is more accurate everywhere: with many classes and enough rows of each, try
        "multinomial". With two classes both are the same.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = WassersteinLogisticRegression(radius=0.05).fit(X[50:], y[50:])
    >>> model.predict(X[[50, 149]]), bool(model.certificate_.relative_gap < 1e-6)
    (array([1, 2]), True)
    >>> joint = WassersteinLogisticRegression(radius=0.05, multi_class="multinomial").fit(X, y)
    >>> joint.coef_.shape, bool(joint.certificate_.relative_gap < 1e-6)
    ((3, 4), True)
    """

    multi_class: str = "ovr"

    def _make_problem(self, X: Any = None) -> Problem:
        if self.multi_class not in ("ovr", "multinomial"):
            raise ValueError(f"multi_class must be one of ['ovr', 'multinomial'], got {self.multi_class!r}.")
        return super()._make_problem(X)

    def _joins(self, n_classes: int) -> bool:
        return self.multi_class == "multinomial" and n_classes > 2

    def _loss(self) -> Loss:
        return Logistic()

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithm of `predict_proba`, exact where that underflows, shape (n_samples, n_classes)."""
        scores = self._scores(X)
        if self.classes_.size == 2:
            return np.asarray(log_expit(np.hstack([-scores, scores])))
        if self._is_joint:
            return np.asarray(log_softmax(scores, axis=1))
        logs = log_expit(scores)
        return np.asarray(logs - logsumexp(logs, axis=1, keepdims=True))

    def predict_proba(self, X: Any) -> FloatArray:
        """Return probabilities, shape (n_samples, n_classes), columns as in ``classes_``.

        Two classes: the logistic function of the score. More: the softmax of the scores of a multinomial model, else
        the logistic function of each class against the rest, over their sum.
        """
        return np.exp(self.predict_log_proba(X))


@estimator
class WassersteinLinearSVC(WassersteinClassifier):
    r"""Linear support vector machine against the worst distribution within a Wasserstein ball.

    .. math:: \min_{\theta, b} \; \sup_{W_1(Q, P_n) \le \sigma} E_Q \max(0, 1 - y (\theta \cdot x + b))
              + \tfrac{\rho}{2} \|\theta\|_2^2

    Where labels cannot flip (``label_cost=inf``) this is the mean hinge loss plus ``radius * ||theta||_*``. With
    ``radius=0`` and ``ridge = 1 / (C n)`` it is the usual support vector machine. With ``loss="squared_hinge"`` the
    distance is that of order 2, and the risk without flips ``(rms of max(0, 1 - margin) + radius * ||theta||_*)^2``.

    Parameters
    ----------
    loss : {"hinge", "squared_hinge"}, default="hinge"

    Examples
    --------
    >>> X, y = np.array([[2.0], [1.0], [-1.0], [-2.0]]), np.array(["hot", "hot", "cold", "cold"])
    >>> model = WassersteinLinearSVC(radius=0.5).fit(X, y)
    >>> model.predict([[3.0]]), round(model.worst_case_risk_, 6)
    (array(['hot'], dtype='<U4'), 0.5)
    """

    loss: str = "hinge"

    @property
    def predict_proba(self) -> Any:
        """Not available: a hinge loss knows no probabilities. Use `sklearn.calibration.CalibratedClassifierCV`."""
        raise AttributeError(
            f"{type(self).__name__} has no predict_proba: a hinge loss knows no probabilities. Use "
            "sklearn.calibration.CalibratedClassifierCV(model).fit(X, y).predict_proba(X), or "
            "WassersteinLogisticRegression."
        )

    def _loss(self) -> Loss:
        if self.loss not in _HINGES:
            raise ValueError(f"loss must be one of {sorted(_HINGES)}, got {self.loss!r}.")
        return _HINGES[self.loss]()
