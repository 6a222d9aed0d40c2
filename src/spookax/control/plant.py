"""A mechanism in joint coordinates: what control engineers call its state, though the engine keeps bodies.

x = (positions, rates) of all joint coordinates of a tree; the rates are those half a step earlier, where the engine has
them. A control period holds the inputs u for some steps. From x the bodies are placed, stepped and read again: that is
the engine's own step but for what a compliant joint gives way (`relative_compliance`).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array, Float
from ..constraints import Prepared, axes, frames, prepare
from ..constraints.assemble import velocity
from ..scene.explain import nearest
from ..stepping import state_from_joints, step
from ..system import Params, State, System


class Plant(eqx.Module):
    """A mechanism as a map x+ = f(x, u).

    **Arguments:**

    - `motors`: those that u is of; all if left out. The others are told zero.
    - `steps`: of a control period.

    **Raises:** `ValueError` for unknown motors, and for mechanisms whose state is not positions and rates of a tree of
    joints: closed loops, couplings, free bodies, ball joints and what rolls, motors with a delay, elasto-slide
    elements.
    """

    system: System = eqx.field(static=True)
    motors: tuple[str, ...] = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    engine: Prepared

    def __init__(self, system: System, params: Params, *, motors: tuple[str, ...] | None = None, steps: int = 1):
        _check(system)
        driven = tuple(motor.name for motor in system.motors)
        self.system, self.steps = system, steps
        self.motors = driven if motors is None else tuple(motors)
        for name in self.motors:
            if name not in driven:
                raise ValueError(f"the scene has no motor '{name}'. {nearest(name, driven)}")
        if steps < 1:
            raise ValueError(f"`steps` of a control period must be 1 at least, got {steps}")
        self.engine = prepare(system, params)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the positions in x, and of the rates after them."""
        return self.system.axis_names()

    @property
    def size(self) -> int:
        """Numbers of x."""
        return 2 * len(self.coordinates)

    def state(self, x: Float[AnyArray, " size"]) -> State:
        """The engine's state, with velocities half a step earlier (`half_kick=False`)."""
        q, v = jnp.split(jnp.asarray(x), 2)
        joints = {name: {"position": q[i], "rate": v[i]} for i, name in enumerate(self.coordinates)}
        return state_from_joints(self.system, self.engine.params, joints, prepared=self.engine)

    def read(self, state: State) -> Float[Array, " size"]:
        """x of an engine's state."""
        kin = frames.kinematics(self.system, state.r, state.e, self.engine.geometry)
        rate = axes.rates(self.system, *axes.rate_rows(self.system, kin), velocity(state))
        return jnp.concatenate([axes.coordinates(self.system, kin, state.near), rate])

    def next(self, x: Float[AnyArray, " size"], u: Float[AnyArray, " inputs"]) -> Float[Array, " size"]:
        """x after a control period under inputs that are held [the motors' units]."""
        index = np.array([[motor.name for motor in self.system.motors].index(name) for name in self.motors], dtype=int)
        dtype = self.engine.params.mass.dtype
        command = jnp.zeros(len(self.system.motors), dtype).at[index].set(jnp.asarray(u, dtype))

        def one(state: State, _: None) -> tuple[State, None]:
            return step(self.system, self.engine, state, command)[0], None

        return self.read(jax.lax.scan(one, self.state(x), length=self.steps)[0])

    def slopes(
        self, x: Float[AnyArray, " size"], u: Float[AnyArray, " inputs"]
    ) -> tuple[Float[Array, "size size"], Float[Array, "size inputs"]]:
        """A = df/dx and B = df/du of a control period."""
        both = jax.jacfwd(lambda z: self.next(z[: self.size], z[self.size :]))(jnp.concatenate([x, u]))
        return both[:, : self.size], both[:, self.size :]

    def point(self, positions: dict[str, float] | None = None, rates: dict[str, float] | None = None) -> np.ndarray:
        """x of named positions [rad or m] and rates; the others are zero.

        **Raises:** `ValueError` for unknown coordinates.
        """
        x = np.zeros(self.size)
        for offset, given in ((0, positions or {}), (self.size // 2, rates or {})):
            for name, value in given.items():
                if name not in self.coordinates:
                    raise ValueError(f"the scene has no joint coordinate '{name}'. {nearest(name, self.coordinates)}")
                x[offset + self.coordinates.index(name)] = value
        return x


def _check(system: System) -> None:
    held, ends = {-1}, [{joint.parent, joint.child} for joint in system.joints]
    for _ in ends:
        held = held.union(*(pair for pair in ends if pair & held))
    wrong = {
        "closed loops": len(system.tree) < len(system.joints),
        "couplings": bool(system.couplings),
        "rows of one's own": bool(system.constraints),
        "bodies that no joint holds": len(held) <= system.num_bodies,
        "ball joints": any(axis.kind == "spin" for axis in system.axes),
        "what rolls": not np.all(system.holonomic),
        "motors with a delay": bool(system.history),
        "elasto-slide elements": bool(system.elements),
    }
    if found := [what for what, there in wrong.items() if there]:
        raise ValueError(
            f"the state of a plant is positions and rates of a tree of joints, and this scene has {', '.join(found)}"
        )
