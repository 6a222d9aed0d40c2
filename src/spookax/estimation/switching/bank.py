"""A filter for every mode, and what all orders of weighing, mixing and moving share."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..._typing import AnyArray, Array, Float
from ...math import small
from ...math.sqrt_gaussian import merged
from ...protocol import AbstractModel, Noise
from ..recursive.every_filter import Estimated, Innovation, ModeEstimate, standard_deviations
from ..recursive.filter import Filter
from ..recursive.step_rules import Belief, Context, Reading
from .estimator import AbstractSwitching, stacked
from .merging import Modes, at, heaviest, merge
from .mixtures import in_a_row


class AbstractBank(AbstractSwitching):
    """A filter for every mode. Filters of one form run as one batch, others one after the other.

    What differs between banks is when beliefs are mixed (`predicted`), how many Gaussians a mode keeps (`collapsed`),
    and with it the axes of their beliefs: modes, or modes and components.
    """

    bank: eqx.AbstractVar[Any]  # a Filter whose arrays have a leading axis, or a tuple of Filters
    transition: eqx.AbstractVar[Float[AnyArray, "modes modes"]]
    gate: eqx.AbstractVar[Float[AnyArray, ""] | float]
    count: eqx.AbstractVar[int]  # of modes

    @abc.abstractmethod
    def collapsed(self, modes: Any) -> Any:
        """The beliefs as they go on after the readings of a step."""

    @abc.abstractmethod
    def over(self, function: Callable[..., Any], beliefs: Belief, *args: Any) -> Any:
        """`function(filter, belief, *args)` for every belief; `args` have a leading axis of modes."""

    @property
    def first(self) -> Filter:
        """That of the first mode."""
        if isinstance(self.bank, tuple):
            return self.bank[0]
        arrays, rest = eqx.partition(self.bank, eqx.is_array)
        return eqx.combine(at(arrays, 0), rest)

    @property
    def model(self) -> AbstractModel:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the first mode: the manifold is the same for all."""
        return self.first.model

    def each(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(filter, *args)` for every mode; the arguments and the result have a leading axis of modes."""
        if isinstance(self.bank, tuple):
            found = [function(f, *at(args, i)) for i, f in enumerate(self.bank)]
            return jax.tree.map(lambda *a: jnp.stack(a), *found)
        return eqx.filter_vmap(function)(self.bank, *args)

    def started(self, x0: Any, sd: AnyArray, probability: AnyArray | None, each: bool) -> Modes:
        """The beliefs before the first reading, one a mode; equally likely when `probability` is left out."""
        if not each:
            x0, sd = jax.tree.map(lambda a: jnp.stack([jnp.asarray(a)] * self.count), (x0, sd))
        beliefs = self.each(lambda f, x0, sd: f.init(x0, sd), x0, jnp.asarray(sd))
        equal = jnp.full(self.count, 1.0 / self.count, dtype=float)
        return Modes(beliefs, jnp.log(equal if probability is None else jnp.asarray(probability)))

    def expected(self, modes: Any, u: Array, s: Float[Array, " M"]) -> Float[Array, "M channels"]:
        """Readings at the mean states of all beliefs, weighted by their probabilities."""

        def one(f: Filter, belief: Belief) -> Array:
            here = Context(f.model, f.model.prepare(jnp.asarray(f.z)), f.noise, u)
            d, _ = here.split(belief.mean)
            x = f.model.retract(belief.x, d)
            x1 = here.moved(belief.x, belief.mean, belief.guess)[0] if f.model.reads_pair else x
            return jax.vmap(lambda s: f.model.observe(x, x1, here.p, s))(s)

        y, weight = in_a_row(modes, self.over(one, modes.beliefs)), jnp.exp(modes.log_weight.reshape(-1))
        best = heaviest(y, weight)
        apart = jax.vmap(jax.vmap(self.model.difference), in_axes=(0, None))(y, best)
        return best + jnp.einsum("j,jmc->mc", weight, apart)

    # --- what the compiled functions are made of

    def conditioned(
        self, modes: Any, u: Array, reading: Reading, noise: Noise | None
    ) -> tuple[Belief, Innovation, Any]:
        """Every belief given the readings, its innovation, and of the innovation the factor and the sensors' levels."""

        def one(f: Filter, belief: Belief, level: Noise | None) -> tuple[Belief, Innovation, Any]:
            level = level or f.noise
            H, y, root = f.rule.readings(f.context(u, level), belief, reading)
            after, innovation, _ = f.conditioned(belief, reading, level, H, y, root)
            spread = jnp.concatenate([H @ belief.factor, jnp.eye(H.shape[0], dtype=H.dtype)], axis=1)
            sd = jnp.broadcast_to(level.sensor, reading.y.shape).reshape(-1)
            return after, innovation, (spread if root is None else root @ spread, sd)

        return self.over(one, modes.beliefs, noise)

    def updated(self, modes: Any, u: Array, reading: Reading, noise: Noise | None = None) -> tuple[Any, Estimated]:
        beliefs, found, (spread, sd) = self.conditioned(modes, u, reading, noise)
        joint = modes.log_weight + found.log_likelihood
        total = jax.nn.logsumexp(joint)
        residual, spread, sd = in_a_row(modes, (found.residual, spread, sd))
        weight, size = jnp.exp(modes.log_weight.reshape(-1)), found.size.reshape(-1)[0]
        innovation = _together(weight, residual, size, spread, sd / sd[:1], total, self.gate)
        after = type(modes)(beliefs, joint - total)
        after = jax.tree.map(lambda new, old: jnp.where(innovation.accepted > 0, new, old), after, modes)
        after = self.collapsed(after)
        return after, self._filtered(after, u, reading, innovation)

    def _filtered(self, modes: Any, u: Array, reading: Reading, innovation: Innovation) -> Estimated:
        model, n = self.model, self.model.tangent_size
        beliefs, weight = in_a_row(modes, modes.beliefs), jnp.exp(modes.log_weight.reshape(-1))
        # as a batch of one, in array code: XLA loses a LAPACK call in a scan that goes on without its result
        one = jax.tree.map(lambda a: a[None], (weight, beliefs))
        all_in = at(jax.vmap(lambda w, b: merge(model, w, b))(*one), 0)
        best = heaviest(beliefs, weight)
        likeliest, fitted = model.retract(best.x, best.mean[:n]), self.expected(modes, u, reading.s)
        known = ModeEstimate(modes.log_probability, likeliest, fitted)
        return Estimated(all_in.x, standard_deviations(all_in.factor), innovation, known)


def checked(filters: Sequence[Filter], transition: AnyArray) -> tuple[Any, np.ndarray | Array]:
    """Filters as a batch or a tuple, and transition probabilities.

    **Raises:** `ValueError` when the tangents differ, when `transition` is no such matrix, or when a filter has a
    gate of its own: what one mode keeps out would count as likely.
    """
    count = len(filters)
    Pi = transition if isinstance(transition, Tracer) else np.asarray(transition, dtype=float)
    if Pi.shape != (count, count):
        raise ValueError(
            f"`transition` must be {count} by {count}, a row for each of the filters, none of its entries negative, "
            f"rows of sum one; got shape {Pi.shape}"
        )
    if isinstance(Pi, np.ndarray) and (np.any(~(Pi >= 0)) or np.any(np.abs(Pi.sum(axis=1) - 1) > 1e-9)):
        raise ValueError(
            f"`transition` must be {count} by {count}, a row for each of the filters, none of its entries "
            f"negative, rows of sum one; got row sums {Pi.sum(axis=-1)}, least entry {Pi.min():g}"
        )
    if any(np.any(np.isfinite(f.gate)) for f in filters):
        raise ValueError(
            "filters of a bank have no gate: what one keeps out would count as likely; give it to the bank"
        )
    kinds = {(f.model.tangent_size, f.model.reads_pair) for f in filters}
    if len(kinds) > 1:
        raise ValueError(f"the models of a bank must share their state: (tangent size, reads_pair) are {kinds}")
    forms = {jax.tree.structure(f) for f in filters}
    return (stacked(filters) if len(forms) == 1 else tuple(filters)), Pi


def _together(
    weights: Float[Array, " c"],
    residual: Float[Array, "c r"],
    size: Array,
    spread: Float[Array, "c r k"],
    unit: Float[Array, "c r"],
    log_likelihood: Array,
    gate: AnyArray | float,
) -> Innovation:
    """The innovation beside the mixture of what all beliefs expect, in standard deviations of the first mode's sensors.

    `residual`, `spread`: innovations and factors of the readings' covariances in standard deviations of the belief's
    own sensors, `unit`: those in the first mode's.
    """
    residual, factor = merged(weights, unit * residual, unit[:, :, None] * spread)
    white = small.solve_lower(factor, residual)
    nis = jnp.sum(white**2)
    accepted = nis <= jnp.asarray(gate, dtype=nis.dtype)
    return Innovation(residual, white, size, nis, jnp.where(accepted, log_likelihood, 0.0), accepted.astype(nis.dtype))
