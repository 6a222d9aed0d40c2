"""Friction along the axis of a joint.

Where a unit depends on the joint, the first is that of a turning axis and the second that of a sliding one.
"""

from typing import Annotated, Any, Literal

import numpy as np
import pydantic
from pydantic import Field

from spookax.scene import network_weights
from spookax.scene.explain import Finding, refuse
from spookax.scene.fields import NonNegative, Number, Positive, Strict

INPUTS = {"load": 1, "angle": 2}
"""How many inputs of a network each of the things has that it may see."""
Units = Annotated[int, Field(strict=True, ge=1, le=64)]


class Stribeck(Strict):
    """Friction that is larger near rest: `excess * exp(-(speed / self.speed) ** exponent)` is added."""

    excess: NonNegative = Field(default=0.0, description="Static friction above `coulomb` [N m or N]")
    speed: Positive = Field(default=0.1, description="Speed of decay [rad/s or m/s]")
    exponent: Positive = Field(default=2.0, description="Exponent of the decay (no unit)")


class Learned(Strict):
    """Dry friction by a small network of the speed: `force * softplus(network(|rate| / speed, ...))` is added.

    `sees` names further inputs: `load`, |torque of the motors on this axis| / force; `angle`, its cosine and sine.
    """

    layers: tuple[Units, ...] = Field(
        default=(6, 6), min_length=1, max_length=4, description="Units of the hidden layers"
    )
    speed: Positive = Field(default=1.0, description="Speed that the network sees as 1 [rad/s or m/s]")
    force: Positive = Field(description="Friction that is 1 at the network's end [N m or N]")
    sees: tuple[Literal["load", "angle"], ...] = Field(
        default=(),
        description="What the network sees besides the speed: load (what motors on this axis give), angle",
    )
    weights: tuple[Number, ...] | None = Field(
        default=None, description="Weights, layer by layer; drawn, always the same ones, when left out (no unit)"
    )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Inputs, units of the hidden layers, outputs."""
        return (1 + sum(INPUTS[name] for name in self.sees), *self.layers, 1)

    @pydantic.model_validator(mode="after")
    def _drawn(self) -> "Learned":
        if len(set(self.sees)) < len(self.sees):
            refuse([Finding(("sees",), list(self.sees), "names something twice", "Delete one of the two.")])
        needed = network_weights.count(self.sizes)
        if self.weights is None:
            drawn: Any = network_weights.draw(self.sizes, np.random.default_rng(0))
            object.__setattr__(self, "weights", tuple(map(float, drawn)))
        elif len(self.weights) != needed:
            shape = "-".join(map(str, self.sizes))
            message = f"a network {shape} has {needed} weights, got {len(self.weights)}"
            refuse([Finding(("weights",), None, message, "Delete the line to have them drawn.")])
        return self


class Resistance(Strict):
    """Resistance of a fluid at rest, the same in every direction: `viscous * speed + drag * speed^2`."""

    viscous: NonNegative = Field(default=0.0, description="Linear in the speed [N s/m or N m s/rad]")
    drag: NonNegative = Field(default=0.0, description="Quadratic in the speed [N s^2/m^2 or N m s^2/rad^2]")


class Air(Resistance):
    """Resistance of air, or of another fluid at rest, to a body: to its centre of mass, and to its turning."""

    turning: Resistance = Field(default_factory=Resistance, description="Against the angular velocity")


class Element(Strict):
    """A spring behind a block that dry friction holds: it pulls with `stiffness`, and slips at the deflection `reach`.

    Several side by side make friction with a memory of where the motion turned (Maxwell slip, elasto-slide elements).
    """

    stiffness: Positive = Field(description="Of the spring [N m/rad or N/m]")
    reach: Positive = Field(description="Deflection at which the block slips; times stiffness its friction [rad or m]")


class Friction(Strict):
    """Friction along the axis of a joint."""

    viscous: NonNegative = Field(default=0.0, description="Viscous friction [N m s/rad or N s/m]")
    drag: NonNegative = Field(
        default=0.0,
        description="Quadratic drag, of a fluid: drag times |rate| times rate [N m s^2/rad^2 or N s^2/m^2]",
    )
    coulomb: NonNegative = Field(default=0.0, description="Dry friction [N m or N]")
    backward: Positive = Field(
        default=1.0,
        description="Dry friction while the position falls, as a multiple of that while it grows (no unit)",
    )
    stribeck: Stribeck = Field(default_factory=Stribeck, description="More dry friction near rest")
    bearing: NonNegative = Field(
        default=0.0,
        description="Dry friction per force that the joint carries across the axis: coefficient times radius [m], on a "
        "sliding axis the coefficient alone (no unit)",
    )
    learned: Learned | None = Field(default=None, description="Dry friction by a network of the speed")
    elements: tuple[Element, ...] = Field(
        default=(), description="Elasto-slide elements side by side: friction that is elastic before it slips"
    )
