"""Equations of motion of one's own as a member of the protocol: a function, names of its unknowns, a step.

def drift(x, u, p):
    return jnp.stack([x[1], -9.81 / p.length * jnp.sin(x[0]) - p.damping * x[1]])

model = Equations(drift, [Free("length", 0.5), Free("damping", 0.1)], step=0.01, density=[0.0, 0.2], read=[0])
"""

import collections
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array, Float, Scalar
from ..protocol import AbstractContinuousModel, ModelError
from .parameters import Free, ParameterMap

Drift = Callable[[Array, Array, Any], Array]


class Equations(AbstractContinuousModel):
    """dx/dt = drift(x, u, p) + spread(x, p) w, y = read(x, p) + n; p are the unknowns by name (`p.length`).

    **Arguments:**

    - `drift`: function (x, u, p) -> dx/dt, of arrays (n,) and (inputs,).
    - `unknown`: `Free(name, start, transform=, lower=, upper=, prior_sd=)`, as in studies; positive ones by default.
    - `step`: h, the longest discrete step. [s]
    - `density`: roots of the spectral densities of the noise on every rate, (n,) [unit of the state per root of a
      second], zero where there is none; or a function (x, p) -> G (n, m).
    - `read`: indices of the components that are read; or a function (x, p) -> y (channels,).
    - `inputs`: how many numbers u has.

    **Raises:** `ModelError` where a function returns another shape, or NaN at the start values.
    """

    rate: Drift = eqx.field(static=True)
    noise_of: Callable[[Array, Any], Array] | None = eqx.field(static=True)
    read_of: Callable[[Array, Any], Array] | None = eqx.field(static=True)
    unknown: ParameterMap
    h: Float[AnyArray, ""]
    density: Float[AnyArray, " m"]
    noisy: tuple[int, ...] = eqx.field(static=True)  # components with a density, in place of `noise_of`
    components: tuple[int, ...] = eqx.field(static=True)  # that are read, in place of `read_of`
    inputs: int = eqx.field(static=True)
    tangent_size: int = eqx.field(static=True)
    noise_size: int = eqx.field(static=True)
    num_channels: int = eqx.field(static=True)

    def __init__(
        self,
        drift: Drift,
        unknown: Sequence[Free],
        *,
        step: float,
        density: Sequence[float] | AnyArray | Callable[[Array, Any], Array],
        read: Sequence[int] | Callable[[Array, Any], Array],
        states: int | None = None,
        inputs: int = 0,
    ):
        self.rate, self.unknown, self.inputs = drift, ParameterMap(None, tuple(unknown)), inputs
        self.h = np.asarray(step, dtype=float)
        self.noise_of = density if callable(density) else None
        self.read_of = read if callable(read) else None
        values = np.zeros(0) if callable(density) else np.asarray(density, dtype=float)
        if states is None:
            if callable(density):
                raise ModelError("`density` is a function: say how many `states` the equations have")
            states = len(values)
        self.tangent_size = states
        self.noisy = tuple(int(i) for i in np.flatnonzero(values))
        self.density = values[list(self.noisy)]
        self.components = () if callable(read) else tuple(int(i) for i in read)
        if not float(step) > 0:
            raise ModelError(f"`step` must be above 0 s, got {step}")
        if len(values) not in (0, states) or np.any(~(values >= 0)):
            raise ModelError(f"`density` must be {states} numbers of at least zero, one a state, got {density}")
        if any(not 0 <= i < states for i in self.components):
            raise ModelError(f"`read` names components 0 to {states - 1}, got {list(self.components)}")
        self.noise_size, self.num_channels = len(self.noisy), len(self.components)
        x, u, p = np.zeros(states), np.zeros(inputs), self.prepare(jnp.asarray(self.unknown.start()))
        self._checked("drift", self.rate, (x, u, p), (states,))
        if self.noise_of is not None:
            self.noise_size = self._checked("density", self.noise_of, (x, p), (states, None))[1]
        if self.read_of is not None:
            self.num_channels = self._checked("read", self.read_of, (x, p), (None,))[0]

    @staticmethod
    def _checked(name: str, function: Callable, args: tuple, wanted: tuple[int | None, ...]) -> tuple[int, ...]:
        """The shape that a function returns, which must be the one that is wanted (None: any number)."""
        try:
            found = jax.eval_shape(function, *args)
            shape = found.shape
        except AttributeError as error:
            raise ModelError(f"`{name}` cannot be evaluated: {error}. It must return one array") from error
        if len(shape) != len(wanted) or any(w not in (None, s) for w, s in zip(wanted, shape, strict=True)):
            text = ", ".join("any" if w is None else str(w) for w in wanted)
            raise ModelError(f"`{name}` must return an array of shape ({text}), got {shape}")
        return shape

    @property
    def names(self) -> tuple[str, ...]:
        """Of the unknowns."""
        return self.unknown.paths

    def prepare(self, z: Float[Array, " p"]) -> Any:
        """The unknowns by name."""
        return collections.namedtuple("Unknowns", self.names)(*self.unknown.values(z))

    def duration(self, p: Any) -> Scalar:
        return jnp.asarray(self.h)

    def drift(self, x: Array, p: Any, u: Array) -> Array:
        return self.rate(x, u, p)

    def spread(self, x: Array, p: Any) -> Float[Array, "n m"]:
        if self.noise_of is not None:
            return self.noise_of(x, p)
        return jnp.asarray(np.eye(self.tangent_size)[:, list(self.noisy)]) * jnp.asarray(self.density)[None]

    def read(self, x: Array, p: Any) -> Array:
        return self.read_of(x, p) if self.read_of is not None else x[np.array(self.components, int)]
