"""Simulation: a scan of steps, and the trajectory it leaves."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh

from .._compiled import compiled, jit
from .._results import STEP_RESULTS
from .._threads import concurrently, workers
from .._typing import AnyArray, Array, Float, Int
from ..complementarity import AbstractMLCPSolver
from ..constraints import Prepared, axes, frames, prepare
from ..math import counted, rotation
from ..system import BoxKind, Params, State, System
from .batches import PIECE, in_pieces, spread_of
from .delay import check_delays
from .march import March, march

_FEWEST = 64  # steps that a program is compiled for
_DOUBLING = 12  # power of two from which on it is compiled for each


class Trajectory(eqx.Module):
    """States at t_0 ... t_n, rates as measured there (mean of the velocities before and after), joint impulses.

    `state` is the last engine state (leap-frog velocities): a rollout continues from it with `half_kick=False`.
    """

    time: Float[Array, " n"]  # [s]
    r: Float[Array, "n bodies 3"]  # centre of mass, world [m]
    e: Float[Array, "n bodies 4"]  # body -> world
    v: Float[Array, "n bodies 3"]  # at time, world [m/s]
    w: Float[Array, "n bodies 3"]  # at time, body axes [rad/s]
    position: Float[Array, "n axes"]  # unwrapped joint coordinates [rad or m]
    rate: Float[Array, "n axes"]  # [rad/s or m/s]
    joint_forces: Float[Array, "n-1 nodes rows"]  # lam / h of joints, couplings, user rows, then zeros [N, N m]
    friction: Float[Array, "n-1 friction"]  # level in [-1, 1] of every step
    stop_forces: Float[Array, "n-1 stops"]  # on the axes, of every `limits.lower`, `limits.upper` [N m or N]
    drive_forces: Float[Array, "n-1 drives"]  # of the motors that hold to `max_force` by a row with bounds [N m or N]
    element_forces: Float[Array, "n-1 elements"]  # of elasto-slide elements on their axes [N m or N]
    row_forces: Float[Array, "n-1 own"]  # of the user's rows with bounds, as in `System.own_lines` [N or N m]
    contact_forces: Float[Array, "n-1 points 3"]  # on the body of the first surface, world [N], as in `System.contacts`
    contact_pairs: Int[Array, "n-1 slots"]  # pairs in slots, as in `System.contacts`, -1 where none is
    pivots: Int[Array, " n-1"]
    state: State
    result: STEP_RESULTS
    failed_step: Int[Array, ""]  # first step that failed, -1 if none
    axis_names: tuple[str, ...] = eqx.field(static=True)
    body_names: tuple[str, ...] = eqx.field(static=True)

    def joint(self, name: str) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Position and rate of one joint over time."""
        if name not in self.axis_names:
            raise KeyError(f"no joint coordinate called '{name}'; known: {', '.join(self.axis_names) or 'none'}")
        i = self.axis_names.index(name)
        return self.position[:, i], self.rate[:, i]

    def contact_force(self, system: System, first: str, second: str | None = None) -> Float[Array, "n-1 3"]:
        """Force on the surface `first` from the surface `second`, or from all, in every step, world axes [N].

        Raises KeyError with the known names.
        """
        names = [surface.name for surface in system.contacts.surfaces]
        for name in (first, second):
            if name is not None and name not in names:
                raise KeyError(f"no surface called '{name}'; known: {', '.join(names) or 'none'}")
        others = range(len(names)) if second is None else [names.index(second)]
        signs = jnp.asarray(system.contacts.signs([names.index(first)], others))
        return jnp.sum(signs[system.contacts.places(self.contact_pairs)][..., None] * self.contact_forces, axis=1)

    def origins(self, params: Params) -> Float[Array, "n bodies 3"]:
        """Positions of the body frames' origins [m]."""
        return self.r - jnp.einsum("nbij,bj->nbi", rotation.matrix(self.e), params.com)


def kick_inputs(controls: Float[Array, "steps ..."]) -> Float[Array, "steps ..."]:
    """Mean over each leap-frog kick of commands held over [t_k, t_k+1): the kick at t_k spans half of both sides."""
    return jnp.concatenate([controls[:1], (controls[1:] + controls[:-1]) / 2])


