"""The user's own rows: holonomic g(q) = 0 (Jacobian by AD) and nonholonomic G(q) v = gamma(t).

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
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from .._typing import Array, Float, Quaternion, Scalar, Vector3
from ..math import rotation


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
    """What every user row states: its name, the bodies it acts on ('world' allowed) and how many rows it has."""

    name: str
    bodies: tuple[str, ...]
    num_rows: int
    holonomic: ClassVar[bool]

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


def moved(pose: Pose, d: Float[Array, " 6"]) -> Pose:
    """Pose after a tangent step (translation in world axes, rotation in body axes)."""
    return Pose(pose.r + d[:3], rotation.plus(pose.e, d[3:]), pose.com)


def linearise(
    row: AbstractRow, poses: tuple[Pose, ...], values: Mapping[str, Scalar], time: Scalar
) -> tuple[Float[Array, " rows"], tuple[Float[Array, "rows 6"], ...]]:
    """`(g, Jacobians)` of a holonomic row, `(-gamma, Jacobians)` of a nonholonomic one; one Jacobian per body."""
    zeros = tuple(jnp.zeros(6, dtype=pose.r.dtype) for pose in poses)
    if isinstance(row, AbstractHolonomic):

        def gap(*d: Array) -> Array:
            return row.gap(tuple(moved(p, x) for p, x in zip(poses, d, strict=True)), values)

        return gap(*zeros), jax.jacfwd(gap, argnums=tuple(range(len(poses))))(*zeros)
    assert isinstance(row, AbstractNonholonomic)

    def speed(*v: Array) -> Array:
        return row.speed(poses, v, values)

    return -row.target(time, values), jax.jacfwd(speed, argnums=tuple(range(len(poses))))(*zeros)
