"""Consistent states, assembled from joint coordinates (loops solved)."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._compiled import seldom_called
from .._typing import Array, Float
from ..constraints import Prepared, axes, frames, prepare
from ..math import rotation
from ..math.product import matvec
from ..system import Params, State, System
from .closing import close, consistent_velocity, newton, violated
from .felt import nothing_felt

Coordinates = dict[str, Array]


def state_from_joints(
    system: System,
    params: Params,
    joints: Mapping[str, Any] | None = None,
    bodies: Mapping[str, Any] | None = None,
    *,
    prepared: Prepared | None = None,
) -> State:
    """A state that satisfies every joint, from joint coordinates and rates at t = 0.

    **Arguments:**

    - `joints`: joint (`joint.axis` where it has several) -> position, or a mapping with `position` and `rate` (numbers
      [rad, rad/s or m, m/s]; for ball joints also a rotation vector and the relative angular velocity, both in the axes
      of the child's joint frame, which are the child's own if the joint has no `rotation`). Joints of a tree that are
      not named are at zero; in a closed loop, and where a coupling moves them, they are found. More coordinates than a
      loop has freedoms are met as well as it allows: give those that shall be met, and differentiate in those, alone.
    - `bodies`: for bodies that no joint connects to the world: name -> mapping with `position` [m], `rotation`
      (rotation vector [rad]), `velocity` of the frame origin (world) [m/s], `angular_velocity` (body axes) [rad/s].
      What is found for the joints moves the first body of such a group least, so that it stays where it is put.
    - `prepared`: `spookax.prepare(system, params)`, where that is known.

    **Returns:** a `State` with the velocities *at* t = 0; `rollout` moves them half a step back. Differentiable in
    the coordinates and in `params`: trees by forward kinematics, loops by the implicit rule at the solution. A loop
    that cannot be closed shows in `assembly_error`.
    """
    return _assembled(system, params, _as_arrays(joints or {}), _as_arrays(bodies or {}), prepared)


def _as_arrays(given: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers as arrays: they are no part of the program."""

    def one(value: Any) -> Any:
        if isinstance(value, Mapping):
            return _as_arrays(value)
        traced = any(isinstance(x, jax.Array) for x in jax.tree.leaves(value))
        return jnp.asarray(value) if traced else np.asarray(value, dtype=float)

    return {name: one(value) for name, value in given.items()}


@seldom_called
def _assembled(
    system: System, params: Params, joints: Mapping[str, Any], bodies: Mapping[str, Any], prepared: Prepared | None
) -> State:
    given, paced, position, rate = coordinates_of(system, joints, bodies)
    prepared = prepare(system, params) if prepared is None else prepared

    def along_tree(position: Coordinates) -> tuple[Array, Array]:
        return forward_kinematics(system, prepared, position)

    stop, dtype = jax.lax.stop_gradient, params.mass.dtype
    near = jnp.stack([position[name] for name in system.axis_names()]) if system.axes else jnp.zeros(0, dtype)
    rows_left = system.dependent or bool(system.constraints)
    if not rows_left and np.all(system.holonomic):
        r, e, v = _in_motion(along_tree, position, rate)
        return new_state(system, r, e, v, stop(near))

    target = jnp.array([position[system.axis_names()[i]] for i in given]).reshape(len(given))
    r_0, e_0 = stop(along_tree(position))
    r, e, near = stop(close(system, stop(prepared), r_0, e_0, stop(near), stop(target), given))
    # derivatives: what no row determines moves with the tree, the rest by the implicit rule of Newton at the solution
    shift = matvec(jnp.swapaxes(rotation.matrix(e_0), 1, 2), r - r_0)
    turn = rotation.multiply(rotation.conjugate(e_0), e)

    def closed(position: Coordinates) -> tuple[Array, Array]:
        r, e = along_tree(position)
        return r + matvec(rotation.matrix(e), shift), rotation.multiply(e, turn)

    r, e, v_0 = _in_motion(closed, position, rate)

    def nearer(pose, _):
        return newton(system, prepared, pose[0], pose[1], near, target, given), None

    (r, e), _ = jax.lax.scan(nearer, (r, e), length=2)
    wanted = jnp.array([rate[system.axis_names()[i]] for i in paced]).reshape(len(paced))
    v = consistent_velocity(system, prepared, r, e, near, v_0, wanted, paced)
    if system.axes:
        near = stop(axes.coordinates(system, frames.kinematics(system, r, e, prepared.geometry), near))
    return new_state(system, r, e, v, near)


def _in_motion(
    place: Callable[[Coordinates], tuple[Array, Array]], position: Coordinates, rate: Coordinates
) -> tuple[Array, Array, Array]:
    """Poses at joint coordinates, and the velocities (v world, w body) that their rates give."""
    (r, e), (r_dot, e_dot) = jax.jvp(place, (position,), (rate,))
    return r, e, jnp.concatenate([r_dot, 2 * rotation.multiply(rotation.conjugate(e), e_dot)[..., 1:]], axis=-1)


