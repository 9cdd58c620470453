"""Contamination, to test models: noise, random label flips, and two poisoning attacks.

Both attacks know the clean rows and aim at an ordinary linear SVM,

    minimise over (theta, b):  ||theta||^2 / (2 n C) + mean_i max(0, 1 - y_i (theta . x_i + b)).

*ALFA* flips the labels of a given number of rows, *Min-Max* adds a given number of rows that pass for clean ones: each
lies in a ball about the mean of its class and in the box of the data. Nothing here changes its inputs.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from dualcore.estimators.parameters import check_count, check_number

FloatArray = npt.NDArray[np.float64]
LabelArray = npt.NDArray[Any]
Box = tuple[FloatArray, FloatArray]
RandomState = int | np.random.Generator | None

_SVM_MAX_ITER = 50_000
_COPIES = 2
_GAP_TOLERANCE = 0.01


def add_noise(X: npt.ArrayLike, scale: float = 1.0, random_state: RandomState = None) -> FloatArray:
    """``X + scale * Z`` with independent standard normal ``Z``.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        The result has the same shape.
    scale : float
        Standard deviation of the noise, at least 0.
    random_state : int, Generator or None
        Seed of the draw.

    Examples
    --------
    >>> add_noise([[0.0, 0.0], [1.0, 1.0]], scale=0.1, random_state=0).round(2)
    array([[ 0.01, -0.01],
           [ 1.06,  1.01]])
    """
    if not 0.0 <= check_number("scale", scale) < math.inf:
        raise ValueError(f"scale must be finite and at least 0, got {scale}.")
    clean = np.asarray(X, dtype=np.float64)
    return clean + scale * np.random.default_rng(random_state).standard_normal(clean.shape)


def flip_labels(y: npt.ArrayLike, rate: float, random_state: RandomState = None) -> LabelArray:
    """Give ``floor(rate * n)`` rows, drawn uniformly without replacement, the other label.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels of two classes; the result has the same shape and dtype.
    rate : float
        Share of the rows to flip, 0 <= rate <= 1.
    random_state : int, Generator or None
        Seed of the draw.

    Examples
    --------
    >>> y = np.array([-1, -1, -1, 1, 1, 1])
    >>> int((flip_labels(y, rate=0.34, random_state=0) != y).sum())
    2
    """
    labels, classes, signs = _as_binary(y)
    n_flips = _as_budget(rate, len(labels))
    chosen = np.random.default_rng(random_state).choice(len(labels), size=n_flips, replace=False)
    signs[chosen] *= -1.0
    return _from_signs(signs, classes)


@dataclass(frozen=True, eq=False)
class AlfaResult:
    """What `alfa_attack` did.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
        The rows, unchanged.
    y : ndarray of shape (n_samples,)
        The labels after the flips.
    flipped : ndarray of bool of shape (n_samples,)
        Which rows were flipped.
    n_iter : int
        Models trained on flipped labels.
    converged : bool
        Whether the set of flips stopped changing.
    """

    X: FloatArray
    y: LabelArray
    flipped: npt.NDArray[np.bool_]
    n_iter: int
    converged: bool


def alfa_attack(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    rate: float,
    *,
    C: float = 1.0,
    max_iter: int = 50,
    random_state: RandomState = None,
) -> AlfaResult:
    """Flip the ``m = floor(rate * n)`` labels that make the SVM learn what the clean SVM calls wrong (ALFA).

    With ``xi, xi'`` the hinge losses of the clean model at the true and at the flipped label, and ``eps, eps'`` those
    of the model trained on the flipped data, ALFA lowers in turn over the model and over the flips ``q``

        sum_i (1 - q_i) (eps_i - xi_i) + q_i (eps'_i - xi'_i),   q in {0, 1}^n,  sum_i q_i = m.

    For a fixed model the best ``q`` flips the m smallest ``(eps'_i - xi'_i) - (eps_i - xi_i)``. The first ``eps, eps'``
    are uniform on (0, 1). The alternation ends at a local optimum, which may depend on that start.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Clean rows.
    y : array-like of shape (n_samples,)
        Labels of two classes.
    rate : float
        Share of the labels to flip, 0 <= rate <= 1.
    C : float
        Inverse regularisation of the SVM under attack, as in `sklearn.svm.LinearSVC`.
    max_iter : int
        Most models to train on flipped labels. A ConvergenceWarning says if the flips still change then.
    random_state : int, Generator or None
        Seed of the start and of the SVM solver.

    Returns
    -------
    AlfaResult

    References
    ----------
    Xiao, Biggio, Nelson, Xiao, Eckert, Roli: Support vector machines under adversarial label contamination.
    Neurocomputing 160, 2015.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([-1, 1], 50)
    >>> X = rng.normal(size=(100, 2)) + y[:, None]
    >>> attack = alfa_attack(X, y, rate=0.1, random_state=0)
    >>> int(attack.flipped.sum()), bool((attack.y[attack.flipped] == -y[attack.flipped]).all())
    (10, True)
    """
    rows, labels, classes, signs = _as_problem(X, y)
    n = len(labels)
    n_flips = _as_budget(rate, n)
    _check_positive("C", C)
    check_count("max_iter", max_iter, least=1)
    rng = np.random.default_rng(random_state)
    seed = int(rng.integers(2**31))  # one seed for every fit: the same flips must give the same model
    flipped = np.zeros(n, dtype=bool)
    if n_flips == 0:
        return AlfaResult(rows.copy(), labels.copy(), flipped, 0, True)

    clean_gain = _flip_gain(rows, signs, *_train_svm(rows, signs, C, seed))
    gain = rng.uniform(size=n) - rng.uniform(size=n)
    for n_iter in range(max_iter + 1):
        chosen = np.argsort(gain - clean_gain, kind="stable")[:n_flips]
        converged = bool(flipped[chosen].all())
        if converged or n_iter == max_iter:
            break
        flipped = np.isin(np.arange(n), chosen)
        gain = _flip_gain(rows, signs, *_train_svm(rows, np.where(flipped, -signs, signs), C, seed))
    if not converged:
        warnings.warn(
            f"alfa_attack: the flips still changed after max_iter={max_iter} models. Raise max_iter, or use the flips "
            "as they are: the budget is kept all the same.",
            ConvergenceWarning,
            stacklevel=2,
        )
    poisoned = _from_signs(np.where(flipped, -signs, signs), classes)
    return AlfaResult(rows.copy(), poisoned, flipped, n_iter, converged)


@dataclass(frozen=True, eq=False)
class MinMaxResult:
    """What `minmax_attack` did.

    Attributes
    ----------
    X : ndarray of shape (n_samples + n_poison, n_features)
        The clean rows in their order, then the poison.
    y : ndarray of shape (n_samples + n_poison,)
        Their labels.
    poisoned : ndarray of bool of shape (n_samples + n_poison,)
        Which rows are poison.
    n_iter : int
        AdaGrad steps taken.
    train_loss : float
        Objective, poison rows added at weight 1/n each, of the SVM trained on ``X, y``.
    upper_bound : float
        No poison of this size in the feasible sets makes the least such objective larger.
    converged : bool
        Whether ``train_loss`` is within one percent of ``upper_bound``.
    """

    X: FloatArray
    y: LabelArray
    poisoned: npt.NDArray[np.bool_]
    n_iter: int
    train_loss: float
    upper_bound: float
    converged: bool


def minmax_attack(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    rate: float,
    *,
    quantile: float = 0.9,
    slab: bool = False,
    box: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    C: float = 1.0,
    step: float = 0.03,
    max_iter: int | None = None,
    random_state: RandomState = None,
) -> MinMaxResult:
    """Add ``floor(rate * n + 1/2)`` rows that solve ``min over the SVM, max over feasible (x, y)`` step by step.

    A poison row of class y must satisfy, with ``mu_y`` the mean of the class,

        ||x - mu_y||_2 <= rho_y,   low <= x <= high,   and with ``slab``   |(mu_-y - mu_y) . (x - mu_y)| <= s_y,

    where ``rho_y`` and ``s_y`` are the ``quantile`` of the same quantity over the clean rows of the class. From the
    clean SVM on, each step takes the feasible row of largest loss, ``1 - y (theta . x + b)``, keeps two copies of it,
    and moves the model by AdaGrad along the gradient of the SVM's objective with the poison at weight ``rate``.

    Parameters
    ----------
    X, y, C, random_state
        As in `alfa_attack`; the seed serves the SVM solver only, the attack is otherwise deterministic.
    rate : float
        Poison rows per clean row, 0 <= rate <= 1.
    quantile : float
        Share of each class inside its ball (and slab), 0 < quantile <= 1.
    slab : bool
        Whether poison rows must respect the slab too.
    box : (low, high), optional
        Scalars or arrays of shape (n_features,). By default the range of the clean rows.
    step : float
        AdaGrad's step length.
    max_iter : int, optional
        Number of steps; by default as many as it takes. The rows of the last steps are the ones kept, so more steps
        mean a warm-up; with fewer steps each row is copied more often.

    Returns
    -------
    MinMaxResult

    References
    ----------
    Koh, Steinhardt, Liang: Stronger data poisoning attacks break data sanitization defenses. arXiv 1811.00741.
    Steinhardt, Koh, Liang: Certified defenses for data poisoning attacks. NeurIPS 2017 (the upper bound).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([-1, 1], 50)
    >>> X = rng.normal(size=(100, 2)) + y[:, None]
    >>> attack = minmax_attack(X, y, rate=0.1, random_state=0)
    >>> attack.X.shape, int(attack.poisoned.sum()), attack.train_loss <= attack.upper_bound
    ((110, 2), 10, True)
    """
    rows, labels, classes, signs = _as_problem(X, y)
    n, n_features = rows.shape
    n_poison = _as_budget(rate, n, nearest=True)
    for name, value in (("C", C), ("step", step), ("quantile", quantile)):
        _check_positive(name, value)
    if quantile > 1.0:
        raise ValueError(f"quantile must be at most 1, got {quantile}. Use 0.9 for nine tenths of each class.")
    if max_iter is not None:
        check_count("max_iter", max_iter, least=1)
    bounds = _as_box(box, rows)
    feasible = {
        sign: _FeasibleSet.fit(rows[signs == sign], rows[signs != sign], bounds, quantile, slab) for sign in (-1.0, 1.0)
    }
    seed = int(np.random.default_rng(random_state).integers(2**31))
    weight, ridge = n_poison / n, 1.0 / (n * C)

    def clean_part(coef: FloatArray, intercept: float) -> tuple[float, FloatArray]:
        slack = 1.0 - signs * (rows @ coef + intercept)
        active = np.where(slack > 0.0, signs, 0.0)
        gradient = np.append(ridge * coef - active @ rows / n, -active.sum() / n)
        return float(0.5 * ridge * (coef @ coef) + np.maximum(slack, 0.0).mean()), gradient

    def strongest(coef: FloatArray, intercept: float) -> tuple[float, FloatArray, float]:
        worst = (-math.inf, coef, 0.0)
        for sign, allowed in feasible.items():
            point = allowed.farthest(-sign * coef)
            worst = max(worst, (1.0 - sign * float(point @ coef + intercept), point, sign), key=lambda w: w[0])
        return worst

    n_steps = math.ceil(n_poison / _COPIES) if max_iter is None or n_poison == 0 else int(max_iter)
    copies = max(_COPIES, math.ceil(n_poison / max(n_steps, 1)))
    coef, intercept = _train_svm(rows, signs, C, seed)
    squares = np.zeros(n_features + 1)
    upper_bound = math.inf
    points, point_signs = np.empty((n_steps, n_features)), np.empty(n_steps)
    for t in range(n_steps):
        loss, points[t], point_signs[t] = strongest(coef, intercept)
        clean_loss, gradient = clean_part(coef, intercept)
        upper_bound = min(upper_bound, clean_loss + weight * max(loss, 0.0))
        if loss > 0.0:
            gradient -= weight * point_signs[t] * np.append(points[t], 1.0)
        squares += gradient**2
        move = step * gradient / (np.sqrt(squares) + 1e-12)
        coef, intercept = coef - move[:-1], intercept - float(move[-1])

    kept = np.repeat(np.arange(n_steps - math.ceil(n_poison / copies), n_steps), copies)[:n_poison]
    all_rows, all_signs = np.vstack([rows, points[kept]]), np.concatenate([signs, point_signs[kept]])
    coef, intercept = _train_svm(all_rows, all_signs, C, seed)
    poison_loss = np.maximum(1.0 - point_signs[kept] * (points[kept] @ coef + intercept), 0.0).sum() / n
    clean_loss, _ = clean_part(coef, intercept)
    train_loss = clean_loss + float(poison_loss)
    upper_bound = min(upper_bound, clean_loss + weight * max(strongest(coef, intercept)[0], 0.0))
    return MinMaxResult(
        X=all_rows,
        y=np.concatenate([labels, _from_signs(point_signs[kept], classes)]),
        poisoned=np.arange(n + n_poison) >= n,
        n_iter=n_steps,
        train_loss=train_loss,
        upper_bound=upper_bound,
        converged=upper_bound - train_loss <= _GAP_TOLERANCE * upper_bound,
    )


@dataclass(frozen=True)
class _FeasibleSet:
    """Rows one class may hold: ``||v||_2 <= radius``, ``low <= v <= high``, ``|normal . v| <= width``, v = x - mean."""

    mean: FloatArray
    radius: float
    low: FloatArray
    high: FloatArray
    normal: FloatArray
    width: float

    @classmethod
    def fit(cls, rows: FloatArray, other: FloatArray, box: Box, quantile: float, slab: bool) -> _FeasibleSet:
        """Measure the ball and the slab on the clean ``rows`` of the class and those of the ``other`` one."""
        mean, (low, high) = rows.mean(axis=0), box
        outside = np.flatnonzero((mean < low) | (mean > high))
        if outside.size:
            raise ValueError(
                f"box leaves out the mean of a class: feature {outside[0]} has mean {mean[outside[0]]:g}, the box is "
                f"[{low[outside[0]]:g}, {high[outside[0]]:g}]. Widen the box, or leave it out to use the data's range."
            )
        offsets = rows - mean
        radius = float(np.quantile(np.sqrt(np.einsum("ij,ij->i", offsets, offsets)), quantile))
        normal = other.mean(axis=0) - mean
        width = float(np.quantile(np.abs(offsets @ normal), quantile)) if slab else math.inf
        return cls(mean, radius, low, high, normal, width)

    def farthest(self, direction: FloatArray) -> FloatArray:
        """Return the feasible row with the largest ``direction . x``."""
        offset = self._in_ball_and_box(direction)
        reach = float(self.normal @ offset)
        if abs(reach) > self.width:
            offset = self._on_slab_face(direction, offset, math.copysign(1.0, reach))
        return np.clip(self.mean + offset, self.low, self.high)

    def _in_ball_and_box(self, direction: FloatArray) -> FloatArray:
        # The maximiser is clip(tau * direction, low, high): tau is found exactly, since ||.||^2 grows
        # piecewise quadratically as one coordinate after another meets its bound.
        size = np.abs(direction)
        moving = size > 1e-12 * size.max()
        offset = np.zeros_like(direction)
        if self.radius == 0.0 or not moving.any():
            return offset
        size = size[moving] / size.max()
        reach = np.where(direction > 0.0, self.high - self.mean, self.mean - self.low)[moving]
        reach = np.minimum(reach, self.radius)
        order = np.argsort(reach / size, kind="stable")
        stops = (reach / size)[order]
        capped = np.concatenate([[0.0], np.cumsum(reach[order] ** 2)])
        free = np.cumsum((size[order] ** 2)[::-1])[::-1]
        stage = int(np.searchsorted(capped[:-1] + stops**2 * free, self.radius**2))
        if stage < len(stops):
            tau = math.sqrt(max(self.radius**2 - capped[stage], 0.0) / free[stage])
            reach = np.minimum(reach, tau * size)
        offset[moving] = np.copysign(reach, direction[moving])
        return offset

    def _on_slab_face(self, direction: FloatArray, offset: FloatArray, side: float) -> FloatArray:
        # normal . v(nu) falls as the slab's multiplier nu grows, v(nu) being the maximiser for
        # direction - nu * side * normal. Bracket its crossing of the face, then halve. No root finder: v may jump
        # there, and the points on both sides are needed.
        face = side * self.normal
        lower, upper = 0.0, float(np.linalg.norm(direction) / np.linalg.norm(face))
        beyond, within = offset, self._in_ball_and_box(direction - upper * face)
        while face @ within > self.width and upper < 1e100:
            lower, upper, beyond = upper, 2.0 * upper, within
            within = self._in_ball_and_box(direction - upper * face)
        for _ in range(60):
            middle = 0.5 * (lower + upper)
            trial = self._in_ball_and_box(direction - middle * face)
            if face @ trial > self.width:
                lower, beyond = middle, trial
            else:
                upper, within = middle, trial
        # The mixture of the two that meets the face is feasible, for the set is convex.
        outer, inner = float(face @ beyond), float(face @ within)
        share = min(max((self.width - inner) / (outer - inner), 0.0), 1.0) if outer > inner else 0.0
        return share * beyond + (1.0 - share) * within


def _train_svm(rows: FloatArray, signs: FloatArray, C: float, seed: int) -> tuple[FloatArray, float]:
    if abs(signs.sum()) == len(signs):  # one class is left: the constant that agrees has no loss
        return np.zeros(rows.shape[1]), float(signs[0])
    model = LinearSVC(C=C, loss="hinge", dual=True, max_iter=_SVM_MAX_ITER, random_state=seed)
    model.fit(rows, signs)
    return np.asarray(model.coef_[0], dtype=np.float64), float(model.intercept_[0])


def _flip_gain(rows: FloatArray, signs: FloatArray, coef: FloatArray, intercept: float) -> FloatArray:
    margin = signs * (rows @ coef + intercept)
    return np.maximum(0.0, 1.0 + margin) - np.maximum(0.0, 1.0 - margin)


def _check_positive(name: str, value: object) -> None:
    if not 0.0 < check_number(name, value) < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value}.")


def _as_budget(rate: float, n: int, nearest: bool = False) -> int:
    if not 0.0 <= check_number("rate", rate) <= 1.0:
        raise ValueError(f"rate must lie in [0, 1], got {rate}. Write 10 % as 0.1.")
    # 0.29 * 100 is 28.999...96 in binary: what is meant is 29.
    return math.floor(float(rate) * n + (0.5 if nearest else 0.0) + 1e-9)


def _as_binary(y: npt.ArrayLike) -> tuple[LabelArray, LabelArray, FloatArray]:
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise ValueError(f"y must be one-dimensional, got shape {labels.shape}. Use y.ravel().")
    classes = np.unique(labels)
    if len(classes) != 2:
        raise ValueError(f"y must hold exactly two labels, found {len(classes)}. Pick the rows of two classes first.")
    return labels, classes, np.where(labels == classes[1], 1.0, -1.0)


def _from_signs(signs: FloatArray, classes: LabelArray) -> LabelArray:
    return classes[(signs > 0.0).astype(np.int64)]


def _as_problem(X: npt.ArrayLike, y: npt.ArrayLike) -> tuple[FloatArray, LabelArray, LabelArray, FloatArray]:
    if hasattr(X, "toarray"):
        raise TypeError("X is a sparse matrix; the attacks need a dense array. Pass X.toarray().")
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(f"X must have shape (n_samples, n_features), got shape {rows.shape}.")
    if not np.isfinite(rows).all():
        raise ValueError("X has NaN or infinite values. Drop or impute those rows first.")
    labels, classes, signs = _as_binary(y)
    if len(labels) != len(rows):
        raise ValueError(f"X has {len(rows)} rows but y has {len(labels)} labels: give one label per row.")
    return rows, labels, classes, signs


def _as_box(box: Any, rows: FloatArray) -> Box:
    if box is None:
        return rows.min(axis=0), rows.max(axis=0)
    if not isinstance(box, tuple) or len(box) != 2:
        raise TypeError(f"box must be a pair (low, high) or None, got {box!r}.")
    try:
        low, high = (np.broadcast_to(np.asarray(b, dtype=np.float64), rows.shape[1:]) for b in box)
    except ValueError as error:
        raise ValueError(f"box must hold numbers, or arrays of shape ({rows.shape[1]},): {error}.") from error
    if not (low <= high).all():
        raise ValueError("box has low > high (or NaN) for some feature. Give (low, high) in this order.")
    return low, high
