"""Least squares of the simulation error: recordings are simulated with their inputs alone, from one or several starts.

Unknown are the parameters and the state that every segment of a recording begins with. With one segment a recording
that is single shooting, an output-error model. With several it is multiple shooting: a simulation goes astray only as
far as its segment reaches, which leaves an unstable motion or poor start values fewer local minima; the gaps between
the end of one segment and the start of the next are further errors, whose standard deviation falls from fit to fit
until next to nothing is left of them (a quadratic penalty).

Neither knows process noise. What the model lacks has to be explained by parameters.

**Source:** Ljung, *System identification* (2nd ed., 1999), section 7.2 (output error); Bock, *Recent advances in
parameter identification techniques for ODE* (1983) (multiple shooting).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._compiled import compiled
from ..._threads import concurrently
from ..._typing import AnyArray, Array, Float, Int, Scalar
from ...protocol import AbstractModel, Noise, Samples
from ...protocol.asked import admissible, first_guess, first_sd

TRIALS = 50
"""Of Levenberg and Marquardt's method in one fit at most."""

GAPS = (1e-2, 1e-4, 1e-6)
"""Standard deviations of the gaps between segments, of one fit after the other [rad or m]; of rates ten times these."""

_SETTLED = 1e-6  # relative change of parameters and cost at which to stop
_FREE = 0.5  # singular values of the projection on the joints are zero, or at least one
_DIVERGED = 1e6  # error of a reading that the simulation does not reach [sd]


class Shots(NamedTuple):
    """What the simulations need beside the unknowns: segments of equally many steps, those of a recording in a row."""

    model: AbstractModel
    noise: Noise  # its standard deviations weigh the readings
    samples: Samples  # (segments, steps, ...); a step without readings says nothing
    x0: Any  # (segments, ...) where the search for their starts begins
    free: Float[AnyArray, "segments n f"]  # directions that the joints leave to a start
    recording: Int[AnyArray, " segments"]  # that each is a part of
    prior: Float[AnyArray, " p"]
    weight: Float[AnyArray, " p"]  # 1 / sd of the prior
    lower: Float[AnyArray, " p"]
    upper: Float[AnyArray, " p"]
    own_weight: Float[AnyArray, " own"]


class _Unknowns(NamedTuple):
    """Parameters, offsets of every recording, and how far the starts of segments are from where the search began."""

    z: Float[Array, " p"]
    own: Float[Array, "recordings own"]
    d: Float[Array, "segments f"]


class Shot(NamedTuple):
    """The end of a search."""

    z: Float[np.ndarray, " p"]
    covariance: Float[np.ndarray, "p p"]  # of z: the errors' variance times the inverse of J' J, starts eliminated
    cost: float  # sum of squares of the errors, in their standard deviations; not finite if nothing was found
    settled: bool  # whether the last fit ended before `TRIALS`
    gap: float  # largest gap that is left between segments, in units of `protocol.asked.first_sd`; 0 for one segment


