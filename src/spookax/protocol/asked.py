"""What an estimator asks of any model, with the answer for those that lack the capability."""

from typing import Any

import jax.numpy as jnp

from .._results import STEP_RESULTS
from .._typing import Array, Float, Scalar
from .capabilities import CarriedPoses, ConstrainedStart, FirstSpread, PlanTracking, SearchedStep, StepDuration
from .core import AbstractModel
from .data import Noise, StateTree


def first_guess(model: AbstractModel) -> Float[Array, " h"]:
    """What is handed to the first step."""
    searched = model.offers(SearchedStep)
    return jnp.zeros(0) if searched is None else searched.first_guess()


def stepped(
    model: AbstractModel, x: StateTree, p: Any, u: Array, w: Array, noise: Noise, guess: Array
) -> tuple[StateTree, Array, STEP_RESULTS]:
    """Next state and guess, and how the step ended."""
    if (searched := model.offers(SearchedStep)) is not None:
        return searched.stepped(x, p, u, w, noise, guess)
    return *model.step(x, p, u, w, noise, guess), STEP_RESULTS.successful  # pyright: ignore[reportReturnType]


def replayed(model: AbstractModel, x: StateTree, p: Any, u: Array, w: Array, noise: Noise, guess: Array) -> StateTree:
    """The step at the solution that `guess` (as returned by it) describes."""
    if (searched := model.offers(SearchedStep)) is not None:
        return searched.replay(x, p, u, w, noise, guess)
    return model.step(x, p, u, w, noise, guess)[0]


def carried(model: AbstractModel) -> int:
    """How many components of a tangent, its first ones, follow from the rest."""
    poses = model.offers(CarriedPoses)
    return 0 if poses is None else poses.carried


def admissible(model: AbstractModel, x: StateTree, p: Any) -> StateTree:
    """The nearest admissible first state."""
    constrained = model.offers(ConstrainedStart)
    return x if constrained is None else constrained.start(x, p)


def first_sd(model: AbstractModel, x: StateTree, p: Any, sd: Scalar) -> Float[Array, " n"]:
    """Standard deviations of a first state about x where that of positions is `sd`: of velocities ten times as much.
    Where the model does not say which they are, the first half are positions.
    """
    if (spread := model.offers(FirstSpread)) is not None:
        return spread.first_sd(x, p, sd)
    positions = carried(model) or model.tangent_size // 2
    return sd * jnp.where(jnp.arange(model.tangent_size) < positions, 1.0, 10.0)


def tracking_gain(model: AbstractModel, x: StateTree, p: Any, noise: Noise) -> Float[Array, "m n"]:
    """Gain of the tracking rollout at a planned state; zero: a free simulation."""
    tracking = model.offers(PlanTracking)
    if tracking is None:
        return jnp.zeros((model.noise_size, model.tangent_size))
    return tracking.tracking_gain(x, p, noise)


def duration(model: AbstractModel, p: Any) -> Scalar:
    """Length of a step. [s]

    **Raises:** `NotImplementedError` for a model that does not say it.
    """
    if (timed := model.offers(StepDuration)) is None:
        name = type(model).__name__
        raise NotImplementedError(f"{name} does not say how long its step is: make it a `protocol.StepDuration`")
    return timed.duration(p)
