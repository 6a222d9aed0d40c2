"""The user's own rows, with Jacobians by AD: holonomic g(q) = 0, nonholonomic G(q) v = gamma(t), and with bounds:
unilateral g(q) >= 0, and a force that holds G(q) v = gamma(t) only as far as it may.

A row class is a frozen dataclass: what it holds is topology. Its numbers come from `defaults()` and live in `Params`,
so that they can be changed, identified and differentiated under the path `rows.NAME.KEY`.

```python
@dataclasses.dataclass(frozen=True)
class Rod(AbstractHolonomic):
    name: str = "rod"
    bodies: tuple[str, ...] = ("a", "b")
    num_rows: int = 1

    def defaults(self):
        return {"length": 0.3}

    def gap(self, poses, values):
        d = poses[1].point(jnp.zeros(3)) - poses[0].point(jnp.zeros(3))
        return (jnp.sum(d * d)[None] - values["length"] ** 2) / (2 * values["length"])
```
"""

import abc
import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from .._typing import Array, Float, Quaternion, Scalar, Vector3
from ..math import rotation
from ..math.blocks import take
from ..system import Params, System
from .frames import Kinematics


class Pose(NamedTuple):
    """Pose of a body: centre of mass `r` (world), rotation `e`, and where its frame's origin lies."""

    r: Vector3
    e: Quaternion
    com: Vector3  # centre of mass in body axes [m]

    def point(self, p_B: Vector3) -> Vector3:
        """World position of a point given in the body's frame [m]."""
        return self.r + rotation.matrix(self.e) @ (p_B - self.com)

    def direction(self, a_B: Vector3) -> Vector3:
        """World direction of a vector given in body axes."""
        return rotation.matrix(self.e) @ a_B


class AbstractRow(abc.ABC):
    """What every user row states: its name, the bodies it acts on ('world' allowed) and how many rows it has.

    Rows of one class that differ in `name`, `bodies`, `follows` and numbers only are evaluated as one batch. So methods
    know what they are given, poses and values, and must not ask for those three.
    """

    name: str
    bodies: tuple[str, ...]
    num_rows: int
    holonomic: ClassVar[bool]
    bounded: ClassVar[bool] = False

    def defaults(self) -> Mapping[str, float]:
        """Numbers of the row with their start values (SI); they become parameters `rows.NAME.KEY`."""
        return {}


class AbstractHolonomic(AbstractRow):
    """g(q) = 0, regularised by Spook like any joint."""

    holonomic = True

    @abc.abstractmethod
    def gap(self, poses: tuple[Pose, ...], values: Mapping[str, Scalar]) -> Float[Array, " rows"]:
        """Violation g [m or rad]; zero when the constraint holds."""


class AbstractNonholonomic(AbstractRow):
    """G(q) v = gamma(t), linear in the velocities; cannot drift back what it has lost."""

    holonomic = False

    @abc.abstractmethod
    def speed(
        self, poses: tuple[Pose, ...], velocities: tuple[Float[Array, " 6"], ...], values: Mapping[str, Scalar]
    ) -> Float[Array, " rows"]:
        """G(q) v, linear in the velocities (linear velocity in world axes, angular in body axes) [m/s or rad/s]."""

    def target(self, time: Scalar, values: Mapping[str, Scalar]) -> Float[Array, " rows"]:
        """gamma(t) [m/s or rad/s]; zero unless overridden."""
        return jnp.zeros(self.num_rows)


class AbstractUnilateral(AbstractHolonomic):
    """g(q) >= 0: a force that only opens the gap, where it would close in the step (a rope, a bump stop).

    What is closed is led back as other rows are; a gap that closes does not bounce.
    """

    bounded = True
    follows = ()


class AbstractBounded(AbstractNonholonomic):
    """G(q) v = gamma(t) as far as a bounded force can hold it (a clutch, a brake, dry friction in a place of its own).

    Within the bounds the row holds; at one of them the speed goes where the force does not reach.

    A row that `follows` others has limits in parts of a level, which is the sum of `factors` times the sizes of the
    forces that it follows: `rows.NAME`, all rows of another of the user's together, which follows none, or
    `joints.NAME` (`joints.NAME.axes.AXIS`), what a joint carries across that axis, as `friction.bearing` has it.
    """

    bounded = True
    follows: tuple[str, ...] = ()

    @abc.abstractmethod
    def limits(self, values: Mapping[str, Scalar]) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
        """Lowest and highest force along every row [N or N m], which may be infinite; positive ones raise G(q) v.

        Of a row that follows others finite numbers without unit, times its level.
        """

    def factors(self, values: Mapping[str, Scalar]) -> Float[Array, "rows followed"]:
        """Level of every row per force of each that it follows; one unless overridden."""
        return jnp.ones((self.num_rows, len(self.follows)))


