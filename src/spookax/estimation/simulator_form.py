"""Joint estimation of states and parameters, simulator form: Levenberg-Marquardt whose iterates are trajectories.

Unknowns are x_0, the whitened noise w_k of every step and the parameters z; x_{k+1} = step(x_k, u_k, w_k; z). Cost

    J = 1/2 sum |w_k|^2 + 1/2 sum |e_k|^2 + 1/2 |(z - z_prior) / sd|^2

plus a log-determinant: 1/2 sum log |F_k| (marginal: states integrated out) or sum log |B_k| (joint: the density of
the states themselves, `B` the answer of the velocities to the noise).

One iteration linearises along the present trajectory, sweeps forward (filter with parameter columns), solves the
reduced problem in the parameters under their bounds, sweeps back, and *simulates* the planned trajectory with the
feedback that the same linear problem asks for, so that the result is again a trajectory of the simulator. Every
recording has its own first state and its own offsets, which are eliminated inside it: cost is linear in recordings.

**Source:** Marklund, Servin, Larson (2025), chapter 3, in the form described in the documentation (estimation).
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._compiled import compiled
from .._results import ESTIMATE_RESULTS
from .._typing import Array, Float, Scalar
from ..complementarity import MLCP, solve_mlcp
from ..math import small
from ..protocol import AbstractModel, Noise, Samples
from .levels import Evidence, estimate_levels
from .linearise import Linearised, Path, before, chunked, linearise, residuals
from .problem import Fit, Iterate, Problem, Progress, Settings, Stage
from .sweeps import Filtered, adjoint_smoother, covariance_filter, feedback_gains, reduced

_LITTLE = 0.1  # change of the cost (a log-likelihood) that means nothing: 0.5 is one standard deviation
_ROUGH = 0.01  # relative decrease that ends a stage before the last
_SHORT = 0.2  # fraction of a step below which a rough phase is given up
_TRUST = 1.0  # largest step of a parameter in one iteration, in z (one log-unit)
_LEVEL_ROUNDS = 4
SLOPE_ROUNDS = 6
_SAME_LEVEL = 0.1  # change of a level, relative, that is none
SAME_SLOPE = 0.01  # step of a parameter, in its standard deviations, after which the slope is the same
_NEAR = 0.3  # distance over which the slope of the log-determinant is taken as constant, in z
_PROBES = 3
_NO_SLOPE = 0.05  # step of the parameters, in standard deviations, that is not worth one more iteration
_DIFFERENCE = 1e-3  # to either side for the slope, in z: rounding of a determinant grows with stiffness

DEFAULT_SETTINGS = Settings()


# ---------------------------------------------------------------------------------------------------------------
# compiled pieces, one recording each


@compiled
def first_state(model: AbstractModel, z: Array, path: Path, sd: float) -> tuple[Array, Array]:
    """(P_0, Y_0): covariance of the free directions of x_0, and how x_0 follows the parameters."""
    n = model.tangent_size
    x0 = jax.tree.map(lambda a: a[0], path.x)

    def placed(d: Array) -> Array:
        return model.local(model.start(model.retract(x0, d[:n]), model.prepare(z + d[n:])), x0)

    jac = jax.jacfwd(placed)(jnp.zeros(n + z.shape[0], dtype=z.dtype))
    T, Y0 = jac[:, :n], jac[:, n:]
    scale = jnp.concatenate([jnp.full(n // 2, sd), jnp.full(n // 2, 10 * sd)])
    half = T * scale
    return half @ half.T, Y0


class Plan(NamedTuple):
    """Noise and feedback that follow a planned trajectory: w_k + K_k (planned - actual)."""

    x: Any  # planned states x_0 ... x_(K-1)
    w: Float[Array, "steps m"]
    gains: Float[Array, "steps m n"]


@compiled
def follow(model: AbstractModel, z: Array, noise: Noise, plan: Plan, u: Array, hint: Array) -> Path:
    """Simulate a plan with its feedback; whatever the plan, the result is a trajectory of the simulator."""
    p = model.prepare(z)

    def body(carry, step):
        x, level = carry
        target, w, u, gain = step
        w = w + gain @ model.local(target, x)
        x1, level = model.step(x, p, u, w, noise, level)
        return (x1, level), (x1, w, level)

    x0 = model.start(jax.tree.map(lambda a: a[0], plan.x), p)
    _, (x, w, hint) = jax.lax.scan(body, (x0, hint), (plan.x, plan.w, u, plan.gains))
    return Path(jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), x0, x), w, hint)


@compiled
def stiff_gains(model: AbstractModel, z: Array, noise: Noise, x: Any) -> Float[Array, "steps m n"]:
    """Gains that hold a simulation to planned states at any cost: for a start, whose parameters may be far off."""
    p = model.prepare(z)
    return chunked(lambda x: model.tracking_gain(x, p, noise), x, jax.tree.leaves(x)[0].shape[0])


@compiled
def cost_of(model: AbstractModel, z: Array, noise: Noise, path: Path, samples: Samples) -> Scalar:
    """1/2 sum |w|^2 + 1/2 sum |e|^2 of one recording."""
    e = residuals(model, z, noise, path, samples)
    return (jnp.sum(path.w**2) + jnp.sum(e**2)) / 2


@compiled
def replan(
    model: AbstractModel, path: Path, lin: Linearised, f: Filtered, gains: Array, dz: Array, alpha: Array
) -> tuple[Plan, Scalar]:
    """The plan of the adjoint smoother for a step dz, a fraction alpha of the way, and its root mean square length."""
    dx, new_w = adjoint_smoother(lin, path.w, f, dz)
    x = jax.vmap(model.retract)(before(path.x), alpha * dx)
    return Plan(x, path.w + alpha * (new_w - path.w), gains), jnp.sqrt(jnp.mean(dx**2))


@compiled
def nudged(model: AbstractModel, path: Path, lin: Linearised, f: Filtered, dz: Array) -> Path:
    """The best trajectory for parameters moved by a tiny dz, to first order."""
    (dx, dw), (dx_0, dw_0) = adjoint_smoother(lin, path.w, f, dz), adjoint_smoother(lin, path.w, f, 0 * dz)
    x = jax.vmap(model.retract)(before(path.x), dx - dx_0)
    last = jax.tree.map(lambda moved, old: jnp.concatenate([moved, old[-1:]]), x, path.x)
    return path._replace(x=last, w=path.w + dw - dw_0)


_linearise = compiled(linearise)
_gains = compiled(feedback_gains)


@compiled
def _filter(lin: Linearised, w: Array, Y0: Array, P0: Array) -> tuple[Filtered, tuple[Array, Array, Scalar]]:
    f = covariance_filter(lin, w, Y0, P0)
    return f, reduced(f)


@compiled
def _density(lin: Linearised) -> Scalar:
    """Sum log|B| of the velocities: minus the log-density of the states that unit noise leads to, but for constants."""
    B = lin.B[:, lin.B.shape[1] // 2 :]
    if B.shape[1] == B.shape[2]:  # one noise for every velocity: B' B would square its condition
        return jnp.sum(jax.vmap(small.log_abs_det)(B))
    factors = jax.vmap(lambda B: small.cholesky(B.T @ B))(B)
    return jnp.sum(jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)))


@compiled
def box_step(N: Array, g: Array, lower: Array, upper: Array, damping: Array) -> Array:
    """Minimiser of 1/2 d' (N + damping diag N) d - g' d between bounds, by the package's own Lemke solver."""
    D = 1 / jnp.sqrt(jnp.diagonal(N))
    M = D[:, None] * N * D[None, :] + damping * jnp.eye(N.shape[0], dtype=N.dtype)
    return D * solve_mlcp(MLCP(M, -D * g, lower / D, upper / D)).x


