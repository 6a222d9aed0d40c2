"""What only some models can do: small interfaces beside the core of the protocol.

A model has a capability by being of its class. Estimators ask with `model.offers(CarriedPoses)`, or call a function of
`asked`, which says what holds for a model without it.
"""

import abc
from typing import Any

import equinox as eqx
import numpy as np

from .._results import STEP_RESULTS
from .._typing import Array, Float, Scalar
from .data import Noise, StateTree


class SearchedStep(eqx.Module):
    """A step that searches for its solution (the levels of friction rows). `guess` carries what it found: the
    next search begins there, and `replay` repeats the step at that solution, so that only its derivative is computed.
    """

    @abc.abstractmethod
    def first_guess(self) -> Float[Array, " h"]:
        """What is handed to the first step."""

    @abc.abstractmethod
    def stepped(
        self, x: StateTree, p: Any, u: Array, w: Array, noise: Noise, guess: Array
    ) -> tuple[StateTree, Array, STEP_RESULTS]:
        """`step`, and how it ended."""

    @abc.abstractmethod
    def replay(self, x: StateTree, p: Any, u: Array, w: Array, noise: Noise, guess: Array) -> StateTree:
        """The same step at the solution that `guess` (as returned by `step`) describes: no search, same derivative."""


class CarriedPoses(eqx.Module):
    """Poses that follow from the velocities after a step, which are fewer and cheaper to differentiate."""

    @property
    @abc.abstractmethod
    def carried(self) -> int:
        """How many components of a tangent, its first ones (poses), follow from the rest (velocities) by `carry`."""

    @abc.abstractmethod
    def carry(self, x: StateTree, x1: StateTree, p: Any) -> StateTree:
        """x1 with the pose to which its own velocities carry the pose of x in one step: what `step` leads to is what
        it carries itself to.
        """

    @abc.abstractmethod
    def retract_rates(self, x: StateTree, d: Float[Array, " half"]) -> StateTree:
        """Box-plus of the last n - `carried` components alone, without touching the pose."""


class FreeDirections(eqx.Module):
    """States that stay on a surface of their space (closed joints): a few directions lead along it. Estimators then
    work with coordinates of these directions; what leads off the surface is left out of their derivatives.
    """

    @property
    @abc.abstractmethod
    def free_size(self) -> tuple[int, int]:
        """How many directions move what is carried (`CarriedPoses`), and how many the rest alone."""

    @abc.abstractmethod
    def free_directions(self, x: StateTree, p: Any) -> tuple[Float[Array, "n r"], Float[Array, "r n"]]:
        """The directions as tangent vectors, first those that move what is carried; and rows that read coordinates off
        a tangent vector along the surface, of what is carried off that alone and of the rest off the rest alone. Rows
        times directions is one.
        """

    @abc.abstractmethod
    def led_rates(self, x: StateTree, p: Any) -> Float[Array, " half"] | None:
        """What is not carried of a tangent from x to where the surface is under p, but for what leads along it: only
        the derivative by p counts. None where no parameter moves the surface.
        """

    @abc.abstractmethod
    def free_sd(self, sd: float) -> Float[np.ndarray, " r"] | None:
        """Standard deviations of a first state along them where that of positions is `sd`, if it is free to go along
        all of them and no parameter moves it. None: `ConstrainedStart` tells.
        """


class HeldNoise(eqx.Module):
    """Noise whose effect can be held while parameters change: the estimator then moves one and not the other."""

    @abc.abstractmethod
    def pushed(
        self, x: StateTree, p: Any, u: Array, w: Array, noise: Noise, guess: Array, push: Float[Array, " half"]
    ) -> StateTree:
        """The step, at the solution that `guess` describes, under further impulses: as many as the tangent has
        components that are not carried.
        """

    @abc.abstractmethod
    def needed(self, x: StateTree, x1: StateTree, p: Any, change: Float[Array, " half"]) -> Float[Array, " half"]:
        """Impulses, as `pushed` takes them, that a change of the velocities of x1 needs in the step from x."""

    @abc.abstractmethod
    def same_noise(self, x: StateTree, p: Any, w: Array, p_now: Any) -> Array:
        """Noise with the effect under `p` that w has under `p_now`, at the state x."""


class ConstrainedStart(eqx.Module):
    """A first state that has to obey something, such as joints."""

    @abc.abstractmethod
    def start(self, x: StateTree, p: Any) -> StateTree:
        """The nearest admissible first state; its derivative spans the free directions of x_0."""


class FirstSpread(eqx.Module):
    """Components of a first state that are not half positions and half velocities."""

    @abc.abstractmethod
    def first_sd(self, x: StateTree, p: Any, sd: Scalar) -> Float[Array, " n"]:
        """Standard deviations of a first state about x where that of positions is `sd`."""


class PlanTracking(eqx.Module):
    """A feedback that holds a simulation to a plan.

    It only serves a first trajectory from parameters that may be far off; without one that is a free simulation.
    """

    @abc.abstractmethod
    def tracking_gain(self, x: StateTree, p: Any, noise: Noise) -> Float[Array, "m n"]:
        """Gain K of the tracking rollout at a planned state: w = w_planned + K (planned box-minus actual)."""


class StepDuration(eqx.Module):
    """A step of a known length; what drifts beside the model asks for it."""

    @abc.abstractmethod
    def duration(self, p: Any) -> Scalar:
        """Length of a step. [s]"""


CAPABILITIES = (
    SearchedStep,
    CarriedPoses,
    FreeDirections,
    HeldNoise,
    ConstrainedStart,
    FirstSpread,
    PlanTracking,
    StepDuration,
)
