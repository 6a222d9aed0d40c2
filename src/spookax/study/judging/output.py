"""What an estimate says beyond the parameters: runs, signals, correlations, groups that are not determined."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._compiled import compiled, seldom_called
from ..._threads import concurrently
from ..._typing import Float
from ...constraints import axes, boxes, frames
from ...constraints.assemble import velocity
from ...estimation import Stage, uncertainty
from ...estimation.batch import step_blocks
from ...estimation.batch.problem import Fit
from ...estimation.batch.step_blocks import joined, split
from ...estimation.batch.uncertainty import Uncertainty
from ...estimation.linearise import Path, after, before
from ...models import Multibody, ParameterMap
from ...models.parameters import natural_values, values_and_sd
from ...protocol import Samples
from ..file.delays import is_delay
from ..running.setup import Setup
from ..running.simulate import open_loop, predictions
from ..running.touching import touching
from .bands import drawn, spread
from .posterior import without
from .set_aside import kept, weights

_UNKNOWN_SD = 1.0  # in z: a direction known to less than a factor of e counts as not determined
_LOOSE_SD = 0.2  # the same of several that go together, if each by itself
_BY_ITSELF = 0.03  # would be known to this part of that
_TIED = 1e-3  # of the most that is known from one by itself: less does not hold a direction
_EPS = float(np.finfo(float).eps)


def as_read(measured: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Predicted readings of a sensor; the rotation vector of a pose as the one of its two that is nearer to what was
    read: at half a turn it jumps from one to the other.
    """
    if predicted.shape[1] != 6:
        return predicted
    turn = predicted[:, 3:]
    angle = np.linalg.norm(turn, axis=1, keepdims=True)
    other = turn * (1 - 2 * np.pi / np.where(angle > 0, angle, np.inf))
    distance, other_distance = (np.linalg.norm(measured[:, 3:] - a, axis=1) for a in (turn, other))
    return np.column_stack([predicted[:, :3], np.where((other_distance < distance)[:, None], other, turn)])


class Told(NamedTuple):
    """What a fit says of one recording."""

    simulated: Float[np.ndarray, "steps slots channels"]  # readings from its first state on, without noise
    known: Uncertainty


def told(setup: Setup, fit: Fit, stage: int) -> list[Told]:
    """Of every recording, by a fit that ended in a stage."""
    model = setup.stages[stage].model
    assert isinstance(model, Multibody)

    def simulated(own: np.ndarray, path: Path, samples: Samples) -> np.ndarray:
        z, x0 = np.concatenate([fit.iterate.z, own]), jax.tree.map(lambda a: np.asarray(a)[0], path.x)
        return predictions(model, z, open_loop(model, z, fit.noise, x0, samples), samples)

    each = zip(fit.iterate.own, fit.iterate.paths, setup.problem.samples, strict=True)
    tasks: list[Callable[[], Any]] = [lambda: uncertainty(setup.problem, Stage(model, fit.noise), fit)]
    known, *readings = concurrently(tasks + [functools.partial(simulated, *recording) for recording in each])
    return [Told(*both) for both in zip(readings, known, strict=True)]


