"""Draws of hyperparameters from their posterior, by the No-U-Turn sampler of blackjax (the extra `sampling`).

A sampler that follows the gradient, in coordinates in which Laplace's approximation is a standard normal density, so
that only the size of its steps has to be adapted. Where the filter keeps other components the density jumps; a draw
that meets a jump is accepted or not by the density itself, so that the draws are right all the same.

**Source:** Hoffman and Gelman (2014).
"""

from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from spookax._compiled import compiled
from spookax._typing import Array, Float, Scalar

CHAINS = 2
ADAPTED = 40  # draws of a chain in which the size of its steps is adapted, which are left out
_ACCEPTED = 0.8  # probability that it is adapted to
_FIRST = 0.7  # size before that
_LEAST = 0.35  # where the density jumps, smaller steps are accepted no more often
_DOUBLINGS = 6  # a draw takes at most 2^6 gradients


class Density(Protocol):
    """A module of arrays with a density."""

    def gradient(self, log: Array) -> tuple[Scalar, Array]:
        """Minus its logarithm, and the gradient."""
        ...


class Draws(NamedTuple):
    """What a sampler has done, and from where it goes on."""

    log: Float[np.ndarray, "chains draws n"]  # those among them in which steps were adapted
    tuning: Float[np.ndarray, "chains 5"]  # of the steps' size: the state of its adaptation

    @staticmethod
    def none(n: int) -> "Draws":
        """Of n hyperparameters, before the first."""
        return Draws(np.zeros((CHAINS, 0, n)), np.zeros((CHAINS, 5)))

    @property
    def kept(self) -> Float[np.ndarray, "chains draws n"]:
        """Those after the adaptation."""
        return self.log[:, ADAPTED:]

    def thinned(self, count: int) -> Float[np.ndarray, "count n"]:
        """Some of those kept, evenly over all chains."""
        every = self.kept.reshape(-1, self.log.shape[-1])
        return every[np.unique(np.linspace(0, len(every) - 1, count).astype(int))]


class Quality(NamedTuple):
    """How far draws can be trusted; the worst of all hyperparameters."""

    effective: float  # how many independent draws they are worth
    rhat: float  # spread of the chains together over that of each: 1 where they agree


def blackjax_module() -> ModuleType:
    """Blackjax.

    **Raises:** `ImportError` that says how to install it.
    """
    try:
        import blackjax  # pyright: ignore[reportMissingImports]
    except ImportError:
        cure = "Install it with the extra of this package: pip install 'spookax[sampling]'."
        raise ImportError(f"sampling hyperparameters needs blackjax, which is not installed. {cure}") from None
    return blackjax


class _At(NamedTuple):
    """A draw in whitened coordinates, with the logarithm of the density and its gradient there."""

    e: Array
    value: Array
    slope: Array


def _at(density: Any, e: Array, centre: Array, root: Array) -> _At:
    cost, slope = density.gradient(centre + root @ e)
    return _At(e, -cost, -root.T @ slope)


@compiled
def _drawn(density: Any, at: _At, centre: Array, root: Array, step: Scalar, key: Array) -> tuple[_At, Scalar]:
    """The next draw of a chain, and with what probability it was accepted."""

    @jax.custom_vjp
    def value(e: Array) -> Scalar:
        return _at(density, e, centre, root).value

    def forwards(e: Array) -> tuple[Scalar, Array]:
        there = _at(density, e, centre, root)
        return there.value, there.slope

    value.defvjp(forwards, lambda slope, given: (given * slope,))
    nuts = blackjax_module().nuts(value, step, jnp.ones(len(centre)), max_num_doublings=_DOUBLINGS)
    after, told = nuts.step(key, blackjax_module().mcmc.hmc.HMCState(*at))
    return _At(*after), told.acceptance_rate


def sampled(
    density: Density,
    centre: Float[np.ndarray, " n"],
    covariance: Float[np.ndarray, "n n"],
    count: int,
    before: Draws | None = None,
    seed: int = 0,
) -> Iterator[Draws]:
    """All draws so far, after every draw of all chains, until of each chain `count` are kept.

    **Arguments:** `centre`, `covariance`: of a normal density that resembles this one; `before`: draws to go on from.
    A chain begins two standard deviations from the centre. Draws depend on the arguments, not on how often it is begun.

    **Raises:** `ImportError` without blackjax.
    """
    blackjax_module()
    from blackjax.adaptation import step_size  # pyright: ignore[reportMissingImports]

    begin, adapt, adapted = step_size.dual_averaging_adaptation(_ACCEPTED)
    root = np.linalg.cholesky(covariance)
    fixed = jnp.asarray(centre), jnp.asarray(root)
    before = before or Draws.none(len(centre))
    logs, done = [list(chain) for chain in before.log], before.log.shape[1]

    def key(chain: int, number: int) -> Array:
        return jax.random.fold_in(jax.random.fold_in(jax.random.PRNGKey(seed), chain), number)

    def first(chain: int) -> Array:
        away = jax.random.normal(key(chain, 0), (len(centre),))
        return 2.0 * away / jnp.linalg.norm(away)

    if done:
        tuning = [step_size.DualAveragingAdaptationState(*jnp.asarray(t)) for t in before.tuning]
        starts = [jnp.asarray(np.linalg.solve(root, chain[-1] - centre)) for chain in logs]
    else:
        tuning, starts = [begin(_FIRST)] * CHAINS, [first(chain) for chain in range(CHAINS)]
    at = [_at(density, e, *fixed) for e in starts]
    for number in range(done, ADAPTED + count):
        for chain in range(CHAINS):
            adapting = number < ADAPTED
            size = jnp.exp(tuning[chain].log_step_size) if adapting else adapted(tuning[chain])
            size = jnp.maximum(size, _LEAST)
            at[chain], accepted = _drawn(density, at[chain], *fixed, size, key(chain, 1 + number))
            if adapting:
                tuning[chain] = adapt(tuning[chain], accepted)
            logs[chain].append(centre + root @ np.asarray(at[chain].e))
        yield Draws(np.array(logs), np.array([np.asarray(t, dtype=float) for t in tuning]))


def quality(draws: Draws) -> Quality:
    """Of those kept, four or more of a chain."""
    diagnostics = blackjax_module().diagnostics
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # it leaves both to JAX
        effective, rhat = (np.asarray(f(draws.kept)) for f in (diagnostics.effective_sample_size, diagnostics.rhat))
    return Quality(float(np.min(effective)), float(np.max(rhat)))
