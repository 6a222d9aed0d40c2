"""Joint estimation of states and parameters, simulator form: Levenberg-Marquardt whose iterates are trajectories.

Unknowns are x_0, the whitened noise w_k of every step and the parameters z; x_{k+1} = step(x_k, u_k, w_k; z). Cost

    J = 1/2 sum |w_k|^2 + 1/2 sum |e_k|^2 + 1/2 |(z - z_prior) / sd|^2        (joint)
    J + 1/2 sum log |F_k|                                                      (marginal: states integrated out)

One iteration linearises along the present trajectory, sweeps forward (filter with parameter columns), solves the
reduced problem in the parameters under their bounds, sweeps back, and *simulates* the planned trajectory with
feedback, so that the result is again a trajectory of the simulator. Every recording has its own first state and its
own offsets, which are eliminated inside it: cost is linear in recordings.

**Source:** Marklund, Servin, Larson (2025), chapter 3, in the form described in the documentation (estimation).
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._results import ESTIMATE_RESULTS
from .._typing import Array, Float, Scalar
from ..complementarity import MLCP, solve_mlcp
from ..math import small
from ..protocol import AbstractModel, Noise, Samples
from .linearise import Linearised, Path, before, chunked, linearise, residuals
from .sweeps import Filtered, adjoint_smoother, covariance_filter, reduced

_LITTLE = 0.1  # change of the cost (a log-likelihood) that means nothing: 0.5 is one standard deviation
_ROUGH = 0.01  # relative decrease that ends a stage before the last
_TRUST = 1.0  # largest step of a parameter in one iteration, in z (one log-unit)


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is to be estimated: one model for each recording (they share the first `num_shared` parameters).

    `z0`: start of the shared parameters; `prior`, `weight`: mean and 1/sd of their prior; `lower`, `upper`: bounds.
    `own_prior_weight`: 1/sd of the parameters of a recording (offsets), whose prior mean is zero.
    """

    samples: tuple[Samples, ...]
    z0: np.ndarray
    prior: np.ndarray
    weight: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    own_weight: np.ndarray  # of one recording; the same kinds in each
    initial_sd: float = 1.0  # prior sd of the free directions of x_0 (positions in m or rad; velocities times 10)


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of the continuation: the model (friction speed) and the noise scale to use."""

    model: AbstractModel
    noise: Noise


@dataclasses.dataclass(frozen=True)
class Settings:
    """Numbers of the iteration."""

    max_iterations: int = 60
    tolerance: float = 1e-6  # relative decrease of the cost that counts as none, twice in a row (or 0.1 in nats)
    marginal: bool = True


DEFAULT_SETTINGS = Settings()


class Iterate(NamedTuple):
    """Where the iteration stands: everything that is needed to go on."""

    z: Float[Array, " p"]
    own: tuple[Float[Array, " l"], ...]
    paths: tuple[Path, ...]


@dataclasses.dataclass(frozen=True)
class Progress:
    """One line of the protocol of an iteration."""

    stage: int
    iteration: int
    cost: float
    step: float
    damping: float
    seconds: float


@dataclasses.dataclass
class Fit:
    """Result of a fit. `covariance` is that of z at the optimum, parameters at a bound left out (zero)."""

    iterate: Iterate
    cost: float
    result: ESTIMATE_RESULTS
    iterations: int
    covariance: np.ndarray
    information: np.ndarray  # reduced matrix without the prior
    own_covariance: tuple[np.ndarray, ...]
    log_det: float
    history: list[Progress]


# ---------------------------------------------------------------------------------------------------------------
# compiled pieces, one recording each


def initial_covariance(model: AbstractModel, z: Array, x0: Any, sd: float) -> tuple[Array, Array]:
    """(P_0, Y_0): covariance of the free directions of x_0, and how x_0 follows the parameters."""
    n = model.tangent_size

    def placed(d: Array) -> Array:
        return model.local(model.start(model.retract(x0, d[:n]), model.prepare(z + d[n:])), x0)

    jac = jax.jacfwd(placed)(jnp.zeros(n + z.shape[0], dtype=z.dtype))
    T, Y0 = jac[:, :n], jac[:, n:]
    scale = jnp.concatenate([jnp.full(n // 2, sd), jnp.full(n // 2, 10 * sd)])
    half = T * scale
    return half @ half.T, Y0


@eqx.filter_jit
def sweep(model: AbstractModel, z: Array, noise: Noise, path: Path, samples: Samples, sd: float):
    """Linearise and filter one recording."""
    lin = linearise(model, z, noise, path, samples)
    P0, Y0 = initial_covariance(model, z, jax.tree.map(lambda a: a[0], path.x), sd)
    f = covariance_filter(lin, path.w, Y0, P0)
    return lin, f, reduced(f)


@eqx.filter_jit
def cost_of(model: AbstractModel, z: Array, noise: Noise, path: Path, samples: Samples) -> Scalar:
    """1/2 sum |w|^2 + 1/2 sum |e|^2 of one recording."""
    e = residuals(model, z, noise, path, samples)
    return (jnp.sum(path.w**2) + jnp.sum(e**2)) / 2


@eqx.filter_jit
def track(model: AbstractModel, z: Array, noise: Noise, plan: Any, w: Array, u: Array, hint: Array) -> Path:
    """Follow planned states (K + 1, or K) with planned noise plus feedback; always a trajectory of the simulator."""
    p = model.prepare(z)
    ahead = jax.tree.map(lambda a: a[: w.shape[0]], plan)
    gains = chunked(lambda x: model.tracking_gain(x, p, noise), ahead, w.shape[0])

    def body(carry, step):
        x, level = carry
        target, w, u, gain = step
        w = w + gain @ model.local(target, x)
        x1, level = model.step(x, p, u, w, noise, level)
        return (x1, level), (x1, w, level)

    x0 = model.start(jax.tree.map(lambda a: a[0], plan), p)
    _, (x, w, hint) = jax.lax.scan(body, (x0, hint[0]), (ahead, w, u, gains))
    return Path(jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), x0, x), w, hint)


@eqx.filter_jit
def trial(
    model: AbstractModel,
    z: Array,
    dz: Array,
    alpha: Array,
    noise: Noise,
    path: Path,
    samples: Samples,
    lin: Linearised,
    f: Filtered,
) -> tuple[Path, Scalar, Scalar]:
    """Plan by the adjoint smoother, simulate with feedback, and cost there."""
    dx, new_w = adjoint_smoother(lin, path.w, f, dz)
    plan = jax.vmap(model.retract)(before(path.x), alpha * dx)
    w = path.w + alpha * (new_w - path.w)
    new = track(model, z + alpha * dz, noise, plan, w, samples.u, path.hint)
    return new, cost_of(model, z + alpha * dz, noise, new, samples), jnp.sqrt(jnp.mean(dx**2))


@eqx.filter_jit
def log_det_gradient(
    model: AbstractModel, z: Array, noise: Noise, path: Path, samples: Samples, sd: float, base: Scalar, count: int
) -> Float[Array, " p"]:
    """d(1/2 sum log|F|)/dz at a fixed trajectory, by forward differences in the first `count` parameters."""
    eps = 1e-5

    def at(direction: Array) -> Scalar:
        moved = z + eps * direction
        lin = linearise(model, moved, noise, path, samples)
        P0, Y0 = initial_covariance(model, moved, jax.tree.map(lambda a: a[0], path.x), sd)
        return covariance_filter(lin._replace(C=lin.C[..., :0], D=lin.D[..., :0]), path.w, Y0[:, :0], P0).log_det

    return (jax.lax.map(at, jnp.eye(count, z.shape[0], dtype=z.dtype)) - base) / (2 * eps)


@eqx.filter_jit
def box_step(N: Array, g: Array, lower: Array, upper: Array, damping: Array) -> Array:
    """Minimiser of 1/2 d' (N + damping diag N) d - g' d between bounds, by the package's own Lemke solver."""
    D = 1 / jnp.sqrt(jnp.diagonal(N))
    M = D[:, None] * N * D[None, :] + damping * jnp.eye(N.shape[0], dtype=N.dtype)
    return D * solve_mlcp(MLCP(M, -D * g, lower / D, upper / D)).x