# ---------------------------------------------------------------------------------------------------------------
# the iteration


class _Part(NamedTuple):
    """One recording, linearised and filtered."""

    lin: Linearised
    Y0: Array
    P0: Array
    f: Filtered
    N: Array  # reduced to all parameters, shared and own
    g: Array


class _Linear(NamedTuple):
    """All recordings, own parameters eliminated: 1/2 dz' N dz - g' dz."""

    parts: list[_Part]
    N: Array
    g: Array


class Estimator:
    """The iteration of one stage after the other. Keeps the last iterate and its stage: it can be interrupted.

    `process`, `sensor`: factors on the stages' noise levels, as estimated so far.
    """

    def __init__(self, problem: Problem, settings: Settings, report: Callable[[Progress], None] | None = None):
        self.problem, self.settings, self.report = problem, settings, report
        self.history: list[Progress] = []
        self.iterate: Iterate | None = None
        self.process: Any = 1.0
        self.sensor = np.ones(problem.samples[0].y.shape[-1])
        self.stage = self._used = 0
        self.first_cost: float | None = None  # after the first stage, at the levels as given
        self._began = time.perf_counter()

    # --- all recordings

    def noise(self, stage: Stage) -> Noise:
        """The noise levels of a stage as estimated so far."""
        return Noise(stage.noise.process * self.process, stage.noise.sensor * self.sensor)

    def _prior(self, it: Iterate) -> float:
        p = self.problem
        total = np.sum((p.weight * (np.asarray(it.z) - p.prior)) ** 2)
        return float(total + sum(np.sum((p.own_weight * np.asarray(o)) ** 2) for o in it.own)) / 2

    def _recordings(self, it: Iterate):
        """(all parameters, path, samples) of every recording."""
        for own, path, samples in zip(it.own, it.paths, self.problem.samples, strict=True):
            yield jnp.concatenate([it.z, own]), path, samples

    def cost(self, stage: Stage, it: Iterate) -> float:
        """Joint cost with priors."""
        noise = self.noise(stage)
        return self._prior(it) + sum(float(cost_of(stage.model, *self._at(noise, *r))) for r in self._recordings(it))

    @staticmethod
    def _at(noise: Noise, z: Array, path: Path, samples: Samples):
        return z, noise, path, samples

    def linear(self, stage: Stage, it: Iterate) -> _Linear:
        """Linearise and filter every recording and reduce to the shared parameters."""
        p, count, noise = self.problem, it.z.shape[0], self.noise(stage)
        weight, own_weight = jnp.asarray(p.weight) ** 2, jnp.asarray(p.own_weight) ** 2
        total = _Linear([], jnp.diag(weight), -weight * (it.z - jnp.asarray(p.prior)))
        for own, (z, path, samples) in zip(it.own, self._recordings(it), strict=True):
            part = self._part(stage, noise, z, path, samples)
            N, g = part.N[:count, :count], part.g[:count]
            if own.shape[0]:
                corner = part.N[count:, count:] + jnp.diag(own_weight)
                rhs = jnp.concatenate([part.N[count:, :count], (part.g[count:] - own_weight * own)[:, None]], axis=1)
                both = small.solve(corner, rhs)
                N, g = N - part.N[:count, count:] @ both[:, :-1], g - part.N[:count, count:] @ both[:, -1]
            total = _Linear([*total.parts, part], total.N + N, total.g + g)
        return total

    def _part(self, stage: Stage, noise: Noise, z: Array, path: Path, samples: Samples) -> _Part:
        lin = _linearise(stage.model, z, noise, path, samples)
        P0, Y0 = first_state(stage.model, z, path, self.problem.initial_sd)
        f, (N, g, _) = _filter(lin, path.w, Y0, P0)
        return _Part(lin, Y0, P0, f, N, g)

    def _own_step(self, part: _Part, own: Array, dz: Array) -> Array:
        if not own.shape[0]:
            return own
        p, weight = dz.shape[0], jnp.asarray(self.problem.own_weight) ** 2
        rhs = part.g[p:] - weight * own - part.N[p:, :p] @ dz
        return small.solve(part.N[p:, p:] + jnp.diag(weight), rhs[:, None])[:, 0]

    def _try(self, stage: Stage, it: Iterate, linear: _Linear, gains: list[Array], dz: Array, alpha: float):
        """The iterate that a fraction alpha of a step leads to, and its cost."""
        noise, owns, paths = self.noise(stage), [], []
        for i, (z, path, samples) in enumerate(self._recordings(it)):
            part, own = linear.parts[i], it.own[i]
            step = jnp.concatenate([dz, self._own_step(part, own, dz)])
            plan, _ = replan(stage.model, path, part.lin, part.f, gains[i], step, jnp.asarray(alpha))
            z = z + alpha * step
            paths.append(follow(stage.model, z, noise, plan, samples.u, path.hint[0]))
            owns.append(z[it.z.shape[0] :])
        new = Iterate(it.z + alpha * dz, tuple(owns), tuple(paths))
        return new, self.cost(stage, new)

    def retrack(self, stage: Stage, it: Iterate, gains: list[Array] | None = None) -> Iterate:
        """The states of an iterate as a trajectory of another stage's simulator. Without gains, held at any cost."""
        noise, paths = self.noise(stage), []
        for i, (z, path, samples) in enumerate(self._recordings(it)):
            ahead = before(path.x)
            gain = stiff_gains(stage.model, z, noise, ahead) if gains is None else gains[i]
            paths.append(follow(stage.model, z, noise, Plan(ahead, path.w, gain), samples.u, path.hint[0]))
        return it._replace(paths=tuple(paths))

    # --- the iteration

    def run(self, it: Iterate, stages: Sequence[Stage]) -> Fit:
        """All stages in turn; the last one to convergence, with its noise levels and log-determinant."""
        linear, result = None, ESTIMATE_RESULTS.successful
        self._used = 0
        for self.stage, stage in enumerate(stages):
            if linear is not None:  # the same states under the stage's own noise and friction
                it = self.retrack(stage, it, [_gains(part.lin) for part in linear.parts])
            last = stage is stages[-1]
            levels = self.settings.process or self.settings.sensors
            # what follows goes on to the end: other levels, and the slope of the determinant
            it, linear, result = self._minimise(stage, it, rough=levels or not last)
            if self.stage == 0:
                self.first_cost = self.cost(stage, it)
            for _ in range(
                _LEVEL_ROUNDS if last else 1
            ):  # in the last stage in turn with the iteration, until both agree
                it, changed = self.update_levels(stage, it, linear)
                if not (changed and last):
                    break
                it, linear, result = self._minimise(stage, it, rough=True)
        stage = stages[-1]
        assert linear is not None
        for _ in range(SLOPE_ROUNDS):  # the log-determinant through its slope, until that has settled
            if result != ESTIMATE_RESULTS.successful or not self.settings.determinant:
                break
            old, slope = it.z, self._slope(stage, it, linear)
            it, linear, result = self._minimise(stage, it, rough=False, slope=slope, linear=linear)
            d = it.z - old
            if not slope.any() or float(d @ linear.N @ d) < SAME_SLOPE**2:
                break
        return self._finish(stage, it, linear, result)

    def _minimise(
        self, stage: Stage, it: Iterate, rough: bool, slope: Array | None = None, linear: _Linear | None = None
    ) -> tuple[Iterate, _Linear, Any]:
        """Levenberg-Marquardt on J, to the end or only roughly.

        With a slope, on J + log-determinant: the slope (at the start) proposes, the determinant itself decides.
        """
        s, p = self.settings, self.problem
        lower, upper = jnp.asarray(p.lower), jnp.asarray(p.upper)
        full = slope is not None and bool(slope.any())
        if full:
            lower, upper = jnp.maximum(lower, it.z - _NEAR), jnp.minimum(upper, it.z + _NEAR)
        damping, alpha, calm = 1e-4 if linear is None else 1e-9, 1.0, 0
        cost = self.cost(stage, it)
        linear = linear or self.linear(stage, it)
        gains = [_gains(part.lin) for part in linear.parts]
        self._say(cost, 0.0, damping)
        while self._used < s.max_iterations:
            self._used += 1
            low, high = jnp.maximum(lower - it.z, -_TRUST), jnp.minimum(upper - it.z, _TRUST)
            g = linear.g - slope if slope is not None else linear.g
            d = box_step(linear.N, g, low, high, jnp.asarray(damping))
            new, new_cost = self._try(stage, it, linear, gains, d, alpha)
            gain = cost - new_cost
            ahead = None
            if full and np.isfinite(new_cost):
                ahead = self.linear(stage, new)
                gain += self._log_determinant(linear) - self._log_determinant(ahead)
            accepted = np.isfinite(gain) and gain >= 0
            moved = alpha * float(jnp.max(jnp.abs(d), initial=0.0))
            little = max(s.tolerance * abs(cost), _LITTLE)
            # half the squared length of the step in posterior standard deviations is what the cost would gain by it
            change = float(d @ linear.N @ d) / 2
            if accepted:
                # a step that was short and gained nothing ends it at once, one that gained nothing the second time
                calm = calm + 1 + (change < _LITTLE) if gain < little else 0
                it, cost, self.iterate = new, new_cost, new
                damping, alpha = max(damping / 10, 1e-9), min(1.0, 2 * alpha)
                linear = ahead or self.linear(stage, it)
                gains = [_gains(part.lin) for part in linear.parts]
            else:
                # near a kink (a joint about to stick) full steps overshoot: below the noise this is the end
                calm = calm + 1 if change < _LITTLE else calm
                damping, alpha = min(damping * 10, 1e6), alpha / 2
            self._say(cost, moved, damping)
            at_ease = accepted and gain < _ROUGH * abs(cost)
            if calm >= 2 or (rough and (at_ease or alpha < _SHORT)):
                return it, linear, ESTIMATE_RESULTS.successful
            if alpha < 1e-3:
                # with a slope: it has been followed as far as it holds
                return it, linear, ESTIMATE_RESULTS.successful if full else ESTIMATE_RESULTS.no_progress
        return it, linear, ESTIMATE_RESULTS.iteration_limit

    def update_levels(self, stage: Stage, it: Iterate, linear: _Linear) -> tuple[Iterate, bool]:
        """Noise levels from the evidence, those that are to be estimated; whether they changed noticeably."""
        if not (self.settings.process or self.settings.sensors):
            return it, False
        process, sensor = estimate_levels(
            self._evidence(it, linear), self.settings.process, self.settings.sensors, stage.noise.process.size
        )
        if np.max(np.abs(np.log(np.append(sensor, process)))) < _SAME_LEVEL:
            return it, False
        self.process, self.sensor = self.process * process, self.sensor * sensor
        return it._replace(paths=tuple(path._replace(w=path.w / process) for path in it.paths)), True

    def _evidence(self, it: Iterate, linear: _Linear) -> list[Evidence]:
        p, out = self.problem, []
        for part, own, path, samples in zip(linear.parts, it.own, it.paths, p.samples, strict=True):
            weight = jnp.concatenate([jnp.asarray(p.weight), jnp.asarray(p.own_weight)])
            away = jnp.concatenate([it.z - jnp.asarray(p.prior), own])
            seen = (np.asarray(samples.seen) > 0).sum(axis=(0, 1))
            out.append(Evidence(part.lin, path.w, part.Y0, part.P0, weight, away, seen))
        return out

    def _slope(self, stage: Stage, it: Iterate, linear: _Linear) -> Array:
        """Derivative of the log-determinant in the shared parameters, states and own ones following, by differences."""
        noise, count = self.noise(stage), it.z.shape[0]

        def at(dz: Array) -> float:
            parts = []
            for part, own, (z, path, samples) in zip(linear.parts, it.own, self._recordings(it), strict=True):
                rest = self._own_step(part, own, dz) - self._own_step(part, own, 0 * dz)
                step = jnp.concatenate([dz, rest])
                there = nudged(stage.model, path, part.lin, part.f, step)
                parts.append(self._part(stage, noise, z + step, there, samples))
            return self._log_determinant(linear._replace(parts=parts))

        def along(dz: Array) -> float:
            return (at(_DIFFERENCE * dz) - at(-_DIFFERENCE * dz)) / (2 * _DIFFERENCE)

        # first along random signs of all standard deviations at once: a slope that moves nothing need not be known
        sd = 1 / jnp.sqrt(jnp.diagonal(linear.N))
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (_PROBES, count))
        scale = jnp.maximum(1.0, jnp.max(sd, initial=0.0))
        if count > _PROBES and all(abs(along(sd / scale * row)) * scale < _NO_SLOPE for row in signs):
            return jnp.zeros(count)
        return jnp.array([along(row) for row in jnp.eye(count)])

    def _log_determinant(self, linear: _Linear) -> float:
        if self.settings.marginal:
            return sum(float(part.f.log_det) for part in linear.parts) / 2
        return sum(float(_density(part.lin)) for part in linear.parts)

    # --- the result

    def snapshot(self, stage: Stage, it: Iterate) -> Fit:
        """A fit of an iterate that did not converge (interrupted)."""
        return self._finish(stage, it, self.linear(stage, it), ESTIMATE_RESULTS.interrupted)

    def _finish(self, stage: Stage, it: Iterate, linear: _Linear, result: Any) -> Fit:
        p, count = self.problem, it.z.shape[0]
        N, z = np.asarray(linear.N), np.asarray(it.z)
        held = (z <= p.lower + 1e-9) | (z >= p.upper - 1e-9)
        covariance = np.zeros_like(N)
        if not np.all(np.isfinite(N)):
            result = ESTIMATE_RESULTS.nonfinite
        elif (~held).any():
            free = np.ix_(~held, ~held)
            covariance[free] = np.linalg.inv(N[free])
        own = []
        for o, part in zip(it.own, linear.parts, strict=True):
            corner = np.asarray(part.N)[count:, count:] + np.diag(p.own_weight**2)
            inverse = np.linalg.inv(corner) if o.shape[0] else np.zeros((0, 0))
            side = inverse @ np.asarray(part.N)[count:, :count]
            own.append(inverse + side @ covariance @ side.T)
        return Fit(
            iterate=it,
            cost=self.cost(stage, it),
            result=result,
            iterations=self._used,
            covariance=covariance,
            information=N - np.diag(p.weight**2),
            own_covariance=tuple(own),
            log_det=sum(float(part.f.log_det) for part in linear.parts),
            history=self.history,
            noise=self.noise(stage),
        )

    def _say(self, cost: float, step: float, damping: float) -> None:
        line = Progress(self.stage, self._used, cost, step, damping, time.perf_counter() - self._began)
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
    """Run an `Estimator` from `start` (trajectories of the simulator, see `follow`) through the stages."""
    return Estimator(problem, settings, report).run(start, stages)
