"""Tasks: where episodes start, what is rewarded, when they end. The engine knows none of it."""

import abc
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array, Bool, Float, Scalar
from ..system import System
from .moment import Moment, axis_index, body_index


class Start(NamedTuple):
    """Where an episode begins, and what the task remembers of it."""

    joints: dict[str, dict[str, Any]]  # joint -> position, rate; what is left out is under the scene's `initial`
    memory: Float[Array, " memory"]
    shifted: dict[str, Array] = {}  # free body -> how far its start lies from the scene's `initial` (3) [m]


class AbstractTask(eqx.Module):
    """A task of one's own is a class with these methods; its numbers are fields, its names static ones."""

    @abc.abstractmethod
    def check(self, system: System) -> None:
        """**Raises:** `ValueError` for a joint or body that the scene does not have."""

    @abc.abstractmethod
    def start(self, key: Array) -> Start:
        """Draw a start."""

    @abc.abstractmethod
    def reward(self, now: Moment, action: Float[Array, " actions"], after: Moment) -> Scalar:
        """Of one control period, between two moments. `action`: as the agent gave it, within its limits."""

    @abc.abstractmethod
    def ends(self, after: Moment) -> Bool[Array, ""]:
        """Whether the episode is over, whatever the time limit."""

    @abc.abstractmethod
    def succeeds(self, after: Moment) -> Bool[Array, ""]:
        """Whether the mechanism is where it ought to be."""

    @abc.abstractmethod
    def tells(self, after: Moment) -> dict[str, Scalar]:
        """What the agent is told besides its observation, such as where to go, by name."""


