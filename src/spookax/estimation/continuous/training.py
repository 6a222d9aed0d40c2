"""Training of the networks: many runs at once, in pieces that report, can be stopped and be gone on from."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._compiled import compiled
from ..._typing import AnyArray, Array, Float
from ...protocol import AbstractContinuousModel, ModelError
from . import checks
from .moment_networks import AbstractLoss, Belief, Networks, Readings

_LITTLE = 1e-3  # relative change of a loss that is no progress
_STEEPEST = 10.0  # norm that a gradient is cut off at


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    `steps`: iterations at most; `batch`: samples in each; `rate`, `last_rate`: of Adam, at the start and the end
    (cosine); `quicker`: factor on the rate of the unknowns; `data_first`: iterations in which only the readings count
    and the unknowns are held; `piece`: iterations between two reports; `patience`: pieces without a better loss of any
    run after which it ends.
    """

    steps: int = 6000
    batch: int = 150
    rate: float = 5e-3
    last_rate: float = 1e-4
    quicker: float = 3.0
    data_first: int = 1000
    piece: int = 500
    patience: int = 6


class TrainingReport(NamedTuple):
    """Progress of a training: after `step` iterations the mean loss of every run over the last piece, and unknowns."""

    step: int
    loss: Float[np.ndarray, " runs"]
    z: Float[np.ndarray, "runs p"]


@dataclasses.dataclass(frozen=True)
class Trained:
    """Networks after a training, with a leading axis of runs."""

    nets: Networks
    loss: Float[np.ndarray, " runs"]  # mean over the last piece; not finite where a run failed
    history: list[TrainingReport]
    ended: str  # why: "all steps", "no run improved", "interrupted"

    @property
    def failed(self) -> Float[np.ndarray, " runs"]:
        """Which runs came to no finite loss."""
        return ~np.isfinite(self.loss)

    def best(self) -> Networks:
        """The networks of the run with the least loss."""
        if self.failed.all():
            raise ModelError("every run failed: no finite loss. Lower the `rate`, or begin nearer")
        return self.run(int(np.nanargmin(np.where(self.failed, np.nan, self.loss))))

    def run(self, index: int) -> Networks:
        """The networks of one run."""
        return jax.tree.map(lambda a: a[index] if eqx.is_array(a) else a, self.nets)


class _State(NamedTuple):
    arrays: Any
    moments: Any
    keys: Array
    step: Array
    loss: Float[Array, " runs"]


def networks(
    model: AbstractContinuousModel,
    readings: Readings,
    belief: Belief,
    z0: Float[AnyArray, "runs p"],
    shift: Float[AnyArray, "runs n"],
    scale: Float[AnyArray, "runs n"],
    seed: int = 0,
    *,
    width: int = 40,
    depth: int = 2,
    waves: int = 16,
    quickest: Any = 40.0,
) -> Networks:
    """Untrained networks, one pair for each row of `z0`; `readings` with a leading axis of runs, `belief` without.

    **Arguments:** `width`, `depth`: of the hidden layers; `waves`: how many frequencies of time they see, evenly up to
    `quickest` [rad/s].

    **Raises:** `ModelError` for a drift or a first covariance that cannot be used.
    """
    z0 = np.asarray(z0)
    checks.model(model, z0[0], belief.x0, np.asarray(readings.u)[0])
    checks.covariance("P0", belief.P0, model.tangent_size, definite=True)
    time = np.asarray(readings.time)

    def one(z: Array, begin: Array, end: Array, shift: Array, scale: Array, key: Array) -> Networks:
        sizes = {"width": width, "depth": depth, "waves": waves, "quickest": quickest}
        return Networks(z, belief, (begin, end), shift, scale, key=key, **sizes)

    keys = jax.random.split(jax.random.key(seed), len(z0))
    return eqx.filter_vmap(one)(jnp.asarray(z0), time[:, 0], time[:, -1], jnp.asarray(shift), jnp.asarray(scale), keys)


def train(
    nets: Networks,
    loss: AbstractLoss,
    model: AbstractContinuousModel,
    readings: Readings,
    belief: Belief,
    schedule: Schedule | None = None,
    *,
    seed: int = 0,
    shared: bool = False,
    report: Callable[[TrainingReport], None] | None = None,
    keep: str | Path | None = None,
) -> Trained:
    """Minimise a loss over the readings by Adam, all runs at once (leading axis of `nets` and `readings`).

    **Arguments:**

    - `shared`: whether all runs, recordings of one system, have the same unknowns; they must begin alike.
    - `keep`: a file in which the state of the training lies after every piece; where there is one, the training goes on
      from it.
    - `report`: called after every piece. A KeyboardInterrupt from there, or Ctrl-C, ends the training with what there
      is.
    """
    s = schedule or Schedule()
    arrays, rest = eqx.partition(nets, eqx.is_inexact_array)
    adam, _ = _steps_of(s)
    runs = readings.time.shape[0]
    keys = jax.random.split(jax.random.key(seed), runs)
    nothing = jnp.full(runs, jnp.inf)
    state = _State(arrays, jax.vmap(adam.init)(arrays), jax.random.key_data(keys), jnp.zeros((), int), nothing)
    if keep is not None and Path(keep).exists():
        state = eqx.tree_deserialise_leaves(keep, state)
    given = jax.tree.map(jnp.asarray, readings)
    history: list[TrainingReport] = []
    best, waited, ended = np.full(runs, np.inf), 0, "all steps"
    try:
        while int(state.step) < s.steps:
            done = int(state.step)
            if done < s.data_first:
                count = jnp.asarray(min(s.piece, s.data_first - done))
                state = _follow(state, count, given, rest, model, belief, s, shared)
            else:
                count = jnp.asarray(min(s.piece, s.steps - done))
                state = _solve(state, count, given, rest, loss, model, belief, s, shared)
            told = TrainingReport(int(state.step), np.asarray(state.loss), np.asarray(state.arrays.z))
            history.append(told)
            if keep is not None:
                eqx.tree_serialise_leaves(keep, state)
            if report:
                report(told)
            if told.step <= s.data_first + s.piece:
                continue
            better = told.loss < best - _LITTLE * np.abs(np.where(np.isfinite(best), best, 0.0))
            best, waited = np.fmin(best, told.loss), 0 if better.any() else waited + 1
            if waited >= s.patience:
                ended = "no run improved"
                break
    except KeyboardInterrupt:
        ended = "interrupted"
    return Trained(eqx.combine(state.arrays, rest), np.asarray(state.loss), history, ended)


