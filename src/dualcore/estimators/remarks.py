"""Warnings about a fit: one sentence each, with what to do."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from dualcore.coresets.fit import as_sampler, is_auto
from dualcore.coresets.radii import largest_radius
from dualcore.coresets.stream import DriftWarning, drift_text
from dualcore.data.rows import as_rows, weighted_squares
from dualcore.data.sources import Source
from dualcore.problem import Problem
from dualcore.problem.families import BoxFamily
from dualcore.solvers import Solution
from dualcore.solvers.moving.methods import FEW_NUMBERS

# Scores that vary by less than this, in units of a margin or of the deviation of the target, are one constant.
_CONSTANT = 1e-5
# Scores of the first rows that vary by more are no constant, whatever was asked of the solver.
_FEW, _LEARNED = 1000, 0.1
# Where zero coefficients are certified no better than that, it is not known that they are the best.
_PROVED = 1e-3
# A default delta that is so many times too small or too large is in another unit than the target.
_FAR = 50.0
# What to do about the gap of a sampler that trains on what it hands out, and of one that is asked for a gap.
_DRAW_MORE = "Use a larger coreset, DualCoreset, or coreset=None where the rows are few."
_TRAIN_MORE = (
    "Use more rounds by coreset=DualCoreset(rounds=..., target_gap=...), a smaller tol, or coreset=None where the rows "
    "are few."
)


class Fitted(NamedTuple):
    """A problem that was solved, and the rows it was solved on: those of the coreset where the others are in a source.

    ``name`` is that of the class which is told from the rest, empty where there is one problem.
    """

    name: str
    problem: Problem
    solution: Solution
    certificate: Any  # None of a stream
    coreset: Any
    X: Any
    y: Any
    weights: Any


def remark(
    title: str, fits: Sequence[Fitted], *, tol: float, target: float | None = None, told: Collection[str] = ()
) -> None:
    """Warn once for each kind of trouble, and name the classes that have it.

    Parameters
    ----------
    title : str
        Name of the estimator.
    fits : sequence of Fitted
        One for each class against the rest, or one.
    tol : float
        Relative gap that a solve on all rows was asked for.
    target : float or None
        Relative gap that a coreset was asked for; None if for none.
    told : collection of str
        The classes of a stream that is known to drift: the warning is not repeated.
    """
    on_coreset = [fit for fit in fits if fit.coreset is not None and fit.certificate is not None]
    unsolved = list(_unsolved([fit for fit in fits if fit.coreset is None or fit.certificate is None], tol))
    for these, text in unsolved:
        _warn(title, these, text, ConvergenceWarning)
    limit = 0.5 if target is None else target
    loose = [fit for fit in on_coreset if not fit.certificate.relative_gap <= limit]
    if loose:
        gap = f"{_most(loose)}{max(fit.certificate.relative_gap for fit in loose):.2g}"
        text = f"the certificate leaves open how good the model is (relative gap {gap}). {_DRAW_MORE}"
        if target is not None:
            text = f"the certified relative gap is {gap}, more than the target_gap of {target:.2g}. {_TRAIN_MORE}"
        _warn(title, loose, text, ConvergenceWarning)
    poor = [fit for fit in on_coreset if (getattr(fit.coreset, "excess", None) or 0.0) > 0.01]
    if poor:
        few, why = poor[0].coreset, poor[0].coreset.details.get("message", "Ask for more rows.")
        text = f"trained on alone, the {len(few)} rows of coreset_ have a risk {few.excess:.0%} above that of the model"
        _warn(title, poor, f"{text}. {why}", UserWarning)
    drifted = [fit for fit in fits if fit.certificate is None and _drifts(fit.coreset) and fit.name not in told]
    if drifted:
        _warn(title, drifted, drift_text(max(fit.coreset.details["drift"] for fit in drifted)), DriftWarning)
    useful = [(fit, _useful_radius(fit)) for fit in fits if fit.certificate is not None]
    idle = [fit for fit, radius in useful if radius is not None]
    if idle:
        _warn(title, idle, _idle_text(title, idle, [radius for _, radius in useful if radius]), UserWarning)
    # Columns so far apart are in units of their own, and a radius in these units does nothing: else it is not said.
    alone = bool(useful) and not any((unsolved, loose, poor, drifted, idle))
    if alone and fits[0].problem.radius > 0.0 and (text := uneven_columns(fits[0].problem, fits[0].X, 1e6)):
        warnings.warn(f"{title}: {text}", UserWarning, stacklevel=frames_within())


def drifted_names(names: Sequence[str], coresets: Any) -> set[str]:
    """Return the classes whose coresets, those of a stream, say that it drifts."""
    known = coresets if isinstance(coresets, list) else [coresets]
    return {name for name, coreset in zip(names, known, strict=False) if _drifts(coreset)}


def _drifts(coreset: Any) -> bool:
    return coreset is not None and "drift" in coreset.details


def remark_delta(title: str, delta: float, solution: Solution, X: Any, y: Any, weights: Any = None) -> None:
    r"""Warn where the default ``delta`` of Huber's loss is far from the size of the residuals or of the target.

    .. math:: m = \mathrm{median}_i |y_i - \theta \cdot x_i - b|, \qquad s = \sqrt{\mathrm{Var}\, y}

    It is too small where ``m > 50 delta``: nearly all rows then count as outliers. It is too large where
    ``50 s < delta``: no row does, and the price of the radius, ``radius delta ||theta||_*``, is that of another unit.
    """
    if isinstance(X, Source):  # rows are not read again for a remark
        return
    rows = as_rows(X)
    some = np.unique(np.linspace(0, rows.n - 1, min(rows.n, _FEW)).astype(np.int64))
    targets = np.asarray(y, dtype=np.float64)[some]
    residuals = targets - rows.take(some) @ solution.coef - solution.intercept
    # Of a coreset the rows stand for unequally many.
    masses = np.ones(some.size) if weights is None else np.asarray(weights, dtype=np.float64)[some]
    sizes, order = np.abs(residuals), np.argsort(np.abs(residuals))
    middle = float(sizes[order[np.searchsorted(np.cumsum(masses[order]), 0.5 * masses.sum())]])
    deviation = float(np.sqrt(np.cov(targets, aweights=masses, ddof=0)))
    # Of a normal variable the deviation is 1.4826 times the median size.
    if middle > _FAR * delta:
        unit, why = 1.4826 * middle, f"and half of the residuals are larger than {middle:.2g}: nearly every"
    elif 0.0 < _FAR * deviation < delta:
        unit, why = deviation, f"whose deviation is {deviation:.2g}: no"
    else:
        return
    text = f"delta={delta:g} is in the units of the target, {why} row counts as an outlier."
    advice = f"Use about delta={delta * unit:.2g}, or scale the target by sklearn.compose.TransformedTargetRegressor."
    warnings.warn(f"{title}: {text} {advice}", UserWarning, stacklevel=frames_within())


def _unsolved(fits: Sequence[Fitted], tol: float) -> Iterator[tuple[list[Fitted], str]]:
    """Yield the fits that did not converge, with what to say of them: a sentence for each status."""
    open_fits = [fit for fit in fits if not fit.solution.converged and not _may_end(fit)]
    for status in dict.fromkeys(fit.solution.status for fit in open_fits):
        these = [fit for fit in open_fits if fit.solution.status is status]
        gap = max(fit.solution.relative_gap for fit in these)
        yield these, f"{status.value} Relative gap {_most(these)}{gap:.2e}, asked for {tol:.0e}."


def _may_end(fit: Fitted) -> bool:
    """Whether the gap of a fit is accepted for so many numbers; the certificate states it."""
    shape = (fit.X.n_rows, fit.X.n_features) if isinstance(fit.X, Source) else fit.X.shape
    return bool(fit.solution.relative_gap <= accepted_gap(fit.problem, *shape))


def accepted_gap(problem: Problem, n_rows: int, n_features: int) -> float:
    """Return the relative gap above ``tol`` at which training on a support or with categories may end; 0 for none."""
    may_end = isinstance(problem.family, BoxFamily) and n_rows * n_features > FEW_NUMBERS
    return min(1e-9 * n_rows * n_features, 1e-4) if may_end else 0.0


def _warn(title: str, fits: Sequence[Fitted], text: str, category: type[Warning]) -> None:
    names = [fit.name for fit in fits if fit.name]
    if len(names) > 10:
        names = [*names[:10], f"{len(names) - 10} others"]
    classes = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    of = f", {'classes' if len(names) > 1 else 'class'} {classes} against the rest" if names else ""
    uneven = uneven_columns(fits[0].problem, fits[0].X)
    warnings.warn(f"{title}{of}: {text}{' ' if uneven else ''}{uneven}", category, stacklevel=frames_within())


def frames_within() -> int:
    """Return the ``stacklevel`` at which a warning of the caller stands where the package was called."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("dualcore."):
        level, frame = level + 1, frame.f_back
    return level


