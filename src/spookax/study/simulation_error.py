"""Least squares of the simulation error: the baseline that knows no process noise.

Each recording is simulated with its inputs alone, from an initial state of its own (single shooting). Parameters and
initial states are those with which the simulations meet the readings best, by Levenberg and Marquardt's method with
derivatives carried forwards through the whole simulation. What the model lacks it has to explain by parameters, and a
motion that is unstable or chaotic gives it many minima; on short records of a good model it is what an estimator that
knows noise should come to.

**Source:** Ljung, *System identification* (2nd ed., 1999), section 7.2, output-error models.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._compiled import compiled
from .._typing import AnyArray, Array, Float
from ..models import Multibody
from ..protocol import Noise, Samples
from ..scene import Scene
from .model import Study
from .recording import Recording
from .setup import Setup, set_up

_TRIALS = 50
_SETTLED = 1e-6  # relative change of parameters and cost at which to stop
_FREE = 0.5  # singular values of the projection on the joints are zero, or at least one
_DIVERGED = 1e6  # error of a reading that the simulation does not reach [sd]


class _Data(NamedTuple):
    """What the simulations need beside the unknowns; of all recordings, each filled up to as many steps."""

    model: Multibody
    noise: Noise
    samples: Samples
    x0: Any
    free: Float[AnyArray, "recordings n f"]  # directions that the joints leave to the initial state
    prior: Float[AnyArray, " p"]
    weight: Float[AnyArray, " p"]
    lower: Float[AnyArray, " p"]
    upper: Float[AnyArray, " p"]
    own_weight: Float[AnyArray, " own"]


class _Unknowns(NamedTuple):
    """Parameters, offsets of every recording, and how far its initial state is from where the search began."""

    z: Float[Array, " p"]
    own: Float[Array, "recordings own"]
    d: Float[Array, "recordings f"]


def simulation_error(
    study: Study, scene: Scene, recordings: Sequence[Recording], other: np.ndarray | None = None
) -> np.ndarray | None:
    """Parameters by least squares of the simulation error, in the coordinates of the search.

    `other`: where to begin beside the study's starts; the better end counts. None if no simulation near there stays
    finite. The last of at most `_TRIALS` trials is taken, settled or not.
    """
    setup = set_up(study, scene, list(recordings))
    model, noise = setup.stages[-1].model, setup.stages[-1].noise
    assert isinstance(model, Multibody)
    p = setup.problem
    starts = [np.clip(z, p.lower, p.upper) for z in (p.z0, other) if z is not None]
    x0 = _stacked([jax.tree.map(lambda a: np.asarray(a)[0], path.x) for path, _ in setup.plans()])
    own = np.zeros((len(recordings), model.own.size))
    free = _free_directions(model, np.concatenate([starts[0], own[0]]), x0)
    data = _Data(model, noise, _filled(setup), x0, free, p.prior, p.weight, p.lower, p.upper, p.own_weight)
    d = jnp.zeros((len(recordings), free.shape[2]))
    ends = [_fit(_Unknowns(jnp.asarray(z), jnp.asarray(own), d), data) for z in starts]
    found, cost = min(ends, key=lambda end: np.nan_to_num(float(end[1]), nan=np.inf))
    return np.clip(found.z, p.lower, p.upper) if np.isfinite(cost) else None


@compiled
def _fit(start: _Unknowns, data: _Data) -> tuple[_Unknowns, Array]:
    import optimistix as optx  # only who compares needs it

    solver = optx.LevenbergMarquardt(rtol=_SETTLED, atol=_SETTLED)
    found = optx.least_squares(
        _errors, solver, start, args=data, options={"jac": "fwd"}, max_steps=_TRIALS, throw=False
    )
    return found.value, 2 * found.state.f_info.as_min()  # of this value: one simulation less to compile


def _errors(unknown: _Unknowns, data: _Data) -> Float[Array, " readings"]:
    """Measured minus simulated readings in their standard deviations, and what priors say."""
    z = jnp.clip(unknown.z, data.lower, data.upper)
    model = data.model

    def one(own: Array, d: Array, x0: Any, free: AnyArray, samples: Samples) -> Array:
        p = model.prepare(jnp.concatenate([z, own]))
        x = model.start(model.retract(x0, jnp.asarray(free) @ d), p)

        def advance(carry: tuple[Any, Array], at: Samples) -> tuple[tuple[Any, Array], Array]:
            x, hint = carry
            x1, hint1 = model.step(x, p, at.u, jnp.zeros(model.noise_size), data.noise, hint)
            read = jax.vmap(lambda s, y: model.difference(y, model.observe(x, x1, p, s)))(at.s, at.y)
            return (x1, hint1), read * at.seen / data.noise.sensor

        errors = jax.lax.scan(advance, (x, model.first_hint()), samples)[1]
        return jnp.where(jnp.isfinite(errors), errors, _DIVERGED)

    errors = jax.vmap(one)(unknown.own, unknown.d, data.x0, data.free, data.samples)
    priors = data.weight * (data.prior - unknown.z), data.own_weight * unknown.own
    return jnp.concatenate([errors.ravel(), *(part.ravel() for part in priors)])


@compiled
def _projection(model: Multibody, z: Array, x: Any) -> Float[Array, "n n"]:
    p = model.prepare(z)
    zero = jnp.zeros(model.tangent_size)
    return jax.jacfwd(lambda d: model.local(model.start(model.retract(x, d), p), x))(zero)


def _free_directions(model: Multibody, z: np.ndarray, x0: Any) -> Float[np.ndarray, "recordings n f"]:
    count = jax.tree.leaves(x0)[0].shape[0]
    found = []
    for i in range(count):
        u, s, _ = np.linalg.svd(np.asarray(_projection(model, z, jax.tree.map(lambda a, i=i: a[i], x0))))
        found.append(u[:, s > _FREE])
    return np.stack(found)


def _filled(setup: Setup) -> Samples:
    """The samples of all recordings, each with steps without readings up to the longest."""
    longest = max(grid.steps for grid in setup.grids)
    return _stacked(
        [
            jax.tree.map(lambda a: np.concatenate([a, np.zeros((longest - len(a), *np.shape(a)[1:]))]), samples)
            for samples in setup.problem.samples
        ]
    )


def _stacked(parts: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *parts)
