"""What recursive estimators over states and modes share."""

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._results import STEP_RESULTS, worst
from ..._typing import Array
from ...protocol import Noise
from ..recursive.every_filter import AbstractSmoothingFilter, Estimated
from ..recursive.step_rules import Reading


class ModeTrail(NamedTuple):
    """What the filter leaves of a step for the smoother."""

    filtered: Any  # the beliefs
    moved: Any  # how they moved


def stacked(parts: Sequence[Any]) -> Any:
    """Modules of one form as one, their arrays (and numbers) along a leading axis."""
    arrays, rest = zip(*(eqx.partition(part, eqx.is_array_like) for part in parts), strict=True)
    return eqx.combine(jax.tree.map(lambda *a: jnp.stack([jnp.asarray(b) for b in a]), *arrays), rest[0])


class AbstractSwitching(AbstractSmoothingFilter):
    """A recursive estimator whose belief is over states and modes."""

    @abc.abstractmethod
    def updated(self, modes: Any, u: Array, reading: Reading, noise: Noise | None = None) -> tuple[Any, Estimated]:
        """`update` of prepared readings, and what is believed after them."""

    def ended(self, modes: Any) -> STEP_RESULTS:
        return worst(modes.beliefs.result)

    def stepped(
        self, modes: Any, u: Array, reading: Reading, noise: Noise | None, trail: bool
    ) -> tuple[Any, Estimated, ModeTrail | None]:
        after, filtered = self.updated(modes, u, reading, noise)
        moved_on, moved = self.predicted(after, u, noise)
        return moved_on, filtered, ModeTrail(after, moved) if trail else None
