"""Robust linear classifiers for any two labels, one-vs-rest for more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import log_expit, log_softmax, logsumexp
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from dualcore.coresets.samplers import ImportanceCoreset
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Source
from dualcore.data.sources.chunk import encode
from dualcore.estimators.base import Training, WassersteinLinearModel
from dualcore.estimators.columns import check_labels
from dualcore.estimators.parameters import estimator, in_one_step
from dualcore.estimators.reader import Opened, Task, by_class, class_masses
from dualcore.estimators.streaming import add_part, learns_in_parts
from dualcore.problem import Problem
from dualcore.problem.losses import Hinge, Logistic, Loss, Softmax, SquaredHinge
from dualcore.problem.worstcase import WorstCase

_MULTI_CLASS = ("auto", "ovr", "multinomial")
_HINGES: dict[str, type[Loss]] = {"hinge": Hinge, "squared_hinge": SquaredHinge}


@estimator
class WassersteinClassifier(ClassifierMixin, WassersteinLinearModel):
    """Base of the classifiers: labels, class weights and predictions; a subclass adds the loss.

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
        With two classes the scores of the second one; with more, a row for each class.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        0 without an intercept.
    worst_case_risk_ : float
        Objective on the full data at the solution, ridge included; with one class against the rest the sum over the
        classes, as in ``certificate_`` and ``solution_``.
    dual_variable_ : float, or ndarray of shape (n_classes,) with one class against the rest
        The multiplier lambda.
    coreset_ : Coreset, None, or list of Coreset
        A few weighted rows that stand for the data; see ``coreset``. None where the model was trained on all rows. With
        one class against the rest it reproduces the models of all classes, and its ``excess`` is the largest of theirs.
        Samplers other than `DualCoreset`, and `partial_fit`, then make a coreset for each class.
    n_iter_ : int, or ndarray of shape (n_classes,) with one class against the rest
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

    @property
    def _classes(self) -> Any:
        return self.classes_.tolist() if hasattr(self, "classes_") else []

    def _learn_targets(self, data: Opened) -> None:
        if data.labels is not None:
            self.classes_ = np.array(data.labels)
            masses = class_masses(data.X, self.classes_.size)
            self.class_weight_ = self._weigh_classes(self.classes_, np.arange(self.classes_.size), masses)
            return
        check_classification_targets(data.y)
        self.classes_, code = np.unique(data.y, return_inverse=True)
        if self.classes_.size < 2:
            raise ValueError(f"y holds one class only ({self.classes_[0]!r}); a classifier needs rows of two classes.")
        self.class_weight_ = self._weigh_classes(data.y, code, data.weights)

    def _tasks(self, data: Opened, *, joint: bool = False) -> list[Task]:
        n_classes, joint = self.classes_.size, joint or self._is_joint
        names = [""] if n_classes == 2 or joint else [str(label) for label in self.classes_]
        if isinstance(data.X, Source):
            sources = by_class(data.X, n_classes, self.class_weight_, joint=joint)
            return [Task(source, None, None, name) for source, name in zip(sources, names, strict=True)]
        code = encode(np.asarray(data.y), self.classes_.tolist(), 0)
        weights = self._row_weights(code, data.weights)
        if joint:
            return [Task(data.X, code.astype(np.float64), weights)]
        targets = [np.where(code == positive, 1.0, -1.0) for positive in range(1 if n_classes == 2 else 0, n_classes)]
        return [Task(data.X, target, weights, name) for target, name in zip(targets, names, strict=True)]

    def _joined(self, problem: Problem) -> Problem:
        return problem.replace(loss=Softmax(int(self.classes_.size))) if self._joins(problem) else problem

    def _joins(self, problem: Problem) -> bool:
        """Return whether the classes share one softmax model."""
        return False

    @property
    def _is_joint(self) -> bool:
        """Whether all classes share one softmax model; with two classes that is the binary model itself."""
        return self._problem.family.n_outputs > 1

    def _provenance(self) -> dict[str, Any]:
        one = self.classes_.size == 2 or self._is_joint
        return super()._provenance() | ({"labels": self.classes_.tolist()} if one else {})

    def _store(self, found: Sequence[Training]) -> None:
        super()._store(found)
        if self.coef_.ndim == 1:
            self.coef_, self.intercept_ = self.coef_[None], np.array([self.intercept_])

    @available_if(learns_in_parts)  # type: ignore[untyped-decorator]
    @in_one_step
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Take in a part of the rows, and train on a coreset of all parts so far.

        A `CoresetStream` keeps some rows and sums over all; ``coreset`` says how many rows train the model, 5,000 if
        it is None. The first call after `fit`, or of a new estimator, begins anew. ``worst_case_risk_`` is that on the
        coreset and ``certificate_`` is None, as earlier rows are not kept. If the distribution of the rows drifts, a
        `DriftWarning` says so. There is no model until rows of every class have been passed.

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
            raise ValueError("class_weight='balanced' needs all rows at once: pass a dict of weights or sample_weight.")
        if classes is not None:
            check_labels(classes, "classes")
        if first and np.unique(classes).size < 2:
            raise ValueError(f"classes must hold two labels or more, got {classes!r}.")
        if not first and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes={classes!r} are not those of the first call, {self.classes_!r}.")
        add_part(self, X, y, sample_weight, None if not first else np.unique(classes))
        return self

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
        """Return the accuracy; the data are what `fit` takes, a source is read once in chunks."""
        scores, labels, weights = self._scored(X, y, sample_weight)
        return float(accuracy_score(labels, self._labels(scores), sample_weight=weights))

    def _labels(self, scores: FloatArray) -> npt.NDArray[Any]:
        chosen = (scores[:, 0] > 0.0).astype(np.int64) if self.classes_.size == 2 else scores.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def worst_case_distribution(self, X: Any, y: Any = None, sample_weight: Any = None) -> WorstCase:
        """Return the distribution within the radius around these data that is worst for this model.

        The data are what `fit` takes; labels are those of the data. More than two classes need one model of all of them
        (``multi_class="multinomial"``): one class against the rest is a problem, and so an adversary, for every class.
        """
        check_is_fitted(self)
        if self.classes_.size > 2 and not self._is_joint:
            each = f"with one class against the rest each of the {self.classes_.size} problems has its own"
            use = "Use multi_class='multinomial', or fit a classifier on (y == label)"
            raise ValueError(f"worst_case_distribution is about one adversary, and {each}. {use}.")
        worst = super().worst_case_distribution(X, y, sample_weight)
        return replace(worst, y=self.classes_[(worst.y if self._is_joint else worst.y > 0.0).astype(np.int64)])

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
            raise ValueError(f"class_weight must be None, 'balanced' or a dict of weights, got {self.class_weight!r}.")
        empty = self.classes_[factors * masses <= 0.0]
        if empty.size:
            raise ValueError(f"Every row of class {empty[0]!r} has zero weight; a classifier needs mass in each class.")
        return np.asarray(factors, dtype=np.float64)

    def _row_weights(self, code: npt.NDArray[np.int64], weights: FloatArray | None) -> FloatArray | None:
        """Return masses times class weights; None where all rows weigh the same."""
        if (self.class_weight_ == 1.0).all():
            return weights
        factors = self.class_weight_[code]
        return factors if weights is None else factors * weights


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
    multi_class : {"auto", "ovr", "multinomial"}, default="auto"
        With more than two classes: a model for each class against the rest ("ovr"), or one softmax model of all
        ("multinomial"), which has one adversary. "auto" is "multinomial", but "ovr" with a support, with
        categories, or with a sampler for two classes only. With two classes all are the same.

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

    multi_class: str = "auto"

    def make_problem(self) -> Problem:
        """Check every parameter and return the problem they state; of two classes."""
        if self.multi_class not in _MULTI_CLASS:
            raise ValueError(f"multi_class must be one of {list(_MULTI_CLASS)}, got {self.multi_class!r}.")
        return super().make_problem()

    def _joins(self, problem: Problem) -> bool:
        if self.multi_class != "auto" or self.classes_.size == 2:
            return self.multi_class == "multinomial" and self.classes_.size > 2
        if isinstance(self.coreset, ImportanceCoreset) or getattr(self.coreset, "epsilon", None) is not None:
            return False
        try:
            problem.replace(loss=Softmax(int(self.classes_.size)))
        except (TypeError, ValueError):  # softmax does not support this geometry
            return False
        return True

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
        """Not available: a hinge loss gives no probabilities. Use `sklearn.calibration.CalibratedClassifierCV`."""
        why = f"{type(self).__name__} has no predict_proba: a hinge loss gives no probabilities"
        use = "sklearn.calibration.CalibratedClassifierCV(model).fit(X, y).predict_proba(X)"
        raise AttributeError(f"{why}. Use {use}, or WassersteinLogisticRegression.")

    def _loss(self) -> Loss:
        if self.loss not in _HINGES:
            raise ValueError(f"loss must be one of {sorted(_HINGES)}, got {self.loss!r}.")
        return _HINGES[self.loss]()
