"""The norm constraint ``Lip ||theta||_* <= lam`` as a cone, with the operations that the interior-point method needs.

The variables are ``x = (theta, b, lam)``, followed by one bound ``u_j >= |theta_j|`` per coefficient where the dual
norm is a sum. The coefficients are those of columns scaled to unit root mean square.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem


class ThinBlock(NamedTuple):
    """The constraint's block of the Newton matrix where it is diagonal plus a matrix of low rank.

    In coordinates ``v`` of shape (d,), chosen by the cone, it is ``diag(diagonal) + rows' diag(weights) rows``, with
    ``rows`` of shape (k, d). ``in_lam`` (d,) are the entries between ``v`` and ``lam``, ``lam_lam`` that of ``lam``.
    """

    diagonal: FloatArray
    rows: FloatArray
    weights: FloatArray
    in_lam: FloatArray
    lam_lam: float


class NormCone(ABC):
    """Slack ``s`` and multiplier ``z`` of the norm constraint, and their part of the Newton system.

    Parameters
    ----------
    rates : ndarray of shape (m,)
        The norm is that of ``rates * theta``: ``Lip`` over the scale and the price of each feature. It is 0 where
        features have infinite prices, whose coefficients the norm does not constrain.
    floor : float
        Least multiplier, ``Lip * 2 / gamma`` in regression, else 0.
    """

    def __init__(self, rates: FloatArray, floor: float) -> None:
        self.m = rates.size
        self.rates = rates
        self.floor = floor

    @property
    def dimension(self) -> int:
        """Number of variables."""
        return self.m + 2

    @property
    def degree(self) -> int:
        """Number of complementarity products."""
        return int(self.s.size)

    s: FloatArray
    z: FloatArray

    # The slack of a multiplier of zero and a model of zeros.
    offset: FloatArray

    def slack(self, x: FloatArray) -> FloatArray:
        """Return the slack of the constraints at ``x``."""
        return self.product(x) + self.offset

    @abstractmethod
    def product(self, dx: FloatArray) -> FloatArray:
        """Return the linear part of `slack` applied to ``dx``."""

    @abstractmethod
    def adjoint(self, z: FloatArray) -> FloatArray:
        """Return the transpose of `product` applied to ``z``."""

    #: target of a product ``s z`` of this cone, relative to that of a row
    weight: float = 1.0

    @abstractmethod
    def start(self, x: FloatArray, mu: float, radius: float) -> FloatArray:
        """Choose ``s`` and ``z``; return ``x`` with ``lam`` and the bounds increased so that the slack is interior.

        The multipliers add up to the radius, as they do at the optimum. ``lam`` is at least ``mu / radius``, so that
        the products together match ``mu``, the product of a row: a start near the boundary leads to short steps.
        `weight` is set so that this start is on the central path.
        """

    def gap(self) -> float:
        """Return ``s . z``."""
        return float(self.s @ self.z)

    @abstractmethod
    def scale(self) -> None:
        """Prepare the scaling for the current ``s`` and ``z``."""

    @abstractmethod
    def hessian(self) -> FloatArray:
        """Return the constraint's block of the Newton matrix, (d, d)."""

    def thin(self) -> ThinBlock:
        """Return the block in the coordinates of `inward`, where it is diagonal and holds every coefficient."""
        raise NotImplementedError(f"no coordinates make {type(self).__name__} diagonal")

    def inward(self, v: FloatArray) -> FloatArray:
        """Return a gradient ``(..., theta, b, lam, bounds)`` in coordinates ``(..., v, b, lam)``: times ``dx / dv``."""
        return v

    def outward(self, v: FloatArray) -> FloatArray:
        """Return a step in the variables from one in the coordinates of `inward`."""
        return v

    @abstractmethod
    def target(self, mu: float, correction: tuple[FloatArray, FloatArray] | None) -> FloatArray:
        """Return the right-hand side ``c`` of ``dz = c - W ds``, for centring ``mu`` and a second-order correction."""

    @abstractmethod
    def weigh(self, ds: FloatArray) -> FloatArray:
        """Return ``W ds``."""

    @abstractmethod
    def max_step(self, ds: FloatArray, dz: FloatArray) -> tuple[float, float]:
        """Return the longest steps that keep ``s`` and ``z`` in the cone."""