class Configuration(AbstractTask):
    """Bring joint coordinates to given positions and keep them there.

    The reward of a control period is, with c = 1 - cos of what a turning coordinate is off and half its square for one
    that slides,

        1 - sum(weight c) - sum(rate_weight rate^2) - sum(action_weight action^2),

    so that it is 1 at the goal. An episode ends where a coordinate leaves `within`.

    **Arguments:**

    - `goal`: coordinate -> position [rad or m].
    - `weight`, `rate_weight`: coordinate -> weight; 1 for those of the goal, else zero. [1 or 1/m^2; s^2/rad^2
      or s^2/m^2]
    - `action_weight`: one for all actions, or one each. [1 / unit^2]
    - `start`: coordinate -> largest distance from the scene's `initial`, drawn evenly [rad or m]; `start_rate`: rates.
    - `at`: coordinate -> where it starts instead [rad or m].
    - `within`: coordinate -> lowest and highest position. [rad or m]
    - `tolerance`: what counts as success. [rad or m]
    """

    names: tuple[str, ...] = eqx.field(static=True)  # of all coordinates that have a weight
    moved: tuple[str, ...] = eqx.field(static=True)  # of those that starts differ in
    bounded: tuple[str, ...] = eqx.field(static=True)
    aimed: tuple[bool, ...] = eqx.field(static=True)  # which of `names` have a goal
    goal: Float[AnyArray, " names"]
    weight: Float[AnyArray, " names"]
    rate_weight: Float[AnyArray, " names"]
    action_weight: Float[AnyArray, "..."]
    middle: Float[AnyArray, " moved"]
    spread: Float[AnyArray, "2 moved"]
    bounds: Float[AnyArray, "2 bounded"]
    tolerance: Float[AnyArray, ""]

    def __init__(
        self,
        goal: Mapping[str, float],
        *,
        weight: Mapping[str, float] | None = None,
        rate_weight: Mapping[str, float] | None = None,
        action_weight: float | tuple[float, ...] = 0.0,
        start: Mapping[str, float] | None = None,
        start_rate: Mapping[str, float] | None = None,
        at: Mapping[str, float] | None = None,
        within: Mapping[str, tuple[float, float]] | None = None,
        tolerance: float = 10 * np.pi / 180,
    ):
        weight, rate_weight, start, start_rate = weight or {}, rate_weight or {}, start or {}, start_rate or {}
        at, within = at or {}, within or {}
        self.names = tuple(dict.fromkeys([*goal, *weight, *rate_weight]))
        self.moved = tuple(dict.fromkeys([*start, *start_rate, *at]))
        self.bounded = tuple(within)
        self.aimed = tuple(name in goal for name in self.names)
        self.goal = np.array([goal.get(name, 0.0) for name in self.names], dtype=float)
        given = [weight.get(name, float(name in goal)) for name in self.names]
        self.weight = np.array(given, dtype=float)
        self.rate_weight = np.array([rate_weight.get(name, 0.0) for name in self.names], dtype=float)
        self.action_weight = np.asarray(action_weight, dtype=float)
        self.middle = np.array([at.get(name, np.nan) for name in self.moved], dtype=float)
        of_both = [[some.get(name, 0.0) for name in self.moved] for some in (start, start_rate)]
        self.spread = np.array(of_both, dtype=float)
        self.bounds = np.array([list(pair) for pair in within.values()], dtype=float).reshape(-1, 2).T
        self.tolerance = np.asarray(tolerance, dtype=float)

    def check(self, system: System) -> None:
        for name in (*self.names, *self.moved, *self.bounded):
            axis_index(system, name)

    def start(self, key: Array) -> Start:
        spread = jnp.asarray(self.spread)
        drawn = spread * jax.random.uniform(key, spread.shape, spread.dtype, -1.0, 1.0)
        joints = {
            name: {"position": self.middle[i], "offset": drawn[0, i], "rate": drawn[1, i]}
            for i, name in enumerate(self.moved)
        }
        return Start(joints, jnp.zeros(0, spread.dtype))

    def reward(self, now: Moment, action: Float[Array, " actions"], after: Moment) -> Scalar:
        _, rate, turns = self._coordinates(after)
        off = self._off(after)
        cost = jnp.where(turns, 1 - jnp.cos(off), off**2 / 2)
        effort = jnp.sum(self.action_weight * action**2)
        return 1 - jnp.sum(self.weight * cost) - jnp.sum(self.rate_weight * rate**2) - effort

    def ends(self, after: Moment) -> Bool[Array, ""]:
        if not self.bounded:
            return jnp.zeros((), dtype=bool)
        position = after.position[np.array([axis_index(after.system, name) for name in self.bounded])]
        return jnp.any((position < self.bounds[0]) | (position > self.bounds[1]))

    def succeeds(self, after: Moment) -> Bool[Array, ""]:
        _, _, turns = self._coordinates(after)
        off = self._off(after)
        off = jnp.where(turns, jnp.arctan2(jnp.sin(off), jnp.cos(off)), off)
        return jnp.all(jnp.where(np.array(self.aimed), jnp.abs(off) <= self.tolerance, True))

    def tells(self, after: Moment) -> dict[str, Scalar]:
        return {}

    def _off(self, moment: Moment) -> Float[Array, " names"]:
        return self._coordinates(moment)[0] - self.goal

    def _coordinates(self, moment: Moment) -> tuple[Array, Array, np.ndarray]:
        index = np.array([axis_index(moment.system, name) for name in self.names])
        return moment.position[index], moment.rate[index], np.array([moment.system.axes[i].turns for i in index])


