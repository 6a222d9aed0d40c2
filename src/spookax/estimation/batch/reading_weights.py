"""Weights of readings, some of which may be wild: an iteratively reweighted contaminated normal.

A reading errs with its sensor's standard deviation, or, with a small probability given beforehand, ten times as much.
Its weight is the probability that it belongs to the first kind, given all *other* readings: their smoothed prediction
of it, with its variance. The state cannot have followed the reading that is judged, however much process noise there
is. The problem is then solved with all weights held, a reading of weight w having 1/sqrt(w) times its standard
deviation, and weights and solution take turns. In the evidence of a noise level it counts as w of a reading.

Where the median of all errors of a channel is larger than its noise level allows, the model is to blame and no
reading: errors are divided by that excess before they are judged.

**Source:** Tukey (1960) and Box and Tiao (1968) for the contaminated normal; Dempster, Laird and Rubin (1980) for the
weights; de Jong and Penzer (1998) for the prediction of a reading from all others.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ..._compiled import compiled
from ..._typing import Array, Float
from ...math import small
from ...protocol import Samples
from ..linearise import Linearised
from . import step_blocks
from .problem import Fit, Part, Problem
from .step_blocks import joined
from .sweeps import Filtered

KEPT = 0.5  # weight below which a reading counts as set aside
SAME_WEIGHT = 0.1  # change of a weight that is none
_WILD = 10.0  # sd of wild readings over that of the others
_FLOOR = 1e-5  # root of the least weight: what remains tells how far off the reading is
_SILENT = 1e-3  # error of a reading at the least weight, in sd, that changes nothing
_NORMAL = 0.6745  # median of |n| for n ~ N(0, 1)


def all_kept(samples: Sequence[Samples]) -> tuple[np.ndarray, ...]:
    """Root weights of one."""
    return tuple(np.ones_like(np.asarray(s.weight)) for s in samples)


def weighed(problem: Problem, root_weights: Sequence[np.ndarray]) -> tuple[Samples, ...]:
    """The samples of a problem with readings that count as much as their weights say."""
    pairs = zip(problem.samples, root_weights, strict=True)
    return tuple(s._replace(weight=np.asarray(s.weight) * root) for s, root in pairs)


def kept(fit: Fit, i: int) -> np.ndarray:
    """Which readings of a recording a fit has not set aside; shaped as `Samples.weight`."""
    return fit.root_weights[i] ** 2 >= KEPT


def counts(weight: np.ndarray, root: np.ndarray) -> Float[np.ndarray, " channels"]:
    """Number of readings of every channel, each as much as its weight."""
    return np.sum((weight > 0) * root**2, axis=(0, 1))


def price(share: float, roots: Sequence[np.ndarray]) -> float:
    """What readings cost that are set aside [nats]: an attempt that sets more of them aside is not the better one."""
    aside = sum(float(np.sum(1 - root**2)) for root in roots)
    return aside * float(np.log(_WILD * (1 - share) / share)) if share else 0.0


def root_of(weight: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Root of weights, never zero, but so small that errors in standard deviations have no say."""
    least = np.minimum(_FLOOR, _SILENT / np.maximum(np.abs(error), 1.0))
    return np.maximum(np.sqrt(weight), least)


@compiled
def _alone(after: tuple[Array, Array], lin: Linearised, f: Filtered) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Smoothed errors u of a block's readings and the diagonal of their precision, from (L, N) behind it."""
    eye = jnp.eye(lin.H.shape[1], dtype=lin.H.dtype)

    def back(carry: tuple[Array, Array], step: tuple[Array, ...]):
        L, N = carry
        A, H, J, P, K, white = step
        inverse = small.solve(H @ P @ H.T + J @ J.T + eye, eye)
        u, precision = white - K.T @ L, jnp.diagonal(inverse + K.T @ N @ K)
        AKH = A - K @ H
        return (A.T @ L + H.T @ u, AKH.T @ N @ AKH + H.T @ inverse @ H), (u, precision)

    return jax.lax.scan(back, after, (lin.A, lin.H, lin.J, f.P, f.K, f.Fi_nu), reverse=True)


def _behind_all(lin: Linearised) -> tuple[np.ndarray, np.ndarray]:
    n = lin.A.shape[1]
    return np.zeros(n), np.zeros((n, n))


def left_out(part: Part, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of every reading, what all others predict of it: error and variance, the reading's own included, in its standard
    deviation before it was weighed. Shaped as `root`.
    """
    _, found = step_blocks.backward(_alone, _behind_all(part.lin[0]), part.lin, part.f)
    u, precision = (np.asarray(a).reshape(root.shape) for a in joined(found))
    return u / precision / root, 1 + np.maximum(1 / precision - 1, 0.0) / root**2


def reweighted(
    share: float, parts: Sequence[Part], samples: Sequence[Samples], roots: Sequence[np.ndarray]
) -> tuple[np.ndarray, ...]:
    """Root weights of the readings of all recordings, from problems that were linearised and filtered with `roots`.

    `share`: of the readings that are wild, before any is looked at.
    """
    judged = [left_out(part, root) for part, root in zip(parts, roots, strict=True)]
    seen = [np.asarray(s.weight) > 0 for s in samples]
    excess = _excess([np.abs(e) / np.sqrt(v) for e, v in judged], seen)
    found = []
    for (error, variance), there in zip(judged, seen, strict=True):
        e, more = error / excess, variance + _WILD**2 - 1
        odds = np.log(share / (1 - share)) + np.log(variance / more) / 2 + e**2 * (1 / variance - 1 / more) / 2
        weight = 1 / (1 + np.exp(np.minimum(odds, 700.0)))
        found.append(np.where(there, root_of(weight, error), 1.0))
    return tuple(found)


def _excess(sizes: Sequence[np.ndarray], seen: Sequence[np.ndarray]) -> Float[np.ndarray, " channels"]:
    """By how much the errors of every channel exceed what is expected, by their median; at least 1."""
    excess = np.ones(sizes[0].shape[-1])
    for i in range(len(excess)):
        channel = np.concatenate([size[..., i][there[..., i]] for size, there in zip(sizes, seen, strict=True)])
        if channel.size:
            excess[i] = max(1.0, float(np.median(channel)) / _NORMAL)
    return excess


def rescaled(lin: Sequence[Linearised], ratio: np.ndarray) -> list[Linearised]:
    """The same problem with every reading's rows times a factor; `ratio`: shaped as `Samples.weight`."""
    rows = step_blocks.split(ratio.reshape(len(ratio), -1))
    return [
        part._replace(
            H=np.asarray(part.H) * r[..., None],
            J=np.asarray(part.J) * r[..., None],
            D=np.asarray(part.D) * r[..., None],
            e=np.asarray(part.e) * r,
        )
        for part, r in zip(lin, rows, strict=True)
    ]


def preparation(lin: Linearised, f: Filtered) -> Callable[[], None]:
    """A call that compiles what `reweighted` will call for blocks of this form."""
    return functools.partial(_alone.prepare, _behind_all(lin), lin, f)