def _most(fits: Sequence[Fitted]) -> str:
    return "up to " if len(fits) > 1 else ""


def _useful_radius(fit: Fitted) -> str | None:
    """Return what is known of the largest useful radius where this one leaves no coefficient; None where it does."""
    problem, coef = fit.problem, fit.solution.coef
    proved, joint = fit.certificate.relative_gap <= _PROVED, problem.family.n_outputs > 1
    if problem.radius == 0.0:
        return None
    if joint or isinstance(fit.X, Source):  # rows are not read again for a remark
        alike = np.abs(coef - coef.mean(axis=0) if joint else coef).max(initial=0.0) <= 1e-9
        return "" if proved and alike and np.size(coef) else None
    rows, scale = as_rows(fit.X), 1.0 if problem.is_classification else float(np.std(fit.y))
    few = as_rows(fit.X[:_FEW]) if rows.n > _FEW else rows
    if float(np.ptp(few.dot(coef))) > _LEARNED * scale:  # the usual case, at the price of a few rows
        return None
    bound = largest_radius(problem, rows, fit.y, fit.weights)
    if not 0.0 < bound < np.inf:  # no radius would help
        return None
    if not problem.family.is_closed:  # the bound is for an adversary without a box, who can do more
        bound = np.inf
    # Near the bound coefficients that are optimal to within tol need not be small; and a coreset that missed the
    # rows of a class has zeros of its own making.
    if problem.radius < bound and not (proved and float(np.ptp(rows.dot(coef))) <= _CONSTANT * scale):
        return None
    exact = not problem.loss.kinks and problem.family.is_closed and np.isinf(problem.geometry.label_cost)
    return f"{'' if exact else 'below '}{bound if exact else min(bound, problem.radius):.3g}"


