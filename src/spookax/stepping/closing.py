"""Loops and couplings: the nearest poses and velocities that satisfy every joint, by projection in the mass metric."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..constraints import Prepared, Rows, axes, boxes, frames
from ..constraints.assemble import Violations, axis_motion, velocity, violations
from ..constraints.prepared import mass_matrix
from ..math import rotation, small
from ..system import Params, State, System
from . import saddle

_NEWTON_LIMIT = 60
# by the size of a float: relative compliance of the projections, small against one, large against rounding; what keeps
# the matrix of given axes regular; the largest violation that remains
_RELATIVE_COMPLIANCE = {8: 1e-9, 4: 1e-5}
_REGULAR = {8: 1e-12, 4: 1e-6}
_TOLERANCE = {8: 1e-11, 4: 1e-5}
_HELD = 1e8  # how much heavier than itself a body is that is not to move


def violated(
    system: System, params: Params, kin: frames.Kinematics, near: Array, time: Array
) -> tuple[Violations, tuple[Array, Array]]:
    """What every node is off, and the rate rows of the axes."""
    b_A, b_B, _, place = axis_motion(system, kin, near, jnp.zeros((system.num_bodies, 6), dtype=near.dtype))
    return violations(system, params, kin, (b_A, b_B), place, time), (b_A, b_B)


def projection_rows(
    system: System, prepared: Prepared, kin: frames.Kinematics, near: Array, time: Array, *, poses: bool = False
) -> tuple[Rows, Array]:
    """Rows whose `a` is what is violated, in the mass metric; and -gamma(t) of nonholonomic rows.

    `poses`: only the rows that bind these; what must not slip may be put anywhere.
    """
    params = prepared.params
    found, (b_A, b_B) = violated(system, params, kin, near, time)
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


def smallest_motion(
    system: System,
    rows: Rows,
    defect: Array,
    miss: Array,
    given: tuple[int, ...],
    yielding: float = 0.0,
) -> tuple[Array, Array]:
    """Smallest motion d (mass metric) with G d = -defect and b d = -miss on the given axes.

    `yielding`: how soft the given axes are, beside what the bodies of each would do without joints.
    """
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
    if yielding:
        N = N + yielding * jnp.diag(free_mobility(rows, b))
    mu = small.solve(N, (-miss - jnp.einsum("bif,bi->f", b, v[..., 0]))[:, None])[:, 0]
    return v[..., 0] + v[..., 1:] @ mu, lam


def free_mobility(rows: Rows, b: Float[Array, "bodies 6 axes"]) -> Float[Array, " axes"]:
    """Change of the rate of every axis per impulse along it, if no joints held its bodies [1/(kg m^2), 1/kg]."""
    return jnp.einsum("bif,bif->f", b, jax.vmap(small.solve)(rows.D, b))


def newton(
    system: System,
    prepared: Prepared,
    r: Array,
    e: Array,
    near: Array,
    target: Array,
    given: tuple[int, ...],
) -> tuple[Array, Array]:
    """Poses that miss the joints and the given axes by the square of what these poses miss."""
    kin = frames.kinematics(system, r, e, prepared.geometry)
    rows, _ = projection_rows(system, prepared, kin, near, jnp.zeros((), r.dtype), poses=True)
    # the matrix's own derivative meets what is violated, which is nothing but rounding: the implicit rule without it
    fixed = jax.lax.stop_gradient(rows)
    d, _ = smallest_motion(system, fixed, rows.a, missed(system, kin, target, given), given)
    return r + d[:, :3], jax.vmap(rotation.plus)(e, d[:, 3:])


def missed(system: System, kin: frames.Kinematics, target: Array, given: tuple[int, ...]) -> Array:
    """How far the given axes are from where they should be [rad or m], whole turns left out."""
    if not given:
        return target
    index = jnp.array(given, dtype=int)
    counted = jnp.array([system.axes[i].turns for i in given])
    miss = axes.wrapped(system, kin)[index] - target
    return jnp.where(counted, miss - 2 * jnp.pi * jax.lax.stop_gradient(jnp.round(miss / (2 * jnp.pi))), miss)


def close(
    system: System, prepared: Prepared, r: Array, e: Array, near: Array, target: Array, given: tuple[int, ...]
) -> tuple[Array, Array, Array]:
    """Newton to convergence, steps at most half a radian; poses and the unwrapped positions of the axes.

    What was violated is known once the next step is computed: the last one starts where all is within the tolerance.
    """

    def body(carry):
        r, e, near, _, k = carry
        kin = frames.kinematics(system, r, e, prepared.geometry)
        near = axes.coordinates(system, kin, near) if system.axes else near
        rows, _ = projection_rows(system, prepared, kin, near, jnp.zeros((), r.dtype), poses=True)
        miss = missed(system, kin, target, given)
        d, _ = smallest_motion(system, rows, rows.a, miss, given)
        d = d * jnp.minimum(1.0, 0.5 / jnp.maximum(jnp.max(jnp.abs(d[:, 3:])), 1e-12))
        worst = jnp.max(jnp.abs(jnp.concatenate([rows.a.reshape(-1), miss])))
        return r + d[:, :3], jax.vmap(rotation.plus)(e, d[:, 3:]), near, worst, k + 1

    def go_on(carry):
        return (carry[3] > _TOLERANCE[r.dtype.itemsize]) & (carry[4] < _NEWTON_LIMIT)

    start = r, e, near, jnp.full((), jnp.inf, dtype=r.dtype), jnp.zeros((), dtype=int)
    return jax.lax.while_loop(go_on, body, start)[:3]


def consistent_velocity(
    system: System,
    prepared: Prepared,
    r: Array,
    e: Array,
    near: Array,
    v: Array,
    rate: Array,
    given: tuple[int, ...],
    yielding: float = 0.0,
) -> Array:
    """The velocity nearest to `v` (mass metric) that keeps every joint and has the given rates."""
    kin = frames.kinematics(system, r, e, prepared.geometry)
    rows, drive = projection_rows(system, prepared, kin, near, jnp.zeros((), r.dtype))
    index = jnp.array(given, dtype=int)

    def nearer(v: Array, _):
        miss = axes.rates(system, rows.b_A, rows.b_B, v)[index] - rate if given else rate
        dv, _ = smallest_motion(system, rows, saddle.gaps(system, rows, v) - rows.a + drive, miss, given, yielding)
        return v + dv, None

    return jax.lax.scan(nearer, v, length=2)[0]  # the second removes what the compliance left


def project(system: System, prepared: Prepared, state: State) -> State:
    """The nearest state (mass metric, to first order) on every joint: a Newton step and the velocity projection.

    For states already close to the joints, like an estimator's first state after a step. Its derivative is right to
    first order in what they violate.
    """
    none = jnp.zeros(0, dtype=state.r.dtype)
    r, e = newton(system, prepared, state.r, state.e, state.near, none, ())
    v = velocity(state)
    kin = frames.kinematics(system, r, e, prepared.geometry)
    rows, drive = projection_rows(system, prepared, kin, state.near, state.time)
    fixed = jax.lax.stop_gradient(rows)  # as in `newton`
    dv, _ = smallest_motion(system, fixed, saddle.gaps(system, rows, v) - rows.a + drive, none, ())
    v = v + dv
    return eqx.tree_at(lambda s: (s.r, s.e, s.v, s.w), state, (r, e, v[:, :3], v[:, 3:]))