def rollout(
    system: System,
    params: Params,
    state: State,
    controls: Float[Array, "steps motors"],
    *,
    wrenches: Float[Array, "steps bodies 6"] | None = None,
    half_kick: bool = True,
    solver: AbstractMLCPSolver | None = None,
    throw: bool = True,
) -> Trajectory:
    """Simulate `controls.shape[0]` steps of length `params.step`.

    **Arguments:**

    - `state`: with velocities at t_0 (`state_from_joints`), or the `state` of another trajectory and
      `half_kick=False`.
    - `controls`: motor commands held over each step, of one step at least. Shape (steps, 0) without motors.
      A motor with a delay was told nothing before: zero, or what the state keeps in `commands`.
    - `wrenches`: from outside on every body, held over each step: force in world axes at the centre of mass and torque
      in body axes [N, N m].
    - `throw`: raise if a step failed (also under jit); otherwise `result` and `failed_step` tell.

    Works under `jit`, `vmap`, `jvp`, `vjp`; called by itself it is compiled, once for up to 64, 256,
    1024, 4096, 8192, ... steps, and kept on disk.

    **Raises:** `ValueError` for controls or wrenches of another shape, for delays longer than the system was built for.
    """
    check_delays(system, params)
    # of an array of the host `jax.numpy.asarray` compiles a program
    controls = jax.device_put(controls) if isinstance(controls, np.ndarray) else jnp.asarray(controls)
    motors = [motor.name for motor in system.motors]
    if controls.ndim != 2 or controls.shape[1] != len(motors) or not controls.shape[0]:
        names = f" ({', '.join(motors)})" if motors else ""
        raise ValueError(f"`controls` must have the shape (steps, {len(motors)}){names}, got {controls.shape}")
    expected = (controls.shape[0], system.num_bodies, 6)
    if wrenches is not None and jnp.shape(wrenches) != expected:
        raise ValueError(f"`wrenches` must have the shape {expected} (steps, bodies, 6), got {jnp.shape(wrenches)}")
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((params, state, controls, wrenches))):
        found = _rollout(system, params, state, controls, wrenches, half_kick, solver)
        return _all_well(found) if throw else found
    count = controls.shape[0]
    held = filled_up(controls), None if wrenches is None else filled_up(wrenches)
    found = _first_steps(system, params, state, *held, half_kick, solver, np.asarray(count))
    if throw and found.result != STEP_RESULTS.successful:
        raise eqx.EquinoxRuntimeError(STEP_RESULTS[found.result])
    return _cut(found, count)


