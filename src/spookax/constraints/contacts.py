"""Contacts as rows of the step: three for every place where surfaces may touch, one normal and two across.

Unknown v+ of the bodies, J = (n, t1, t2)^T times the velocity of the first surface against the second:

    impulse lam = cone(y),   y = -(J v+ + c) / Sigma

c of the normal row is 4 gamma / h times an overlap (led back no faster than `recovery`), and gap / h for a gap, so that
the step ends at the surface. Every row is regularised, so the impulse is a function of the velocity. `cone` projects on
|lam_t| <= mu lam_n in the norm of Sigma: the step is one convex problem with one solution, and the law has no axes. By
itself it lets what slides glide upwards, with a rate mu |v_t|. That rate is added to c of the normal row (the shift of
De Saxce and Feng (1998)), taken from the velocity before the step and, where slip has changed in it, again from the
solution (`stepping.contact`). A fixed point is Coulomb's law.

Sources: Marklund, Servin, Larson (2025), eqs. (2.22)-(2.24); Castro, Permenter, Han (2022) for the regularised cone.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Bool, Float
from ..collision import Mesh, Posed, Touch, touches
from ..math import rotation
from ..math.blocks import gathered, take
from ..math.product import matmul, matvec
from ..scene.hulls import MOST_TRIANGLES, MOST_VERTICES
from ..system import Params, System
from . import contact_slots
from .contact_jacobian import Sides, Slots, to_points

_SMOOTH = 0.01  # speed of slip below which the shift fades, or rolling would sit on a kink [m/s]


class Contacts(eqx.Module):
    """Contacts of one step. Impulses in the axes n, t1, t2 of every place, which are the rows of `frame`."""

    point: Float[Array, "points 3"]  # world [m]
    frame: Float[Array, "points 3 3"]
    gap: Float[Array, " points"]  # [m]
    live: Bool[Array, " points"]
    J: Sides | Slots
    c: Float[Array, " points"]  # of the normal row, without the shift [m/s]
    shift: Float[Array, " points"]  # mu |v_t| [m/s]
    sigma: Float[Array, " points"]  # of all three rows [1/kg]
    mu: Float[Array, " points"]
    restitution: Float[Array, " points"]
    start: Float[Array, "bodies 6"]  # velocity from which the solution is looked for; without a derivative


def surfaces(system: System, params: Params, r: Float[Array, "bodies 3"], e: Float[Array, "bodies 4"]) -> Posed:
    """All surfaces in the world."""
    of = [surface.body % (system.num_bodies + 1) for surface in system.contacts.surfaces]
    R = jnp.concatenate([rotation.matrix(e), jnp.eye(3, dtype=r.dtype)[None]])[np.array(of)]
    origin = jnp.concatenate([r, jnp.zeros_like(r[:1])])[np.array(of)]
    com = jnp.concatenate([params.com, jnp.zeros_like(r[:1])])[np.array(of)]
    turned = matmul(R, rotation.matrix(rotation.exp(params.surface_turn)))
    boxes = np.array([surface.type in ("box", "mesh") for surface in system.contacts.surfaces])[:, None]
    halves = params.surface_size * np.where(boxes, 0.5, [1.0, 0.5, 1.0]).astype(params.surface_size.dtype)
    return Posed(origin + matvec(R, params.surface_at - com), turned, halves, _meshes(system, r.dtype))


def _meshes(system: System, dtype: Any) -> Mesh | None:
    """The meshes of all surfaces, where there are some; of the others a single point."""
    hulls = [surface.hull for surface in system.contacts.surfaces]
    if not any(hulls):
        return None
    vertices = np.zeros((len(hulls), MOST_VERTICES, 3))
    corners = np.zeros((len(hulls), MOST_TRIANGLES, 3, 3))
    count = np.array([len(hull.vertices) if hull else 0 for hull in hulls])
    for i, hull in enumerate(hulls):
        if hull:
            own = np.array(hull.vertices)
            vertices[i] = own[[*range(len(own)), *[0] * (MOST_VERTICES - len(own))]]
            sides = [*hull.triangles, *[hull.triangles[0]] * (MOST_TRIANGLES - len(hull.triangles))]
            corners[i] = own[np.array(sides)]
    exists = np.arange(MOST_VERTICES) < count[:, None]
    return Mesh(jnp.asarray(vertices, dtype), jnp.asarray(exists), jnp.asarray(corners, dtype))


def places(system: System, posed: Posed) -> Touch:
    """All places where surfaces may touch."""
    parts = []
    for kind in system.contacts.kinds:
        pairs = [pair for pair in system.contacts.pairs if pair.kind == kind]
        parts.append(touches(kind, posed, [pair.first for pair in pairs], [pair.second for pair in pairs]))
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *a: jnp.concatenate(a), *parts)


def gaps(
    system: System, params: Params, r: Float[Array, "bodies 3"], e: Float[Array, "bodies 4"]
) -> Float[Array, " points"]:
    """Gaps of all places, infinite where surfaces cannot touch in this pose. [m]"""
    if not system.contacts.pairs:
        return jnp.zeros(0, dtype=r.dtype)
    found = places(system, surfaces(system, params, r, e))
    return jnp.where(found.live, found.gap, jnp.inf)


def rows(
    system: System,
    params: Params,
    r: Float[Array, "bodies 3"],
    e: Float[Array, "bodies 4"],
    v: Float[Array, "bodies 6"],
) -> Contacts:
    """The contacts at a pose; `v`: the velocity from which the shift of the normal rows is taken."""
    of, posed = system.contacts, surfaces(system, params, r, e)
    inverse_mass = jnp.append(1 / params.mass, jnp.zeros((), params.mass.dtype))
    numbers = params.material_friction, params.material_restitution
    if of.slots:
        chosen = contact_slots.choose(system, params, posed, r, v)
        found = contact_slots.touch(system, posed, chosen)
        frame = jax.vmap(_frame)(found.normal)
        J = contact_slots.jacobian(system, chosen, found.point, frame, r, e)
        mobility = gathered(inverse_mass, J.first) + gathered(inverse_mass, J.second)
        materials = gathered(jnp.asarray([surface.material for surface in of.surfaces]), chosen.surfaces).T
        of_slots = [mobility, *(_combined(of.combine, *(gathered(a, m) for m in materials)) for a in numbers)]
        mobility, mu, bounce = (to_points(system, a) for a in of_slots)
    else:
        found = places(system, posed)
        frame = jax.vmap(_frame)(found.normal)
        J = _sides(system, found.point, frame, r, e)
        A, B = (np.array([ends[side] for ends in of.bodies_of_points]) for side in (0, 1))
        mobility = inverse_mass[A] + inverse_mass[B]
        mu, bounce = (_of_pairs(system, a) for a in numbers)
    gamma = 1 / (1 + 4 * params.contact_relaxation)
    c = jnp.maximum(jnp.where(found.gap <= 0, 4 * gamma, 1.0) / params.step * found.gap, -params.recovery)
    sigma = params.contact_compliance * mobility
    part = Contacts(found.point, frame, found.gap, found.live, J, c, jnp.zeros_like(c), sigma, mu, bounce, v)
    return from_velocity(system, part, v)


def _sides(
    system: System,
    point: Float[Array, "points 3"],
    frame: Float[Array, "points 3 3"],
    r: Float[Array, "bodies 3"],
    e: Float[Array, "bodies 4"],
) -> Sides:
    of = system.contacts
    points, bodies = [point for point, _ in of.sides], [body for _, body in of.sides]
    axes = take(frame, points) * np.where(of.is_first, 1, -1).astype(r.dtype)[:, None, None]
    arm = take(point, points) - take(r, bodies)
    turn = matmul(rotation.cross(arm[:, None, :], axes), take(rotation.matrix(e), bodies))
    return Sides(jnp.concatenate([axes, turn], axis=-1))


def _of_pairs(system: System, numbers: Float[Array, " materials"]) -> Float[Array, " points"]:
    """A number of the materials of both sides, combined, at every place."""
    of = system.contacts
    a, b = (
        take(numbers, [of.surfaces[getattr(pair, side)].material for pair in of.pairs]) for side in ("first", "second")
    )
    return take(_combined(of.combine, a, b), of.pair_of_point)


def _combined(how: str, a: Array, b: Array) -> Array:
    """A number of both sides as one, see `Contacts.combine` of a scene."""
    combined = {"mean": lambda: (a + b) / 2, "product": lambda: a * b}
    return combined[how]() if how in combined else getattr(jnp, f"{how}imum")(a, b)


def _frame(n: Float[Array, " 3"]) -> Float[Array, "3 3"]:
    """Rows n, t1, t2; any tangents do, as the law has no axes."""
    other = jnp.where(jnp.abs(n[0]) < 0.57, *np.eye(3, dtype=n.dtype)[:2])
    t = rotation.cross(n, other)
    t = t / jnp.sqrt(jnp.sum(t * t))
    return jnp.stack([n, t, rotation.cross(n, t)])


def rates(system: System, contacts: Contacts, v: Float[Array, "bodies 6"]) -> Float[Array, "points 3"]:
    """J v."""
    return contacts.J.rates(system, v)


def pushes(system: System, contacts: Contacts, lam: Float[Array, "points 3"]) -> Float[Array, "bodies 6"]:
    """J^T lam."""
    return contacts.J.pushes(system, lam)


def slip(system: System, contacts: Contacts, v: Float[Array, "bodies 6"]) -> Float[Array, " points"]:
    """mu |v_t|, smooth at rest: the shift of the normal rows. [m/s]"""
    across = rates(system, contacts, v)[:, 1:]
    return contacts.mu * (jnp.sqrt(jnp.sum(across * across, axis=-1) + _SMOOTH**2) - _SMOOTH)


def from_velocity(system: System, contacts: Contacts, v: Float[Array, "bodies 6"]) -> Contacts:
    """The contacts with the shift that `v` gives, to be solved from there."""
    new = slip(system, contacts, v), jax.lax.stop_gradient(v)
    return eqx.tree_at(lambda x: (x.shift, x.start), contacts, new)


def impulses(contacts: Contacts, rate: Float[Array, "points 3"]) -> Float[Array, "points 3"]:
    """cone(y) at J v = `rate`. [N s]"""
    return answer(contacts, rate)[0]


def answer(
    contacts: Contacts, rate: Float[Array, "points 3"]
) -> tuple[Float[Array, "points 3"], Float[Array, "points 3 3"]]:
    """cone(y) at J v = `rate`, and how fast it falls with that rate. [N s, kg]"""
    mu = contacts.mu
    y = -(rate + jnp.pad((contacts.c + contacts.shift)[:, None], ((0, 0), (0, 2)))) / contacts.sigma[:, None]
    yn, yt = y[:, 0], y[:, 1:]
    square = jnp.sum(yt * yt, axis=-1)
    size = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
    u = yt / jnp.where(size > 0, size, 1.0)[:, None]
    sticks = (size <= mu * yn) & (yn > 0)
    slides = ~sticks & (yn > -mu * size)
    normal = (yn + mu * size) / (1 + mu * mu)
    direction = jnp.concatenate([jnp.ones_like(u[:, :1]), mu[:, None] * u], axis=1)
    sliding = normal[:, None] * direction
    lam = jnp.where(sticks[:, None], y, jnp.where(slides[:, None], sliding, 0.0))
    # of the sliding law: along its direction, and the turning of that direction
    along = direction[:, :, None] * direction[:, None, :] / (1 + mu * mu)[:, None, None]
    turning = mu * normal / jnp.where(size > 0, size, 1.0)
    across = np.eye(2, dtype=y.dtype)[None] - u[:, :, None] * u[:, None, :]
    slope = along + jnp.pad(turning[:, None, None] * across, ((0, 0), (1, 0), (1, 0)))
    slope = jnp.where(sticks[:, None, None], jnp.eye(3, dtype=y.dtype), jnp.where(slides[:, None, None], slope, 0.0))
    slope = slope / contacts.sigma[:, None, None]
    return jnp.where(contacts.live[:, None], lam, 0.0), jnp.where(contacts.live[:, None, None], slope, 0.0)
