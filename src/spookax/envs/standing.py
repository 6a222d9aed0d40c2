"""The task of what stands, walks or hops: a body at a height, upright, and moving as asked."""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array, Bool, Float, Scalar
from ..system import System
from .moment import Moment, axis_index, body_index
from .task import AbstractTask, Start


class Standing(AbstractTask):
    """Hold a body's origin at a height, its z axis up, and let it move at a velocity.

    The reward of a control period is a product, less the effort:

        exp(-(off / scale)^2) (1 + cos tilt) / 2 exp(-(slip / velocity_scale)^2) - sum(action_weight action^2)

    with what the height and the horizontal velocity are off. It is 1 where all is as asked. An episode ends where the
    height leaves `within`.

    **Arguments:**

    - `body`; `height` of its origin [m], `scale` at which the reward has fallen to 1/e [m].
    - `velocity`: along world x and y [m/s]; with None any velocity is as good. `velocity_scale` [m/s].
    - `action_weight`: one for all actions, or one each [1 / unit^2].
    - `start`: coordinate -> largest distance from the scene's `initial`, drawn evenly [rad or m].
    - `within`: lowest and highest height [m].
    - `tolerance`: of the height [m], and `tilt` of the angle [rad], what counts as success; where a velocity is asked
      for, it has to be within `velocity_scale`.
    """

    body: str = eqx.field(static=True)
    moves: bool = eqx.field(static=True)
    moved: tuple[str, ...] = eqx.field(static=True)
    height: Float[AnyArray, ""]
    scale: Float[AnyArray, ""]
    velocity: Float[AnyArray, " 2"]
    velocity_scale: Float[AnyArray, ""]
    action_weight: Float[AnyArray, "..."]
    spread: Float[AnyArray, " moved"]
    bounds: Float[AnyArray, " 2"]
    tolerance: Float[AnyArray, ""]
    tilt: Float[AnyArray, ""]

    def __init__(
        self,
        body: str,
        height: float,
        *,
        scale: float = 0.1,
        velocity: tuple[float, float] | None = None,
        velocity_scale: float = 0.3,
        action_weight: float | tuple[float, ...] = 0.0,
        start: Mapping[str, float] | None = None,
        within: tuple[float, float] = (-np.inf, np.inf),
        tolerance: float = 0.05,
        tilt: float = 0.2,
    ):
        start = start or {}
        self.body, self.moves, self.moved = body, velocity is not None, tuple(start)
        self.velocity = np.array(velocity or (0.0, 0.0), dtype=float)
        numbers = (height, scale, velocity_scale, tolerance, tilt)
        self.height, self.scale, self.velocity_scale, self.tolerance, self.tilt = (
            np.asarray(x, dtype=float) for x in numbers
        )
        self.action_weight, self.bounds = np.asarray(action_weight, dtype=float), np.array(within, dtype=float)
        self.spread = np.array(list(start.values()), dtype=float)

    def check(self, system: System) -> None:
        body_index(system, self.body)
        for name in self.moved:
            axis_index(system, name)

    def start(self, key: Array) -> Start:
        spread = jnp.asarray(self.spread)
        drawn = spread * jax.random.uniform(key, spread.shape, spread.dtype, -1.0, 1.0)
        joints = {name: {"offset": drawn[i]} for i, name in enumerate(self.moved)}
        return Start(joints, jnp.zeros(0, spread.dtype))

    def reward(self, now: Moment, action: Float[Array, " actions"], after: Moment) -> Scalar:
        held = jnp.exp(-((self._off(after) / self.scale) ** 2)) * (1 + after.up(self.body)) / 2
        if self.moves:
            held = held * jnp.exp(-jnp.sum(self._slip(after) ** 2) / self.velocity_scale**2)
        return held - jnp.sum(self.action_weight * action**2)

    def ends(self, after: Moment) -> Bool[Array, ""]:
        height = self._off(after) + self.height
        return (height < self.bounds[0]) | (height > self.bounds[1])

    def succeeds(self, after: Moment) -> Bool[Array, ""]:
        stands = (jnp.abs(self._off(after)) <= self.tolerance) & (after.up(self.body) >= jnp.cos(self.tilt))
        return stands & (jnp.sum(self._slip(after) ** 2) <= self.velocity_scale**2) if self.moves else stands

    def tells(self, after: Moment) -> dict[str, Scalar]:
        return {}

    def _off(self, moment: Moment) -> Scalar:
        return moment.point(self.body, jnp.zeros(3, moment.time.dtype))[2] - self.height

    def _slip(self, moment: Moment) -> Float[Array, " 2"]:
        return moment.velocity(self.body)[:2] - self.velocity