class Batch(NamedTuple):
    """Rows that are evaluated together, see `AbstractRow`."""

    members: tuple[int, ...]  # numbers in `System.own_rows`
    value: Float[Array, "members rows"]  # g of holonomic rows, -gamma of the others
    J: Float[Array, "members bodies rows 6"]  # the world left out


def linearised(system: System, params: Params, kin: Kinematics, which: Sequence[int], time: Scalar) -> list[Batch]:
    """Some of `System.own_rows` at a pose."""
    com = jnp.concatenate([params.com, jnp.zeros_like(params.com[:1])])
    number = {name: i for i, name in enumerate((*system.bodies, "world"))}
    found = []
    for members in alike(system, which):
        ends = zip(*([number[name] for name in system.own_rows[i].bodies] for i in members), strict=True)
        poses = tuple(Pose(*(take(a, end) for a in (kin.r, kin.e, com))) for end in ends)
        law = functools.partial(_value_and_jacobians, system.own_rows[members[0]], time)
        found.append(Batch(members, *together(system, params, members, law, poses)))
    return found


def alike(system: System, which: Sequence[int]) -> list[tuple[int, ...]]:
    """Those of `System.own_rows` that are evaluated together."""
    groups: dict[Hashable, list[int]] = {}
    for i in which:
        groups.setdefault(_kind(system.own_rows[i]), []).append(i)
    return [tuple(group) for group in groups.values()]


def _kind(row: AbstractRow) -> Hashable:
    """What rows have in common that are evaluated together."""
    shape = tuple(name == "world" for name in row.bodies), len(getattr(row, "follows", ())), tuple(row.defaults())
    if not dataclasses.is_dataclass(row):
        return id(row)
    fields = [f.name for f in dataclasses.fields(row) if f.compare and f.name not in ("name", "bodies", "follows")]
    return type(row), shape, tuple(getattr(row, name) for name in fields)


def together(system: System, params: Params, members: Sequence[int], law: Callable[..., Any], *given: Any) -> Any:
    """`law(values, *given)` of every member, along a first axis; that of `given`, too."""
    place = {of: n for n, of in enumerate(system.row_numbers)}
    keys = system.own_rows[members[0]].defaults()
    values = {key: take(params.row_numbers, [place[i, key] for i in members]) for key in keys}
    if len(members) == 1:
        alone = jax.tree.map(lambda a: jax.lax.squeeze(a, (0,)), (values, *given))
        return jax.tree.map(lambda a: jnp.expand_dims(a, 0), law(*alone))
    if not jax.tree.leaves((values, given)):
        return jax.tree.map(lambda a: jnp.broadcast_to(a[None], (len(members), *a.shape)), law(values, *given))
    return jax.vmap(law)(values, *given)


def _value_and_jacobians(
    row: AbstractRow, time: Scalar, values: Mapping[str, Scalar], poses: tuple[Pose, ...]
) -> tuple[Float[Array, " rows"], Float[Array, "bodies rows 6"]]:
    value, blocks = linearise(row, poses, values, time)
    return value, jnp.stack([block for block, name in zip(blocks, row.bodies, strict=True) if name != "world"])


def _led(pose: Pose, d: Float[Array, " 6"]) -> Pose:
    """Pose after a tangent step (translation in world axes, rotation in body axes), to first order in the step."""
    half_turn = jnp.concatenate([jnp.zeros_like(d[:1]), d[3:] / 2])
    return Pose(pose.r + d[:3], pose.e + rotation.multiply(pose.e, half_turn), pose.com)


def linearise(
    row: AbstractRow, poses: tuple[Pose, ...], values: Mapping[str, Scalar], time: Scalar
) -> tuple[Float[Array, " rows"], tuple[Float[Array, "rows 6"], ...]]:
    """`(g, Jacobians)` of a holonomic row, `(-gamma, Jacobians)` of a nonholonomic one; one Jacobian per body."""
    zeros = tuple(jnp.zeros(6, dtype=pose.r.dtype) for pose in poses)
    if isinstance(row, AbstractHolonomic):

        def gap(*d: Array) -> Array:
            return row.gap(tuple(_led(p, x) for p, x in zip(poses, d, strict=True)), values)

        return row.gap(poses, values), jax.jacfwd(gap, argnums=tuple(range(len(poses))))(*zeros)
    assert isinstance(row, AbstractNonholonomic)

    def speed(*v: Array) -> Array:
        return row.speed(poses, v, values)

    return -row.target(time, values), jax.jacfwd(speed, argnums=tuple(range(len(poses))))(*zeros)
