"""What every model gives: nine members that an estimator cannot do without.

A model is a state on a manifold, unknown constants z, and a step whose noise is written out:

    step(x, z, u, w, guess)      -> x+, guess+   forward simulation with whitened noise w (0: nominal)
    observe(x, x+, z, s)        -> y           readings at t_k + s h; may read the pair
    retract(x, d), local(x1, x0)               box-plus and box-minus with tangent vectors d

What only some models can do beside that is in `capabilities`. `guess` belongs to one of them: what a step has found by
search (`StepInfo.levels` of a mechanism), from which the search of the next begins; a model without a search hands it
on as it came.
"""

import abc
from typing import Any, TypeVar

import equinox as eqx

from .._typing import Array, Float, Scalar
from .capabilities import CAPABILITIES
from .data import Noise, StateTree

Capability = TypeVar("Capability")


class AbstractModel(eqx.Module):
    """A member of the protocol: three sizes and six methods are needed; the rest follows."""

    tangent_size: eqx.AbstractVar[int]
    noise_size: eqx.AbstractVar[int]
    num_channels: eqx.AbstractVar[int]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for capability in CAPABILITIES:
            meant = [name for name in sorted(capability.__abstractmethods__) if name in vars(cls)]
            if meant and not issubclass(cls, capability):
                raise TypeError(
                    f"{cls.__name__} has {', '.join(meant)} but is no `protocol.{capability.__name__}`: name that "
                    "among its bases, or call its own members otherwise"
                )

    @abc.abstractmethod
    def prepare(self, z: Float[Array, " p"]) -> Any:
        """What depends on the parameters only; handed to the other methods as `p`."""

    @abc.abstractmethod
    def step(self, x: StateTree, p: Any, u: Array, w: Array, noise: Noise, guess: Array) -> tuple[StateTree, Array]:
        """Next state and guess."""

    @abc.abstractmethod
    def observe(self, x: StateTree, x1: StateTree, p: Any, s: Scalar) -> Float[Array, " channels"]:
        """Readings a fraction s of a step after x (SI)."""

    @abc.abstractmethod
    def difference(self, y: Array, predicted: Array) -> Float[Array, " channels"]:
        """y minus predicted in the channels' own sense (angles may be taken modulo a turn)."""

    @abc.abstractmethod
    def retract(self, x: StateTree, d: Float[Array, " n"]) -> StateTree:
        """Box-plus."""

    @abc.abstractmethod
    def local(self, x1: StateTree, x0: StateTree) -> Float[Array, " n"]:
        """Box-minus: d with x1 = x0 box-plus d."""

    @property
    def reads_pair(self) -> bool:
        """Whether readings depend on the state after the step, too. If not, they are taken at its start (s = 0), and
        estimators save themselves work.
        """
        return True

    def offers(self, capability: type[Capability]) -> Capability | None:
        """The model as one with this capability, where it has it: where it is of that class, unless its numbers forbid
        it. A model that stands before another says here what it passes on.
        """
        return self if isinstance(self, capability) else None


class AbstractVectorModel(AbstractModel):
    """A model whose state is a vector, and whose readings differ by subtraction."""

    def difference(self, y: Array, predicted: Array) -> Float[Array, " channels"]:
        return y - predicted

    def retract(self, x: Float[Array, " n"], d: Float[Array, " n"]) -> Float[Array, " n"]:
        return x + d

    def local(self, x1: Float[Array, " n"], x0: Float[Array, " n"]) -> Float[Array, " n"]:
        return x1 - x0


class ModelError(ValueError):
    """A model, or what an estimator is given beside it, does not fit: what, where, and what to do."""
