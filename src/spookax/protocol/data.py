"""What goes in and out of a model: a recording on the grid of the steps, and noise levels."""

from typing import Any, NamedTuple

import equinox as eqx

from .._typing import Array, Float

StateTree = Any


class Samples(NamedTuple):
    """A recording on the grid of the steps: step k covers [t_0 + k h, t_0 + (k + 1) h).

    `M` slots per step hold the samples that fall into it; `weight` is zero where a slot or a channel is empty, and less
    than one where a reading has a standard deviation larger than its channel's: channel sd / reading's sd.

    A model with delays of inputs takes the mean command over each step and those over earlier ones, the latest first.
    With delays of readings, `s` is that of each channel, and may be anywhere.
    """

    u: Float[Array, "steps inputs"]  # mean command over the kick at t_k; where delayed (steps, held, inputs), see below
    y: Float[Array, "steps M channels"]  # readings, SI; anything where the weight is 0
    s: Float[Array, "steps M"]  # place of the sample in its step, 0 <= s < 1; (steps, M, channels) where delayed
    weight: Float[Array, "steps M channels"]  # 0 where no reading exists, else at most 1


class Noise(eqx.Module):
    """Noise levels, traced: scales of the model's process noise and standard deviations of the channels."""

    process: Array  # factor on the model's own process-noise level; () or one for each noise (m,)
    sensor: Float[Array, " channels"]  # standard deviations [unit of the channel]
