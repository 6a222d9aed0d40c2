"""Hysteresis with nonlocal memory: elasto-slide elements in parallel (Maxwell slip), a member of the protocol.

Element i is a spring K_i behind a block that dry friction holds with the force W_i = K_i Delta_i; zeta_i is where the
block stands. With the displacement u, d = u - zeta and the deflection c = d limited to [-Delta, Delta],

    force = sum K_i c_i,      zeta_i+ = zeta_i + (d_i - c_i) + density sqrt(h) w_i

so a block stays where it is while it sticks (c = d) and is drawn along behind its spring while it slips. How fast u
moves has no say. With Delta as the parameter the blocks move the same whatever the stiffness: force is linear in K.

**Source:** Mihaylova, Lampaert, Bruyninckx, Swevers, *Identification of hysteresis functions using a multiple model
approach*, equations (1) to (9); Lampaert and Swevers (2001) for the model.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array, Float, Scalar
from ..math.limited import limited
from ..protocol import AbstractModel, Noise, Samples, StepDuration

PARAMETERS = ("stiffness", "reach")


class Blocks(NamedTuple):
    """Where the blocks stand, and the displacement now. That is known: it is no part of the tangent."""

    zeta: Float[AnyArray, " N"]  # [m]
    u: Float[AnyArray, ""]  # [m]


class Elements(NamedTuple):
    """Parameters of the elements, in their own units."""

    stiffness: Float[Array, " N"]  # K [N/m]
    reach: Float[Array, " N"]  # Delta [m]: deflection at which a block slips


class ElastoSlide(AbstractModel, StepDuration):
    """N elasto-slide elements that share a displacement; the reading is the sum of their forces [N].

    **Arguments:**

    - `stiffness`, `reach`: K [N/m] and Delta [m], both of N elements; positive. A rotary element is the same in rad.
    - `step`: length of a step [s]; only the process noise asks for it.
    - `density`: root of the spectral density with which blocks wander [m/sqrt(s)], one for all or one for each.
    - `unknown`: which of "stiffness" and "reach" the parameters z hold: the logarithms of all N, in this order. What z
      holds need not be given.
    - `printed`: differentiate as the matrices (7) to (9) of the source do, F = 1 and C = -K whether an element sticks
      or slips. A filter then never loses its doubts while an element slips. The true derivatives are zero there.

    A state belongs to a moment: the displacement u_k and the blocks before they follow it. It is read at the start of
    its step, and the input of a step is the displacement at its end; `recording` sorts a record accordingly.

    Derivatives are those of the regime, that of sticking where both meet.

    **Raises:** `ValueError` for shapes that do not agree, values that are not positive, or unknown names in `unknown`.
    """

    stiffness: Float[AnyArray, " N"]
    reach: Float[AnyArray, " N"]
    h: Float[AnyArray, ""]
    density: Float[AnyArray, "*N"]
    unknown: tuple[str, ...] = eqx.field(static=True)
    printed: bool = eqx.field(static=True)
    tangent_size: int = eqx.field(static=True)
    noise_size: int = eqx.field(static=True)
    num_channels: int = eqx.field(static=True, default=1)

    def __init__(
        self,
        stiffness: AnyArray | Sequence[float],
        reach: AnyArray | Sequence[float],
        step: AnyArray | float,
        density: AnyArray | float = 0.0,
        unknown: tuple[str, ...] = (),
        printed: bool = False,
    ):
        stiffness, reach = np.asarray(stiffness, dtype=float), np.asarray(reach, dtype=float)
        if stiffness.ndim != 1 or stiffness.shape != reach.shape:
            raise ValueError(
                f"`stiffness` and `reach` must be lists of one length, got {stiffness.shape}, {reach.shape}"
            )
        if not (np.all(stiffness > 0) and np.all(reach > 0)):
            raise ValueError(f"stiffnesses and reaches must be positive, got {stiffness}, {reach}")
        if strange := [name for name in unknown if name not in PARAMETERS]:
            raise ValueError(f"`unknown` may hold {' and '.join(PARAMETERS)}, got {', '.join(strange)}")
        self.stiffness, self.reach, self.h, self.density = stiffness, reach, np.asarray(step), np.asarray(density)
        self.unknown = tuple(name for name in PARAMETERS if name in unknown)
        self.printed = printed
        self.tangent_size = self.noise_size = len(stiffness)

    @property
    def reads_pair(self) -> bool:
        return False

    @property
    def values(self) -> Float[np.ndarray, " p"]:
        """The parameters z of the stiffnesses and reaches as they were given."""
        return np.concatenate([np.zeros(0), *(np.log(np.asarray(getattr(self, name))) for name in self.unknown)])

    def prepare(self, z: Float[Array, " p"]) -> Elements:
        values = {name: jnp.asarray(getattr(self, name)) for name in PARAMETERS}
        for i, name in enumerate(self.unknown):
            values[name] = jnp.exp(z[i * self.tangent_size : (i + 1) * self.tangent_size])
        return Elements(**values)

    def duration(self, p: Elements) -> Scalar:
        return jnp.asarray(self.h)

    def deflection(self, x: Blocks, p: Elements) -> Float[Array, " N"]:
        """c: of the springs, after the blocks have slipped. [m]"""
        d = jnp.asarray(x.u - x.zeta)
        c = limited(d, p.reach)
        return d + jax.lax.stop_gradient(c - d) if self.printed else c

    def force(self, x: Blocks, p: Elements) -> Scalar:
        """Sum of the elements' forces. [N]"""
        return jnp.sum(p.stiffness * self.deflection(x, p))

    def regime(self, x: Blocks, p: Elements) -> Float[Array, " N"]:
        """0 where an element sticks (case 1 of the source), 1 and -1 where it slips forwards and back (2 and 3)."""
        d = x.u - x.zeta
        return jnp.where(jnp.abs(d) <= p.reach, 0.0, jnp.sign(d))

    def step(
        self, x: Blocks, p: Elements, u: Float[Array, "1"], w: Float[Array, " N"], noise: Noise, guess: Array
    ) -> tuple[Blocks, Array]:
        slipped = (x.u - x.zeta) - self.deflection(x, p)  # exactly zero while it sticks
        wander = jnp.asarray(self.density) * jnp.sqrt(jnp.asarray(self.h)) * noise.process
        return Blocks(x.zeta + slipped + wander * w, u[0]), guess

    def observe(self, x: Blocks, x1: Blocks, p: Elements, s: Scalar) -> Float[Array, "1"]:
        return self.force(x, p)[None]

    def difference(self, y: Array, predicted: Array) -> Float[Array, "1"]:
        return y - predicted

    def retract(self, x: Blocks, d: Float[Array, " N"]) -> Blocks:
        return Blocks(x.zeta + d, x.u)

    def local(self, x1: Blocks, x0: Blocks) -> Float[Array, " N"]:
        return jnp.asarray(x1.zeta - x0.zeta)

    def simulate(self, z: Float[AnyArray, " p"], x0: Blocks, samples: Samples, noise: Noise | None = None) -> Blocks:
        """States at all samples without process noise, the one after the last step left out; leading axis: steps."""
        p, still = self.prepare(jnp.asarray(z)), jnp.zeros(self.noise_size)
        noise = noise or Noise(jnp.ones(()), jnp.ones(1))

        def body(x: Blocks, u: Array) -> tuple[Blocks, Blocks]:
            return self.step(x, p, u, still, noise, jnp.zeros(0))[0], x

        return jax.lax.scan(body, jax.tree.map(jnp.asarray, x0), samples.u)[1]


def recording(u: Float[AnyArray, " steps"], y: Float[AnyArray, " steps"], zeta: Any = 0.0) -> tuple[Blocks, Samples]:
    """First state and samples of a record of displacements [m] and forces [N] at the same times; NaN: no reading.

    `zeta`: where the blocks stand at first [m], (N,); the input of the last step repeats the last displacement.
    """
    u, y = jnp.asarray(u), jnp.asarray(y)
    there = ~jnp.isnan(y)
    samples = Samples(
        u=jnp.append(u[1:], u[-1])[:, None],
        y=jnp.where(there, y, 0.0)[:, None, None],
        s=jnp.zeros((u.shape[0], 1), dtype=u.dtype),
        weight=there.astype(u.dtype)[:, None, None],
    )
    return Blocks(jnp.atleast_1d(jnp.asarray(zeta, dtype=u.dtype)), u[0]), samples
