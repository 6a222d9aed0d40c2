"""Mechanisms that differ between episodes: by what an identification does not know, or by a share of a number."""

import abc
import fnmatch
import warnings
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array, Bool, Float
from ..models import ParameterMap
from ..study.file.bodies import idle_moments
from ..study.identifying.estimate import Estimate
from ..study.judging.posterior import factored, posterior
from ..system import Params, System, build, locate, put
from ..system.params import inertia_matrix, paths

_TRIES = 32  # draws, of which the first that is possible is taken
_MOMENTS = ("xx", "yy", "zz")


class AbstractRandomisation(eqx.Module):
    """How the numbers of a mechanism are drawn for an episode."""

    @abc.abstractmethod
    def check(self, system: System) -> None:
        """**Raises:** `ValueError` if the scene lacks a number that is drawn."""

    @abc.abstractmethod
    def drawn(self, system: System) -> tuple[str, ...]:
        """Paths of the numbers that differ."""

    @abc.abstractmethod
    def draw(self, system: System, params: Params, key: Array) -> Params:
        """The parameters of an episode."""

    @abc.abstractmethod
    def sensor_sd(self) -> dict[str, tuple[float, ...]]:
        """Standard deviations of sensors' noise, where they are known better than from the scene."""


class Posterior(AbstractRandomisation):
    """Draws from the posterior of an estimate: its full covariance, in the transformed coordinates of the search.

    Draws beyond a bound of the study, or of a body that cannot be, are drawn anew: the distribution ends there. An
    unknown that the estimate has at a bound lies to one side of it. One that the recordings say nothing about stays as
    it was found, with a warning.

    **Arguments:**

    - `estimate`: of any study, from `identify` or `load_estimate`.
    - `factor`: on all standard deviations. [-]

    **Raises:** `ValueError` for an estimate without a posterior (of an earlier version) or without a possible scene.
    """

    shared: ParameterMap
    idle: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # of every body, moments without effect
    sds: tuple[tuple[str, tuple[float, ...]], ...] = eqx.field(static=True)
    mean: Float[AnyArray, " p"]
    root: Float[AnyArray, "p p"]  # of the covariance
    one_sided: Float[AnyArray, " p"]  # standard deviation of what is at a bound, with the sign of the way from there
    bounds: tuple[Float[AnyArray, " p"], Float[AnyArray, " p"]]

    def __init__(self, estimate: Estimate, factor: float = 1.0):
        if estimate.scene is None:
            raise ValueError(f"the estimate has no scene to draw mechanisms of: {estimate.message}")
        if not factor >= 0:
            raise ValueError(f"`factor` must not be negative, got {factor:g}")
        system, _ = build(estimate.scene)
        found = posterior(estimate.content, system)
        self.shared, self.mean = found.shared, found.mean
        unknown = ~np.isfinite(np.diag(found.covariance))
        if unknown.any():
            owners = [free.path for free in found.shared.free for _ in range(free.size)]
            names = ", ".join(dict.fromkeys(name for name, u in zip(owners, unknown, strict=True) if u))
            warnings.warn(f"nothing is known of {names}: not drawn, but held as found", stacklevel=2)
        self.root, self.one_sided = (factor * part for part in factored(found.covariance, found.reach))
        self.bounds = found.shared.bounds()
        idle = idle_moments(estimate.scene)
        plain = {n: not (b.inertia.xy or b.inertia.xz or b.inertia.yz) for n, b in estimate.scene.bodies.items()}
        self.idle = tuple(
            tuple(_MOMENTS.index(part) for part in idle[name]) if plain[name] else () for name in system.bodies
        )
        levels = estimate.content.get("noise", {}).get("sensors", {})
        self.sds = tuple((name, tuple(level)) for name, level in levels.items())

    def check(self, system: System) -> None:
        _known(system, self.shared.paths)
        own = self.shared.system
        assert own is not None
        if system.bodies != own.bodies:
            raise ValueError(f"the estimate is of bodies {', '.join(own.bodies)}, the scene has others")

    def drawn(self, system: System) -> tuple[str, ...]:
        return self.shared.paths

    def draw(self, system: System, params: Params, key: Array) -> Params:
        dtype = params.mass.dtype
        mean, root = jnp.asarray(self.mean, dtype), jnp.asarray(self.root, dtype)
        normal = jax.random.normal(key, (_TRIES, *mean.shape), dtype)
        z = mean[None] + normal @ root.T + jnp.asarray(self.one_sided, dtype)[None] * jnp.abs(normal)
        lower, upper = self.bounds
        slack = 1e-6 * (1 + jnp.abs(mean))  # what is found at a bound may be off it by rounding
        inside = jnp.all((z >= (lower - slack)[None]) & (z <= (upper + slack)[None]), axis=1)
        made = jax.vmap(lambda z: self._possible(self.shared.apply(params, z)))(z)
        return _first_possible(made, inside, self._possible(self.shared.apply(params, mean)))

    def sensor_sd(self) -> dict[str, tuple[float, ...]]:
        return dict(self.sds)

    def _possible(self, params: Params) -> Params:
        """With moments that have no effect on any motion such that a body has them with the others."""
        inertia = params.inertia
        for body, idle in enumerate(self.idle):
            kept = [k for k in range(3) if k not in idle]
            if len(idle) == 1:
                a, b = (inertia[body, k] for k in kept)
                inertia = inertia.at[body, idle[0]].set(jnp.clip(inertia[body, idle[0]], jnp.abs(a - b), a + b))
            elif len(idle) == 2:
                c, (a, b) = inertia[body, kept[0]], (inertia[body, k] for k in idle)
                larger = jnp.maximum(1.0, c / (a + b))
                a, b = larger * a, larger * b
                inertia = inertia.at[body, np.array(idle)].set(
                    jnp.stack([jnp.minimum(a, b + c), jnp.minimum(b, a + c)])
                )
        return eqx.tree_at(lambda p: p.inertia, params, inertia)


