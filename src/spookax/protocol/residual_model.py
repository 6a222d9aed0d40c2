"""Models whose step can be read backwards, as the residual form of the estimator needs it."""

import abc
from typing import Any, NamedTuple

from .._typing import Array, Float
from .core import AbstractModel
from .data import Noise, StateTree


class Transition(NamedTuple):
    """What a transition x -> x+ says about itself when the step is read backwards."""

    w: Float[Array, " m"]  # whitened noise that it needs
    impulse: Float[Array, " r"]  # impulses of the model's stiff rows (joints)
    guess: Float[Array, " h"]  # as `step` would have returned it


class AbstractResidualModel(AbstractModel):
    """A model whose noise can be read off a transition (as many noises as poses) and whose velocities follow from
    poses, x+ being the pose of x moved along its own new velocity. The residual form of the estimator needs both.

    The first half of a tangent vector moves the pose, the second half the velocity.
    """

    @abc.abstractmethod
    def earlier(self, x: StateTree, p: Any) -> StateTree:
        """The pose that x came from, one step back along its own velocity (which is kept)."""

    @abc.abstractmethod
    def joined(self, x: StateTree, x1: StateTree, p: Any) -> StateTree:
        """x1 with the velocity that leads from the pose of x to its own in one step."""

    @abc.abstractmethod
    def transition(self, x: StateTree, x1: StateTree, p: Any, u: Array, noise: Noise) -> Transition:
        """The step from x to x1 read backwards: w = 0 exactly when `step` without noise leads there.

        Raises `ValueError` when the process noise has fewer components than the pose.
        """

    @abc.abstractmethod
    def restore(
        self, x: StateTree, x1: StateTree, p: Any, u: Array, noise: Noise, impulse: Float[Array, " r"]
    ) -> tuple[StateTree, Transition]:
        """The state next to a planned x1 that obeys the stiff rows, under the impulses on poses that the plan needs.

        `impulse`: what the plan takes the stiff rows to answer. Where x1 obeys the rows with it, x1 itself.
        """