# ---------------------------------------------------------------------------------------------------------------
# the iteration


@dataclasses.dataclass
class _Linear:
    """The linearised problem of all recordings, own parameters eliminated."""

    parts: list[tuple[Linearised, Filtered, tuple[Array, Array, Array]]]
    N: Array
    g: Array
    log_det: float

    def own_step(self, i: int, dz: Array, own: Array, weight: np.ndarray) -> Array:
        p = dz.shape[0]
        N, g, _ = self.parts[i][2]
        if own.shape[0] == 0:
            return own
        rhs = g[p:] - jnp.asarray(weight) ** 2 * own - N[p:, :p] @ dz
        return small.solve(N[p:, p:] + jnp.diag(jnp.asarray(weight) ** 2), rhs[:, None])[:, 0]


class Estimator:
    """The iteration of one stage after the other. Keeps the last iterate, so that it can be interrupted."""

    def __init__(self, problem: Problem, settings: Settings, report: Callable[[Progress], None] | None = None):
        self.problem, self.settings, self.report = problem, settings, report
        self.history: list[Progress] = []
        self.iterate: Iterate | None = None
        self._began = time.perf_counter()

    def _all(self, z: Array, own: Array) -> Array:
        return jnp.concatenate([z, own])

    def _prior(self, z: Array, own: Sequence[Array]) -> float:
        p = self.problem
        total = np.sum((p.weight * (np.asarray(z) - p.prior)) ** 2)
        return float(total + sum(np.sum((p.own_weight * np.asarray(o)) ** 2) for o in own)) / 2

    def linear(self, stage: Stage, it: Iterate) -> _Linear:
        p = self.problem
        count = it.z.shape[0]
        N = jnp.diag(jnp.asarray(p.weight) ** 2)
        g = -(jnp.asarray(p.weight) ** 2) * (it.z - jnp.asarray(p.prior))
        parts, log_det = [], 0.0
        for own, path, samples in zip(it.own, it.paths, p.samples, strict=True):
            lin, f, (n, h, q) = sweep(stage.model, self._all(it.z, own), stage.noise, path, samples, p.initial_sd)
            parts.append((lin, f, (n, h, q)))
            log_det += float(f.log_det)
            n_zz, h_z = n[:count, :count], h[:count]
            if own.shape[0]:
                weight = jnp.asarray(p.own_weight) ** 2
                corner = n[count:, count:] + jnp.diag(weight)
                both = small.solve(corner, jnp.concatenate([n[count:, :count], (h[count:] - weight * own)[:, None]], 1))
                n_zz = n_zz - n[:count, count:] @ both[:, :-1]
                h_z = h_z - n[:count, count:] @ both[:, -1]
            N, g = N + n_zz, g + h_z
        return _Linear(parts, N, g, log_det)

    def cost(self, stage: Stage, it: Iterate) -> float:
        """Joint cost with priors."""
        total = self._prior(it.z, it.own)
        for own, path, samples in zip(it.own, it.paths, self.problem.samples, strict=True):
            total += float(cost_of(stage.model, self._all(it.z, own), stage.noise, path, samples))
        return total

    def _gradient(self, stage: Stage, it: Iterate, linear: _Linear) -> Array:
        total = jnp.zeros_like(it.z)
        for own, path, samples, part in zip(it.own, it.paths, self.problem.samples, linear.parts, strict=True):
            z = self._all(it.z, own)
            total = total + log_det_gradient(
                stage.model, z, stage.noise, path, samples, self.problem.initial_sd, part[1].log_det, it.z.shape[0]
            )
        return total

    def _try(self, stage: Stage, it: Iterate, linear: _Linear, dz: Array, alpha: float):
        own_steps = [linear.own_step(i, dz, own, self.problem.own_weight) for i, own in enumerate(it.own)]
        paths, total, size = [], 0.0, 0.0
        for own, step, path, samples, (lin, f, _) in zip(
            it.own, own_steps, it.paths, self.problem.samples, linear.parts, strict=True
        ):
            new, value, moved = trial(
                stage.model,
                self._all(it.z, own),
                self._all(dz, step),
                jnp.asarray(alpha),
                stage.noise,
                path,
                samples,
                lin,
                f,
            )
            paths.append(new)
            total += float(value)
            size = max(size, float(moved))
        own = tuple(o + alpha * s for o, s in zip(it.own, own_steps, strict=True))
        new = Iterate(it.z + alpha * dz, own, tuple(paths))
        return new, total + self._prior(new.z, new.own)

    def run(self, it: Iterate, stages: Sequence[Stage]) -> Fit:
        """All stages in turn; the last one to convergence."""
        result, linear, value, used = ESTIMATE_RESULTS.successful, None, np.inf, 0
        for number, stage in enumerate(stages):
            if number:  # the same states under the stage's own noise and friction
                it = self.retrack(stage, it)
            last = number == len(stages) - 1
            it, value, linear, result, used = self._stage(number, stage, it, last, used)
        assert linear is not None
        return self._finish(stages[-1], it, value, linear, result, used)

    def retrack(self, stage: Stage, it: Iterate) -> Iterate:
        """The states of an iterate as a trajectory of another stage's simulator."""
        paths = []
        for own, path, samples in zip(it.own, it.paths, self.problem.samples, strict=True):
            z = self._all(it.z, own)
            paths.append(track(stage.model, z, stage.noise, path.x, 0 * path.w, samples.u, path.hint))
        return it._replace(paths=tuple(paths))

    def _stage(self, number: int, stage: Stage, it: Iterate, last: bool, used: int):
        s, p = self.settings, self.problem
        lower, upper = jnp.asarray(p.lower), jnp.asarray(p.upper)
        damping, alpha, calm = 1e-4, 1.0, 0
        linear, value = self.linear(stage, it), self.cost(stage, it)
        marginal = s.marginal and last
        extra, pending = jnp.zeros_like(it.z), marginal
        result = ESTIMATE_RESULTS.iteration_limit
        self._say(number, used, value, 0.0, damping)
        while used < s.max_iterations:
            used += 1
            g = linear.g - extra
            d = box_step(
                linear.N, g, jnp.maximum(lower - it.z, -_TRUST), jnp.minimum(upper - it.z, _TRUST), jnp.asarray(damping)
            )
            new, new_value = self._try(stage, it, linear, d, alpha)
            gain = (value + float(extra @ it.z)) - (new_value + float(extra @ new.z))
            moved = alpha * float(jnp.max(jnp.abs(d))) if d.size else 0.0
            # half the squared length of the step in posterior standard deviations is what the cost would gain by it
            change = float(d @ linear.N @ d) / 2
            little = max(s.tolerance * abs(value), _LITTLE)
            accepted = np.isfinite(new_value) and gain >= 0
            if accepted:
                calm = calm + 1 if gain < little else 0
                it, value = new, new_value
                damping, alpha = max(damping / 10, 1e-9), min(1.0, 2 * alpha)
                linear = self.linear(stage, it)
                self.iterate = it
            else:
                # near a kink (a joint about to stick) full steps overshoot: below the noise this is the end
                calm = calm + 1 if change < _LITTLE else calm
                damping, alpha = min(damping * 10, 1e6), alpha / 2
            self._say(number, used, value, moved, damping)
            over = calm >= 2 or (not last and (not accepted or gain < _ROUGH * abs(value)))
            if over:
                if not pending:
                    result = ESTIMATE_RESULTS.successful
                    break
                extra, pending, calm = self._gradient(stage, it, linear), False, 0
                damping, alpha = 1e-9, 1.0
            elif alpha < 1e-3:
                result = ESTIMATE_RESULTS.no_progress
                break
        return it, value, linear, result, used

    def snapshot(self, stage: Stage, it: Iterate) -> Fit:
        """A fit of an iterate that did not converge (interrupted)."""
        linear = self.linear(stage, it)
        return self._finish(stage, it, self.cost(stage, it), linear, ESTIMATE_RESULTS.interrupted, len(self.history))

    def _finish(self, stage: Stage, it: Iterate, value: float, linear: _Linear, result, used: int) -> Fit:
        p = self.problem
        N = np.asarray(linear.N)
        z = np.asarray(it.z)
        held = (z <= p.lower + 1e-9) | (z >= p.upper - 1e-9)
        covariance = np.zeros_like(N)
        if not np.all(np.isfinite(N)):
            result = ESTIMATE_RESULTS.nonfinite
        elif (~held).any():
            free = np.ix_(~held, ~held)
            covariance[free] = np.linalg.inv(N[free])
        own = []
        count = z.shape[0]
        for o, (_, _, (n, _, _)) in zip(it.own, linear.parts, strict=True):
            corner = np.asarray(n)[count:, count:] + np.diag(p.own_weight**2)
            inverse = np.linalg.inv(corner) if o.shape[0] else np.zeros((0, 0))
            side = inverse @ np.asarray(n)[count:, :count]
            own.append(inverse + side @ covariance @ side.T)
        information = N - np.diag(p.weight**2)
        return Fit(it, value, result, used, covariance, information, tuple(own), linear.log_det, self.history)

    def _say(self, stage: int, iteration: int, cost: float, step: float, damping: float) -> None:
        line = Progress(stage, iteration, cost, step, damping, time.perf_counter() - self._began)
        self.history.append(line)
        if self.report:
            self.report(line)


def fit(
    problem: Problem,
    stages: Sequence[Stage],
    start: Iterate,
    settings: Settings = DEFAULT_SETTINGS,
    report: Callable[[Progress], None] | None = None,
) -> Fit:
    """Run an `Estimator` from `start` (see `track` for how to make one) through the stages."""
    return Estimator(problem, settings, report).run(start, stages)
