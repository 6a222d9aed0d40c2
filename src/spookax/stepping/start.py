"""Consistent states: assembled from joint coordinates (loops solved), and the half kick that leap-frog starts with."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._typing import Array, Float
from ..complementarity import AbstractMLCPSolver
from ..constraints import Prepared, Rows, assemble, axes, custom, frames, prepare
from ..constraints.assemble import joint_rows, poses_of, velocity
from ..math import rotation, small
from ..system import Params, State, System
from . import saddle
from .spook import DEFAULT_SOLVER, solve_rows

Coordinates = dict[str, Array]
_NEWTON_LIMIT = 60
_RELATIVE_COMPLIANCE = 1e-9  # of the projections: small against one, large against rounding
_TOLERANCE = 1e-11
_HALF_KICK_STEPS = 4


def state_from_joints(
    system: System,
    params: Params,
    joints: Mapping[str, Any] | None = None,
    bodies: Mapping[str, Any] | None = None,
) -> State:
    """A state that satisfies every joint, from joint coordinates and rates at t = 0.

    **Arguments:**

    - `joints`: joint name -> position, or a mapping with `position` and `rate` (numbers for hinge and prismatic
      [rad, rad/s or m, m/s]; for ball joints a rotation vector and the relative angular velocity, both in the axes of
      the child's joint frame, which are the child's own if the joint has no `rotation`). Joints of a tree that are
      not named are at zero; in a closed loop they are found. More coordinates than a loop has freedoms are met as well
      as it allows: give those that shall be met, and differentiate in those, alone.
    - `bodies`: for bodies that no joint connects to the world: name -> mapping with `position` [m], `rotation`
      (rotation vector [rad]), `velocity` of the frame origin (world) [m/s], `angular_velocity` (body axes) [rad/s].

    **Returns:** a `State` with the velocities *at* t = 0; `rollout` moves them half a step back. Differentiable in
    the coordinates and in `params`: trees by forward kinematics, loops by the implicit rule at the solution. A loop
    that cannot be closed shows in `assembly_error`.
    """
    given, position, rate = _read(system, joints or {}, bodies or {})
    prepared = prepare(system, params)

    def place(position: Coordinates) -> tuple[Array, Array]:
        return _forward_kinematics(system, prepared, position)

    (r_0, e_0), (r_dot, e_dot) = jax.jvp(place, (position,), (rate,))
    v_0 = jnp.concatenate([r_dot, 2 * rotation.multiply(rotation.conjugate(e_0), e_dot)[..., 1:]], axis=-1)
    closed = len(system.tree) < len(system.joints) or bool(system.constraints)
    if not closed:
        return _state(system, r_0, e_0, v_0, _near(system, prepared, r_0, e_0, position, given))

    stop = jax.lax.stop_gradient
    target = jnp.array([position[system.axis_names()[i]] for i in given]).reshape(len(given))
    r, e = stop(_close(system, stop(prepared), stop(r_0), stop(e_0), stop(target), given))
    # derivatives: what no row determines moves with the tree, the rest by the implicit rule of Newton at the solution
    r, e = r + r_0 - stop(r_0), jax.vmap(rotation.plus)(e, jax.vmap(rotation.minus)(e_0, stop(e_0)))

    def newton(pose, _):
        return _newton(system, prepared, pose[0], pose[1], target, given), None

    (r, e), _ = jax.lax.scan(newton, (r, e), length=2)
    wanted = jnp.array([rate[system.axis_names()[i]] for i in given]).reshape(len(given))
    v = _consistent_velocity(system, prepared, r, e, v_0, wanted, given)
    return _state(system, r, e, v, _near(system, prepared, r, e, position, given))


def assembly_error(system: System, params: Params, state: State) -> Float[Array, ""]:
    """Largest violation of a joint or holonomic user row in a state [m or rad]."""
    kin = frames.kinematics(system, state.r, state.e, frames.geometry(system, params))
    worst = jnp.zeros(())
    for gap in _violations(system, params, kin, state.time)[0]:
        worst = jnp.maximum(worst, jnp.max(jnp.abs(gap)))
    return worst


def half_kick_back(
    system: System,
    prepared: Prepared,
    state: State,
    command: Float[Array, " motors"],
    solver: AbstractMLCPSolver = DEFAULT_SOLVER,
) -> State:
    """Velocities moved from t_0 to t_0 - h/2, such that their mean with those of the first step are the given ones.

    That is how a rate is read everywhere, so that a state that was read replays. With S the step from v_-, the root of
    v_- + S(v_-) = 2 v_0 by averaged iteration v_- <- v_0 + (v_- - S(v_-)) / 2, each of which gains a factor h on free
    motion and (1 - gamma) / 2 on the joint rows, which hold at the start.
    """
    v_0 = velocity(state)
    none = jnp.zeros_like(v_0)
    guess = jnp.zeros(len(system.friction_axes), dtype=v_0.dtype)

    def moved(v: Array) -> State:
        return eqx.tree_at(lambda s: (s.v, s.w), state, (v[:, :3], v[:, 3:]))

    def body(v: Array, _):
        ahead, *_ = solve_rows(system, solver, assemble(system, prepared, moved(v), command, none), guess)
        return v_0 + (v - ahead) / 2, None

    return moved(jax.lax.scan(body, v_0, length=_HALF_KICK_STEPS)[0])


def project(system: System, prepared: Prepared, state: State) -> State:
    """The nearest state (mass metric, to first order) on every joint: a Newton step and the velocity projection.

    For states already close to the joints, like an estimator's first state after a step. Its derivative is right to
    first order in what they violate.
    """
    none = jnp.zeros(0, dtype=state.r.dtype)
    r, e = _newton(system, prepared, state.r, state.e, none, ())
    v = velocity(state)
    kin = frames.kinematics(system, r, e, prepared.geometry)
    rows = _projection_rows(system, prepared, kin, state.time)
    excess = tuple(g - a for g, a in zip(saddle.gaps(system, rows, v), rows.a, strict=True))
    target = tuple(_target(system, prepared.params, i, state.time) for i in range(len(excess)))
    fixed = jax.lax.stop_gradient(rows)  # as in `_newton`
    dv, _ = _solve(system, fixed, tuple(x - t for x, t in zip(excess, target, strict=True)), none, ())
    v = v + dv
    return eqx.tree_at(lambda s: (s.r, s.e, s.v, s.w), state, (r, e, v[:, :3], v[:, 3:]))


# ---------------------------------------------------------------------------------------------------------------
# reading the user's coordinates


def _read(system: System, joints: Mapping[str, Any], bodies: Mapping[str, Any]):
    position: Coordinates = {}
    rate: Coordinates = {}
    given = []
    for name in joints:
        system.joint_index(name)  # raises with the known names
    for joint in system.joints:
        size = {"hinge": (), "prismatic": (), "ball": (3,), "fixed": (0,)}[joint.type]
        value = joints.get(joint.name, 0.0 if size == () else jnp.zeros(size))
        if not isinstance(value, Mapping):
            value = {"position": value}
        unknown = set(value) - {"position", "rate"}
        if unknown:
            raise ValueError(f"joint '{joint.name}': unknown {sorted(unknown)}; give 'position' and 'rate'")
        zero = jnp.zeros(size)
        position[joint.name] = jnp.asarray(value.get("position", zero), dtype=zero.dtype).reshape(size)
        rate[joint.name] = jnp.asarray(value.get("rate", zero), dtype=zero.dtype).reshape(size)
        if joint.type == "ball":
            position[f"spin {joint.name}"], rate[f"spin {joint.name}"] = zero, rate[joint.name]
            rate[joint.name] = zero
    for i, axis in enumerate(system.axes):
        if system.joints[axis.joint].name in joints:
            given.append(i)
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
    return tuple(given), position, rate


def _state(system: System, r: Array, e: Array, v: Array, near: Array) -> State:
    return State(r, e, v[:, :3], v[:, 3:], near, jnp.zeros((), dtype=r.dtype))


def _near(system: System, prepared: Prepared, r: Array, e: Array, position: Coordinates, given: tuple[int, ...]):
    """Unwrapped coordinates: as given, or as found."""
    if not system.axes:
        return jnp.zeros(0, dtype=r.dtype)
    found = axes.wrapped(system, frames.kinematics(system, r, e, prepared.geometry))
    names = system.axis_names()
    known = [position[names[i]] if i in given else found[i] for i in range(len(names))]
    return jax.lax.stop_gradient(jnp.stack(known))


# ---------------------------------------------------------------------------------------------------------------
# trees: forward kinematics


def _forward_kinematics(system: System, prepared: Prepared, position: Coordinates) -> tuple[Array, Array]:
    """Poses along the spanning tree; a root that no joint ties to the world stands where `bodies` says.

    Rotation vectors enter as exp(theta) * exp(spin) with spin = 0, whose rate is the body-axes angular velocity.
    """
    g = prepared.geometry
    com = prepared.params.com
    one = jnp.array([1.0, 0.0, 0.0, 0.0], dtype=com.dtype)
    placed: dict[int, tuple[Array, Array]] = {-1: (jnp.zeros(3, dtype=com.dtype), one)}

    def place_root(b: int) -> None:
        p, theta = position[f"body {system.bodies[b]}"]
        e = rotation.multiply(rotation.exp(theta), rotation.exp(position[f"spin {system.bodies[b]}"]))
        placed[b] = (p + rotation.matrix(e) @ com[b], e)

    for j in system.tree:
        joint = system.joints[j]
        if joint.parent not in placed and joint.child not in placed:
            place_root(joint.parent)
        x = position[joint.name]
        z = jnp.array([0.0, 0.0, 1.0], dtype=com.dtype)
        turn = one
        if joint.type == "hinge":
            turn = rotation.exp(x * z)
        elif joint.type == "ball":
            turn = rotation.multiply(rotation.exp(x), rotation.exp(position[f"spin {joint.name}"]))
        slide = x * z if joint.type == "prismatic" else jnp.zeros_like(z)
        relative = rotation.multiply(rotation.multiply(g.q_A[j], turn), rotation.conjugate(g.q_B[j]))
        if joint.parent in placed:
            r, e = placed[joint.parent]
            e_B = rotation.multiply(e, relative)
            offset = rotation.matrix(e) @ (g.s_A[j] + g.C_A[j] @ slide) - rotation.matrix(e_B) @ g.s_B[j]
            placed[joint.child] = (r + offset, e_B)
        else:
            r, e = placed[joint.child]
            e_A = rotation.multiply(e, rotation.conjugate(relative))
            offset = rotation.matrix(e) @ g.s_B[j] - rotation.matrix(e_A) @ (g.s_A[j] + g.C_A[j] @ slide)
            placed[joint.parent] = (r + offset, e_A)
    for b in range(system.num_bodies):
        if b not in placed:
            place_root(b)
    r, e = zip(*(placed[b] for b in range(system.num_bodies)), strict=True)
    return jnp.stack(r), jnp.stack(e)


# ---------------------------------------------------------------------------------------------------------------
# loops: projection on the joints in the mass metric


def _violations(system: System, params: Params, kin: frames.Kinematics, time: Array):
    gaps, jacobians = joint_rows(system, kin)
    for c, row in enumerate(system.constraints):
        poses = poses_of(system, params, kin, row.bodies)
        gap, jac = custom.linearise(row, poses, params.rows[c], time)
        holonomic = isinstance(row, custom.AbstractHolonomic)
        gaps.append(gap if holonomic else jnp.zeros_like(gap))
        jacobians.append(tuple(b for b, n in zip(jac, row.bodies, strict=True) if n != "world"))
    return gaps, jacobians


def _target(system: System, params: Params, node: int, time: Array) -> Array:
    """Speed that a node asks for: gamma(t) of nonholonomic rows, zero otherwise."""
    user = node - len(system.joints)
    if user < 0:
        return jnp.zeros(system.joints[node].num_rows)
    row = system.constraints[user]
    if isinstance(row, custom.AbstractNonholonomic):
        return row.target(time, params.rows[user])
    return jnp.zeros(row.num_rows)


def _projection_rows(system: System, prepared: Prepared, kin: frames.Kinematics, time: Array) -> Rows:
    params = prepared.params
    gaps, jacobians = _violations(system, params, kin, time)
    scale = [s / params.relative_compliance[j] for j, s in enumerate(prepared.sigma)]
    scale += [jnp.ones(c.num_rows) * jnp.mean(1 / params.mass) for c in system.constraints]
    eye = jnp.eye(3, dtype=params.mass.dtype)
    D = jnp.concatenate(
        [
            jnp.concatenate([params.mass[:, None, None] * eye, jnp.zeros_like(prepared.J)], axis=-1),
            jnp.concatenate([jnp.zeros_like(prepared.J), prepared.J], axis=-1),
        ],
        axis=-2,
    )
    na = len(system.axes)
    if na:
        b_A, b_B = axes.rate_rows(system, kin)
    else:
        b_A = b_B = jnp.zeros((0, 6), dtype=D.dtype)
    return Rows(
        D=D,
        p=jnp.zeros((system.num_bodies, 6), dtype=D.dtype),
        kappa=jnp.zeros(na, dtype=D.dtype),
        b_A=b_A,
        b_B=b_B,
        G=tuple(jacobians),
        sigma=tuple(_RELATIVE_COMPLIANCE * s for s in scale),
        a=tuple(gaps),
        bound=jnp.zeros(len(system.friction_axes), dtype=D.dtype),
        creep=params.v_creep,
        position=jnp.zeros(na, dtype=D.dtype),
    )


def _solve(system: System, rows: Rows, defect: tuple[Array, ...], miss: Array, given: tuple[int, ...]):
    """Smallest motion d (mass metric) with G d = -defect and b d = -miss on the given axes."""
    lu = saddle.factor(system, rows)
    n = len(given)
    columns = []
    for i in given:
        joint = system.joints[system.axes[i].joint]
        column = jnp.zeros((system.num_bodies, 6), dtype=rows.D.dtype).at[joint.child].set(rows.b_B[i])
        columns.append(column.at[joint.parent].set(rows.b_A[i]) if joint.parent >= 0 else column)
    p = jnp.stack([jnp.zeros_like(rows.p), *columns], axis=-1)
    a = [jnp.concatenate([-d[:, None], jnp.zeros((d.shape[0], n), d.dtype)], axis=1) for d in defect]
    v, lam = saddle.solve(system, lu, p, a)
    if not n:
        return v[..., 0], lam
    b = jnp.stack(columns, axis=-1)
    N = jnp.einsum("bif,big->fg", b, v[..., 1:])
    N = N + 1e-12 * jnp.trace(N) * jnp.eye(n, dtype=N.dtype)
    mu = small.solve(N, (-miss - jnp.einsum("bif,bi->f", b, v[..., 0]))[:, None])[:, 0]
    return v[..., 0] + v[..., 1:] @ mu, lam


def _newton(system: System, prepared: Prepared, r: Array, e: Array, target: Array, given: tuple[int, ...]):
    kin = frames.kinematics(system, r, e, prepared.geometry)
    rows = _projection_rows(system, prepared, kin, jnp.zeros((), r.dtype))
    # the matrix's own derivative meets what is violated, which is nothing but rounding: the implicit rule without it
    fixed = jax.lax.stop_gradient(rows)
    d, _ = _solve(system, fixed, rows.a, _miss(system, kin, target, given), given)
    return r + d[:, :3], jax.vmap(rotation.plus)(e, d[:, 3:])


def _miss(system: System, kin: frames.Kinematics, target: Array, given: tuple[int, ...]) -> Array:
    if not given:
        return target
    index = jnp.array(given, dtype=int)
    rotational = jnp.array([system.axes[i].rotational for i in given])
    miss = axes.wrapped(system, kin)[index] - target
    return jnp.where(rotational, miss - 2 * jnp.pi * jax.lax.stop_gradient(jnp.round(miss / (2 * jnp.pi))), miss)


def _close(system: System, prepared: Prepared, r: Array, e: Array, target: Array, given: tuple[int, ...]):
    """Newton to convergence, steps at most half a radian."""

    def error(r: Array, e: Array) -> Array:
        kin = frames.kinematics(system, r, e, prepared.geometry)
        gaps, _ = _violations(system, prepared.params, kin, jnp.zeros((), r.dtype))
        return jnp.max(jnp.abs(jnp.concatenate([*gaps, _miss(system, kin, target, given)])))

    def body(carry):
        r, e, _, k = carry
        kin = frames.kinematics(system, r, e, prepared.geometry)
        rows = _projection_rows(system, prepared, kin, jnp.zeros((), r.dtype))
        d, _ = _solve(system, rows, rows.a, _miss(system, kin, target, given), given)
        d = d * jnp.minimum(1.0, 0.5 / jnp.maximum(jnp.max(jnp.abs(d[:, 3:])), 1e-12))
        r, e = r + d[:, :3], jax.vmap(rotation.plus)(e, d[:, 3:])
        return r, e, error(r, e), k + 1

    def go_on(carry):
        return (carry[2] > _TOLERANCE) & (carry[3] < _NEWTON_LIMIT)

    r, e, _, _ = jax.lax.while_loop(go_on, body, (r, e, error(r, e), jnp.zeros((), dtype=int)))
    return r, e


def _consistent_velocity(
    system: System, prepared: Prepared, r: Array, e: Array, v: Array, rate: Array, given: tuple[int, ...]
):
    """The velocity nearest to `v` (mass metric) that keeps every joint and has the given rates."""
    kin = frames.kinematics(system, r, e, prepared.geometry)
    rows = _projection_rows(system, prepared, kin, jnp.zeros((), r.dtype))
    target = tuple(_target(system, prepared.params, i, jnp.zeros((), r.dtype)) for i in range(len(rows.a)))
    index = jnp.array(given, dtype=int)
    for _ in range(2):  # the second pass removes what the compliance left
        speed = tuple(g - a for g, a in zip(saddle.gaps(system, rows, v), rows.a, strict=True))
        miss = axes.rates(system, rows.b_A, rows.b_B, v)[index] - rate if given else rate
        dv, _ = _solve(system, rows, tuple(s - t for s, t in zip(speed, target, strict=True)), miss, given)
        v = v + dv
    return v