class LinearCone(NormCone):
    """Linear constraints ``G x >= 0`` and ``lam >= floor``, the last of them: the dual norms max and sum."""

    def __init__(self, rates: FloatArray, floor: float) -> None:
        super().__init__(rates, floor)
        self.held = np.flatnonzero(rates > 0.0)
        unit = np.zeros(self.dimension)
        unit[self.m + 1] = 1.0
        self._in_lam = self.product(unit)
        self.offset = np.zeros(self._in_lam.size)
        self.offset[-1:] = -floor

    def start(self, x: FloatArray, mu: float, radius: float) -> FloatArray:
        x = self._interior(x, mu / radius)
        self.s = self.slack(x)
        product = radius / float((self._in_lam / self.s).sum())
        self.z = product / self.s
        self.weight = product / mu
        return x

    @abstractmethod
    def _interior(self, x: FloatArray, least: float) -> FloatArray:
        """Return ``x`` with a multiplier of at least ``least`` and all slacks positive."""

    def scale(self) -> None:
        self._d = self.z / self.s

    def target(self, mu: float, correction: tuple[FloatArray, FloatArray] | None) -> FloatArray:
        product = self.weight * mu - (0.0 if correction is None else correction[0] * correction[1])
        return np.asarray(product / self.s - self.z)

    def weigh(self, ds: FloatArray) -> FloatArray:
        return self._d * ds

    def max_step(self, ds: FloatArray, dz: FloatArray) -> tuple[float, float]:
        return ratio(self.s, ds), ratio(self.z, dz)


class MaxCone(LinearCone):
    """Feature norm l1: ``|rates_j theta_j| <= lam``."""

    def product(self, dx: FloatArray) -> FloatArray:
        used, lam = self.rates[self.held] * dx[self.held], dx[self.m + 1 : self.m + 2]
        return np.concatenate([lam - used, lam + used, lam])

    def adjoint(self, z: FloatArray) -> FloatArray:
        out, k = np.zeros(self.dimension), self.held.size
        out[self.held] = self.rates[self.held] * (z[k : 2 * k] - z[:k])
        out[self.m + 1] = z.sum()
        return out

    def thin(self) -> ThinBlock:
        upper, lower = self._d[: self.m], self._d[self.m : 2 * self.m]
        none = np.zeros((0, self.m))
        in_lam = self.rates * (lower - upper)
        return ThinBlock(self.rates**2 * (upper + lower), none, none[:, 0], in_lam, float(self._d.sum()))

    def hessian(self) -> FloatArray:
        # The two constraints of a coefficient have entries on the diagonal and in the column of lam only.
        out = np.zeros((self.dimension, self.dimension))
        bound = self.held
        upper, lower = self._d[: bound.size], self._d[bound.size : 2 * bound.size]
        out[bound, bound] = self.rates[bound] ** 2 * (upper + lower)
        out[bound, self.m + 1] = out[self.m + 1, bound] = self.rates[bound] * (lower - upper)
        out[self.m + 1, self.m + 1] = self._d.sum()
        return out

    def _interior(self, x: FloatArray, least: float) -> FloatArray:
        x = x.copy()
        size = max(float(np.abs(self.rates * x[: self.m]).max(initial=0.0)), self.floor)
        x[self.m + 1] = max(least, 1.1 * size + 0.1 * least)
        return x


class SumCone(LinearCone):
    """Feature norm linf: ``|rates_j theta_j| <= u_j`` and ``sum_j u_j <= lam``; the ``u_j`` are extra variables."""

    @property
    def dimension(self) -> int:
        """Number of variables, bounds included."""
        return self.m + 2 + int(np.count_nonzero(self.rates > 0.0))

    def product(self, dx: FloatArray) -> FloatArray:
        used, bounds, lam = self.rates[self.held] * dx[self.held], dx[self.m + 2 :], float(dx[self.m + 1])
        return np.concatenate([bounds - used, bounds + used, [lam - bounds.sum(), lam]])

    def adjoint(self, z: FloatArray) -> FloatArray:
        out, k = np.zeros(self.dimension), self.held.size
        upper, lower = z[:k], z[k : 2 * k]
        out[self.held] = self.rates[self.held] * (lower - upper)
        out[self.m + 2 :] = upper + lower - z[2 * k]
        out[self.m + 1] = z[2 * k] + z[2 * k + 1]
        return out

    def thin(self) -> ThinBlock:
        # The coordinates are the slacks u - rates theta and u + rates theta, coupled only by the constraint on the sum.
        k, total = 2 * self.m, float(self._d[2 * self.m])
        half = np.full((1, k), 0.5)
        return ThinBlock(self._d[:k], half, np.array([total]), -total * half[0], total + float(self._d[k + 1]))

    def inward(self, v: FloatArray) -> FloatArray:
        model, bounds = v[..., : self.m] / self.rates, v[..., self.m + 2 :]
        return 0.5 * np.concatenate([bounds - model, bounds + model, 2.0 * v[..., self.m : self.m + 2]], axis=-1)

    def outward(self, v: FloatArray) -> FloatArray:
        upper, lower = v[: self.m], v[self.m : 2 * self.m]
        return np.concatenate([0.5 * (lower - upper) / self.rates, v[2 * self.m :], 0.5 * (lower + upper)])

    def hessian(self) -> FloatArray:
        # A bound u_j is coupled with its coefficient by two constraints, and with the other bounds and lam by the sum.
        k = self.dimension - self.m - 2
        out = np.zeros((self.dimension, self.dimension))
        bound, own = self.held, self.m + 2 + np.arange(k)
        upper, lower, total = self._d[:k], self._d[k : 2 * k], float(self._d[2 * k])
        out[self.m + 2 :, self.m + 2 :] = total
        out[bound, bound] = self.rates[bound] ** 2 * (upper + lower)
        out[own, own] += upper + lower
        out[bound, own] = out[own, bound] = self.rates[bound] * (lower - upper)
        out[self.m + 1, self.m + 2 :] = out[self.m + 2 :, self.m + 1] = -total
        out[self.m + 1, self.m + 1] = total + float(self._d[2 * k + 1])
        return out

    def _interior(self, x: FloatArray, least: float) -> FloatArray:
        full = np.zeros(self.dimension)
        full[: self.m + 2] = x[: self.m + 2]
        used = np.abs(self.rates * full[: self.m])[self.rates > 0.0]
        # At the optimum the two multipliers of a bound add up to that of the sum. Equal products s z with the slack of
        # the sum half as large as the others satisfy this at the start.
        slack = max(least, float(used.sum()), 2.0 * self.floor) / (used.size + 0.5)
        full[self.m + 2 :] = used + slack
        full[self.m + 1] = float(full[self.m + 2 :].sum()) + 0.5 * slack
        return full