def rollouts(
    system: System,
    params: Params,
    states: State,
    controls: Float[Array, "batch steps motors"],
    *,
    half_kick: bool = True,
    solver: AbstractMLCPSolver | None = None,
    throw: bool = True,
) -> Trajectory:
    """`rollout` of many environments; the leading axis of the trajectory is theirs.

    On a CPU some at a time, as many as the caches of a core hold, and called by itself on all cores; elsewhere all at
    once; on the devices over which `spread` laid the arrays.

    **Arguments:**

    - `params`: one mechanism for all, or a leading axis in every array.
    - `states`: with a leading axis in every array.
    - `controls`: motor commands held over each step.

    **Raises:** `ValueError` for leading axes that differ; as `rollout` does.
    """
    check_delays(system, params)
    controls = jnp.asarray(controls)
    shared = jnp.ndim(params.step) == 0
    batch = (states, controls) if shared else (states, controls, params)
    count = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(batch)}
    if len(count) != 1 or count in ({()}, {(0,)}):
        found = ", ".join(str(shape[0]) if shape else "none" for shape in sorted(count))
        raise ValueError(f"`rollouts`: every array needs the same leading axis, one entry at least; got {found}")
    size = controls.shape[0]

    over = spread_of(batch)

    def together(*batch: Any) -> Trajectory:
        return _rollouts(system, params if shared else None, batch, half_kick, solver, throw, over)

    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((batch, params))) or over or workers() == 1:
        return together(*batch)
    share = -(-size // workers())
    share = -(-share // PIECE) * PIECE if share > PIECE else share
    starts = range(0, size, share)
    last = [(start + jnp.arange(share)) % size for start in starts]  # the last share is filled up from the first
    parts = concurrently([lambda of=of: together(*jax.tree.map(lambda a: jnp.asarray(a)[of], batch)) for of in last])
    return jax.tree.map(lambda *a: jnp.concatenate(a)[:size], *parts)


@jit
def _rollouts(
    system: System,
    params: Params | None,
    batch: tuple[Any, ...],
    half_kick: bool,
    solver: AbstractMLCPSolver | None,
    throw: bool,
    over: Mesh | None,
) -> Trajectory:
    def one(state: State, controls: Array, own: Params | None = None) -> Trajectory:
        given = own if params is None else params
        assert given is not None
        return rollout(system, given, state, controls, half_kick=half_kick, solver=solver, throw=throw)

    return in_pieces(one, batch, over)


def _all_well(found: Trajectory) -> Trajectory:
    """The trajectory, whose arrays are an error where a step failed."""
    arrays, rest = eqx.partition(found, eqx.is_array)
    return eqx.combine(found.result.error_if(arrays, found.result != STEP_RESULTS.successful), rest)


def _rollout(
    system: System,
    params: Params,
    state: State,
    controls: Array,
    wrenches: Array | None,
    half_kick: bool,
    solver: AbstractMLCPSolver | None,
    count: Array | None = None,
) -> Trajectory:
    prepared = prepare(system, params)
    inputs = controls if system.history else kick_inputs(controls)
    given = kick_inputs(wrenches) * params.step if wrenches is not None else None
    marched = march(system, prepared, state, inputs, given, half_kick=half_kick, solver=solver, count=count)
    return _trajectory(system, prepared, state, marched, count)


_first_steps = compiled(_rollout)


# What is called by itself is compiled for a few numbers of steps and told how many of them count, so that one program
# serves runs of many lengths.


def filled_up(a: AnyArray) -> np.ndarray:
    """Held over more steps: 64, 256, 1024 or a power of two from 4096 on."""
    power = int(np.ceil(np.log2(max(a.shape[0], _FEWEST))))
    size = 2 ** (power + (power % 2 if power < _DOUBLING else 0))
    host = np.asarray(a)
    return np.concatenate([host, np.broadcast_to(host[-1:], (size - host.shape[0], *host.shape[1:]))])


def _cut(found: Trajectory, count: int) -> Trajectory:
    """The steps that count."""

    def first(a: Array, size: int) -> Array:
        on_host = all(device.platform == "cpu" for device in a.devices())  # whose slices need no program
        return jax.device_put(np.asarray(a)[:size]) if on_host else a[:size]

    states = ("time", "r", "e", "v", "w", "position", "rate")
    steps = ("joint_forces", "friction", "stop_forces", "drive_forces", "element_forces", "row_forces")
    steps += ("contact_forces", "contact_pairs", "pivots")
    cut = {name: first(getattr(found, name), count + 1) for name in states}
    cut |= {name: first(getattr(found, name), count) for name in steps}
    return dataclasses.replace(found, **cut)


def _trajectory(system: System, prepared: Prepared, state: State, marched: March, count: Array | None) -> Trajectory:
    h, start, states, info = prepared.params.step, marched.start, marched.states, marched.info
    r = jnp.concatenate([state.r[None], states.r])
    e = jnp.concatenate([state.e[None], states.e])
    near = jnp.concatenate([state.near[None], states.near])
    # rate at t_k: mean of the velocities before and after; at the last time the one before, carried half a step
    v = jnp.concatenate([start.v[None], states.v])
    w = jnp.concatenate([start.w[None], states.w])
    v, w = _means(v, count), _means(w, count)
    position, rate = _joint_motions(system, prepared, (r, e, v, w, near), count)
    return Trajectory(
        time=jnp.concatenate([state.time[None], states.time]),
        r=r,
        e=e,
        v=v,
        w=w,
        position=position,
        rate=rate,
        joint_forces=info.joint_impulses / h,
        friction=info.levels[:, system.boxes_of(BoxKind.friction)],
        stop_forces=info.box_impulses[:, system.boxes_of(BoxKind.lower, BoxKind.upper)] / h,
        drive_forces=info.box_impulses[:, system.boxes_of(BoxKind.motor)] / h,
        element_forces=info.box_impulses[:, system.boxes_of(BoxKind.element)] / h,
        row_forces=info.box_impulses[:, system.boxes_of(BoxKind.own)] / h,
        contact_forces=info.contact_impulses / h,
        contact_pairs=info.contact_pairs,
        pivots=info.pivots,
        state=marched.last,
        result=marched.result,
        failed_step=marched.failed,
        axis_names=system.axis_names(),
        body_names=system.bodies,
    )


def _joint_motions(
    system: System, prepared: Prepared, motion: tuple[Array, ...], count: Array | None
) -> tuple[Array, Array]:
    """Positions and rates of the axes at all times, or at the first `count` + 1."""
    each, size = jax.vmap(functools.partial(joint_motion, system, prepared)), motion[0].shape[0]
    if count is None:
        return each(*motion)
    pieces = -(-size // _FEWEST)
    held = [jnp.concatenate([a, jnp.broadcast_to(a[-1:], (pieces * _FEWEST - size, *a.shape[1:]))]) for a in motion]
    split = [a.reshape(pieces, _FEWEST, *a.shape[1:]) for a in held]
    _, found = counted.scan(lambda _, at: (None, each(*at)), None, split, 0, count // _FEWEST + 1)
    position, rate = (a.reshape(pieces * _FEWEST, -1)[:size] for a in found)
    return position, rate


def joint_motion(
    system: System, prepared: Prepared, r: Array, e: Array, v: Array, w: Array, near: Array
) -> tuple[Float[Array, " axes"], Float[Array, " axes"]]:
    """Positions and rates of the axes at a pose and velocities."""
    if not system.axes:
        return near, near
    kin = frames.kinematics(system, r, e, prepared.geometry)
    b_A, b_B = axes.rate_rows(system, kin)
    return axes.coordinates(system, kin, near), axes.rates(system, b_A, b_B, jnp.concatenate([v, w], axis=-1))


def _means(v: Array, count: Array | None) -> Array:
    """Means of neighbours; the last, or that numbered `count`, by linear extrapolation of the two last half steps."""
    inner = (v[1:] + v[:-1]) / 2
    if count is None:
        return jnp.concatenate([inner, v[-1:] + (v[-1:] - v[-2:-1]) / 2])
    last = v[count] + (v[count] - v[count - 1]) / 2
    return jnp.concatenate([inner, v[-1:]]).at[count].set(last)
