"""Newton's method for softmax problems, with a small cone program in every step.

One read of the data computes the second-order expansion of the mean loss around a model. The parts that are not smooth,
the bound on the differences of coefficients and the rows near a label flip, are constraints of the cone program. Its
solution is the next model. Its multipliers, with the probabilities of the classes changed to first order, are a dual
point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import softmax

from dualcore.certificates.softmax.bound import NewtonStep
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.certificates.softmax.flips import Flips
from dualcore.certificates.softmax.transport import Transport
from dualcore.data.arrays import FloatArray
from dualcore.problem.forms import Minimum
from dualcore.solvers.coneprogram import Affine, ConeProgram
from dualcore.solvers.softmax.curvedprogram import CurvedProgram, bound_differences

__all__ = ["newton_step"]


class Expansion(NamedTuple):
    """The second-order expansion of the mean loss, and (n,) each: best gain of a flip, its lead, and its label."""

    gradient: FloatArray
    curvature: FloatArray
    gain: FloatArray
    tie: FloatArray
    lowest: npt.NDArray[np.int64]


class OpenRows(NamedTuple):
    """Rows near a label flip, with one entry for every label that they may take, in the order of rows.

    ``row``, ``label`` and ``gain``, the increase of the loss by the label, have shape (entries,). ``place`` (entries,)
    is the index of the row in ``features`` (rows, width).
    """

    row: npt.NDArray[np.int64]
    label: npt.NDArray[np.int64]
    gain: FloatArray
    place: npt.NDArray[np.int64]
    features: FloatArray


def newton_step(design: ClassDesign, W: FloatArray, risk: Minimum, tol: float, *, flat: float = 1e-13) -> NewtonStep:
    """Read the data once at ``W`` and minimise the second-order expansion of the risk around it.

    Parameters
    ----------
    risk : Minimum
        The risk at ``W`` and its multiplier.
    tol : float
    flat : float
        Curvature below this share of the largest counts as zero when the dual point is corrected.
    """
    problem, m = design.problem, design.scale.size
    basis, n_classes = design.basis, W.shape[0]
    here = _expand(design, W)
    flips, open_rows = Flips.none(), None
    if design.problem.family.flips:
        flips, open_rows = _choose_open(design, W, here, risk.multiplier, limit=W.size // 2 + 100)
    ridge = design.ridge
    penalty = np.kron(np.eye(n_classes), basis.T @ (ridge[0][:, None] * basis))
    total, factor = _factor(here.curvature + penalty, W.shape)
    slope = (here.gradient + _moment(design, flips) + (ridge * W) @ basis).ravel()
    if problem.radius == 0.0:
        change, transport = -cho_solve(factor, slope), Transport(np.zeros((n_classes, m)), 0.0)
    else:
        program = CurvedProgram()
        step, lam = program.variables(W.size), program.variables(1)
        program.minimise_form(total, step)
        spent = problem.geometry.label_cost * flips.mass(design.data) if flips.row.size else 0.0
        # `lam` is the bound on differences times the radius, so that its coefficient in the objective is about 1.
        program.minimise(step.mapped(slope[None, :]) + (1.0 - spent / problem.radius) * lam)
        program.nonnegative(lam)
        coef = _coefficients(program, basis[:m], step, W[:, :m])
        priced = type(design.norm)(_prices(design) / problem.radius)
        read_flow = bound_differences(program, priced, lam, coef, n_classes, m)
        read_flips = None if open_rows is None else _leave_open(program, design, open_rows, lam, step)
        # The tolerances of a cone program are absolute where its objective is below one.
        stretch = float(np.clip(1.0 / max(risk.value, 1e-300), 1.0, 1e5))
        found = program.solve(tol=max(1e-3 * tol, 1e-11), loose_tol=1e-6, max_iter=100, stretch=stretch)
        change, transport = found.value(step), read_flow(found)
        transport = transport._replace(cost=transport.cost * problem.radius)
        if read_flips is not None:
            flips = flips.joined(read_flips(found.multipliers))
            flips = flips.within(problem.radius, design.data, problem.geometry.label_cost)
    # A dual point needs its moment up to rounding; the cone program is accurate to about eight digits.
    wanted = -ridge * (W + change.reshape(W.shape) @ basis.T)
    wanted[:, :m] += transport.moment
    excess = (here.gradient + _moment(design, flips) - wanted @ basis).ravel()
    correction = _correct(here.curvature, factor, change, excess, flat)
    return NewtonStep(change.reshape(W.shape) @ basis.T, correction.reshape(W.shape) @ basis.T, flips, transport)


def _prices(design: ClassDesign) -> FloatArray:
    return np.ones(design.scale.size) if design.norm.weights is None else design.norm.weights


def _correct(
    curvature: FloatArray, factor: tuple[FloatArray, bool], change: FloatArray, excess: FloatArray, flat: float
) -> FloatArray:
    """Return the change, corrected so that ``curvature @ change = -excess`` in the range of the curvature.

    Directions without curvature are left out: long steps along them only increase rounding.
    """
    correction = change.copy()
    # With more parameters the eigendecomposition is too slow.
    if excess.size > 400:
        for _ in range(3):
            correction -= cho_solve(factor, excess + curvature @ correction)
        return correction
    values, axes = np.linalg.eigh(curvature)
    curved = values > flat * values[-1]
    values, axes = values[curved], axes[:, curved]
    for _ in range(3):
        correction -= axes @ ((axes.T @ (excess + curvature @ correction)) / values)
    return correction


def _coefficients(program: ConeProgram, basis: FloatArray, step: Affine, coef: FloatArray) -> Affine:
    """Return the coefficients after the step, of shape (K, m), class by class; ``basis`` of shape (m, width)."""
    n_classes, m = coef.shape
    moved = step.mapped(sp.csr_array(sp.kron(sp.eye_array(n_classes), sp.csr_array(basis))))
    if np.count_nonzero(basis) <= m:
        return moved + coef.ravel()
    # Coefficients occur in many constraints; as separate variables they keep the constraints sparse.
    unit = np.tile(np.abs(basis).max(axis=1), n_classes)
    out = program.variables(n_classes * m)
    program.zero((moved + coef.ravel()).mapped(sp.diags_array(1.0 / unit)) - out)
    return out.mapped(sp.diags_array(unit))


def _factor(curvature: FloatArray, shape: tuple[int, int]) -> tuple[FloatArray, tuple[FloatArray, bool]]:
    """Return the curvature with the smallest damping that makes it positive definite, and its Cholesky factor.

    Equal changes of all classes do not change the loss. They are given the mean curvature, so that steps do not contain
    them.
    """
    mean = max(float(np.trace(curvature)) / len(curvature), 1e-12)
    curvature = curvature + mean * np.kron(np.full((shape[0], shape[0]), 1.0 / shape[0]), np.eye(shape[1]))
    # Relative to the mean curvature: the step along directions without curvature is zero.
    for damping in 1e-10 * 100.0 ** np.arange(6):
        damped = curvature + damping * mean * np.eye(len(curvature))
        try:
            return damped, cho_factor(damped, lower=True)
        except LinAlgError:
            continue
    raise FloatingPointError("The curvature of the softmax loss is no number: check the features for huge values.")


def _expand(design: ClassDesign, W: FloatArray) -> Expansion:
    """Return the expansion by one read of the data; gradient and curvature are in the coordinates of the basis."""
    data, masses, size = design.data, design.data.masses, W.size
    gradient, curvature = np.zeros(W.shape), np.zeros((size, size))
    diagonal = np.zeros((W.shape[0], W.shape[1], W.shape[1]))
    gain, tie, lowest = np.zeros(data.rows.n), np.zeros(data.rows.n), np.zeros(data.rows.n, dtype=np.int64)
    for part, block in design.blocks():
        scores, w, own = block @ W.T, masses[part], design.code[part]
        block = block @ design.basis
        chance = softmax(scores, axis=1)
        joint = np.einsum("ik,ij->ikj", chance * np.sqrt(w)[:, None], block).reshape(block.shape[0], size)
        curvature -= joint.T @ joint
        for k in range(W.shape[0]):
            diagonal[k] += block.T @ (block * (w * chance[:, k])[:, None])
        residual = w[:, None] * chance
        residual[np.arange(own.size), own] -= w
        gradient += residual.T @ block
        if design.problem.family.flips:
            two = np.partition(scores, 1, axis=1)[:, :2]
            lowest[part], tie[part] = scores.argmin(axis=1), two[:, 1] - two[:, 0]
            gain[part] = scores[np.arange(own.size), own] - two[:, 0]
    for k in range(W.shape[0]):
        part = slice(k * W.shape[1], (k + 1) * W.shape[1])
        curvature[part, part] += diagonal[k]
    return Expansion(gradient, curvature, gain, tie, lowest)


def _moment(design: ClassDesign, flips: Flips) -> FloatArray:
    """Return ``sum_i w_i (e_y - u_i) x_i``, the contribution of label flips to the gradient, in the basis."""
    out = np.zeros(design.shape)
    if flips.row.size:
        rows, index = np.unique(flips.row, return_inverse=True)
        features = design.rows(design.data.rows.take(rows)) @ design.basis
        push = np.zeros((rows.size, design.shape[0]))
        weight = design.data.masses[flips.row] * flips.share
        np.add.at(push, (index, design.code[flips.row]), weight)
        np.add.at(push, (index, flips.label), -weight)
        out = push.T @ features
    return out


def _choose_open(
    design: ClassDesign, W: FloatArray, here: Expansion, multiplier: float, limit: int
) -> tuple[Flips, OpenRows]:
    """Return the flips of rows far from a change, and the ``limit`` nearest rows, left open for the cone program.

    ``multiplier`` is that of the risk at ``W``: the rows whose gain exceeds ``multiplier * label_cost`` flip.
    """
    data, code = design.data, design.code
    beyond = here.gain - multiplier * design.problem.geometry.label_cost
    distance = np.where(beyond > 0.0, np.minimum(beyond, here.tie), -beyond)
    near = np.sort(np.argpartition(distance, limit)[:limit]) if distance.size > limit else np.arange(distance.size)
    farthest = float(distance[near].max())
    far = np.ones(distance.size, dtype=bool)
    far[near] = False
    flipped = np.flatnonzero(far & (beyond > 0.0))
    features = design.rows(data.rows.take(near))
    scores = features @ W.T
    gains = np.take_along_axis(scores, code[near, None], axis=1) - scores
    candidate = np.ones(gains.shape, dtype=bool)
    if candidate.size > 4 * limit:  # many classes: leave out the labels whose gain is far below the best
        candidate = gains >= gains.max(axis=1, keepdims=True) - 2.0 * farthest
    candidate[np.arange(near.size), code[near]] = False
    index, label = np.nonzero(candidate)
    chosen = Flips(flipped, here.lowest[flipped], np.ones(flipped.size))
    return chosen, OpenRows(near[index], label, gains[index, label], index, features)


def _leave_open(
    program: ConeProgram, design: ClassDesign, rows: OpenRows, lam: Affine, step: Affine
) -> Callable[[FloatArray], Flips]:
    """Add the constraints by which every open row takes the label of largest gain, or keeps its own."""
    width, entries = design.shape[1], rows.row.size
    masses, first = design.data.masses, rows.features.shape[0]
    extra = program.variables(first)
    owner = np.zeros(first, dtype=np.int64)
    owner[rows.place] = rows.row
    program.minimise(extra.mapped(masses[owner][None, :]))
    program.nonnegative(extra)
    own, features = design.code[rows.row], (rows.features @ design.basis)[rows.place]
    across = np.arange(width)
    places = np.repeat(np.arange(entries), width)
    push = sp.csr_array(
        (
            np.concatenate([features.ravel(), -features.ravel()]),
            (
                np.concatenate([places, places]),
                np.concatenate(
                    [(own[:, None] * width + across).ravel(), (rows.label[:, None] * width + across).ravel()]
                ),
            ),
        ),
        shape=(entries, step.offset.size),
    )
    repeat = sp.csr_array((np.ones(entries), (np.arange(entries), rows.place)), shape=(entries, first))
    price = design.problem.geometry.label_cost / design.problem.radius * lam.spread(entries)
    taken = program.nonnegative(extra.mapped(repeat) + price - step.mapped(push) - rows.gain)

    def read(multipliers: FloatArray) -> Flips:
        weight = masses[rows.row]
        share = np.divide(multipliers[taken], weight, out=np.zeros(entries), where=weight > 0.0)
        share = np.maximum(share, 0.0)
        total = np.bincount(rows.place, share, first)
        share /= np.maximum(total, 1.0)[rows.place]
        kept = share > 0.0
        return Flips(rows.row[kept], rows.label[kept], share[kept])

    return read