class EuclideanCone(NormCone):
    """Feature norm l2: ``||rates * theta||_2 <= lam``, a second-order cone, and ``lam >= floor``.

    The cone has Nesterov-Todd scaling.
    """

    def __init__(self, rates: FloatArray, floor: float) -> None:
        super().__init__(rates, floor)
        self.offset = np.zeros(self.m + 2)
        self.offset[0] = -floor

    def product(self, dx: FloatArray) -> FloatArray:
        lam = dx[self.m + 1]
        return np.concatenate([[lam, lam], self.rates * dx[: self.m]])

    def adjoint(self, z: FloatArray) -> FloatArray:
        return np.concatenate([self.rates * z[2:], [0.0, z[0] + z[1]]])

    @property
    def degree(self) -> int:
        """One product for the cone, one for the floor."""
        return 2

    def start(self, x: FloatArray, mu: float, radius: float) -> FloatArray:
        x = x.copy()
        size = max(float(np.linalg.norm(self.rates * x[: self.m])), self.floor)
        x[self.m + 1] = max(mu / radius, 1.1 * size + 0.1 * mu / radius)
        self.s = self.slack(x)
        det = self.s[1] ** 2 - float(self.s[2:] @ self.s[2:])
        product = radius / (1.0 / self.s[0] + self.s[1] / det)
        self.z = product * np.concatenate([[1.0 / self.s[0], self.s[1] / det], -self.s[2:] / det])
        self.weight = product / mu
        return x

    def scale(self) -> None:
        s, z = self.s[1:], self.z[1:]
        ds, dz = np.sqrt(_det(s)), np.sqrt(_det(z))
        s, z = s / ds, z / dz
        half = np.sqrt(0.5 * (1.0 + float(s @ z)))
        w = (s + np.concatenate([z[:1], -z[1:]])) / (2.0 * half)  # the scaling point
        self._eta = np.sqrt(ds / dz)
        self._w = w
        self._d = self.z[0] / self.s[0]
        self._lam = self._apply(self.z[1:])  # W z = W^-1 s

    def _apply(self, v: FloatArray) -> FloatArray:
        """Return ``W v``."""
        w = self._w
        head = float(w @ v)
        tail = v[1:] + w[1:] * (v[0] + float(w[1:] @ v[1:]) / (1.0 + w[0]))
        return np.asarray(self._eta * np.concatenate([[head], tail]), dtype=np.float64)

    def _unapply(self, v: FloatArray) -> FloatArray:
        """Return ``W^-1 v``."""
        w = self._w
        inner = float(w[1:] @ v[1:])
        tail = v[1:] + w[1:] * (-v[0] + inner / (1.0 + w[0]))
        return np.asarray(np.concatenate([[w[0] * v[0] - inner], tail]) / self._eta, dtype=np.float64)

    def weigh(self, ds: FloatArray) -> FloatArray:
        return np.concatenate([[self._d * ds[0]], self._unapply(self._unapply(ds[1:]))])

    def hessian(self) -> FloatArray:
        # W^-2 = (2 Jw (Jw)' - J) / eta^2, with J = diag(1, -1, ..., -1).
        jw = np.concatenate([self._w[:1], -self._w[1:]])
        inverse = 2.0 * np.outer(jw, jw)
        inverse[0, 0] -= 1.0
        inverse[np.arange(1, self.m + 1), np.arange(1, self.m + 1)] += 1.0
        inverse /= self._eta**2
        out = np.zeros((self.dimension, self.dimension))
        out[: self.m, : self.m] = inverse[1:, 1:] * np.outer(self.rates, self.rates)
        out[: self.m, self.m + 1] = out[self.m + 1, : self.m] = inverse[0, 1:] * self.rates
        out[self.m + 1, self.m + 1] = inverse[0, 0] + self._d
        return out

    def target(self, mu: float, correction: tuple[FloatArray, FloatArray] | None) -> FloatArray:
        lam = self._lam
        right = np.zeros(self.m + 1)
        right[0] = self.weight * mu
        right -= _jordan(lam, lam)
        linear = self.weight * mu - self.s[0] * self.z[0]
        if correction is not None:
            ds, dz = correction
            right -= _jordan(self._unapply(ds[1:]), self._apply(dz[1:]))
            linear -= ds[0] * dz[0]
        return np.concatenate([[linear / self.s[0]], self._unapply(_divide(lam, right))])

    def max_step(self, ds: FloatArray, dz: FloatArray) -> tuple[float, float]:
        return (
            min(ratio(self.s[:1], ds[:1]), _cone_step(self.s[1:], ds[1:])),
            min(ratio(self.z[:1], dz[:1]), _cone_step(self.z[1:], dz[1:])),
        )