class Point(AbstractTask):
    """Bring a point of a body to a target: one drawn for each episode in a box, or one that goes round a circle.

    The reward of a control period is exp(-distance / scale) - action_weight |action|^2. The agent is told where the
    target is, and where the point is seen from it.

    **Arguments:**

    - `body`, `at`: the point, in the axes of the body's frame [m].
    - `target`: middle of the box, or of the circle [m]; `box`: half of its edges [m].
    - `circle`: radii of an ellipse along two world axes, a mapping of two of `x`, `y`, `z` -> radius [m]; `turn`: time
      of one round [s].
    - `scale`: distance at which the reward has fallen to 1/e; `tolerance`: what counts as success. [m]
    - `start`: coordinate -> largest distance from the scene's `initial`, drawn evenly [rad or m]; `shift`: the same
      along x, y, z of the body itself, where no joint ties it to the world [m].
    """

    body: str = eqx.field(static=True)
    moved: tuple[str, ...] = eqx.field(static=True)
    shifts: bool = eqx.field(static=True)
    at: Float[AnyArray, " 3"]
    target: Float[AnyArray, " 3"]
    box: Float[AnyArray, " 3"]
    radii: Float[AnyArray, "2 3"]  # of cosine and sine
    turn: Float[AnyArray, ""]
    scale: Float[AnyArray, ""]
    action_weight: Float[AnyArray, "..."]
    spread: Float[AnyArray, " moved"]
    shift: Float[AnyArray, " 3"]
    tolerance: Float[AnyArray, ""]

    def __init__(
        self,
        body: str,
        at: tuple[float, float, float],
        target: tuple[float, float, float],
        *,
        box: tuple[float, float, float] = (0.0, 0.0, 0.0),
        circle: Mapping[str, float] | None = None,
        turn: float = 1.0,
        scale: float = 0.1,
        action_weight: float | tuple[float, ...] = 0.0,
        start: Mapping[str, float] | None = None,
        shift: tuple[float, float, float] = (0.0, 0.0, 0.0),
        tolerance: float = 0.02,
    ):
        circle, start = circle or {}, start or {}
        if len(circle) not in (0, 2) or not set(circle) <= set("xyz"):
            raise ValueError(f"`circle` has two of the axes x, y, z with their radii, got {dict(circle)}")
        self.body, self.moved = body, tuple(start)
        self.at, self.target, self.box, self.shift = (np.array(v, dtype=float) for v in (at, target, box, shift))
        self.shifts = bool(np.any(self.shift))
        self.radii = np.zeros((2, 3))
        for k, (axis, radius) in enumerate(circle.items()):
            self.radii[k, "xyz".index(axis)] = radius
        self.turn, self.scale, self.tolerance = (np.asarray(x, dtype=float) for x in (turn, scale, tolerance))
        self.action_weight = np.asarray(action_weight, dtype=float)
        self.spread = np.array(list(start.values()), dtype=float)

    def check(self, system: System) -> None:
        body_index(system, self.body)
        for name in self.moved:
            axis_index(system, name)

    def start(self, key: Array) -> Start:
        one, other = jax.random.split(key)
        box, spread, shift = (jnp.asarray(a) for a in (self.box, self.spread, self.shift))
        middle = jnp.asarray(self.target) + box * jax.random.uniform(one, (3,), box.dtype, -1.0, 1.0)
        drawn = spread * jax.random.uniform(other, spread.shape, spread.dtype, -1.0, 1.0)
        joints = {name: {"offset": drawn[i]} for i, name in enumerate(self.moved)}
        if not self.shifts:
            return Start(joints, middle)
        further = shift * jax.random.uniform(jax.random.fold_in(other, 1), (3,), shift.dtype, -1.0, 1.0)
        return Start(joints, middle, {self.body: further})

    def reward(self, now: Moment, action: Float[Array, " actions"], after: Moment) -> Scalar:
        return jnp.exp(-self._distance(after) / self.scale) - jnp.sum(self.action_weight * action**2)

    def ends(self, after: Moment) -> Bool[Array, ""]:
        return jnp.zeros((), dtype=bool)

    def succeeds(self, after: Moment) -> Bool[Array, ""]:
        return self._distance(after) <= self.tolerance

    def tells(self, after: Moment) -> dict[str, Scalar]:
        where, off = self._target(after), after.point(self.body, jnp.asarray(self.at)) - self._target(after)
        return {f"target.{x}": where[i] for i, x in enumerate("xyz")} | {
            f"off.{x}": off[i] for i, x in enumerate("xyz")
        }

    def _target(self, moment: Moment) -> Float[Array, " 3"]:
        angle = 2 * jnp.pi * moment.time / self.turn
        return moment.memory + jnp.cos(angle) * self.radii[0] + jnp.sin(angle) * self.radii[1]

    def _distance(self, moment: Moment) -> Scalar:
        square = jnp.sum((moment.point(self.body, jnp.asarray(self.at)) - self._target(moment)) ** 2)
        return jnp.sqrt(square + 1e-12)  # m; smooth where the point is on its target