class Uniform(AbstractRandomisation):
    """Numbers drawn evenly within a share of what they are: `{"bodies.*.mass": 0.3}` is 30 % to both sides.

    **Arguments:** `shares`: path, or pattern of paths with `*`, -> share. [-]
    """

    patterns: tuple[str, ...] = eqx.field(static=True)
    shares: Float[AnyArray, " patterns"]

    def __init__(self, shares: Mapping[str, float]):
        self.patterns = tuple(shares)
        self.shares = np.array([float(share) for share in shares.values()])
        for pattern, share in shares.items():
            if not 0 <= share < 1:
                raise ValueError(f"the share of '{pattern}' must be at least 0 and less than 1, got {share:g}")

    def check(self, system: System) -> None:
        for pattern in self.patterns:
            if not fnmatch.filter(paths(system), pattern):
                _known(system, (pattern,))

    def drawn(self, system: System) -> tuple[str, ...]:
        return tuple(self._shared_by(system))

    def draw(self, system: System, params: Params, key: Array) -> Params:
        chosen = self._shared_by(system)
        places = [locate(system, path) for path in chosen]
        value = jnp.stack([place.get(params) for place in places])
        share = jnp.asarray(self.shares, value.dtype)[np.array(list(chosen.values()))]
        drawn = jax.random.uniform(key, (_TRIES, len(places)), value.dtype, -1.0, 1.0)
        made = jax.vmap(lambda u: put(params, places, value * (1 + share * u)))(drawn)
        return _first_possible(made, jnp.ones(_TRIES, dtype=bool), params)

    def _shared_by(self, system: System) -> dict[str, int]:
        """Path -> the last of the patterns that it fits."""
        known = paths(system)
        return {path: i for i, pattern in enumerate(self.patterns) for path in fnmatch.filter(known, pattern)}

    def sensor_sd(self) -> dict[str, tuple[float, ...]]:
        return {}


def _first_possible(made: Params, allowed: Bool[Array, " tries"], otherwise: Params) -> Params:
    """The first mechanism that is allowed and possible; another one if none is."""
    good = allowed & jax.vmap(_is_possible)(made)
    first = jnp.argmax(good)
    return jax.tree.map(lambda a, b: jnp.where(jnp.any(good), a[first], b), made, otherwise)


def _is_possible(params: Params) -> Bool[Array, ""]:
    """Whether all masses are positive and no body's second moments are negative."""
    J = inertia_matrix(params.inertia)
    second = jnp.trace(J, axis1=1, axis2=2)[:, None, None] / 2 * np.eye(3, dtype=J.dtype)[None] - J
    least = jnp.linalg.eigvalsh(second)[:, 0]
    rounding = 100 * jnp.finfo(J.dtype).eps * jnp.trace(J, axis1=1, axis2=2)
    return jnp.all(params.mass > 0) & jnp.all(least >= -rounding)


def _known(system: System, names: tuple[str, ...]) -> None:
    for name in names:
        try:
            locate(system, name)
        except KeyError as unknown:
            raise ValueError(f"the scene lacks a number that is drawn: {unknown.args[0]}") from None