class NoCone(LinearCone):
    """Radius 0: the coefficients are unconstrained, and ``lam`` is not in the objective."""

    s = z = np.zeros(0)

    def product(self, dx: FloatArray) -> FloatArray:
        return np.zeros(0)

    def adjoint(self, z: FloatArray) -> FloatArray:
        return np.zeros(self.dimension)

    def _interior(self, x: FloatArray, least: float) -> FloatArray:
        return x

    def start(self, x: FloatArray, mu: float, radius: float) -> FloatArray:
        return x

    def hessian(self) -> FloatArray:
        out = np.zeros((self.dimension, self.dimension))
        out[self.m + 1, self.m + 1] = 1.0
        return out


def _det(v: FloatArray) -> float:
    size = float(np.linalg.norm(v[1:]))
    return max(float((v[0] - size) * (v[0] + size)), 1e-300)


def _jordan(u: FloatArray, v: FloatArray) -> FloatArray:
    return np.concatenate([[float(u @ v)], u[0] * v[1:] + v[0] * u[1:]])


def _divide(lam: FloatArray, v: FloatArray) -> FloatArray:
    """Solve ``lam o x = v`` in the Jordan algebra of the second-order cone."""
    det = _det(lam)
    head = (lam[0] * v[0] - float(lam[1:] @ v[1:])) / det
    return np.concatenate([[head], (v[1:] - head * lam[1:]) / lam[0]])


def _cone_step(v: FloatArray, dv: FloatArray) -> float:
    """Return the longest step that keeps ``v + step dv`` in the second-order cone."""
    a = dv[0] ** 2 - float(dv[1:] @ dv[1:])
    b = v[0] * dv[0] - float(v[1:] @ dv[1:])
    c = _det(v)
    step, disc = np.inf, b * b - a * c
    if b <= 0.0 and disc >= 0.0 and (b < 0.0 or a < 0.0):
        step = c / (-b + np.sqrt(disc))
    elif a < 0.0:
        step = (-b - np.sqrt(disc)) / a
    if dv[0] < 0.0:
        step = min(step, -v[0] / dv[0])
    return float(step)


def ratio(v: FloatArray, dv: FloatArray) -> float:
    """Return the longest step that keeps ``v + step dv`` positive."""
    steepest = -float((dv / v).min(initial=0.0))
    return 1.0 / steepest if steepest > 0.0 else np.inf


def norm_cone(problem: Problem, scales: FloatArray) -> NormCone:
    """Return the cone of ``problem`` for coefficients multiplied by ``scales``."""
    if problem.radius == 0.0:
        return NoCone(np.zeros(scales.size), 0.0)
    norm = problem.geometry.norm
    rates = problem.loss.lipschitz / scales
    if norm.weights is not None:
        rates = rates / norm.weights
    floor = 0.0 if problem.is_classification else problem.form.kappa(0.0)
    kind: dict[str, type[NormCone]] = {"l1": MaxCone, "l2": EuclideanCone, "linf": SumCone}
    return kind[norm.name](rates, floor)