def assembly_error(system: System, params: Params, state: State) -> Float[Array, ""]:
    """Largest violation of a joint, coupling or holonomic user row in a state [m or rad]."""
    kin = frames.kinematics(system, state.r, state.e, frames.geometry(system, params))
    found, _ = violated(system, params, kin, state.near, state.time)
    return jnp.max(jnp.abs(found.gap), initial=0.0)


def closed_from(system: System, params: Params, joints: Mapping[str, Any]) -> tuple[Float[Array, " axes"], Array]:
    """Positions of the axes where loops and couplings close, sought from given ones without holding to them; and the
    largest violation that remains [m or rad].
    """
    position = coordinates_of(system, joints, {})[2]
    prepared = prepare(system, params)
    near = jnp.stack([position[name] for name in system.axis_names()])
    r, e = forward_kinematics(system, prepared, position)
    r, e, near = close(system, prepared, r, e, near, jnp.zeros(0, dtype=r.dtype), ())
    state = new_state(system, r, e, jnp.zeros((system.num_bodies, 6), dtype=r.dtype), near)
    return near, assembly_error(system, params, state)


# ---------------------------------------------------------------------------------------------------------------
# reading the user's coordinates


def coordinates_of(
    system: System, joints: Mapping[str, Any], bodies: Mapping[str, Any]
) -> tuple[tuple[int, ...], tuple[int, ...], Coordinates, Coordinates]:
    """What `state_from_joints` is given: the axes that have a position, those that have a rate; all positions and rates
    by name, those of bodies and of balls among them.
    """
    position: Coordinates = {}
    rate: Coordinates = {}
    sizes: dict[str, tuple[int, ...]] = {axis.name: () for axis in system.axes}
    sizes |= {joint.name: (3,) for joint in system.joints if joint.kind.isotropic}
    for name in joints:
        if name not in sizes:
            known = ", ".join(sizes) or "none"
            raise KeyError(f"no joint coordinate called '{name}'; known: {known}")
    for name, size in sizes.items():
        zero = jnp.zeros(size)
        value = joints.get(name, zero)
        if not isinstance(value, Mapping):
            value = {"position": value}
        unknown = set(value) - {"position", "rate"}
        if unknown:
            raise ValueError(f"joint '{name}': unknown {sorted(unknown)}; give 'position' and 'rate'")
        position[name] = jnp.asarray(value.get("position", zero), dtype=zero.dtype).reshape(size)
        rate[name] = jnp.asarray(value.get("rate", zero), dtype=zero.dtype).reshape(size)
    for j, parts in _spins(system).items():  # as a whole and by component: both add up
        name, zero = system.joints[j].name, jnp.zeros(3)
        theta, spin = (x.get(name, zero) + jnp.stack([x[part] for part in parts]) for x in (position, rate))
        position[f"joint {name}"], rate[f"joint {name}"] = jnp.stack([theta, zero]), jnp.stack([zero, spin])
    # of what loops and rolling leave to be found: a direction has no coordinate, but may be given a rate
    named = [i for i, axis in enumerate(system.axes) if axis.name in joints]
    spins = [i for i in named if system.axes[i].kind == "spin"]
    given = tuple(i for i in named if i not in spins)
    paced = (*given, *(i for i in spins if _has_rate(joints[system.axes[i].name])))
    for name in bodies:
        if name not in system.bodies:
            raise KeyError(f"no body called '{name}'; known: {', '.join(system.bodies)}")
    for name in system.bodies:
        value = bodies.get(name, {})
        pose = [value.get("position", jnp.zeros(3)), value.get("rotation", jnp.zeros(3))]
        twist = [value.get("velocity", jnp.zeros(3)), value.get("angular_velocity", jnp.zeros(3))]
        position[f"body {name}"] = jnp.stack([jnp.asarray(x, dtype=jnp.zeros(()).dtype) for x in pose])
        v, w = (jnp.asarray(x, dtype=jnp.zeros(()).dtype) for x in twist)
        rate[f"body {name}"] = jnp.stack([v, jnp.zeros_like(v)])
        position[f"spin {name}"], rate[f"spin {name}"] = jnp.zeros_like(w), w
    return given, paced, position, rate


def _has_rate(value: Any) -> bool:
    return isinstance(value, Mapping) and "rate" in value


def _spins(system: System) -> dict[int, list[str]]:
    """Names of the three directions of every joint that turns about them, by the joint's number."""
    found: dict[int, list[str]] = {}
    for axis in system.axes:
        if axis.kind == "spin":
            found.setdefault(axis.joint, []).append(axis.name)
    return found