def segmented(samples: Sequence[Samples], x: Sequence[Any], length: int | None) -> tuple[Samples, Any, np.ndarray]:
    """Recordings cut into segments.

    **Arguments:** samples and states at the steps (a state more than steps, or as many) of every recording; `length` of
    a segment in steps, None for one segment as long as the longest recording.

    **Returns:** samples, first states and recordings of the segments; the last of a recording is filled up with steps
    that have no readings.
    """
    steps = [len(s.u) for s in samples]
    size = min(length or max(steps), max(steps))
    counts = [-(-n // size) for n in steps]

    def cut(s: Samples, count: int) -> Samples:
        def one(a: Any) -> np.ndarray:
            a = np.asarray(a)
            a = np.concatenate([a, np.zeros((count * size - len(a), *a.shape[1:]))])
            return a.reshape(count, size, *a.shape[1:])

        # what fills up has no readings, but steps as long as the others
        filled = s._replace(u=np.concatenate([s.u, np.repeat(s.u[-1:], count * size - len(s.u), axis=0)]))
        return jax.tree.map(one, filled)

    parts = [cut(s, count) for s, count in zip(samples, counts, strict=True)]
    firsts = [
        jax.tree.map(lambda a, count=count: np.asarray(a)[np.arange(count) * size], path)
        for path, count in zip(x, counts, strict=True)
    ]
    joined = [jax.tree.map(lambda *leaves: np.concatenate(leaves), *of) for of in (parts, firsts)]
    return joined[0], joined[1], np.repeat(np.arange(len(steps)), counts)


def shots(
    model: AbstractModel,
    noise: Noise,
    pieces: tuple[Samples, Any, np.ndarray],
    z: AnyArray,
    prior: tuple[AnyArray, AnyArray],
    bounds: tuple[AnyArray, AnyArray],
    own_weight: AnyArray,
) -> Shots:
    """`pieces`: as `segmented` returns them; `prior`: of z, its middle and 1 / sd; `own_weight`: the same of what every
    recording has of its own, zero at first."""
    samples, x0, recording = pieces
    free = _free_directions(model, np.concatenate([z, np.zeros(len(own_weight))]), x0)
    return Shots(model, noise, samples, x0, free, recording, *prior, *bounds, np.asarray(own_weight))


def shoot(given: Shots, starts: Sequence[AnyArray]) -> Shot:
    """Parameters and starts of the segments by Levenberg and Marquardt's method, from each of some z; the best end.

    Derivatives are carried forwards through each segment, for its own unknowns alone (`_condensed`).
    """
    several = len(given.recording) > len(np.unique(given.recording))
    gaps = GAPS if several else GAPS[-1:]
    ends = concurrently([partial(_from, given, np.clip(z, given.lower, given.upper), gaps) for z in starts])
    return min(ends, key=lambda end: end.cost if np.isfinite(end.cost) else np.inf)


def _from(given: Shots, z: AnyArray, gaps: Sequence[float]) -> Shot:
    recordings = int(np.max(given.recording)) + 1
    now = _Unknowns(
        jnp.asarray(z),
        jnp.zeros((recordings, len(given.own_weight))),
        jnp.zeros((len(given.recording), given.free.shape[2])),
    )
    for gap in gaps[:-1]:
        now, *_ = _fit(now, given, jnp.asarray(gap))
    now, settled, errors, J = _fit(now, given, jnp.asarray(gaps[-1]))
    covariance, cost, left = _judged(np.asarray(errors), np.asarray(J), given, gaps[-1], recordings)
    z = np.clip(np.asarray(now.z), given.lower, given.upper)
    return Shot(z, covariance, cost, bool(settled), left)


@compiled
def _fit(start: _Unknowns, given: Shots, gap: Scalar) -> tuple[_Unknowns, Array, Array, Array]:
    """The end of one fit, whether it settled, its errors and their derivatives."""
    import optimistix as optx  # only who compares needs it

    solver = optx.LevenbergMarquardt(rtol=_SETTLED, atol=_SETTLED)
    found = optx.least_squares(
        _errors, solver, start, args=(given, gap), options={"jac": "fwd"}, max_steps=TRIALS, throw=False
    )
    end = found.state.f_info  # of the point that was taken last: to compute it again would be compiled again
    return found.value, found.result == optx.RESULTS.successful, end.residual, end.jac.as_matrix()


def _judged(
    errors: np.ndarray, J: np.ndarray, given: Shots, gap: float, recordings: int
) -> tuple[np.ndarray, float, float]:
    """Covariance of z, cost, largest gap."""
    size = np.where(np.linalg.norm(J, axis=0) > 0, np.linalg.norm(J, axis=0), 1.0)
    inverse = np.linalg.pinv((J / size).T @ (J / size), hermitian=True) / size[:, None] / size
    cost, p = float(np.sum(errors**2)), len(given.lower)
    segments, f = given.free.shape[0], given.free.shape[2]
    variance = cost / max(int(np.sum(np.asarray(given.samples.weight) > 0)) - p - recordings * f, 1)
    between = errors[segments * _kept(given) :][: (segments - 1) * f] * gap
    return variance * inverse[:p, :p], cost, float(np.max(np.abs(between), initial=0.0))


def _own_part(unknown: _Unknowns, given: Shots) -> Float[Array, "segments q"]:
    """What every segment depends on: z, what its recording has of its own, its start."""
    z = jnp.clip(unknown.z, given.lower, given.upper)
    count = unknown.d.shape[0]
    return jnp.concatenate([jnp.tile(z, (count, 1)), unknown.own[jnp.asarray(given.recording)], unknown.d], axis=1)


def _kept(given: Shots) -> int:
    """How many numbers the errors of a segment's readings become (`_condensed`)."""
    unknowns = given.lower.shape[0] + given.own_weight.shape[0] + given.free.shape[2]
    return min(given.samples.y[0].size, unknowns) + 1


def _errors(unknown: _Unknowns, args: tuple[Shots, Scalar]) -> Float[Array, " errors"]:
    """What stands for the errors of the readings, in their standard deviations, gaps, and what priors say."""
    given, gap = args
    kept, n = _kept(given), given.model.tangent_size
    x0, ahead = given.x0, jax.tree.map(lambda a: jnp.roll(jnp.asarray(a), -1, axis=0), given.x0)
    data = jax.tree.map(jnp.asarray, (x0, ahead, given.free, given.samples))
    found = _condensed(_own_part(unknown, given), (given.model, given.noise, data))
    gaps = _between(found[:, kept : kept + n], found[:, kept + n :], given)
    parts = (
        found[:, :kept],
        gaps / gap,
        given.weight * (given.prior - unknown.z),
        jnp.asarray(given.own_weight)[None] * unknown.own,
    )
    return jnp.concatenate([jnp.ravel(part) for part in parts])


def _between(end: Array, start: Array, given: Shots) -> Float[Array, "pairs f"]:
    """Gaps between a segment's end and the next one's start, zero between two recordings. [`asked.first_sd`]"""
    p = given.model.prepare(jnp.concatenate([given.prior, 0 * given.own_weight]))
    size = first_sd(given.model, jax.tree.map(lambda a: jnp.asarray(a[0]), given.x0), p, jnp.ones(()))
    along = given.recording[1:] == given.recording[:-1]
    free = jnp.asarray(given.free)[1:]
    gap = jnp.einsum("snf,sn->sf", free, (end[:-1] - start[1:]) / size[None])
    return jnp.where(along[:, None], gap, 0.0)


@eqx.filter_custom_jvp
def _condensed(q: Float[Array, "segments q"], given: Any) -> Float[Array, "segments m"]:
    """Every segment in few numbers: its errors e turned by their derivative J = Q R, and its end and start.

    Q' e and the length of what Q does not reach have the same sum of squares as e, and R stands for J: a step of Gauss
    and Newton, and what it promises, are those of the errors themselves. Each segment depends on its own unknowns
    alone, so that this is a small factorisation of its own for each, and the problem in all unknowns has a few rows a
    segment in place of one a reading.
    """
    return _turned(q, given)[0]


@_condensed.def_jvp
def _condensed_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    found, slope = _turned(*primals)
    return found, jnp.einsum("smq,sq->sm", slope, tangents[0])


@eqx.filter_jit  # traced once, although it is asked for its shape, too
def _turned(q: Float[Array, "segments q"], given: Any) -> tuple[Array, Array]:
    """The numbers of `_condensed` and their derivatives."""
    model, noise, data = given

    def one(q: Array, *data: Any) -> tuple[Array, Array]:
        def both(q: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            found = _segment(q, model, noise, *data)
            return found, found

        slopes, (e, rest) = jax.jacfwd(both, has_aux=True)(q)
        J, ends = (jnp.where(jnp.isfinite(a), a, 0.0) for a in slopes)  # of a simulation that diverged
        Q, R = jnp.linalg.qr(J)
        turned = Q.T @ e
        beyond = jnp.linalg.norm(e - Q @ turned)[None]
        return (
            jnp.concatenate([turned, beyond, rest]),
            jnp.concatenate([R, jnp.zeros((1, q.shape[0]), dtype=R.dtype), ends]),
        )

    return jax.vmap(one)(q, *data)


def _segment(
    q: Array, model: AbstractModel, noise: Noise, x0: Any, ahead: Any, free: Array, samples: Samples
) -> tuple[Float[Array, " m"], Float[Array, " 2n"]]:
    """Errors of its readings; its end and its start, as steps from where the search began for the segment after it, and
    for itself."""
    f = free.shape[1]
    p = model.prepare(q[: q.shape[0] - f])
    x = admissible(model, model.retract(x0, free @ q[q.shape[0] - f :]), p)

    def advance(carry: tuple[Any, Array], at: Samples) -> tuple[tuple[Any, Array], Array]:
        x, guess = carry
        x1, guess1 = model.step(x, p, at.u, jnp.zeros(model.noise_size), noise, guess)
        read = jax.vmap(lambda s, y: model.difference(y, model.observe(x, x1, p, s)))(at.s, at.y)
        return (x1, guess1), read * at.weight / jnp.asarray(noise.sensor)[None]

    (x1, _), errors = jax.lax.scan(advance, (x, first_guess(model)), samples)
    found = jnp.ravel(errors), jnp.concatenate([model.local(x1, ahead), model.local(x, x0)])
    told, ends = (jnp.where(jnp.isfinite(a), a, _DIVERGED) for a in found)
    return told, ends


@compiled
def _projections(model: AbstractModel, z: Array, x: Any) -> Float[Array, "segments n n"]:
    p = model.prepare(z)

    def one(x: Any) -> Array:
        zero = jnp.zeros(model.tangent_size)
        return jax.jacfwd(lambda d: model.local(admissible(model, model.retract(x, d), p), x))(zero)

    return jax.vmap(one)(x)


def _free_directions(model: AbstractModel, z: AnyArray, x0: Any) -> Float[np.ndarray, "segments n f"]:
    u, s, _ = np.linalg.svd(np.asarray(_projections(model, z, x0)))
    f = int(np.max(np.sum(s > _FREE, axis=1)))
    return u[:, :, :f]
