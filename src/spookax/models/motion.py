"""A scene in continuous time: positions and rates of its joints, and their drift, the limit of the step."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float, Scalar
from ..protocol import AbstractContinuousModel, ModelError
from ..stepping import state_from_joints
from ..stepping.acceleration import accelerations, why_undefined
from ..system import State, System
from .multibody import Multibody, Prep


def _why_not(model: Multibody) -> tuple[str, str] | None:
    """What keeps a scene from having joint coordinates with a drift, and what to do about it."""
    system = model.system
    if (why := why_undefined(system)) is not None:
        return why, "leave it out (for friction write `viscous` or `drag` alone), or use an estimator in discrete time"
    tree = len(system.tree) == len(system.joints) and not (system.couplings or system.constraints)
    if not tree or any(axis.kind == "spin" for axis in system.axes) or not np.all(system.holonomic):
        why = "its joints are not a tree of joints with coordinates of their own (a closed loop, a ball, a coupling)"
        return why, "use an estimator in discrete time"
    if system.roots or set(range(system.num_bodies)) != _carried(system):
        return "a body is not carried by joints from the world", "use an estimator in discrete time"
    if model.noise.kind != "joints":
        return "its process noise is one on bodies", "write `process_noise: {kind: joints}`"
    return None


def _carried(system: System) -> set[int]:
    return {end for j in system.tree for end in (system.joints[j].parent, system.joints[j].child) if end >= 0}


class JointMotion(AbstractContinuousModel):
    """x = (positions, rates) of all axes of a scene [rad, rad/s or m, m/s]; parameters, motors, sensors and process
    noise of the joints are those of its `Multibody`.

    **Raises:** `ModelError` where a scene has no such drift (dry friction, stops, closed loops, ball joints), and
    without a sensor.
    """

    of: Multibody
    inputs: int = eqx.field(static=True)
    tangent_size: int = eqx.field(static=True)
    noise_size: int = eqx.field(static=True)
    num_channels: int = eqx.field(static=True)

    def __init__(self, of: Multibody):
        if (found := _why_not(of)) is not None:
            raise ModelError(f"the scene has no drift in continuous time: {found[0]}. To go on, {found[1]}")
        if not of.sensors:
            raise ModelError("the model reads nothing: it has no sensors. Add some to the scene and pass their numbers")
        self.of, self.inputs, self.num_channels = of, len(of.system.motors), of.num_channels
        self.noise_size = len(of.system.axes)
        self.tangent_size = 2 * self.noise_size

    def prepare(self, z: Float[Array, " p"]) -> Prep:
        return self.of.prepare(z)

    def duration(self, p: Prep) -> Scalar:
        return self.of.duration(p)

    def first_sd(self, x: Float[Array, " n"], p: Prep, sd: Scalar) -> Float[Array, " n"]:
        return sd * jnp.where(jnp.arange(self.tangent_size) < self.noise_size, 1.0, 10.0)

    def place(self, x: Float[Array, " n"], p: Prep) -> State:
        """Poses and velocities of the bodies, at one time."""
        names, count = self.of.system.axis_names(), self.noise_size
        given = {name: {"position": x[i], "rate": x[count + i]} for i, name in enumerate(names)}
        state = state_from_joints(self.of.system, p.engine.params, given)
        return eqx.tree_at(lambda s: s.near, state, jax.lax.stop_gradient(x[:count]))

    def drift(self, x: Float[Array, " n"], p: Prep, u: Array) -> Float[Array, " n"]:
        return self.rate(x, p, u, jnp.zeros(self.noise_size, dtype=x.dtype))

    def spread(self, x: Float[Array, " n"], p: Prep) -> Float[Array, "n m"]:
        still = jnp.zeros(self.noise_size, dtype=x.dtype)
        by_force = jax.jacfwd(lambda f: self.rate(x, p, jnp.zeros(self.inputs, dtype=x.dtype), f))(still)
        return by_force * self.of.noise.density

    def read(self, x: Float[Array, " n"], p: Prep) -> Float[Array, " channels"]:
        body = self.of.body_state(self.place(x, p), p.com)
        return self.of.observe(body, body, p, jnp.ones(()))  # at the end of a step from a state to itself

    def difference(self, y: Array, predicted: Array) -> Float[Array, " channels"]:
        return self.of.difference(y, predicted)

    def rate(self, x: Float[Array, " n"], p: Prep, u: Array, push: Float[Array, " m"]) -> Float[Array, " n"]:
        """The drift with further forces on the axes [N m or N]."""
        _, a = accelerations(self.of.system, p.engine, self.place(x, p), u, push)
        return jnp.concatenate([x[self.noise_size :], a])
