"""Linear mechanisms under known inputs and unknown forces, and their exact steps as members of the protocol."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .._typing import AnyArray, Array, Float
from ..protocol import AbstractLinearModel, LinearStep, Noise

SENSORS = ("displacement", "velocity", "acceleration")


class LinearMechanism(eqx.Module):
    """dx = F x + B u + E f + G dW, readings C x + D u + L f, rates of the contacts s x; x = (displacements, velocities)
    and after these what else moves.

    u are known inputs, f the unknown forces, each counted positive where it opposes a positive rate of its contact, as
    friction does, W white noise; `coordinates`: how many displacements.
    """

    F: Float[Array, "n n"]
    B: Float[Array, "n inputs"]
    E: Float[Array, "n forces"]
    C: Float[Array, "channels n"]
    D: Float[Array, "channels inputs"]
    L: Float[Array, "channels forces"]
    slip: Float[Array, "forces n"]
    G: Float[Array, "n m"]
    coordinates: int = eqx.field(static=True)

    @property
    def size(self) -> int:
        """Number of states."""
        return self.F.shape[0]

    @property
    def forces(self) -> int:
        """Number of unknown forces."""
        return self.E.shape[1]


def second_order(
    mass: Float[AnyArray, "q q"],
    damping: Float[AnyArray, "q q"],
    stiffness: Float[AnyArray, "q q"],
    inputs: Float[AnyArray, "q inputs"],
    contacts: Float[AnyArray, "q forces"],
    sensors: Sequence[tuple[str, int]] = (("displacement", 0),),
) -> LinearMechanism:
    """M q'' + C q' + K q + W f = U u, as linear(ised) mechanisms have it.

    **Arguments:**

    - `mass`, `damping`, `stiffness`: M [kg], C [N s/m], K [N/m] (kg m² and so on for turns).
    - `inputs`: U, what each known input pushes: forces have ones here; a base that moves has K and C times the columns
      that say how it carries the coordinates, and u = (its displacement, its velocity), see `oscillator`.
    - `contacts`: W; the rate of contact c is column c times q'. `[1, 0]` holds the first coordinate against the world,
      `[-1, 1]` rubs the second on the first.
    - `sensors`: what is read, and of which coordinate: "displacement", "velocity" or "acceleration".

    **Raises:** `ValueError` for shapes that do not fit and sensors that do not exist.
    """
    M, C, K, U, W = (jnp.asarray(a, dtype=float) for a in (mass, damping, stiffness, inputs, contacts))
    q = M.shape[0]
    if not (M.shape == C.shape == K.shape == (q, q) and U.shape[:1] == W.shape[:1] == (q,)):
        raise ValueError(
            f"mass, damping and stiffness must be q by q, inputs and contacts have q rows; got shapes {M.shape}, "
            f"{C.shape}, {K.shape}, {U.shape}, {W.shape}"
        )
    zero, one = jnp.zeros((q, q)), jnp.eye(q)
    both = jnp.linalg.solve(M, jnp.concatenate([-K, -C, U, -W], axis=1))
    F = jnp.concatenate([jnp.concatenate([zero, one], axis=1), both[:, : 2 * q]])
    B = jnp.concatenate([jnp.zeros(U.shape), both[:, 2 * q : 2 * q + U.shape[1]]])
    E = jnp.concatenate([jnp.zeros(W.shape), both[:, 2 * q + U.shape[1] :]])
    rows = []
    for kind, place in sensors:
        if kind not in SENSORS or not 0 <= place < q:
            raise ValueError(
                f"sensor ({kind!r}, {place}): it must read one of {', '.join(SENSORS)} of a coordinate 0 to {q - 1}"
            )
        row = {"displacement": place, "velocity": q + place, "acceleration": q + place}[kind]
        moving = float(kind == "acceleration")
        state = F[row] if moving else jnp.eye(2 * q)[row]
        rows.append((state, moving * B[row], moving * E[row]))
    C_, D, L = (jnp.stack(a) for a in zip(*rows, strict=True))
    slip = jnp.concatenate([jnp.zeros(W.T.shape), W.T], axis=1)
    return LinearMechanism(F, B, E, C_, D, L, slip, jnp.zeros((2 * q, 0)), q)


def oscillator(
    mass: AnyArray | float,
    damping: AnyArray | float,
    stiffness: AnyArray | float,
    sensors: Sequence[str] = ("displacement",),
    base: bool = False,
) -> LinearMechanism:
    """m z'' + c z' + k z + f = u, or with `base` = k u + c u', whose input is (u, u'), displacement and velocity of the
    base [m, m/s].

    **Raises:** `ValueError` for a mass that is not positive.

    **Source:** Marino and Cicirello (2023), equations 9 and 34. Their (35) prints -k/m and -c/m, where k/m and c/m are
    meant.
    """
    if not isinstance(mass, Tracer) and not float(mass) > 0:
        raise ValueError(f"the mass of an oscillator must be positive [kg], got {float(mass):g}")
    m, c, k = (jnp.reshape(jnp.asarray(a, dtype=float), (1, 1)) for a in (mass, damping, stiffness))
    U = jnp.concatenate([k, c], axis=1) if base else np.ones((1, 1))
    return second_order(m, c, k, U, np.ones((1, 1)), [(kind, 0) for kind in sensors])


def on_base(
    mechanism: LinearMechanism, jerk: Float[AnyArray, ""] | float, inputs: tuple[int, int] = (0, 1)
) -> LinearMechanism:
    """A mechanism together with the base that carries it: its states are followed by displacement, velocity and
    acceleration of the base, its readings by the base's displacement. The acceleration changes by white noise.

    **Arguments:** `jerk`: root of the noise's density [m/s^2/sqrt(s)]; `inputs`: which inputs of the mechanism are
    displacement and velocity of the base; the others stay.

    **Raises:** `ValueError` for inputs that the mechanism does not have.

    **Source:** the coupled form that Marino and Cicirello (2023) mention in section 4.1, with their (38) in continuous
    time and smooth in the acceleration.
    """
    n, count = mechanism.size, mechanism.B.shape[1]
    if len(set(inputs)) != 2 or not all(0 <= i < count for i in inputs):
        raise ValueError(f"inputs {inputs} of a base: they must be two of 0 to {count - 1}")
    others = np.setdiff1d(np.arange(count), inputs)

    def beside(own: Array, base: Array) -> Array:
        """Along the states of the mechanism, and along those of the base."""
        return jnp.concatenate([own, base, jnp.zeros((len(own), 1))], axis=1)

    def below(a: Array, rows: int) -> Array:
        return jnp.concatenate([a, jnp.zeros((rows, a.shape[1]))])

    at = np.array(inputs)
    F = jnp.concatenate([beside(mechanism.F, mechanism.B[:, at]), jnp.eye(3, n + 3, n + 1)])
    C = jnp.concatenate([beside(mechanism.C, mechanism.D[:, at]), jnp.eye(1, n + 3, n)])
    G = jnp.zeros((n + 3, mechanism.G.shape[1] + 1)).at[:n, :-1].set(mechanism.G).at[-1, -1].set(jerk)
    slip = beside(mechanism.slip, jnp.zeros((mechanism.forces, 2)))
    B, E, D, L = mechanism.B[:, others], mechanism.E, mechanism.D[:, others], mechanism.L
    return LinearMechanism(F, below(B, 3), below(E, 3), C, below(D, 1), below(L, 1), slip, G, mechanism.coordinates)


class LinearGaussian(AbstractLinearModel):
    """x+ = A x + B u + b + S w, readings C x + d (`d`: a bias of the readings).

    What known inputs do to a reading at once (an accelerometer's D u) is subtracted from it beforehand.
    """

    A: Float[Array, "n n"]
    B: Float[Array, "n inputs"]
    b: Float[Array, " n"]
    S: Float[Array, "n m"]
    C: Float[Array, "channels n"]
    d: Float[Array, " channels"]
    tangent_size: int = eqx.field(static=True)
    noise_size: int = eqx.field(static=True)
    num_channels: int = eqx.field(static=True)

    def __init__(
        self,
        A: Float[AnyArray, "n n"],
        B: Float[AnyArray, "n inputs"],
        S: Float[AnyArray, "n m"],
        C: Float[AnyArray, "channels n"],
        b: Float[AnyArray, " n"] | None = None,
        d: Float[AnyArray, " channels"] | None = None,
    ):
        self.A, self.B, self.S, self.C = (jnp.asarray(a, dtype=float) for a in (A, B, S, C))
        self.tangent_size, self.noise_size, self.num_channels = len(self.A), self.S.shape[1], len(self.C)
        self.b = jnp.zeros(len(self.A)) if b is None else jnp.asarray(b, dtype=float)
        self.d = jnp.zeros(len(self.C)) if d is None else jnp.asarray(d, dtype=float)

    def prepare(self, z):
        return None

    def linear(self, p, u, noise: Noise) -> LinearStep:
        return LinearStep(self.A, self.B @ u + self.b, self.S * noise.process, self.C, self.d)

    def observe(self, x, x1, p, s):
        return self.C @ x + self.d

    def padded(self, size: int, noises: int) -> "LinearGaussian":
        """With states that stay zero and noises that move nothing, up to these numbers: what makes the models of a bank
        share their state.
        """
        n, m = size - self.tangent_size, noises - self.noise_size
        if n < 0 or m < 0:
            raise ValueError(
                f"a model of {self.tangent_size} states and {self.noise_size} noises cannot be filled up to {size} and "
                f"{noises}"
            )
        A, S = jnp.pad(self.A, (0, n)), jnp.pad(self.S, ((0, n), (0, m)))
        B, b, C = jnp.pad(self.B, ((0, n), (0, 0))), jnp.pad(self.b, (0, n)), jnp.pad(self.C, ((0, 0), (0, n)))
        return LinearGaussian(A, B, S, C, b, self.d)


class LinearGaussianSteps(AbstractLinearModel):
    """`LinearGaussian` whose steps have several lengths: the last input of a step is the number of its length.

    **Arguments:** as of `LinearGaussian`; A, B and S have a leading axis of lengths.
    """

    A: Float[Array, "lengths n n"]
    B: Float[Array, "lengths n inputs"]
    S: Float[Array, "lengths n m"]
    C: Float[Array, "channels n"]
    tangent_size: int = eqx.field(static=True)
    noise_size: int = eqx.field(static=True)
    num_channels: int = eqx.field(static=True)

    def __init__(
        self,
        A: Float[AnyArray, "lengths n n"],
        B: Float[AnyArray, "lengths n inputs"],
        S: Float[AnyArray, "lengths n m"],
        C: Float[AnyArray, "channels n"],
    ):
        self.A, self.B, self.S, self.C = (jnp.asarray(a, dtype=float) for a in (A, B, S, C))
        self.tangent_size, self.noise_size, self.num_channels = self.A.shape[1], self.S.shape[2], len(self.C)

    def prepare(self, z):
        return None

    def linear(self, p, u, noise: Noise) -> LinearStep:
        number = u[-1].astype(int)
        bias = jnp.zeros(self.num_channels, dtype=self.C.dtype)
        return LinearStep(self.A[number], self.B[number] @ u[:-1], self.S[number] * noise.process, self.C, bias)

    def observe(self, x, x1, p, s):
        return self.C @ x


def alike(models: Sequence[LinearGaussian]) -> list[LinearGaussian]:
    """Models of different state sizes as models of one."""
    size, noises = max(m.tangent_size for m in models), max(m.noise_size for m in models)
    return [m.padded(size, noises) for m in models]
