"""What motors push on their axes, all of them at once.

Over a step a motor's impulse is push - kappa (b v+), its law in the form of Spook: with a servo of stiffness k, as for
springs, that of the mean of three positions. Motors without a bound whose law depends on the rate are part of what is
implicit on the axis, those with one are rows with bounds (`boxes`), the others known impulses.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..math.blocks import sums, take
from ..system import Params, System
from . import axes


def laws(
    system: System,
    params: Params,
    which: Sequence[int],
    command: Float[Array, " motors"],
    rate: Float[Array, " axes"],
    position: Float[Array, " axes"],
) -> tuple[Float[Array, " which"], Float[Array, " which"]]:
    """(push, kappa) of some motors. [N m s or N s; kg m^2 or kg]"""
    h, chosen = params.step, [system.motors[m] for m in which]
    told, damping = take(command, which), take(params.back_emf, which)
    velocity = np.array([motor.type == "velocity" for motor in chosen], dtype=bool)
    gain = take(params.gain, which)  # none of a servo
    push = h * ((jnp.where(velocity, damping, gain) if velocity.any() else gain) * told)
    kappa = h * jnp.where(np.array([motor.type != "torque" for motor in chosen], dtype=bool), damping, 0.0)
    if any(motor.type == "position" for motor in chosen):
        at, servo = [motor.axis for motor in chosen], take(params.servo, which)
        quarter = h * h * servo / 4
        push = push + h * servo * (told - take(position, at)) + quarter * take(rate, at)
        kappa = kappa + quarter
    return push, kappa


def implicit(system: System, params: Params) -> tuple[Float[Array, " axes"], Float[Array, " axes"]]:
    """Viscous coefficient and stiffness that motors add to every axis. [N m s/rad or N s/m; N m/rad or N/m]"""
    which = [m for m, motor in enumerate(system.motors) if motor.implicit]
    groups = _of_axes(system, which)
    return sums(take(params.back_emf, which), groups), sums(take(params.servo, which), groups)


def impulses(
    system: System,
    params: Params,
    command: Float[Array, " motors"],
    rate: Float[Array, " axes"],
    position: Float[Array, " axes"],
) -> Float[Array, " axes"]:
    """Impulse of every axis from its motors but for what depends on the new rate (kappa) and rows with bounds."""
    h, motors = params.step, system.motors
    every = sums(h * params.bias, _of_axes(system, range(len(motors))))
    which = [m for m, motor in enumerate(motors) if motor.implicit or motor.type == "torque"]
    if which:
        given, _ = laws(system, params, which, command, rate, position)
        if any(motors[m].bounded for m in which):
            bound = h * take(params.max_force, which)  # infinite where there is none
            given = jnp.clip(given, -bound, bound)
        every = every + sums(given, _of_axes(system, which))
    if system.cogging:
        of, order = zip(*system.cogging, strict=True)
        along = [motors[m].axis for m in of]
        wave = axes.harmonics(system, along, order, params.cogging, take(position, along))
        every = every + sums(h * wave, _of_axes(system, of))
    return every


def on_axes(
    system: System,
    params: Params,
    along: Sequence[int],
    command: Float[Array, " motors"],
    rate: Float[Array, " axes"],
    position: Float[Array, " axes"],
) -> Float[Array, " along"]:
    """What the motors of some axes give at the present rate, `bias` and cogging left out. [N m or N]"""
    which = [m for m, motor in enumerate(system.motors) if motor.axis in along]
    of = [system.motors[m].axis for m in which]
    push, kappa = laws(system, params, which, command, rate, position)
    most = take(params.max_force, which)
    given = jnp.clip((push - kappa * take(rate, of)) / params.step, -most, most)
    return sums(given, [[i for i, axis in enumerate(of) if axis == k] for k in along])


def _of_axes(system: System, which: Sequence[int]) -> list[list[int]]:
    """Places in `which` of the motors of every axis."""
    at = [system.motors[m].axis for m in which]
    return [[i for i, axis in enumerate(at) if axis == k] for k in range(len(system.axes))]
