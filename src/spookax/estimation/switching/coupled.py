"""Switching estimators side by side that share one measurement."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from ..._typing import AnyArray, Array, Float
from ...protocol import AbstractModel, Noise
from ..recursive.every_filter import Estimated, Recursion, Smoothed
from ..recursive.step_rules import Reading
from . import IMM, AbstractSwitching, Modes, Moved, stacked

Predictions = Float[Array, "elements M channels"]


def others(predictions: Predictions) -> Predictions:
    """The coupling of parts whose outputs add up to the reading: each sees it less what the others predict.

    **Source:** Mihaylova et al., the innovation of the coupled bank (section III, last equation but one).
    """
    return predictions - jnp.sum(predictions, axis=0, keepdims=True)


class Coupled(AbstractSwitching):
    """Estimators in parallel, each of a part of what is measured.

    **Arguments:**

    - `elements`: banks of one form (the same classes and number of modes with other numbers).
    - `couple`: of the readings that the elements predict, each the average of its modes by their probabilities, the
      shifts that are added to the reading before each of them sees it. None: all see the reading itself.

    Beliefs, noise levels and results are those of the elements, along an axis before that of the modes. What they tell
    about log-likelihoods is each element's own, given the others' predictions.
    """

    elements: IMM  # arrays along a leading axis
    couple: Callable[[Predictions], Predictions] | None = eqx.field(static=True)

    def __init__(self, elements: Sequence[IMM], couple: Callable[[Predictions], Predictions] | None = None):
        self.elements, self.couple = stacked(elements), couple

    def init(self, x0: Any, sd: AnyArray, probability: AnyArray | None = None) -> Modes:
        """The beliefs before the first reading; x0 and `sd` for every element and mode (two leading axes)."""
        return eqx.filter_vmap(lambda e, x0, sd: e.init(x0, sd, probability, each=True))(self.elements, x0, sd)

    @property
    def model(self) -> AbstractModel:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.elements.model

    def updated(self, modes: Modes, u: Array, reading: Reading, noise: Noise | None = None) -> tuple[Modes, Estimated]:
        y = jnp.broadcast_to(reading.y, modes.log_probability.shape[:1] + reading.y.shape)
        if self.couple is not None:
            predictions = eqx.filter_vmap(lambda e, modes: e.expected(modes, u, reading.s))(self.elements, modes)
            y = y + self.couple(predictions)

        def one(e: IMM, modes: Modes, y: Array, noise: Noise | None) -> tuple[Modes, Estimated]:
            return e.updated(modes, u, reading._replace(y=y), noise)

        return eqx.filter_vmap(one)(self.elements, modes, y, noise)

    def predicted(self, modes: Modes, u: Array, noise: Noise | None = None) -> tuple[Modes, Moved]:
        return eqx.filter_vmap(lambda e, modes, noise: e.predicted(modes, u, noise))(self.elements, modes, noise)

    def smoothed(self, found: Recursion) -> Smoothed:
        """Each element backwards by itself, from the readings as it saw them on the way forwards."""

        def one(e: IMM, trail: Any, last: Modes) -> Smoothed:
            return e.smoothed(found._replace(trail=trail, last=last))

        back = eqx.filter_vmap(one, in_axes=(eqx.if_array(0), 1, 0), out_axes=1)
        return back(self.elements, found.trail, found.last)
