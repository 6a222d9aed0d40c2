"""Models that are linear in their state and say so."""

import abc
from typing import Any, NamedTuple

from .._typing import Array, Float
from .core import AbstractVectorModel
from .data import Noise


class LinearStep(NamedTuple):
    """x+ = A x + b + S w and readings C x + d; w ~ N(0, 1)."""

    A: Float[Array, "n n"]
    b: Float[Array, " n"]
    S: Float[Array, "n m"]
    C: Float[Array, "channels n"]
    d: Float[Array, " channels"]


class AbstractLinearModel(AbstractVectorModel):
    """A model that is linear in its state and says how: nothing has to be differentiated (`estimation.Exact`).

    It reads its state at the start of a step.
    """

    @property
    def reads_pair(self) -> bool:
        return False

    @abc.abstractmethod
    def linear(self, p: Any, u: Array, noise: Noise) -> LinearStep:
        """The step and its readings under an input."""

    def step(
        self, x: Float[Array, " n"], p: Any, u: Array, w: Array, noise: Noise, guess: Array
    ) -> tuple[Float[Array, " n"], Array]:
        own = self.linear(p, u, noise)
        return own.A @ x + own.b + own.S @ w, guess
