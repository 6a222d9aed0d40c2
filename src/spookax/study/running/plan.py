"""Where the first trajectory of a recording is meant to go: states assembled from the readings.

Joints whose positions are read go where their smoothed readings are; a joint whose rate alone is read starts where the
scene has it. Of loops, and of what couplings move, each state is found from the one before it; of a tree, joints that
only poses of bodies or positions of points tell about are found from those, sample by sample (inverse kinematics). A
body that no joint holds goes where its smoothed poses are. All others rest where the scene has them.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._compiled import compiled, seldom_called
from ..._typing import Array, Bool, Float, Int
from ...estimation.batch import step_blocks
from ...estimation.batch.step_blocks import joined, split
from ...math import rotation, small
from ...models import BodyState, Multibody
from ...scene import Scene
from ...stepping import state_from_joints, tracking
from ...system import State, System
from ..recordings.grid import Grid, sensor_sd, smooth
from ..recordings.recording import Recording

_FIRST_STEPS, _STEPS = 40, 4  # of Gauss-Newton for the first sample, and for each after it
_LARGEST_STEP = 0.5  # [rad or m]
_FREE_SD = 1.0  # of a coordinate that the readings say nothing about: it stays near the sample before [rad or m]
_FOUND_SD = 0.1  # of one that they tell: it is followed [rad or m]
_LOOKED_AT, _HELD_MORE = 32, 0.1  # poses in which loops are looked at; share of them in which an axis is held more
_HELD = 1e-3  # what others leave of the motion of an axis that they hold

Joints = dict[str, dict[str, Any]]


def planned(
    scene: Scene, model: Multibody, sensors: tuple[str, ...], recording: Recording, grid: Grid
) -> tuple[BodyState, tuple[bool, ...]]:
    """States at t_0 ... t_(K-1), and which axes lead there: those that are read and do not follow from others."""
    system, names, times = model.system, model.system.axis_names(), grid.times[:-1]
    position: dict[str, np.ndarray] = {}
    rate: dict[str, np.ndarray] = {}
    # positions before rates: what is read itself is not integrated
    for kind in ("joint_position", "joint_rate"):
        for sensor_name in sensors:
            index = system.sensor_index(sensor_name)
            sensor = system.sensors[index]
            readings = recording.sensors[sensor_name]
            axis = names[sensor.target] if sensor.type == kind else ""
            if not axis or axis in position or not np.isfinite(readings).any():
                continue
            age, offset = np.asarray(model.params.age)[index], np.asarray(model.params.offset)[index, 0]
            value, speed = smooth(times, recording.time - age, readings[:, 0] - offset)
            if kind == "joint_rate":
                start = scene.initial[axis].position if axis in scene.initial else 0.0
                value, speed = float(start) + grid.h * np.concatenate([[0.0], np.cumsum(value[:-1])]), value
            position[axis], rate[axis] = value, speed
    seen = [s for s in sensors if system.sensors[system.sensor_index(s)].type in ("body_pose", "point_position")]
    is_tree = len(system.joints) == system.num_bodies and not system.dependent
    if seen and len(position) < len(names) and is_tree:
        position, rate = _by_kinematics(scene, model, tuple(seen), recording, grid, position, rate)
    rest = _rest(scene, position)
    if position and system.dependent:
        states, led = _in_loops(model, rest, position, rate, grid.steps)
    else:
        states, led = _each_alone(model, rest, position, rate, grid.steps), tuple(name in position for name in names)
    for name in sensors:
        sensor = system.sensors[system.sensor_index(name)]
        if (
            sensor.type == "body_pose"
            and sensor.target in _unheld(system)
            and np.isfinite(recording.sensors[name]).any()
        ):
            states = _on_poses(states, sensor.target, times, recording.time, recording.sensors[name])
    return states, led


def _unheld(system: System) -> set[int]:
    """Bodies without joints."""
    return set(range(system.num_bodies)) - {body for joint in system.joints for body in (joint.parent, joint.child)}


def _on_poses(
    states: BodyState, body: int, at: np.ndarray, time: np.ndarray, pose: Float[np.ndarray, "samples 6"]
) -> BodyState:
    """The states with a body on its smoothed poses, position and rotation vector, with the rates that these have."""
    e = _continuous(np.asarray(rotation.exp(jnp.asarray(pose[:, 3:]))))
    p, v = (np.stack(part, axis=1) for part in zip(*(smooth(at, time, x) for x in pose[:, :3].T), strict=True))
    e, de = (np.stack(part, axis=1) for part in zip(*(smooth(at, time, x) for x in e.T), strict=True))
    size = np.linalg.norm(e, axis=1, keepdims=True)
    w = 2 * np.asarray(rotation.multiply(rotation.conjugate(jnp.asarray(e / size)), jnp.asarray(de / size)))[:, 1:]
    new = {"p": p, "e": e / size, "v": v, "w": w}
    return eqx.tree_at(
        lambda x: tuple(getattr(x, key) for key in new),
        jax.tree.map(np.array, states),
        tuple(_replaced(np.array(getattr(states, key)), body, value) for key, value in new.items()),
    )


def _replaced(values: np.ndarray, body: int, new: np.ndarray) -> np.ndarray:
    values[:, body] = new
    return values


def _continuous(e: Float[np.ndarray, "samples 4"]) -> Float[np.ndarray, "samples 4"]:
    """Quaternions with the signs that let each follow the last one that is a number."""
    there = np.isfinite(e).all(axis=1)
    seen, out = e[there], np.full_like(e, np.nan)
    signs = np.cumprod(np.append(1.0, np.where(np.sum(seen[1:] * seen[:-1], axis=1) < 0, -1.0, 1.0)))
    out[there] = signs[:, None] * seen
    return out


def _rest(scene: Scene, found: dict[str, np.ndarray]) -> Joints:
    return {
        name: {"position": np.asarray(start.position, float), "rate": np.asarray(start.rate, float)}
        for name, start in scene.initial.items()
        if name not in found
    }


def _each_alone(
    model: Multibody, rest: Joints, q: dict[str, np.ndarray], v: dict[str, np.ndarray], steps: int
) -> BodyState:
    """States of all steps, none of which another one is needed for, from the coordinates and rates of some axes."""

    def one(begin: int, end: int) -> BodyState:
        here = ({name: value[begin:end] for name, value in kind.items()} for kind in (q, v))
        return _placed(model, rest, *here, end - begin)

    return joined(step_blocks.mapped(one, *zip(*step_blocks.spans(steps), strict=True)))


@compiled
def _placed(model: Multibody, rest: Joints, q: dict[str, Array], v: dict[str, Array], steps: int) -> BodyState:
    """States of all steps from the coordinates and rates of some joints; the others rest where the scene has them."""

    def place(q: dict[str, Any], v: dict[str, Any]) -> BodyState:
        joints = {name: {"position": q[name], "rate": v[name]} for name in q}
        state = state_from_joints(model.system, model.params, {**rest, **joints})
        return model.body_state(state, model.params.com)

    return jax.vmap(place, axis_size=steps)(q, v)


def _in_loops(
    model: Multibody, rest: Joints, q: dict[str, np.ndarray], v: dict[str, np.ndarray], steps: int
) -> tuple[BodyState, tuple[bool, ...]]:
    """States of all steps of a mechanism with loops or couplings, from the coordinates and rates of some axes; and the
    axes among these that determine the others.
    """
    names = model.system.axis_names()
    given = tuple(i for i, name in enumerate(names) if name in q)
    position, rate = (np.stack([kind[names[i]] for i in given], axis=1) for kind in (q, v))
    state = _before_loops(model, rest, position[0], given)
    tries = np.array([tracking.FIRST] + [tracking.LATER] * (steps - 1))
    along = functools.partial(_along_loops, model, given)
    states = joined(step_blocks.forward(along, state, split(position), split(rate), split(tries))[1])
    some = jax.tree.map(lambda a: a[np.linspace(0, steps - 1, _LOOKED_AT).astype(int)], states)
    free = _independent(np.asarray(_compliances(model, some))[:, given][:, :, given])
    return states, tuple(i in {given[k] for k in free} for i in range(len(names)))


def _independent(N: Float[np.ndarray, "poses n n"]) -> list[int]:
    """Axes that can be led each on its own, in most poses, from the changes of their rates per impulse in some poses.

    The next is always the one that those before it hold least, in a pose in which it is held more than in most (a
    slide at its dead centre).
    """
    size = np.sqrt(np.mean(np.diagonal(N, axis1=1, axis2=2), axis=0))
    left, chosen = N / (size[:, None] * size), []
    while len(chosen) < len(size):
        loose = np.quantile(np.diagonal(left, axis1=1, axis2=2), _HELD_MORE, axis=0)
        best = int(np.argmax(loose))
        if loose[best] < _HELD:
            break
        chosen.append(best)
        column, pivot = left[:, :, best], np.maximum(left[:, best, best], _HELD * _HELD)
        left = left - column[:, :, None] * column[:, None, :] / pivot[:, None, None]
    return chosen


@compiled
def _compliances(model: Multibody, states: BodyState) -> Float[Array, "poses axes axes"]:
    p = model.prepared(model.params)
    return jax.vmap(lambda x: model.axis_compliance(model.engine_state(x, p.com), p))(states)


@seldom_called
def _before_loops(model: Multibody, rest: Joints, q: Array, given: tuple[int, ...]) -> State:
    return tracking.begun(model.system, model.prepared(model.params).engine, rest, q, given)


@compiled
def _along_loops(
    model: Multibody,
    given: tuple[int, ...],
    state: State,
    q: Float[Array, "steps n"],
    v: Float[Array, "steps n"],
    tries: Int[Array, " steps"],
) -> tuple[State, BodyState]:
    engine = model.prepared(model.params).engine

    def one(state: State, now: tuple[Array, Array, Array]) -> tuple[State, BodyState]:
        position, rate, most = now
        state = tracking.followed(model.system, engine, state, position, rate, given, most)
        return state, model.body_state(state, model.params.com)

    return jax.lax.scan(one, state, (q, v, tries))


def _by_kinematics(
    scene: Scene,
    model: Multibody,
    sensors: tuple[str, ...],
    recording: Recording,
    grid: Grid,
    position: dict[str, np.ndarray],
    rate: dict[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """`position` and `rate` with the joints that poses and points tell about, as far as they do."""
    free = tuple(name for name in model.system.axis_names() if name not in position)
    start = np.array([float(scene.initial[n].position) if n in scene.initial else 0.0 for n in free])  # pyright: ignore
    known = {name: np.interp(recording.time, grid.times[:-1], value) for name, value in position.items()}
    y = np.concatenate([recording.sensors[name] for name in sensors], axis=1)
    seeing = Multibody(
        model.system,
        model.params,
        model.shared,
        model.own,
        model.noise,
        tuple(model.system.sensor_index(name) for name in sensors),
    )
    sd = np.concatenate([np.full(recording.sensors[name].shape[1], sensor_sd(scene, name)) for name in sensors])
    rest = _rest(scene, {**position, **dict.fromkeys(free, start)})
    q, spread = map(
        np.asarray, _inverse_kinematics(seeing, rest, free, start, known, np.nan_to_num(y), np.isfinite(y), sd)
    )
    position, rate = dict(position), dict(rate)
    for i, name in enumerate(free):
        if np.median(spread[:, i]) < _FOUND_SD:
            position[name], rate[name] = smooth(grid.times[:-1], recording.time, q[:, i])
    return position, rate


@seldom_called
def _inverse_kinematics(
    model: Multibody,
    rest: Joints,
    free: tuple[str, ...],
    start: Float[Array, " free"],
    known: dict[str, Float[Array, " samples"]],
    y: Float[Array, "samples channels"],
    there: Bool[Array, "samples channels"],
    sd: Float[Array, " channels"],
) -> tuple[Float[Array, "samples free"], Float[Array, "samples free"]]:
    """Coordinates that meet the readings best, each sample from the one before; and their standard deviations."""
    p = model.prepared(model.params)

    def misfit(q: Array, known: dict[str, Array], y: Array, there: Array) -> Array:
        joints = {
            name: {"position": value, "rate": 0.0} for name, value in [*known.items(), *zip(free, q, strict=True)]
        }
        x = model.body_state(state_from_joints(model.system, model.params, {**rest, **joints}), model.params.com)
        return jnp.where(there, model.difference(y, model.observe(x, x, p, jnp.ones(()))) / sd, 0.0)

    def towards(q: Array, last: Array, *reading: Any) -> tuple[Array, Array]:
        r, J = misfit(q, *reading), jax.jacfwd(misfit)(q, *reading)
        information = J.T @ J + jnp.eye(len(free)) / _FREE_SD**2
        step = small.solve(information, -J.T @ r - (q - last) / _FREE_SD**2)
        return q + jnp.clip(step, -_LARGEST_STEP, _LARGEST_STEP), information

    def one(last: Array, reading: tuple[Any, ...]) -> tuple[Array, tuple[Array, Array]]:
        q = jax.lax.fori_loop(0, _STEPS, lambda _, q: towards(q, last, *reading)[0], last)
        inverse = small.solve(towards(q, last, *reading)[1], jnp.eye(len(free)))
        return q, (q, jnp.sqrt(jnp.diagonal(inverse)))

    first = jax.tree.map(lambda a: a[0], (known, y, there))
    q = jax.lax.fori_loop(0, _FIRST_STEPS, lambda _, q: towards(q, q, *first)[0], start)
    return jax.lax.scan(one, q, (known, y, there))[1]