def _idle_text(title: str, fits: Sequence[Fitted], useful: Sequence[str]) -> str:
    advice = "Use a smaller one; suggest_radius and the estimators whose names end in CV choose one."
    if title.endswith("CV"):
        advice = "Cross-validation chose it: look at scores_, and try smaller radii or another scoring."
    known = list(dict.fromkeys(useful))
    several = "radii of these classes are" if len(known) > 1 else "radius is"
    largest = f" The largest useful {several} {', '.join(known)}." if known else ""
    what = "score" if len(fits) > 1 or fits[0].name else "prediction"
    same = f"all coefficients are 0, and every row gets the same {what}"
    most = max(float(np.abs(fit.solution.coef).max(initial=0.0)) for fit in fits)
    if most > 0.0:
        same = f"no coefficient exceeds {most:.2g}, which is 0 to within tol, and every row gets nearly the same {what}"
    if fits[0].problem.loss.kinks:
        advice += " A piecewise linear loss may learn nothing at any radius, 0 included: then use a smooth loss."
    return f"radius={fits[0].problem.radius:g} leaves nothing to learn: {same}.{largest} {advice}{_rare_class(fits)}"


def _rare_class(fits: Sequence[Fitted]) -> str:
    """Return what to do about a rare class, beside which no radius helps; empty where there is none."""
    fit = fits[0]
    if len(fits) > 1 or fit.name or isinstance(fit.X, Source) or not fit.problem.is_classification:
        return ""
    positive = float(np.average(np.asarray(fit.y) > 0.0, weights=fit.weights))
    share = min(positive, 1.0 - positive)
    if share >= 0.1:  # constant scores are good in the mean beside a rare class only
        return ""
    return f" One class has {share:.2g} of the weight; class_weight='balanced' gives both the same."


def uneven_columns(problem: Problem, X: Any, factor: float = 1e3) -> str:
    r"""Return a sentence about columns whose sizes differ by more than a factor; empty where they are alike.

    .. math:: s_j = w_j \sqrt{\textstyle\sum_{i: x_{ij} \ne m_j} (x_{ij} - m_j)^2 / \#\{i: x_{ij} \ne m_j\}}

    is the size of a column, :math:`m_j` its median (0 where ``X`` is sparse) and :math:`w_j` the price of moving it by
    one. A column that is rarely other than zero is so no smaller than one that is often: one-hot columns have the
    size 1 however rare they are. A thousand rows, evenly spaced, decide.

    Examples
    --------
    >>> X = np.array([[1.0, 5e6], [2.0, 7e6], [3.0, 1e6]])
    >>> uneven_columns(Problem("huber"), X)[:69]
    'The columns have very different scales (a factor of 3e+06 between col'
    >>> uneven_columns(Problem("huber", feature_weights=[1.0, 1e-6]), X)
    ''
    """
    if isinstance(X, Source):  # rows are not read again for a remark
        return ""
    rows = as_rows(X)
    some = rows.take(np.unique(np.linspace(0, rows.n - 1, min(rows.n, _FEW)).astype(np.int64)))
    away = some if sp.issparse(some) else some - np.median(some, axis=0)
    counts = np.asarray((away != 0.0).sum(axis=0)).ravel()
    sizes = np.sqrt(weighted_squares(away, np.ones(away.shape[0])) / np.maximum(counts, 1))
    prices = problem.geometry.norm.weights
    sizes = sizes if prices is None else sizes * np.where(np.isfinite(prices), prices, 0.0)
    known = np.flatnonzero(sizes > 0.0)
    if not known.size:
        return ""
    low, high = known[sizes[known].argmin()], known[sizes[known].argmax()]
    if sizes[high] <= factor * sizes[low]:
        return ""
    found = f"a factor of {sizes[high] / sizes[low]:.0e} between columns {low} and {high}"
    advice = "so one radius cannot suit all of them. Use feature_weights='std'."
    return f"The columns have very different scales ({found}), {advice}"


def target_gap(coreset: Any) -> float | None:
    """Return the certified gap that a coreset is asked for; None where a sampler is not asked for any.

    A size, or "auto" where it chose one, asks for that of the sampler it stands for.
    """
    return None if coreset is None else getattr(as_sampler(1.0 if is_auto(coreset) else coreset), "target_gap", None)