def new_state(system: System, r: Array, e: Array, v: Array, near: Array) -> State:
    """A state at t = 0 with nothing behind it: commands, deflections and forces are zero."""
    deflection = jnp.zeros(len(system.elements), dtype=r.dtype)
    none = jnp.zeros((system.history, len(system.motors)), dtype=r.dtype) if system.history else None
    state = State(r, e, v[:, :3], v[:, 3:], near, jnp.zeros((), dtype=r.dtype), deflection, none)
    return nothing_felt(system, state)


# ---------------------------------------------------------------------------------------------------------------
# trees: forward kinematics


def forward_kinematics(system: System, prepared: Prepared, position: Coordinates) -> tuple[Array, Array]:
    """Poses along the spanning tree; a root that no joint ties to the world stands where `bodies` says.

    Rotation vectors enter as exp(theta) * exp(spin) with spin = 0, whose rate is the body-axes angular velocity.
    """
    g, com = prepared.geometry, prepared.params.com
    one = jnp.array([1.0, 0.0, 0.0, 0.0], dtype=com.dtype)
    # where every body stands if nothing carries it, then the world
    at, theta, spin = (
        jnp.stack([position[key][i] if i is not None else position[key] for key in keys])
        for keys, i in (
            ([f"body {name}" for name in system.bodies], 0),
            ([f"body {name}" for name in system.bodies], 1),
            ([f"spin {name}" for name in system.bodies], None),
        )
    )
    e = rotation.multiply(rotation.exp(theta), rotation.exp(spin))
    r = at + matvec(rotation.matrix(e), com)
    r, e = jnp.concatenate([r, jnp.zeros_like(r[:1])]), jnp.concatenate([e, one[None]])
    if not system.tree:
        return r[:-1], e[:-1]

    turn, slide = _joint_motion(system, prepared, position)
    relative = rotation.multiply(rotation.multiply(g.q_A, turn), rotation.conjugate(g.q_B))
    from_A = g.s_A + matvec(g.C_A, slide)
    nb, reached = system.num_bodies, {-1}
    links = []  # joint, body it starts from, body it carries, whether that is the joint's child
    for j in system.tree:
        ends = system.joints[j].parent, system.joints[j].child
        outward = ends[0] in reached or ends[1] not in reached
        links.append((j, *((e % (nb + 1)) for e in (ends if outward else ends[::-1])), outward))
        reached.update(ends)

    def place(placed: tuple[Array, Array], link: Array) -> tuple[tuple[Array, Array], None]:
        (r, e), (j, start, end, outward) = placed, link
        way = jnp.where(outward, relative[j], rotation.conjugate(relative[j]))
        e_new = rotation.multiply(e[start], way)
        near, far = jnp.where(outward, from_A[j], g.s_B[j]), jnp.where(outward, g.s_B[j], from_A[j])
        r_new = r[start] + matvec(rotation.matrix(e[start]), near) - matvec(rotation.matrix(e_new), far)
        return (r.at[end].set(r_new), e.at[end].set(e_new)), None

    (r, e), _ = jax.lax.scan(place, (r, e), jnp.array(links, dtype=int))
    return r[:-1], e[:-1]


def _joint_motion(system: System, prepared: Prepared, position: Coordinates) -> tuple[Array, Array]:
    """Turn and slide of every joint in its frame: its axes one after the other, the first outermost."""
    count = len(system.joints)
    one = jnp.array([1.0, 0.0, 0.0, 0.0], dtype=prepared.params.com.dtype)
    turn = jnp.broadcast_to(one, (count, 4))
    slide = jnp.zeros((count, 3), dtype=one.dtype)
    distance = [j for j, joint in enumerate(system.joints) if joint.kind.apart]
    if distance:
        slide = slide.at[np.array(distance), 2].set(prepared.params.length[np.array(distance)])
    spins = list(_spins(system))
    if spins:
        both = jnp.stack([position[f"joint {system.joints[j].name}"] for j in spins])
        turned = rotation.multiply(rotation.exp(both[:, 0]), rotation.exp(both[:, 1]))
        turn = turn.at[np.array(spins)].set(turned)
    axes_of_joints = system.rows_of_lines[: len(system.joints)]
    moving = [[pair for pair in of_joint if system.axes[pair[1]].kind != "spin"] for of_joint in axes_of_joints]
    for rank in range(max(map(len, moving), default=0)):
        mine = [axes_of[rank] for axes_of in moving if len(axes_of) > rank]
        if mine:
            chosen = [system.axes[i] for _, i in mine]
            value = jnp.stack([position[axis.name] for axis in chosen])
            along = value[:, None] * np.eye(3)[[axis.column for axis in chosen]]
            rotational = np.array([axis.rotational for axis in chosen])[:, None]
            index = np.array([axis.joint for axis in chosen])
            turn = turn.at[index].set(rotation.multiply(turn[index], rotation.exp(jnp.where(rotational, along, 0.0))))
            slide = slide.at[index].add(jnp.where(rotational, 0.0, along))
    return turn, slide