def _steps_of(s: Schedule) -> tuple[Any, Any]:
    """Adam with the rates of a schedule, and what cuts steep gradients off."""
    import optax

    rates = optax.cosine_decay_schedule(s.rate, s.steps, s.last_rate / s.rate)
    return optax.adam(rates), optax.clip_by_global_norm(_STEEPEST)


@compiled
def _follow(
    state: _State,
    count: Array,
    data: Readings,
    rest: Any,
    model: Any,
    belief: Belief,
    s: Schedule,
    shared: bool,
) -> _State:
    """A piece of the training in which the means follow the readings, the unknowns held."""

    def misfit(arrays: Any, data: Readings, some: Readings) -> Array:
        nets = eqx.combine(arrays, rest)
        held = eqx.tree_at(lambda n: n.z, nets, jax.lax.stop_gradient(nets.z))
        return jnp.mean(jax.vmap(lambda t, y: _misfit(held, model, belief, t, y))(some.time, some.y))

    return _piece(state, count, data, misfit, s, shared)


@compiled
def _solve(
    state: _State,
    count: Array,
    data: Readings,
    rest: Any,
    loss: Any,
    model: Any,
    belief: Belief,
    s: Schedule,
    shared: bool,
) -> _State:
    """A piece of the training in which the loss falls."""

    def whole(arrays: Any, data: Readings, some: Readings) -> Array:
        nets = eqx.combine(arrays, rest)
        parts = jax.vmap(lambda t, y, u: loss(nets, model, belief, t, y, u))(*some)
        return jnp.mean(parts) + loss.at_start(nets, belief, data.time[0])

    return _piece(state, count, data, whole, s, shared)


def _piece(
    state: _State,
    count: Array,
    data: Readings,
    cost: Callable[[Any, Readings, Readings], Array],
    s: Schedule,
    shared: bool,
) -> _State:
    """So many iterations of all runs on samples that are drawn for each; the loss is the mean of what they had."""
    adam, clip = _steps_of(s)

    def slope(arrays: Any, key: Array, data: Readings) -> tuple[Any, Array, Array]:
        key, draw = jax.random.split(jax.random.wrap_key_data(key))
        index = jax.random.randint(draw, (s.batch,), 0, data.time.shape[0])
        value, found = jax.value_and_grad(cost)(arrays, data, Readings(*(a[index] for a in data)))
        found = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0.0), found)
        return clip.update(found, clip.init(found))[0], jax.random.key_data(key), value

    def moved(arrays: Any, moments: Any, found: Any) -> tuple[Any, Any]:
        with jax.numpy_dtype_promotion("standard"):  # optax's count of steps is an integer
            change, moments = adam.update(found, moments, arrays)
        change = eqx.tree_at(lambda c: c.z, change, replace_fn=lambda c: s.quicker * c)
        return jax.tree.map(jnp.add, arrays, change), moments

    def together(z: Array) -> Array:
        return jnp.broadcast_to(jnp.mean(z, axis=0), z.shape)

    def body(_: Array, state: _State) -> _State:
        found, keys, value = jax.vmap(slope)(state.arrays, state.keys, data)
        if shared:
            found = eqx.tree_at(lambda g: g.z, found, replace_fn=together)
        return _State(*jax.vmap(moved)(state.arrays, state.moments, found), keys, state.step + 1, state.loss + value)

    state = jax.lax.fori_loop(0, count, body, state._replace(loss=jnp.zeros_like(state.loss)))
    return state._replace(loss=state.loss / count.astype(state.loss.dtype))


def _misfit(nets: Networks, model: AbstractContinuousModel, belief: Belief, t: Array, y: Array) -> Array:
    """Squares of readings minus those of the mean, in their standard deviations."""
    there = ~jnp.isnan(y)
    read = model.read(nets.mean(t), model.prepare(nets.z))
    nu = jnp.where(there, model.difference(jnp.where(there, y, 0.0), read), 0.0)
    return jnp.sum((nu / jnp.asarray(belief.sd)) ** 2)
