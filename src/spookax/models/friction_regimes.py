"""What an unknown friction force may do in a step: act while its contact slides, hold its contact, jump.

Every contact is in one of three regimes, and a model of the whole belongs to every combination of them:

- *slide*: the force is a Gaussian process in time;
- *stick*: the contact does not move, and the force is what holds it, f = u - k z for one mass (22, 23);
- *reset*: the force is forgotten and drawn anew, displacement and velocity go on: how it jumps when the motion turns or
  stops. It lasts one step.

A step of the regimes' models: what happens at its start (`before`), the motion, what happens at its end (`after`).

**Source:** Marino and Cicirello (2023), section 3.2, for one mass. Their sticking model keeps the covariance as it was,
which is no motion of the state (the pair of states is not Gaussian); here the velocity of the contact vanishes with its
variance, and `looseness` says how well. Several contacts are ours: all combinations of their regimes, because one mass
feels the forces of all contacts at once and readings tell them apart only together. Contacts change their regimes
independently of each other.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .._compiled import seldom_called
from .._typing import AnyArray, Array, Float, Scalar
from ..math.linear_sde import discretised
from ..math.sqrt_gaussian import lower
from .kernels import AbstractKernel, positive
from .linear import LinearGaussian, LinearGaussianSteps, LinearMechanism

SLIDE, STICK, RESET = range(3)
NAMES = ("slide", "stick", "reset")
_POSSIBLE = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0]])  # (4), from row to column


class Contact(eqx.Module):
    """A frictional contact.

    **Arguments:**

    - `kernel`: of the force while the contact slides.
    - `reset_sd`: standard deviation of the force after it was forgotten [N]; the root of P_0.
    - `stay`: rho of (4), the probability of another step in the same regime, sliding or sticking.
    - `looseness`: standard deviations of displacement, velocity and force that a sticking contact gains in a step
      [m, m/s, N]. Tight ones suit the filter; the smoother, which moves beliefs between regimes, does better with wide
      ones.
    - `meanwhile`: standard deviation of what acts on average over the step in which the force is forgotten [N]; in the
      source nothing does. A force that turns over from -f to f somewhere in the step is spread evenly between the two.
    """

    kernel: AbstractKernel
    reset_sd: Float[Array, ""]
    stay: Float[Array, ""]
    looseness: Float[Array, "3"]
    meanwhile: Float[Array, ""]

    def __init__(
        self,
        kernel: AbstractKernel,
        reset_sd: Float[AnyArray, ""] | float,
        stay: Float[AnyArray, ""] | float = 0.92,
        looseness: Sequence[float] | Float[AnyArray, "3"] = (1e-6, 3e-2, 0.2),
        meanwhile: Float[AnyArray, ""] | float = 0.0,
    ):
        self.kernel, self.reset_sd = kernel, positive(reset_sd, "`reset_sd` of a contact [N]")
        if not isinstance(stay, Tracer) and not 0.0 <= float(stay) <= 1.0:
            raise ValueError(f"`stay` of a contact is a probability, got {float(stay):g}")
        self.stay, self.looseness = jnp.asarray(stay, dtype=float), jnp.asarray(looseness, dtype=float)
        self.meanwhile = jnp.asarray(meanwhile, dtype=float)

    def transition(self) -> Float[Array, "3 3"]:
        """(4): slide and stick go on or to reset, reset goes to either."""
        stay, change = self.stay, 1.0 - self.stay
        zero = jnp.zeros_like(stay)
        half = zero + 0.5
        rows = [[stay, zero, change], [zero, stay, change], [half, half, zero]]
        return jnp.stack([jnp.stack(row) for row in rows])

    def prior(self) -> Float[Array, "n n"]:
        """Factor of the states' covariance after a reset: that of the process, scaled to `reset_sd`."""
        own = self.kernel.state_space()
        return own.S * (self.reset_sd / jnp.linalg.norm(own.H @ own.S))


def combinations(contacts: int) -> list[tuple[int, ...]]:
    """Regimes of all contacts together, the first contact's changing slowest."""
    return list(itertools.product(range(3), repeat=contacts))


def transition(contacts: Sequence[Contact]) -> Float[Array, "regimes regimes"]:
    """Of the combinations."""
    whole, possible = jnp.ones((1, 1)), np.ones((1, 1))
    for contact in contacts:
        whole, possible = jnp.kron(whole, contact.transition()), np.kron(possible, _POSSIBLE)
    return jnp.where(possible > 0, whole, 0.0)  # a product with zero has derivatives, which its logarithm has not


def before(contacts: int) -> list[list[int]]:
    """From which combinations each can be reached in a step, for `MixtureFilter`."""
    possible = np.ones((1, 1))
    for _ in range(contacts):
        possible = np.kron(possible, _POSSIBLE)
    return [list(map(int, np.flatnonzero(column))) for column in possible.T]


class _Parts(NamedTuple):
    """x -> J x, then dx = F x + B u + V w + G dW for a step, then x -> K x + N u + T w'; w, w' ~ N(0, 1)."""

    J: Float[Array, "n n"]
    F: Float[Array, "n n"]
    B: Float[Array, "n inputs"]
    V: Float[Array, "n contacts"]
    G: Float[Array, "n m"]
    K: Float[Array, "n n"]
    N: Float[Array, "n inputs"]
    T: Float[Array, "n t"]


