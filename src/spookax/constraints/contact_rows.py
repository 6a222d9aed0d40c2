"""Contacts as rows of the step: three for every place where surfaces may touch, one normal and two across.

Unknown v+ of the bodies, J = (n, t1, t2)^T times the velocity of the first surface against the second:

    impulse lam = cone(y),   y = -(J v+ + c) / Sigma

c of the normal row is 4 gamma / h times an overlap (led back no faster than `recovery`), and gap / h for a gap, so that
the step ends at the surface. Every row is regularised, so the impulse is a function of the velocity. `cone` projects on
|lam_t| <= mu lam_n in the norm of Sigma: the step is one convex problem with one solution, and the law has no axes. By
itself it lets what slides glide upwards, with a rate mu |v_t|. That rate is added to c of the normal row (the shift of
De Saxce and Feng (1998)), taken from the velocity before the step and, where slip has changed in it, again from the
solution (`stepping.contact`). A fixed point is Coulomb's law.

With `contacts.friction: pyramid` the cone is a pyramid without a shift (`friction_pyramid`), for few contacts.

Where a material resists spinning or rolling there are three rows more, of the turning about n, t1 and t2 times a lever,
the distance to the centre of mass. They have cones of their own, and all are met together.

Sources: Marklund, Servin, Larson (2025), eqs. (2.22)-(2.24); Castro, Permenter, Han (2022) for the regularised cone.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Bool, Float
from ..math import rotation
from ..math.blocks import chosen as at
from ..math.blocks import take
from ..math.product import matmul
from ..system import Params, System
from . import contact_slots, friction_pyramid
from .contact_jacobian import Sides, Slots, about, to_points
from .placed_surfaces import places, surfaces

# rows beside the normal one that share a bound: of sliding, spinning and rolling
_PARTS = (1, 3), (3, 4), (4, 6)
_LEVER = 1e-3  # added to the square of a lever, squared [m]
_SMOOTH = 0.01  # speed of slip below which the shift fades, or rolling would sit on a kink [m/s]


class Contacts(eqx.Module):
    """Contacts of one step. Impulses in the axes n, t1, t2 of every place, which are the rows of `frame`; then torques
    about these, divided by a lever, where these are resisted."""

    point: Float[Array, "points 3"]  # world [m]
    frame: Float[Array, "points 3 3"]
    gap: Float[Array, " points"]  # [m]
    live: Bool[Array, " points"]
    J: Sides | Slots
    c: Float[Array, " points"]  # of the normal row, without the shift [m/s]
    shift: Float[Array, " points"]  # mu |v_t| [m/s]
    sigma: Float[Array, " points"]  # of all rows [1/kg]
    mu: Float[Array, "points parts"]  # of `_PARTS`, those of torques divided by the lever
    restitution: Float[Array, " points"]
    start: Float[Array, "bodies 6"]  # velocity from which the solution is looked for; without a derivative
    pyramid: bool = eqx.field(static=True)  # in place of the cone


def gaps(
    system: System, params: Params, r: Float[Array, "bodies 3"], e: Float[Array, "bodies 4"]
) -> Float[Array, " points"]:
    """Gaps of all places, infinite where surfaces cannot touch in this pose. [m]"""
    if not system.contacts.pairs:
        return jnp.zeros(0, dtype=r.dtype)
    found = places(system, surfaces(system, params, r, e), contact_slots.every(system))
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
    chosen = contact_slots.choose(system, params, posed, r, v) if of.slots else contact_slots.every(system)
    found = places(system, posed, chosen)
    frame = jax.vmap(_frame)(found.normal)
    A, B = contact_slots.bodies_of(system, chosen)
    inverse_mass = jnp.append(1 / params.mass, jnp.zeros((), params.mass.dtype))
    mobility = to_points(system, at(inverse_mass, A) + at(inverse_mass, B))
    materials = contact_slots.of_surfaces([surface.material for surface in of.surfaces], chosen)

    def of_points(numbers: Array) -> Array:
        return to_points(system, _combined(of.combine, *(at(numbers, m) for m in materials)))

    axes, mu = frame, of_points(params.material_friction)[:, None]
    if of.turns:
        arm = found.point - to_points(system, at(r, contact_slots.one_of(system, A, B)))
        lever = jnp.sqrt(jnp.sum(arm * arm, axis=-1) + _LEVER**2)[:, None]
        none = jnp.zeros_like(frame)
        turning = jnp.concatenate([none, lever[:, :, None] * frame], axis=-1)
        axes = jnp.concatenate([jnp.concatenate([frame, none], axis=-1), turning], axis=1)
        resisted = [of_points(a)[:, None] / lever for a in (params.material_spinning, params.material_rolling)]
        mu = jnp.concatenate([mu, *resisted], axis=1)
    J = (contact_slots.jacobian if of.slots else _sides)(system, chosen, found.point, axes, r, e)
    bounce = of_points(params.material_restitution)
    gamma = 1 / (1 + 4 * params.contact_relaxation)
    c = jnp.maximum(jnp.where(found.gap <= 0, 4 * gamma, 1.0) / params.step * found.gap, -params.recovery)
    sigma = params.contact_compliance * mobility
    part = Contacts(
        found.point, frame, found.gap, found.live, J, c, jnp.zeros_like(c), sigma, mu, bounce, v, of.pyramid
    )
    return from_velocity(system, part, v)


def _sides(
    system: System,
    _: contact_slots.Chosen,
    point: Float[Array, "points 3"],
    axes: Float[Array, "points rows axes"],
    r: Float[Array, "bodies 3"],
    e: Float[Array, "bodies 4"],
) -> Sides:
    """What every body does at its places."""
    of = system.contacts
    points, bodies = [point for point, _ in of.sides], [body for _, body in of.sides]
    axes = take(axes, points) * np.where(of.is_first, 1, -1).astype(r.dtype)[:, None, None]
    arm = take(point, points) - take(r, bodies)
    force, torque = about(axes, arm)
    return Sides(jnp.concatenate([force, matmul(torque, take(rotation.matrix(e), bodies))], axis=-1))


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


def rates(system: System, contacts: Contacts, v: Float[Array, "bodies 6"]) -> Float[Array, "points rows"]:
    """J v."""
    return contacts.J.rates(system, v)


def pushes(system: System, contacts: Contacts, lam: Float[Array, "points rows"]) -> Float[Array, "bodies 6"]:
    """J^T lam."""
    return contacts.J.pushes(system, lam)


def slip(system: System, contacts: Contacts, v: Float[Array, "bodies 6"]) -> Float[Array, " points"]:
    """mu |v_t| of all that is resisted, smooth at rest unless it is to settle: the shift of the normal rows. A pyramid
    has none. [m/s]"""
    if contacts.pyramid:
        return jnp.zeros_like(contacts.c)
    square = _squares(contacts, rates(system, contacts, v))
    if system.contacts.settled:
        size = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
    else:
        size = jnp.sqrt(square + _SMOOTH**2) - _SMOOTH
    return jnp.sum(contacts.mu * size, axis=-1)


def _squares(contacts: Contacts, x: Float[Array, "points rows"]) -> Float[Array, "points parts"]:
    """Squared sizes of the parts beside the normal row."""
    parts = _PARTS[: contacts.mu.shape[1]]
    return jnp.stack([jnp.sum(x[:, begin:end] ** 2, axis=-1) for begin, end in parts], axis=1)


def from_velocity(system: System, contacts: Contacts, v: Float[Array, "bodies 6"]) -> Contacts:
    """The contacts with the shift that `v` gives, to be solved from there."""
    new = slip(system, contacts, v), jax.lax.stop_gradient(v)
    return eqx.tree_at(lambda x: (x.shift, x.start), contacts, new)


def impulses(contacts: Contacts, rate: Float[Array, "points rows"]) -> Float[Array, "points rows"]:
    """cone(y) at J v = `rate`, or that of the pyramid. [N s]"""
    return answer(contacts, rate)[0]


def answer(
    contacts: Contacts, rate: Float[Array, "points rows"]
) -> tuple[Float[Array, "points rows"], Float[Array, "points rows rows"]]:
    """cone(y) at J v = `rate`, or that of the pyramid, and how fast it falls with that rate. [N s, kg]"""
    mu, parts = contacts.mu, _PARTS[: contacts.mu.shape[1]]
    normal = jnp.pad((contacts.c + contacts.shift)[:, None], ((0, 0), (0, rate.shape[1] - 1)))
    y = -(rate + normal) / contacts.sigma[:, None]
    if contacts.pyramid:
        lam, slope = friction_pyramid.answer(y, mu[:, 0])
        slope = slope / contacts.sigma[:, None, None]
        return jnp.where(contacts.live[:, None], lam, 0.0), jnp.where(contacts.live[:, None, None], slope, 0.0)
    square = _squares(contacts, y)
    size = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
    # the normal impulse if some parts give way and the others hold: the largest of these is that of those that do
    pressing = y[:, 0]
    for which in itertools.product((False, True), repeat=len(parts)):
        if any(which):
            giving = np.array([which], dtype=y.dtype)
            shared = y[:, 0] + jnp.sum(giving * mu * size, axis=1)
            pressing = jnp.maximum(pressing, shared / (1 + jnp.sum(giving * mu * mu, axis=1)))
    gives = size >= mu * pressing[:, None]
    # along the direction in which it grows, and the turning of those that give way
    lam, direction, turned = [pressing[:, None]], [jnp.ones_like(y[:, :1])], []
    for part, (begin, end) in enumerate(parts):
        mine, length, slides = y[:, begin:end], jnp.where(size > 0, size, 1.0)[:, part, None], gives[:, part, None]
        u, held = mine / length, mu[:, part, None] * pressing[:, None]
        lam.append(jnp.where(slides, held * u, mine))
        direction.append(jnp.where(slides, mu[:, part, None] * u, 0.0))
        one = jnp.eye(end - begin, dtype=y.dtype)[None]
        across = (held / length)[:, :, None] * (one - u[:, :, None] * u[:, None, :])
        block = jnp.where(slides[:, :, None], across, one)
        turned.append(jnp.pad(block, ((0, 0), (begin, y.shape[1] - end), (begin, y.shape[1] - end))))
    direction = jnp.concatenate(direction, axis=1)
    along = direction[:, :, None] * direction[:, None, :] / jnp.sum(direction * direction, axis=1)[:, None, None]
    slope = (along + sum(turned[1:], turned[0])) / contacts.sigma[:, None, None]
    pushes = (contacts.live & (pressing > 0))[:, None]
    return jnp.where(pushes, jnp.concatenate(lam, axis=1), 0.0), jnp.where(pushes[:, :, None], slope, 0.0)