def run_contents(
    setup: Setup, fit: Fit, stage: int, recordings: Sequence[Told]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The `runs` of estimate.json and the arrays of states.npz; `recordings`: what is `told` of them."""
    runs: dict[str, Any] = {}
    states: dict[str, np.ndarray] = {}
    model = setup.stages[stage].model
    assert isinstance(model, Multibody)
    for i, (recording, grid, samples) in enumerate(
        zip(setup.recordings, setup.grids, setup.problem.samples, strict=True)
    ):
        own, path = fit.iterate.own[i], fit.iterate.paths[i]
        z = np.concatenate([fit.iterate.z, own])
        estimated = grid.taken(predictions(model, z, path, samples))
        free = grid.taken(recordings[i].simulated)
        signals, column = {}, 0
        name = recording.name
        channels = samples.y.shape[1:]
        innovations = grid.taken(np.asarray(recordings[i].known.innovations).reshape(-1, *channels))
        weight, counted = weights(setup, fit, i), kept(setup, fit, i).sensors
        joint_sd = axis_sd(model, z, path, recordings[i].known.covariance)
        states[f"{name}/time"] = recording.time
        for sensor in setup.sensors:
            size = setup.system.sensors[setup.system.sensor_index(sensor)].size
            part = slice(column, column + size)
            column += size
            measured = recording.sensors[sensor]
            if not np.isfinite(measured).any():
                continue
            along, ahead = (as_read(measured, predicted[:, part]) for predicted in (estimated, free))
            states[f"{name}/measured/{sensor}"] = measured
            states[f"{name}/estimated/{sensor}"] = along
            states[f"{name}/open_loop/{sensor}"] = ahead
            states[f"{name}/innovation/{sensor}"] = np.where(np.isfinite(counted[sensor]), innovations[:, part], np.nan)
            if setup.outliers:
                states[f"{name}/weight/{sensor}"] = weight[sensor]
            error = _rms(counted[sensor] - ahead)
            signals[sensor] = {
                "unit": ", ".join(recording.sensor_units.get(sensor, ("",))),
                "rms": _rms(counted[sensor] - along),
                "rms_open_loop": float(error),
                "nrmse_open_loop": float(error / np.nanstd(counted[sensor])),
            }
        count = int(grid.step_of[-1]) + 2
        axis_names = setup.system.axis_names()
        states |= {f"{name}/sd/{n}": joint_sd[: count - 1, :, a] for a, n in enumerate(axis_names)}
        position, rate, com = axis_readings(model, z, jax.tree.map(lambda a: np.asarray(a)[:2], path.x))
        states |= poses(name, grid.times[:count], jax.tree.map(lambda a, n=count: np.asarray(a)[:n], path.x), com)
        if (touch := touching(model, z, fit.noise, path, samples.u, grid.times[: count - 1])) is not None:
            states |= {f"{name}/contacts/{key}": array for key, array in touch.arrays().items()}
        own_value, own_sd = values_and_sd(setup.model.own, own, fit.own_covariance[i])
        runs[name] = {
            "file": recording.path.name,
            "sha256": recording.sha256,
            "samples": int(np.sum(np.asarray(samples.weight) > 0)),
            "duration": float(recording.time[-1] - recording.time[0]),
            "initial": _initial(axis_names, position[0], rate[0], joint_sd[0]),
            "offsets": {
                p.split(".")[1]: {"value": float(v), "sd": float(s)}
                for p, v, s in zip(setup.model.own.paths, own_value, own_sd, strict=True)
            },
            "signals": signals,
        }
    return runs, states


def bands(
    setup: Setup, fit: Fit, stage: int, information: np.ndarray, recordings: Sequence[Told]
) -> dict[str, np.ndarray]:
    """The arrays `open_loop_sd` of states.npz: how far simulations with parameters and starts from the posterior are
    from that of the estimate, in the unit of the sensor.

    `information`: see `gauges`; nothing is drawn along what is `undetermined` by it; `recordings`: what is `told` of
    them.
    """
    model, found = setup.stages[stage].model, {}
    assert isinstance(model, Multibody)
    z, p = np.asarray(fit.iterate.z), setup.problem
    covariance = functools.reduce(without, undetermined(fit, information), fit.covariance)
    draws = drawn(z, covariance, fit.reach, (p.lower, p.upper), model.own.size + model.tangent_size)
    for i, part in enumerate(fit.parts or ()):
        own, path = np.asarray(fit.iterate.own[i]), fit.iterate.paths[i]
        readings, known = recordings[i]
        sd = spread(model, fit.noise, part, known.first, path, own, p.own_weight, z, draws, p.samples[i], readings)
        for sensor, at in setup.by_sensor(setup.grids[i].taken(sd)):
            found[f"{setup.recordings[i].name}/open_loop_sd/{sensor}"] = at
    return found


def poses(name: str, time: np.ndarray, x: Any, com: np.ndarray) -> dict[str, np.ndarray]:
    """States at the centres of mass, as `states.npz` holds them."""
    w, q = x.e[..., :1], x.e[..., 1:]
    c = np.broadcast_to(com, q.shape)
    turned = c + 2 * np.cross(q, np.cross(q, c) + w * c)
    return {
        f"{name}/state_time": time,
        f"{name}/r": x.p + turned,
        f"{name}/e": x.e,
        f"{name}/v": x.v,
        f"{name}/w": x.w,
    }


def _variance(rows: jax.Array, Q: jax.Array) -> jax.Array:
    return jnp.einsum("ai,ij,aj->a", rows, Q, rows)


@compiled
def _axis_sd(model: Multibody, z: jax.Array, x: Any, covariance: jax.Array) -> jax.Array:
    p = model.prepare(z)

    def one(x, P):
        rows = model.axis_rows(model.engine_state(x, p.com), p)
        half = rows.shape[1]
        parts = (P[:half, :half], P[-half:, -half:])
        # what rounding leaves of a variance may be zero or less; no interval is narrower than that rounding
        return jnp.stack(
            [
                jnp.sqrt(jnp.maximum(_variance(rows, Q), half * _EPS * _variance(jnp.abs(rows), jnp.abs(Q))))
                for Q in parts
            ]
        )

    return jax.vmap(one)(x, covariance)


def axis_sd(model: Multibody, z: np.ndarray, path: Path, covariance: jax.Array) -> np.ndarray:
    """Posterior standard deviations (steps, 2, axes) of joint coordinates and leap-frog rates."""

    one = functools.partial(_axis_sd, model, z)
    return np.asarray(joined(step_blocks.mapped(one, split(before(path.x)), split(covariance))))


@seldom_called
def _axis_readings(model: Multibody, z: jax.Array, x: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    p = model.prepare(z)

    def one(x: Any, x1: Any) -> tuple[jax.Array, jax.Array]:
        first, second = model.engine_state(x, p.com), model.engine_state(x1, p.com)
        kin = frames.kinematics(model.system, first.r, first.e, p.engine.geometry)
        b = axes.rate_rows(model.system, kin)
        rate = axes.rates(model.system, *b, (velocity(first) + velocity(second)) / 2)
        return axes.coordinates(model.system, kin, first.near), rate

    return *jax.vmap(one)(before(x), after(x)), p.com


def axis_readings(model: Multibody, z: np.ndarray, x: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Joint coordinates (steps, axes) at the start of every step of states x_0 ... x_K, rates there as means of the
    leap-frog velocities, and centres of mass in the bodies' frames.
    """
    position, rate, com = map(np.asarray, _axis_readings(model, z, x))
    return position, rate, com


def _initial(
    names: Sequence[str], position: np.ndarray, rate: np.ndarray, sd: np.ndarray
) -> dict[str, dict[str, float]]:
    """Joint coordinates and rates (means of the leap-frog velocities) at t_0, with standard deviations."""
    return {
        n: {"position": float(a), "rate": float(b), "position_sd": float(c), "rate_sd": float(d)}
        for n, a, b, c, d in zip(names, position, rate, sd[0], sd[1], strict=True)
    }


def _rms(error: np.ndarray) -> float:
    """Of what is a number; NaN if nothing is."""
    there = error[np.isfinite(error)]
    return float(np.sqrt(np.mean(there**2))) if there.size else np.nan


def correlation(shared: ParameterMap, fit: Fit) -> list[list[float]]:
    """Correlations of the unknowns' natural values; zero rows for parameters at a bound, whose intervals are one-sided,
    and for those that nothing is known of.
    """
    _, jac = map(np.asarray, natural_values(shared, fit.iterate.z))
    jac = jac[: len(shared.unknown_paths)]
    jac = np.where(fit.reach == 0, jac, 0.0)
    cov = jac @ np.where(np.isfinite(fit.covariance), fit.covariance, 0.0) @ jac.T
    sd = np.sqrt(np.maximum(np.diag(cov), 0.0))
    scale = np.where(sd > 0, sd, 1.0)
    return (cov / scale[:, None] / scale[None, :]).tolist()


def gauges(shared: ParameterMap, fit: Fit, information: np.ndarray) -> list[dict[str, Any]]:
    """Directions of the parameters that the recordings do not determine, with the names that take part.

    `information`: that of the fit, or what its error bars leave of it.

    Those among the weights of networks are left out: many weights say the same friction, which their prior is for.
    """
    weights = [f.transform == "network" for f in shared.free for _ in range(f.size)]
    names = [p for f in shared.free for p in [f.path] * f.size]
    # gains take part in a common factor whatever their transform: a step of `identity` is relative to the start
    log_like = [
        (f.transform in ("log", "sinh") or f.path.endswith(".gain")) and not is_delay(f.path)  # delays add up
        for f in shared.free
        for _ in range(f.size)
    ]
    if not names or not np.all(np.isfinite(information)):
        return []
    relative = shared.relative_steps(np.asarray(fit.iterate.z))
    # what is at a bound is held there, and has an interval that says so; but it may be there for another's sake
    inside = fit.reach == 0
    found: list[dict[str, Any]] = []
    every = np.arange(len(names))
    for group in [every[inside]] + ([] if np.all(inside) else [every]):
        for taking, direction in _undetermined(information, group):
            paths = list(dict.fromkeys(names[i] for i in taking))
            named = {path for other in found for path in other["paths"]}
            mixed = 0 < np.sum(inside[taking]) < len(taking) and not named.intersection(paths)
            if all(weights[i] for i in taking) or not (mixed or len(group) == np.sum(inside)):
                continue
            if len(paths) == 1:
                text = f"The recordings do not determine {paths[0]}: fix it, give it a prior, or excite it."
            elif all(log_like[i] for i in taking) and _alike(direction / relative[taking]):
                cure = "Fix one of them (a weighed mass, a data-sheet constant)."
                text = f"Known only up to a common factor: {', '.join(paths)}. {cure}"
            else:
                text = f"Only a combination is determined of {', '.join(paths)}: fix one of them or give it a prior."
            found.append({"paths": paths, "message": text})
    return found


def undetermined(fit: Fit, information: np.ndarray) -> Float[np.ndarray, "k p"]:
    """Directions of the shared parameters z, of length 1, that the recordings do not determine; see `gauges`.

    What is not determined does not move a simulation, and straight ahead it leads far away from the curve along which
    that is so: bands draw nothing there.
    """
    found = []
    if np.all(np.isfinite(information)):
        for taking, direction in _undetermined(information, np.flatnonzero(fit.reach == 0)):
            free = np.zeros(len(information))
            free[taking] = direction / np.linalg.norm(direction)
            found.append(free)
    return np.array(found).reshape(-1, len(information))


def _undetermined(information: np.ndarray, group: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of some coordinates of z those that take part in a direction that is not determined, and their part in it.

    That is one in which nearly nothing is known; or several coordinates that can go far together, though any of them
    would be known well if the others were: what little is known of their sum comes from noise levels and second orders.
    A coordinate takes part if it goes far, or if with it held the direction would be known twice as well: a small
    change of a coordinate that is known well may be what leaves the others free.
    """
    inside = information[np.ix_(group, group)]
    value, vector = np.linalg.eigh(inside)
    for strength, direction in zip(value, vector.T, strict=True):
        far = np.abs(direction) > 0.3 * np.max(np.abs(direction))
        alone = np.diag(inside) * direction**2  # what would be known of the same way from each by itself
        loose = strength <= min(1 / _LOOSE_SD**2, _BY_ITSELF**2 * np.min(alone[far]))
        part = far | (alone > max(strength, _TIED * np.max(alone)))
        if strength <= 1 / _UNKNOWN_SD**2 or (np.sum(part) > 1 and loose):
            yield group[part], direction[part]


def _alike(factors: np.ndarray) -> bool:
    """Whether all change by the same factor, or its inverse."""
    return bool(np.ptp(np.abs(factors)) < 0.3 * np.max(np.abs(factors)))


@compiled
def _friction(model: Multibody, z: jax.Array, axis: jax.Array, speed: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Friction of an axis at speeds [N m or N], and its derivative in z."""
    system = model.system
    at = (jnp.arange(len(system.axes)) == axis).astype(z.dtype)

    def level(z: jax.Array) -> jax.Array:
        params = model.physical(z)

        def one(v: jax.Array) -> jax.Array:
            rest = jnp.zeros(len(system.axes), dtype=v.dtype)
            dry = boxes.dry_friction(system, params, jnp.zeros(len(system.motors), dtype=v.dtype), v * at, rest)
            wet = params.viscous * v + params.drag * jnp.abs(v) * v
            return jnp.sum(dry * at[np.array(system.friction_axes)]) + jnp.sum(wet * at)

        return jax.vmap(one)(speed)

    return level(z), jax.jacfwd(level)(z)


def friction_curves(setup: Setup, fit: Fit) -> dict[str, dict[str, Any]]:
    """Friction over speed where it is learned, with standard deviations: axis -> `speed`, `level`, `sd`, their units.

    Viscous friction and drag count; motors without load, an angle of zero and motion forward are meant; up to the
    fastest of all runs.
    """
    found: dict[str, dict[str, Any]] = {}
    if not setup.system.networks:
        return found
    z = np.concatenate([fit.iterate.z, np.zeros(setup.model.own.size)])
    fastest = np.max([np.abs(axis_readings(setup.model, z, p.x)[1]).max(axis=0) for p in fit.iterate.paths], axis=0)
    for network in setup.system.networks:
        axis = network.axes[0]
        name, turns = setup.system.axes[axis].name, setup.system.axes[axis].rotational
        speed = np.linspace(0.0, float(fastest[axis]), 101)
        level, jac = map(np.asarray, _friction(setup.model, z, np.asarray(axis), speed))
        jac = jac[:, : len(fit.iterate.z)]
        found[name] = {
            "unit": "N m" if turns else "N",
            "speed_unit": "rad/s" if turns else "m/s",
            "speed": speed.tolist(),
            "level": level.tolist(),
            "sd": np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", jac, fit.covariance, jac), 0.0)).tolist(),
        }
    return found