def models(
    mechanism: LinearMechanism, contacts: Sequence[Contact], h: Scalar | Float[AnyArray, " lengths"] | float
) -> list[LinearGaussian] | list[LinearGaussianSteps]:
    """The model of every combination for a step of h [s]; states: the mechanism's, then the kernels'.

    **Arguments:** `h`: several lengths for steps that differ, see `LinearGaussianSteps`. What a regime does in a step,
    to go on or to change, to be loose, to draw the force anew, is the same whatever its length.

    **Raises:** `ValueError` when the mechanism has another number of contacts.
    """
    if mechanism.forces != len(contacts):
        raise ValueError(f"the mechanism has {mechanism.forces} contacts, but {len(contacts)} are described")
    step = h if isinstance(h, jax.Array) else np.asarray(h, dtype=float)
    if step.ndim:
        every = jax.vmap(lambda h: _stepped(mechanism, tuple(contacts), h), out_axes=(1, 1, 1, None))
        A, B, S, C = every(jnp.asarray(step))
        return [LinearGaussianSteps(A[i], B[i], S[i], C) for i in range(len(A))]
    A, B, S, C = _stepped(mechanism, tuple(contacts), step)
    return [LinearGaussian(A[i], B[i], S[i], C) for i in range(len(A))]


@seldom_called
def _stepped(
    mechanism: LinearMechanism, contacts: tuple[Contact, ...], h: Scalar
) -> tuple[Float[Array, "regimes n n"], Float[Array, "regimes n inputs"], Float[Array, "regimes n m"], Array]:
    """A, B and S of every combination, and C of all."""
    every = [_parts(mechanism, contacts, modes) for modes in combinations(len(contacts))]
    p = jax.tree.map(lambda *a: jnp.stack(a), *every)
    step = jax.vmap(lambda F, B, G: discretised(F, B, G, h))(p.F, jnp.concatenate([p.B, p.V], axis=2), p.G)
    C = jnp.concatenate([mechanism.C, mechanism.L @ outputs(contacts)], axis=1)

    def model(p: _Parts, A: Array, b: Array, S: Array) -> tuple[Array, Array, Array]:
        inputs = p.B.shape[1]
        return p.K @ A @ p.J, p.K @ b[:, :inputs] + p.N, lower(p.K @ b[:, inputs:], p.K @ S, p.T)

    return *jax.vmap(model)(p, step.A, step.b, step.S), C


def outputs(contacts: Sequence[Contact]) -> Float[Array, "forces states"]:
    """Forces from the states of the kernels."""
    return jax.scipy.linalg.block_diag(*(contact.kernel.state_space().H[None] for contact in contacts))


def _parts(mechanism: LinearMechanism, contacts: Sequence[Contact], modes: tuple[int, ...]) -> _Parts:
    n, processes = mechanism.size, [contact.kernel.state_space() for contact in contacts]
    sizes = [len(process.F) for process in processes]
    start = n + np.concatenate([[0], np.cumsum(sizes)])
    size, inputs = int(start[-1]), mechanism.B.shape[1]
    where = [slice(int(a), int(b)) for a, b in itertools.pairwise(start)]
    H = jnp.zeros((len(contacts), size)).at[:, n:].set(outputs(contacts))
    acting = [c for c, mode in enumerate(modes) if mode == SLIDE]
    stuck = [c for c, mode in enumerate(modes) if mode == STICK]
    # rates of the mechanism from states and inputs, the forces that act among them
    rates = jnp.zeros((n, size)).at[:, :n].set(mechanism.F)
    for c in acting:
        rates = rates + mechanism.E[:, c, None] * H[c][None]
    J = K = jnp.eye(size)
    N, T = jnp.zeros((size, inputs)), jnp.zeros((size, size))
    hold = jnp.eye(n)
    if stuck:
        E, s = mechanism.E[:, jnp.array(stuck)], mechanism.slip[jnp.array(stuck)]
        push = jnp.linalg.solve(s @ E, jnp.concatenate([s, s @ rates, s @ mechanism.B], axis=1))
        hold = hold - E @ push[:, :n]  # no rate of the contact is left; the impulse is that of the contact
        J = J.at[:n, :n].set(hold)
        for i, c in enumerate(stuck):
            held, along = where[c].start, E[:, i] / (s[i] @ E[:, i])  # of the velocities
            K = K.at[where[c]].set(0.0).at[held].set(-push[i, n : n + size])
            N = N.at[held].set(-push[i, n + size :])
            z, v, f = contacts[c].looseness
            T = T.at[:n, held].set(along * v).at[held, held].set(f)
            q = mechanism.coordinates
            T = T.at[:q, c].set(along[q : 2 * q] * z)
    F = jnp.zeros((size, size)).at[:n].set(hold @ rates)
    B = jnp.zeros((size, inputs)).at[:n].set(hold @ mechanism.B)
    column = mechanism.G.shape[1]
    columns = column + sum(process.G.shape[1] for process in processes)
    G = jnp.zeros((size, columns)).at[:n, :column].set(hold @ mechanism.G)
    V = jnp.zeros((size, len(contacts)))
    for c, (mode, process) in enumerate(zip(modes, processes, strict=True)):
        if c in acting:
            F = F.at[where[c], where[c]].set(process.F)
            G = G.at[where[c], column : column + process.G.shape[1]].set(process.G)
        if mode == RESET:
            K = K.at[where[c]].set(0.0)
            T = T.at[where[c], where[c]].set(contacts[c].prior())
            V = V.at[:n, c].set(hold @ mechanism.E[:, c] * contacts[c].meanwhile)
        column += process.G.shape[1]
    return _Parts(J, F, B, V, G, K, N, T)
