"""`Problem`: a loss, a transport geometry, a radius and a ridge, with the functions of its dual."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import LARGEST, FloatArray, plain_array
from dualcore.data.rows import as_rows, as_target, as_weights
from dualcore.problem.anchor import Anchor
from dualcore.problem.families import Categories, Data, Gradient, get_family
from dualcore.problem.forms import DualForm, Minimum, weighted_sum
from dualcore.problem.geometry import Box, ByValue, Geometry, Norm, check_range, frozen, get_norm
from dualcore.problem.losses import Loss, get_loss
from dualcore.problem.normal import Normal


class Constants(NamedTuple):
    """Lipschitz constants of ``h_i``: ``parameters`` in (theta, b), ``multiplier`` in lambda."""

    parameters: float
    multiplier: float


class Problem(ByValue):
    r"""Worst-case risk of a linear model over a Wasserstein ball.

    .. math:: R(\theta, b) = \min_{\lambda \ge \kappa(\theta)} \sigma^p \lambda + \sum_i w_i h_i(\theta, b, \lambda)
              + \tfrac{\rho}{2} \|\theta\|_2^2

    Parameters
    ----------
    loss : str or Loss
        "logistic", "hinge", "smooth_hinge" (labels -1 and +1); "huber", "pinball", "epsilon_insensitive",
        "absolute"; of order 2: "squared" and "squared_hinge"; "softmax" (class numbers 0 to ``n_classes - 1``). Or a
        Loss object of your own.
    radius : float, default=0.0
        ``sigma >= 0``; 0 is plain empirical risk.
    norm : {"l1", "l2", "linf"} or Norm, default="l2"
        Feature norm of the transport cost; its dual norm bounds the coefficients.
    label_cost : float, default=inf
        ``gamma``: price of one label flip; ``inf`` forbids flips. In regression a unit of target costs ``gamma / 2``.
    feature_weights : array-like of shape (n_features,), optional
        Price of moving each feature by one unit: the norm becomes ``||weights * (x - x')||``. ``inf`` makes a
        feature immovable.
    support : (low, high) or None, default=None
        Limits that the adversary cannot pass: numbers or one per feature, ``inf`` for a side without one. None is all
        of R^m. Needs a loss of order 1.
    categories : list of lists of int, optional
        Groups of one-hot columns, by column number. The adversary changes a group from one category to any other at
        the group's price. None in a group is a category without a column, such as the first one dropped by an encoder:
        ``[[None, 3, 4], [5, 6, 7]]``. Rows of zeros are allowed in such groups only. Needs a loss of order 1 with one
        score, and ``norm="l1"`` if there is a support. Weights and limits of one-hot columns are ignored.
    category_cost : float or list of float, default=1.0
        Price of a change, for all groups or one for each; ``inf`` makes a group immovable.
    ridge : float or array-like of shape (n_features,), default=0.0
        ``rho``: adds ``rho / 2 * ||coef||_2^2`` to the risk, or ``sum_j rho_j / 2 * coef_j^2``. The intercept is never
        penalised. Risks, gradients and worst cases take a ridge for each feature; solvers, certificates and coresets
        take one number (divide each column by the root of its ridge, or use ``feature_weights="std"`` of an estimator).
    fit_intercept : bool, default=True
        Whether solvers may use an intercept; evaluation accepts any.
    **loss_parameters
        Passed to the loss when it is given by name: ``delta``, ``quantile``, ``epsilon``, ``n_classes``.

    Notes
    -----
    A softmax problem has one score for every class: ``coef`` is of shape (n_classes, n_features), ``intercept`` of
    shape (n_classes,), and the ridge is on all coefficients.

    The order ``p`` of the transport distance is that of the loss: 1 where it grows linearly, ``p`` where it grows like
    a power of ``p``. With a smaller order the worst-case risk is infinite; with a larger one no closed form is known.

    Examples
    --------
    >>> X, y = np.array([[1.0], [-1.0]]), np.array([1.0, -1.0])
    >>> problem = Problem("hinge", radius=0.5)
    >>> problem.risk(np.array([1.0]), 0.0, X, y)
    0.5
    """

    def __init__(
        self,
        loss: str | Loss,
        *,
        radius: float = 0.0,
        norm: str | Norm = "l2",
        label_cost: float = np.inf,
        feature_weights: npt.ArrayLike | None = None,
        support: Any = None,
        categories: Any = None,
        category_cost: Any = 1.0,
        ridge: npt.ArrayLike = 0.0,
        fit_intercept: bool = True,
        **loss_parameters: Any,
    ) -> None:
        self.loss = get_loss(loss, **loss_parameters)
        self.radius = _number("radius", radius)
        self.ridges = _ridges(ridge)
        self.fit_intercept = bool(fit_intercept)
        self.geometry = Geometry(
            norm=get_norm(norm, feature_weights),
            label_cost=_number("label_cost", label_cost, allow_inf=True, allow_zero=False),
            support=Box.of(support),
            order=self.loss.order,
            categories=Categories.of(categories, category_cost),
        )
        _check_scale(self.radius, self.geometry, is_classification=self.loss.has_labels)
        self.family = get_family(self.loss, self.geometry, self.radius)

    @property
    def ridge(self) -> float:
        """The ridge, one number for all features; TypeError where every feature has its own."""
        if isinstance(self.ridges, float):
            return self.ridges
        raise TypeError(
            "This problem has a ridge for each feature: risks, gradients and worst cases take it, but solvers, "
            "certificates and coresets do not. Divide each column by the root of its ridge and use ridge=1, or use the "
            "methods of the estimator."
        )

    @property
    def form(self) -> DualForm:
        """The closed form of the dual; ValueError where the family has none."""
        return self.family.form

    @property
    def is_classification(self) -> bool:
        """Whether rows carry labels rather than a real target."""
        return self.loss.has_labels

    @property
    def price(self) -> float:
        """``sigma ** p``, the coefficient of the multiplier in the objective."""
        return float(self.radius**self.geometry.order)

    def replace(self, **changes: Any) -> Problem:
        """Return the problem with some parameters replaced; new categories have cost 1 unless a cost is given."""
        settings = {"loss": self.loss} | self._parameters()
        if isinstance(changes.get("norm"), Norm):  # a norm that is built already brings its own prices
            settings.pop("feature_weights", None)
        if "categories" in changes:
            settings.pop("category_cost", None)
        return Problem(**(settings | changes))

    def _parameters(self) -> dict[str, Any]:
        """Return the parameters of the problem besides its loss, without those that are None."""
        geometry, groups = self.geometry, self.geometry.categories
        given = {
            "radius": self.radius,
            "norm": geometry.norm.name,
            "feature_weights": geometry.norm.weights,
            "label_cost": geometry.label_cost,
            "support": geometry.support,
            "categories": None if groups is None else [list(group) for group in groups.groups],
            "category_cost": None if groups is None else list(groups.costs),
            "ridge": self.ridges,
            "fit_intercept": self.fit_intercept,
        }
        return {name: value for name, value in given.items() if value is not None}

    def reduced(self) -> Problem:
        """Return the simplest problem with the same risks: at radius 0 limits and categories have no effect."""
        return self.without_limits() if self.radius == 0.0 and self.family.moves_rows else self

    def with_intercept(self) -> Problem:
        """Return the problem with an intercept where the coefficients hold one already: the risks are the same."""
        holds = self.family.holds_intercept and not np.any(self.ridges)
        return self.replace(fit_intercept=True) if holds and not self.fit_intercept else self

    def without_limits(self, **changes: Any) -> Problem:
        """Return the problem whose features, one-hot columns among them, move anywhere, with other changes."""
        return self.replace(support=None, categories=None, **changes)

    def narrowed(self, columns: npt.NDArray[np.intp], n_features: int) -> Problem:
        """Return the problem of some of the features, which are not one-hot columns of categories."""
        weights, support = self.geometry.norm.weights, self.geometry.support
        changes: dict[str, Any] = {}
        if weights is not None:
            changes["feature_weights"] = weights[columns]
        if np.ndim(self.ridges):
            changes["ridge"] = np.asarray(self.ridges)[columns]
        if support is not None:
            changes["support"] = Box(*(side[columns] for side in support.spread(n_features)))
        return self.replace(**changes)

    def shifted(self, centre: FloatArray) -> Problem:
        """Return the problem of features less a centre: only the limits of a box change."""
        support = self.geometry.support
        if support is None:
            return self
        return self.replace(support=Box(*(side - centre for side in support.spread(centre.size))))

    def _content(self) -> Any:
        """Return all attributes that define the problem."""
        return frozen([type(self.loss), vars(self.loss), self.geometry, self.radius, self.ridges, self.fit_intercept])

    def __repr__(self) -> str:
        plain = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in self._parameters().items()
        }
        return f"Problem({', '.join([repr(self.loss), *(f'{name}={value!r}' for name, value in plain.items())])})"

    # Data in

    def validate(self, X: Any, y: Any, sample_weight: Any = None) -> Data:
        """Check shapes, labels and weights, and return row access without copying ``X``."""
        rows = as_rows(X)
        self.check_width(rows.m)
        target = as_target(y, rows.n, self.family.target_name)
        self.family.check_target(target)
        self.family.check_rows(rows)
        return Data(rows, target, as_weights(sample_weight, rows.n))

    def check_width(self, n_features: int) -> None:
        """Raise ValueError where the prices or the categories are not those of so many features."""
        prices = self.geometry.norm.weights
        if prices is not None and prices.size != n_features:
            raise ValueError(f"feature_weights holds {prices.size} prices but X has {n_features} features.")
        if np.ndim(self.ridges) and np.size(self.ridges) != n_features:
            raise ValueError(f"ridge holds {np.size(self.ridges)} numbers but X has {n_features} features.")
        self.family.check_width(n_features)

    def signal(self, coef: npt.ArrayLike, intercept: Any, data: Data) -> FloatArray:
        """Return the margins ``y (X coef + b)`` or the residuals ``X coef + b - y``, shape (n,)."""
        return self.family.signal(data.rows, data.y, np.asarray(coef, dtype=np.float64), intercept)

    # The dual, row by row

    def kappa(self, coef: npt.ArrayLike) -> float:
        """Return the smallest multiplier for which every ``h_i`` is finite."""
        return self.family.kappa(np.asarray(coef, dtype=np.float64))

    def size(self, coef: npt.ArrayLike) -> float:
        """Return ``||coef||_*``; for softmax the largest over differences of two classes."""
        return self.family.size(np.asarray(coef, dtype=np.float64))

    def h(self, coef: npt.ArrayLike, intercept: Any, multiplier: float, X: Any, y: Any) -> FloatArray:
        """Return the exact per-row dual loss ``h_i = sup { l(x', y') - lam d((x', y'), row_i)^p }``, shape (n,).

        On a support with l2 and a curved loss it is the upper of `bounds`, at most 1e-9 (relative above 1) too high.
        """
        return self.bounds(coef, intercept, multiplier, X, y)[1]

    def bounds(
        self, coef: npt.ArrayLike, intercept: Any, multiplier: float, X: Any, y: Any, *, rule: str = "exact"
    ) -> tuple[FloatArray, FloatArray]:
        """Return ``a_i <= h_i <= b_i``; the two coincide wherever ``h_i`` has a closed form.

        On a support ``rule="paper"`` gives the paper's own bounds instead: the loss, and the value of a feasible point
        of the dual programme.
        """
        if rule not in ("exact", "paper"):
            raise ValueError(f"rule must be 'exact' or 'paper', got {rule!r}.")
        normal, model = self._normal(self.validate(X, y), coef, intercept)
        return normal.problem.family.bounds(Anchor(*model, float(multiplier)), *normal.data[:2], rule=rule)

    # The risk

    def risk(self, coef: npt.ArrayLike, intercept: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the worst-case risk plus ridge: the exact minimum over the multiplier.

        Columns and targets far from the origin are centred first, so that no digits are lost.
        """
        return self.minimum(coef, intercept, self.validate(X, y, sample_weight)).value

    def multiplier(self, coef: npt.ArrayLike, intercept: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the multiplier at which the worst-case risk is attained."""
        return self.minimum(coef, intercept, self.validate(X, y, sample_weight)).multiplier

    def minimum(self, coef: npt.ArrayLike, intercept: Any, data: Data) -> Minimum:
        """Return risk (ridge included) and multiplier on validated data."""
        normal, model = self._normal(data, coef, intercept)
        return normal.problem.evaluate(*model, normal.data)

    def _normal(self, data: Data, coef: npt.ArrayLike, intercept: Any) -> tuple[Normal, tuple[FloatArray, Any]]:
        """Return problem, data and model with columns and targets far from the origin centred."""
        normal = Normal.of(self, data, to_train=False)
        return normal, normal.inside(*self.family.as_model(coef, intercept))

    def evaluate(self, coef: npt.ArrayLike, intercept: Any, data: Data) -> Minimum:
        """Return risk (ridge included) and multiplier as `minimum`, of data that are normalised already."""
        theta, offset = self.family.as_model(coef, intercept)
        value, multiplier = self.family.minimise(data, theta, offset)
        return Minimum(float(value + self.penalty(theta)), float(multiplier))

    def penalty(self, coef: FloatArray) -> float:
        """Return ``sum_j ridge_j / 2 * coef_j^2``."""
        if not isinstance(self.ridges, float):
            return 0.5 * float((self.ridges * coef * coef).sum())
        flat = coef.ravel()
        return 0.5 * self.ridges * float(flat @ flat)

    def objective(
        self, coef: npt.ArrayLike, intercept: Any, multiplier: float, X: Any, y: Any, sample_weight: Any = None
    ) -> float:
        """Return ``sigma^p lam + sum_i w_i h_i + ridge``, an upper bound on the risk for every ``lam >= kappa``."""
        normal, (theta, offset) = self._normal(self.validate(X, y, sample_weight), coef, intercept)
        rows, target, weights = normal.data
        h = normal.problem.family.bounds(Anchor(theta, offset, float(multiplier)), rows, target)[1]
        return self.price * float(multiplier) + weighted_sum(h, weights) + self.penalty(theta)

    def gradient(
        self,
        coef: npt.ArrayLike,
        intercept: Any,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        multiplier: float | None = None,
    ) -> Gradient:
        """Return a subgradient of `risk`, or of `objective` where a multiplier is given.

        Of the risk the multiplier part is 0 (it is minimised out). Of the objective the constraint ``lam >= kappa``
        is not part: the gradient is that of ``sigma^p lam + sum_i w_i h_i + ridge`` inside it.
        """
        normal, (theta, offset) = self._normal(self.validate(X, y, sample_weight), coef, intercept)
        if multiplier is not None and multiplier < self.kappa(theta) * (1.0 - 1e-12):
            raise ValueError(f"multiplier {multiplier!r} is below kappa = {self.kappa(theta)!r}: h is infinite.")
        at = None if multiplier is None else float(multiplier)
        found = normal.problem.family.gradient(normal.data, theta, offset, at)
        in_coef = found.coef + self.ridges * theta
        if normal.centre is not None:
            in_coef += np.multiply.outer(found.intercept, normal.centre)
        in_multiplier = 0.0 if multiplier is None else self.price + found.multiplier
        return Gradient(in_coef, found.intercept, in_multiplier)

    # Constants of the theory

    def multiplier_interval(self, coef: npt.ArrayLike, intercept: Any, X: Any, y: Any) -> tuple[float, float]:
        """Return an interval that contains the minimising multiplier for any masses of the rows."""
        data, (theta, offset) = self.validate(X, y), self.family.as_model(coef, intercept)
        top = self.family.largest_multiplier(data.rows, data.y, theta, offset)
        return self.family.kappa(theta), top

    def growth(self, coef: npt.ArrayLike, intercept: Any, y: Any = None) -> float:
        r"""Return ``C(theta)`` with ``l(theta, zeta) <= C(theta) (1 + d(zeta, xi_0)^p)``, ``xi_0`` the origin.

        ``max{L(-|b|), Lip ||theta||_*}`` for margins, ``Lip max{|b|, K}`` for residuals (the paper's
        ``||theta||_*`` is too small at ``theta = 0``). If the target cannot move (``label_cost`` inf), pass ``y``:
        ``|b|`` becomes ``|b| + max |y|`` in regression. For order p the bound is ``2^(p-1) max{base, K}^p``.
        """
        self.family.require_one_score("growth")
        size, offset, scale = self.size(coef), abs(float(intercept)), self.loss.root_lipschitz
        order = self.geometry.order
        if self.is_classification:
            rate, base = scale * size, float(self.loss.value(np.array([-offset]))[0]) ** (1.0 / order)
        else:
            if y is not None and np.isinf(self.geometry.label_cost):
                offset += float(np.abs(np.asarray(y, dtype=np.float64)).max(initial=0.0))
            rate, base = scale * max(size, self.geometry.target_slope), scale * offset
        return float(2.0 ** (order - 1) * max(base, rate) ** order)

    def multiplier_bound(self, coef: npt.ArrayLike, intercept: Any, X: Any, y: Any) -> float:
        """Return ``tau = C (2^{p-1} + (1 + 2^{p-1} rho^p) / sigma^p)``, a bound on every minimising multiplier.

        ``rho`` is the largest distance of a row to ``xi_0 = (0, +1)`` (classification) or ``(0, 0)`` (regression). The
        interval of `multiplier_interval` is exact and much smaller; use that if possible.
        """
        self.family.require_one_score("multiplier_bound")
        if self.radius == 0.0:
            return np.inf
        data, gamma, order = self.validate(X, y), self.geometry.label_cost, self.geometry.order
        self.signal(coef, intercept, data)  # the model must fit the data, and both be finite
        data.rows.check_finite()
        distance = data.rows.row_norms(self.geometry.norm.name, self.geometry.norm.weights)
        if np.isfinite(gamma):
            distance = distance + 0.5 * gamma * np.abs(data.y - (1.0 if self.is_classification else 0.0))
        spread = 2.0 ** (order - 1)
        farthest = float(distance.max()) ** order
        return float(self.growth(coef, intercept, data.y) * (spread + (1.0 + spread * farthest) / self.price))

    def constants(self, X: Any) -> Constants:
        """Return the Lipschitz constants ``L`` of ``h_i`` in (theta, b) and ``R`` in lambda (order 1)."""
        if not self.loss.is_lipschitz:
            raise ValueError("The Lipschitz constants of h exist for order 1 only; the squared losses have none.")
        rows = as_rows(X)
        rows.check_finite()
        longest = float(rows.row_norms().max())
        if self.fit_intercept:
            longest = float(np.hypot(longest, 1.0))
        # Moved rows may have larger norms, and moving them has a cost.
        longest, in_multiplier = self.family.extremes(rows.m, longest, fit_intercept=self.fit_intercept)
        return Constants(self.loss.lipschitz * longest, in_multiplier)


def _number(
    name: str, value: Any, *, allow_inf: bool = False, allow_zero: bool = True, allow_tiny: bool = False
) -> float:
    """Return ``value`` as a non-negative float; raise an error if it is invalid."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}.")
    number = float(value)
    if np.isnan(number) or number < 0.0 or (np.isinf(number) and not allow_inf) or (number == 0.0 and not allow_zero):
        sign = "non-negative" if allow_zero else "positive (inf forbids flips)"
        raise ValueError(f"{name} must be {sign if allow_inf else 'finite and ' + sign}, got {value!r}.")
    if not (allow_tiny and number < 1.0):  # nothing is divided by a ridge
        check_range(name, number)
    return number


def _ridges(ridge: Any) -> float | FloatArray:
    """Return the ridge as a float, or as an array with one entry per feature; raise an error if it is invalid."""
    if np.ndim(ridge) == 0:
        return _number("ridge", ridge[()] if isinstance(ridge, np.ndarray) else ridge, allow_tiny=True)
    if np.ndim(ridge) != 1:
        raise ValueError(f"ridge must be a number, or one for each feature, got shape {np.shape(ridge)}.")
    return np.array([_number("ridge", number, allow_tiny=True) for number in plain_array("ridge", ridge).tolist()])


def _check_scale(radius: float, geometry: Geometry, *, is_classification: bool) -> None:
    """Raise ValueError where the price of a unit of the multiplier, or the risk of every model, would overflow."""
    shift = 0.0 if is_classification else radius * geometry.target_slope  # no residual can be held below
    for number, limit in ((radius, 2.0), (shift, 1.0)):
        if number > 1.0 and geometry.order * np.log10(number) > limit * np.log10(LARGEST):
            raise ValueError(
                f"radius {radius!r} with label_cost {geometry.label_cost!r} and order {geometry.order!r} makes every "
                "worst-case risk overflow. Use a smaller radius, a larger label_cost, or other units."
            )
