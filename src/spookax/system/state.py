"""The state of the engine."""

import equinox as eqx

from .._typing import Array, Float, Scalar
from ..math import rotation


class State(eqx.Module):
    """Pose and velocity of every body at its centre of mass.

    The velocities live half a step before the poses (leap-frog): `v` at t_k - h/2, `r` at t_k. What is read or
    measured as a rate at t_k is the mean of the velocities of states k and k + 1.
    `near` holds the unwrapped coordinate of each axis at the last step: angles are read on the turn nearest to it
    (springs and encoders need the unwrapped angle). It carries no derivative. `commands` are those of the steps before,
    the latest first, as `step` takes them; only mechanisms with a motor that has a `delay` keep any. `felt` is what
    sensors of contact forces read of the step that led here; only mechanisms with such a sensor keep it.
    """

    r: Float[Array, "bodies 3"]  # centre of mass, world [m]
    e: Float[Array, "bodies 4"]  # body -> world, [w, x, y, z]
    v: Float[Array, "bodies 3"]  # velocity of the centre of mass, world [m/s]
    w: Float[Array, "bodies 3"]  # angular velocity, body axes [rad/s]
    near: Float[Array, " axes"]
    time: Scalar  # [s]
    deflection: Float[Array, " elements"]  # of the springs of elasto-slide elements [rad or m]
    commands: Float[Array, "history motors"] | None = None  # [units of the motors]
    felt: Float[Array, "forces 3"] | None = None  # [N]

    def moved(self, dt: Scalar) -> "State":
        """Poses a time `dt` later along the present velocities (samples between steps read this)."""
        return eqx.tree_at(
            lambda s: (s.r, s.e, s.time),
            self,
            (self.r + dt * self.v, rotation.plus(self.e, dt * self.w), self.time + dt),
        )
