"""Once through a recording by a filter, an ensemble, or a bank of filters, with one kind of result."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._compiled import compiled, on_device
from ..._results import STEP_RESULTS
from ..._typing import Float
from ...estimation import IMM, Belief, EnsembleFilter, Filter, Innovation, Modes, merge
from ...protocol import AbstractModel, Samples


class Pass(NamedTuple):
    """What a pass found; leading axis of all but `end`: steps."""

    innovation: Innovation
    x: Any  # states, given the readings up to and in their step, or all
    factor: Float[np.ndarray, "steps n k"]  # of their covariances
    end: Belief  # what is believed after the last step
    probability: Float[np.ndarray, "steps modes"] | None  # of every mode of a bank
    result: STEP_RESULTS  # how every step ended


def by_filter(f: Filter, start: Belief, samples: Samples, smooth: bool) -> Pass:
    """Filtered, or filtered and smoothed."""
    found = f.run(start, samples, trail=True)
    x, S = found.x, found.trail.filtered()
    if smooth:
        smoothed = f.smooth(found)
        x, S = jax.tree.map(lambda a: a[:-1], (smoothed.x, smoothed.factor))
    return Pass(found.innovation, x, np.asarray(S), found.last, None, found.result)


def by_ensemble(f: EnsembleFilter, x0: Any, factor: np.ndarray, samples: Samples) -> Pass:
    """Filtered; of the covariances the standard deviations."""
    found = f.run(f.init(x0, factor, jax.random.key(0)), samples)
    S = np.asarray(found.sd)[:, :, None] * np.eye(found.sd.shape[1])
    end = Belief(jax.tree.map(lambda a: a[-1], found.x), jnp.zeros(S.shape[1]), on_device(S[-1]), jnp.zeros(0))
    return Pass(found.innovation, found.x, S, end, None, found.result)


def by_bank(f: IMM, start: Modes, samples: Samples, smooth: bool) -> Pass:
    """Filtered, or filtered and smoothed: over all modes."""
    found = f.run(start, samples, trail=True)
    if smooth:
        back = f.smooth(found)
        x, S, probability = back.x, back.factor, back.probability
    else:
        modes = jax.tree.map(lambda a, last: jnp.concatenate([a, last[None]]), found.trail.filtered, found.last)
        merged = _merged(f.model, modes)
        x, S, probability = merged.x, merged.factor, jnp.exp(modes.log_probability)
    *_, guess = found.last.beliefs.guess
    end = Belief(jax.tree.map(lambda a: a[-1], x), jnp.zeros(S.shape[1]), S[-1], guess)
    x, S, probability = jax.tree.map(lambda a: a[:-1], (x, S, probability))
    return Pass(found.innovation, x, np.asarray(S), end, np.asarray(probability), found.result)


@compiled
def _merged(model: AbstractModel, modes: Modes) -> Belief:
    """Over the modes of every step."""
    return jax.vmap(lambda m: merge(model, m.probability, m.beliefs))(modes)
