"""Consistent states, assembled from joint coordinates (loops solved)."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._compiled import seldom_called
from .._typing import Array, Float
from ..constraints import Prepared, Rows, axes, boxes, frames, prepare
from ..constraints.assemble import Violations, axis_motion, velocity, violations
from ..constraints.prepared import mass_matrix
from ..math import rotation, small
from ..math.product import matvec
from ..system import Params, State, System
from . import saddle
from .felt import nothing_felt

Coordinates = dict[str, Array]
_NEWTON_LIMIT = 60
# by the size of a float: relative compliance of the projections, small against one, large against rounding; what keeps
# the matrix of given axes regular; the largest violation that remains
_RELATIVE_COMPLIANCE = {8: 1e-9, 4: 1e-5}
_REGULAR = {8: 1e-12, 4: 1e-6}
_TOLERANCE = {8: 1e-11, 4: 1e-5}
_HELD = 1e8  # how much heavier than itself a body is that is not to move


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
    given, paced, position, rate = _read(system, joints, bodies)
    prepared = prepare(system, params) if prepared is None else prepared

    def along_tree(position: Coordinates) -> tuple[Array, Array]:
        return _forward_kinematics(system, prepared, position)

    stop, dtype = jax.lax.stop_gradient, params.mass.dtype
    near = jnp.stack([position[name] for name in system.axis_names()]) if system.axes else jnp.zeros(0, dtype)
    rows_left = len(system.tree) < len(system.joints) or bool(system.couplings) or bool(system.constraints)
    if not rows_left and np.all(system.holonomic):
        r, e, v = _in_motion(along_tree, position, rate)
        return _state(system, r, e, v, stop(near))

    target = jnp.array([position[system.axis_names()[i]] for i in given]).reshape(len(given))
    r_0, e_0 = stop(along_tree(position))
    r, e, near = stop(_close(system, stop(prepared), r_0, e_0, stop(near), stop(target), given))
    # derivatives: what no row determines moves with the tree, the rest by the implicit rule of Newton at the solution
    shift = matvec(jnp.swapaxes(rotation.matrix(e_0), 1, 2), r - r_0)
    turn = rotation.multiply(rotation.conjugate(e_0), e)

    def closed(position: Coordinates) -> tuple[Array, Array]:
        r, e = along_tree(position)
        return r + matvec(rotation.matrix(e), shift), rotation.multiply(e, turn)

    r, e, v_0 = _in_motion(closed, position, rate)

    def newton(pose, _):
        return _newton(system, prepared, pose[0], pose[1], near, target, given), None

    (r, e), _ = jax.lax.scan(newton, (r, e), length=2)
    wanted = jnp.array([rate[system.axis_names()[i]] for i in paced]).reshape(len(paced))
    v = _consistent_velocity(system, prepared, r, e, near, v_0, wanted, paced)
    if system.axes:
        near = stop(axes.coordinates(system, frames.kinematics(system, r, e, prepared.geometry), near))
    return _state(system, r, e, v, near)


def _in_motion(
    place: Callable[[Coordinates], tuple[Array, Array]], position: Coordinates, rate: Coordinates
) -> tuple[Array, Array, Array]:
    """Poses at joint coordinates, and the velocities (v world, w body) that their rates give."""
    (r, e), (r_dot, e_dot) = jax.jvp(place, (position,), (rate,))
    return r, e, jnp.concatenate([r_dot, 2 * rotation.multiply(rotation.conjugate(e), e_dot)[..., 1:]], axis=-1)


def assembly_error(system: System, params: Params, state: State) -> Float[Array, ""]:
    """Largest violation of a joint, coupling or holonomic user row in a state [m or rad]."""
    kin = frames.kinematics(system, state.r, state.e, frames.geometry(system, params))
    found, _ = _violations(system, params, kin, state.near, state.time)
    return jnp.max(jnp.abs(found.gap), initial=0.0)


def closed_from(system: System, params: Params, joints: Mapping[str, Any]) -> tuple[Float[Array, " axes"], Array]:
    """Positions of the axes where loops and couplings close, sought from given ones without holding to them; and the
    largest violation that remains [m or rad].
    """
    position = _read(system, joints, {})[2]
    prepared = prepare(system, params)
    near = jnp.stack([position[name] for name in system.axis_names()])
    r, e = _forward_kinematics(system, prepared, position)
    r, e, near = _close(system, prepared, r, e, near, jnp.zeros(0, dtype=r.dtype), ())
    state = _state(system, r, e, jnp.zeros((system.num_bodies, 6), dtype=r.dtype), near)
    return near, assembly_error(system, params, state)


def project(system: System, prepared: Prepared, state: State) -> State:
    """The nearest state (mass metric, to first order) on every joint: a Newton step and the velocity projection.

    For states already close to the joints, like an estimator's first state after a step. Its derivative is right to
    first order in what they violate.
    """
    none = jnp.zeros(0, dtype=state.r.dtype)
    r, e = _newton(system, prepared, state.r, state.e, state.near, none, ())
    v = velocity(state)
    kin = frames.kinematics(system, r, e, prepared.geometry)
    rows, drive = _projection_rows(system, prepared, kin, state.near, state.time)
    fixed = jax.lax.stop_gradient(rows)  # as in `_newton`
    dv, _ = _solve(system, fixed, saddle.gaps(system, rows, v) - rows.a + drive, none, ())
    v = v + dv
    return eqx.tree_at(lambda s: (s.r, s.e, s.v, s.w), state, (r, e, v[:, :3], v[:, 3:]))


# ---------------------------------------------------------------------------------------------------------------
# reading the user's coordinates


def _read(system: System, joints: Mapping[str, Any], bodies: Mapping[str, Any]):
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


def _state(system: System, r: Array, e: Array, v: Array, near: Array) -> State:
    deflection = jnp.zeros(len(system.elements), dtype=r.dtype)
    none = jnp.zeros((system.history, len(system.motors)), dtype=r.dtype) if system.history else None
    state = State(r, e, v[:, :3], v[:, 3:], near, jnp.zeros((), dtype=r.dtype), deflection, none)
    return nothing_felt(system, state)


# ---------------------------------------------------------------------------------------------------------------
# trees: forward kinematics


def _forward_kinematics(system: System, prepared: Prepared, position: Coordinates) -> tuple[Array, Array]:
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


# ---------------------------------------------------------------------------------------------------------------
# loops: projection on the joints in the mass metric


def _violations(
    system: System, params: Params, kin: frames.Kinematics, near: Array, time: Array
) -> tuple[Violations, tuple[Array, Array]]:
    """What every node is off, and the rate rows of the axes."""
    b_A, b_B, _, place = axis_motion(system, kin, near, jnp.zeros((system.num_bodies, 6), dtype=near.dtype))
    return violations(system, params, kin, (b_A, b_B), place, time), (b_A, b_B)


def _projection_rows(
    system: System, prepared: Prepared, kin: frames.Kinematics, near: Array, time: Array, *, poses: bool = False
) -> tuple[Rows, Array]:
    """Rows whose `a` is what is violated, in the mass metric; and -gamma(t) of nonholonomic rows.

    `poses`: only the rows that bind these; what must not slip may be put anywhere.
    """
    params = prepared.params
    found, (b_A, b_B) = _violations(system, params, kin, near, time)
    if poses and not np.all(system.holonomic):
        binding = system.holonomic[[node for node, _ in system.edges]]
        found = found._replace(G=jnp.where(binding[:, :, None], found.G, 0.0))
    others = len(system.node_rows) - len(system.joints)
    scale = jnp.concatenate(
        [
            prepared.sigma / params.relative_compliance,
            jnp.full((others, system.width), jnp.mean(1 / params.mass)),
        ]
    )
    D = mass_matrix(params, prepared.J)
    if system.roots:  # they stand where they were put
        D = D.at[np.array(system.roots)].multiply(_HELD)
    if poses and system.rollers:  # they stand as they were turned: the plane is met by their height
        D = D.at[np.array(system.rollers), 3:, 3:].multiply(_HELD)
    none = jnp.zeros((len(system.own_sides), 6), dtype=D.dtype)
    rows = Rows(
        D=D,
        p=jnp.zeros((system.num_bodies, 6), dtype=D.dtype),
        kappa=jnp.zeros(system.num_lines, dtype=D.dtype),
        b_A=b_A,
        b_B=b_B,
        b_own=none,
        b_own_ahead=none,
        G=found.G,
        G_ahead=found.G,
        sigma=jnp.where(system.filled, _RELATIVE_COMPLIANCE[scale.dtype.itemsize] * scale, 1.0),
        a=found.gap,
        box=boxes.empty(system, D.dtype),
        contacts=None,
        position=jnp.zeros(len(system.axes), dtype=D.dtype),
    )
    return rows, found.drive


def _solve(system: System, rows: Rows, defect: Array, miss: Array, given: tuple[int, ...]):
    """Smallest motion d (mass metric) with G d = -defect and b d = -miss on the given axes."""
    lu = saddle.factor(system, rows)
    n = len(given)
    b = saddle.line_columns(system, rows, given)
    p = jnp.concatenate([jnp.zeros_like(rows.p)[..., None], b], axis=-1)
    a = jnp.concatenate([-defect[..., None], jnp.zeros((*defect.shape, n), dtype=defect.dtype)], axis=-1)
    v, lam = saddle.solve(system, lu, p, a)
    if not n:
        return v[..., 0], lam
    N = jnp.einsum("bif,big->fg", b, v[..., 1:])
    N = N + _REGULAR[N.dtype.itemsize] * jnp.trace(N) * jnp.eye(n, dtype=N.dtype)
    mu = small.solve(N, (-miss - jnp.einsum("bif,bi->f", b, v[..., 0]))[:, None])[:, 0]
    return v[..., 0] + v[..., 1:] @ mu, lam


def _newton(system: System, prepared: Prepared, r: Array, e: Array, near: Array, target: Array, given: tuple[int, ...]):
    kin = frames.kinematics(system, r, e, prepared.geometry)
    rows, _ = _projection_rows(system, prepared, kin, near, jnp.zeros((), r.dtype), poses=True)
    # the matrix's own derivative meets what is violated, which is nothing but rounding: the implicit rule without it
    fixed = jax.lax.stop_gradient(rows)
    d, _ = _solve(system, fixed, rows.a, _miss(system, kin, target, given), given)
    return r + d[:, :3], jax.vmap(rotation.plus)(e, d[:, 3:])


def _miss(system: System, kin: frames.Kinematics, target: Array, given: tuple[int, ...]) -> Array:
    if not given:
        return target
    index = jnp.array(given, dtype=int)
    counted = jnp.array([system.axes[i].turns for i in given])
    miss = axes.wrapped(system, kin)[index] - target
    return jnp.where(counted, miss - 2 * jnp.pi * jax.lax.stop_gradient(jnp.round(miss / (2 * jnp.pi))), miss)


def _close(
    system: System, prepared: Prepared, r: Array, e: Array, near: Array, target: Array, given: tuple[int, ...]
) -> tuple[Array, Array, Array]:
    """Newton to convergence, steps at most half a radian; poses and the unwrapped positions of the axes.

    What was violated is known once the next step is computed: the last one starts where all is within the tolerance.
    """

    def body(carry):
        r, e, near, _, k = carry
        kin = frames.kinematics(system, r, e, prepared.geometry)
        near = axes.coordinates(system, kin, near) if system.axes else near
        rows, _ = _projection_rows(system, prepared, kin, near, jnp.zeros((), r.dtype), poses=True)
        miss = _miss(system, kin, target, given)
        d, _ = _solve(system, rows, rows.a, miss, given)
        d = d * jnp.minimum(1.0, 0.5 / jnp.maximum(jnp.max(jnp.abs(d[:, 3:])), 1e-12))
        worst = jnp.max(jnp.abs(jnp.concatenate([rows.a.reshape(-1), miss])))
        return r + d[:, :3], jax.vmap(rotation.plus)(e, d[:, 3:]), near, worst, k + 1

    def go_on(carry):
        return (carry[3] > _TOLERANCE[r.dtype.itemsize]) & (carry[4] < _NEWTON_LIMIT)

    start = r, e, near, jnp.full((), jnp.inf, dtype=r.dtype), jnp.zeros((), dtype=int)
    return jax.lax.while_loop(go_on, body, start)[:3]


def _consistent_velocity(
    system: System, prepared: Prepared, r: Array, e: Array, near: Array, v: Array, rate: Array, given: tuple[int, ...]
):
    """The velocity nearest to `v` (mass metric) that keeps every joint and has the given rates."""
    kin = frames.kinematics(system, r, e, prepared.geometry)
    rows, drive = _projection_rows(system, prepared, kin, near, jnp.zeros((), r.dtype))
    index = jnp.array(given, dtype=int)

    def nearer(v: Array, _):
        miss = axes.rates(system, rows.b_A, rows.b_B, v)[index] - rate if given else rate
        dv, _ = _solve(system, rows, saddle.gaps(system, rows, v) - rows.a + drive, miss, given)
        return v + dv, None

    return jax.lax.scan(nearer, v, length=2)[0]  # the second removes what the compliance left
