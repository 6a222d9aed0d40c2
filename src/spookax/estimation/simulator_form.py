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

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from scipy.optimize import lsq_linear

from .._results import ESTIMATE_RESULTS
from .._threads import concurrently
from .._typing import AnyArray, Array
from ..protocol import Noise, Samples
from . import levels, outliers, recording
from .levels import SAME_LEVEL, Evidence, at_present, estimate_levels
from .linearise import Linearised, Path, before
from .problem import Fit, Iterate, Part, Problem, Progress, Settings, Stage, posterior
from .reach import Reach
from .recording import (
    Plan,
    at_levels,
    cost_of,
    filtered,
    first_state,
    follow,
    follow_and_linearise,
    gains_of,
    linearised,
    log_density,
    noise_cost,
    nudged,
    replan,
    stiff_gains,
)
from .sweeps import Filtered

_LITTLE = 0.1  # change of the cost (a log-likelihood) that means nothing: 0.5 is one standard deviation
_LARGE = 1.0  # the same: a step that was worth taking
_ROUGH = 0.01  # relative decrease that ends what is iterated only roughly: stages, and the rounds of noise levels
_SHORT = 0.2  # fraction of a step below which a rough phase is given up
_TRUST = 1.0  # largest step of a parameter in one iteration, in z (one log-unit)
_LEVEL_ROUNDS = 4  # of noise levels and weights; and of weights once these have settled
SLOPE_ROUNDS = 6
SAME_SLOPE = 0.01  # step of a parameter, in its standard deviations, after which the slope is the same
_NEAR = 0.3  # distance over which the slope of the log-determinant is taken as constant, in z
_PROBES = 2
_NO_SLOPE = 0.05  # step of the parameters, in standard deviations, that is not worth one more iteration
_DIFFERENCE = 1e-3  # for the slope, in z: rounding of a determinant grows with stiffness

T = TypeVar("T")

DEFAULT_SETTINGS = Settings()


def box_step(N: np.ndarray, g: np.ndarray, lower: np.ndarray, upper: np.ndarray, damping: float) -> np.ndarray:
    """Minimiser of 1/2 d' (N + damping diag N) d - g' d between bounds, as bounded least squares: some numbers of the
    host, for which nothing is compiled. NaN if N or g is not finite.

    A parameter that N says nothing about stays where it is, unless g moves it.
    """
    d, free = np.array(lower, dtype=float), np.asarray(lower < upper)
    if not (np.isfinite(N).all() and np.isfinite(g).all()):
        return np.full_like(d, np.nan)
    if not free.any():
        return d
    rest, g = N[free][:, free], (g - N @ np.where(free, 0.0, d))[free]
    diagonal = np.diagonal(rest)
    D = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    curvature, V = np.linalg.eigh(D[:, None] * rest * D)
    root = np.sqrt(np.maximum(curvature, 0.0) + damping)
    A, b, bounds = root[:, None] * V.T, V.T @ (D * g) / root, (lower[free] / D, upper[free] / D)
    d[free] = D * lsq_linear(A, b, bounds, method="bvls", tol=1e-15, max_iter=10 * g.size).x
    return d


# ---------------------------------------------------------------------------------------------------------------
# the iteration


class _Linear(NamedTuple):
    """All recordings with their priors, own parameters eliminated: 1/2 dz' N dz - g' dz + q."""

    parts: tuple[Part, ...]
    N: np.ndarray
    g: np.ndarray
    q: float


class _Trial(NamedTuple):
    """An iterate with what decides about it. Most are accepted, and trajectories are linearised while simulated."""

    iterate: Iterate
    cost: float
    noise_change: float  # what its noise costs less what its effect would have cost under the old parameters
    linear: _Linear


def _promised(cost: float, linear: _Linear, g: np.ndarray, d: np.ndarray, alpha: float = 1.0) -> float:
    """What the cost gains by a fraction of a step d if the linear problem is right: states go the same part of theirs.

    `g`: of the linear problem, less a slope of what the cost does not contain.
    """
    parameters = alpha * g @ d - alpha**2 * d @ linear.N @ d / 2
    states = max(cost - linear.q, 0.0)  # below zero by rounding alone
    return float(parameters + (1 - (1 - alpha) ** 2) * states)


class Estimator:
    """The iteration of one stage after the other. Keeps the last iterate and its stage: it can be interrupted.

    `process`, `sensor`: factors on the stages' noise levels, as estimated so far. `root_weights`: of the readings, the
    same; while a step is judged they are held.
    """

    def __init__(self, problem: Problem, settings: Settings, report: Callable[[Progress], None] | None = None):
        self.problem, self.settings, self.report = problem, settings, report
        self.history: list[Progress] = []
        self.iterate: Iterate | None = None
        self.process: Any = 1.0
        self.sensor = np.ones(problem.samples[0].y.shape[-1])
        self.root_weights = problem.root_weights or outliers.all_kept(problem.samples)
        self.stage = self._used = 0
        self.first_cost: float | None = None  # after the first stage, at the levels as given
        self._width = 0  # of the model that the present stage is linearised with, see `Reach`
        self._moved, self._refused = False, 0.0  # whether any step was accepted; what the refused ones promised
        self._began = time.perf_counter()

    # --- all recordings

    def noise(self, stage: Stage) -> Noise:
        """The noise levels of a stage as estimated so far."""
        return Noise(stage.noise.process * self.process, stage.noise.sensor * self.sensor)

    def _prior(self, it: Iterate) -> float:
        p = self.problem
        total = np.sum((p.weight * (np.asarray(it.z) - p.prior)) ** 2)
        return float(total + sum(np.sum((p.own_weight * np.asarray(o)) ** 2) for o in it.own)) / 2

    def _recordings(self, it: Iterate) -> list[tuple[np.ndarray, Path, Samples]]:
        """(all parameters, path, samples) of every recording."""
        z = [np.concatenate([it.z, own]) for own in it.own]
        return list(zip(z, it.paths, outliers.weighed(self.problem, self.root_weights), strict=True))

    @staticmethod
    def _each(task: Callable[..., T], items: Sequence[tuple]) -> list[T]:
        """The task on all items, on all cores."""
        return concurrently([functools.partial(task, *item) for item in items])

    def cost(self, stage: Stage, it: Iterate) -> float:
        """Joint cost with priors."""
        noise = self.noise(stage)

        def one(z: Array, path: Path, samples: Samples) -> float:
            return cost_of(stage.model, z, noise, path, samples)

        return self._prior(it) + sum(self._each(one, self._recordings(it)))

    def linear(self, stage: Stage, it: Iterate, steady: bool = False, width: int = 0) -> _Linear:
        """Linearise and filter every recording and reduce to the shared parameters."""
        part = functools.partial(self._part, stage, self.noise(stage), steady=steady, width=width)
        return self._reduced(it, self._each(part, self._recordings(it)))

    def _reduced(self, it: Iterate, parts: list[Part]) -> _Linear:
        # on the host: small, and of another shape for every study
        p, count, z = self.problem, it.z.shape[0], np.asarray(it.z)
        total_N, total_g = np.diag(p.weight**2), -(p.weight**2) * (z - p.prior)
        total_q = self._prior(it) + sum(float(part.q) for part in parts)
        for own, part in zip(it.own, parts, strict=True):
            N, g, own = np.asarray(part.N), np.asarray(part.g), np.asarray(own)
            side, rhs = N[:count, count:], np.column_stack([N[count:, :count], g[count:] - p.own_weight**2 * own])
            both = np.linalg.solve(N[count:, count:] + np.diag(p.own_weight**2), rhs)
            total_q -= float(rhs[:, -1] @ both[:, -1]) / 2
            total_N = total_N + N[:count, :count] - side @ both[:, :-1]
            total_g = total_g + g[:count] - side @ both[:, -1]
        return _Linear(tuple(parts), total_N, total_g, total_q)

    def _part(
        self,
        stage: Stage,
        noise: Noise,
        z: AnyArray,
        path: Path,
        samples: Samples,
        *,
        steady: bool = False,
        width: int = 0,
    ) -> Part:
        lin = linearised(stage.models[width], z, noise, path, samples, steady)
        return self._swept(stage, z, path, lin)[0]

    def _swept(
        self, stage: Stage, z: AnyArray, path: Path, lin: list[Linearised], *beside: Callable[[], float]
    ) -> tuple[Part, list[float]]:
        x0 = jax.tree.map(lambda a: np.asarray(a)[0], path.x)
        _, P0, Y0 = first_state(stage.model, z, x0, np.asarray(self.problem.initial_sd))
        return self._filtered(lin, path.w, Y0, P0, *beside)

    @staticmethod
    def _filtered(
        lin: list[Linearised], w: AnyArray, Y0: AnyArray, P0: AnyArray, *beside: Callable[[], float]
    ) -> tuple[Part, list[float]]:
        """A recording filtered; what else is to be found out is found out beside that, on another core."""
        tasks = [lambda: filtered(lin, w, Y0, P0), lambda: (gains_of(lin), [task() for task in beside])]
        sweeps: list[Any] = concurrently(tasks)
        (f, reduced), (gains, found) = sweeps
        return Part(lin, Y0, P0, f, gains, *reduced), found

    def _own_step(self, part: Part, own: AnyArray, dz: np.ndarray) -> np.ndarray:
        if not own.shape[0]:
            return np.asarray(own)
        p, weight, N = dz.shape[0], self.problem.own_weight**2, np.asarray(part.N)
        rhs = np.asarray(part.g)[p:] - weight * np.asarray(own) - N[p:, :p] @ np.asarray(dz)
        return np.linalg.solve(N[p:, p:] + np.diag(weight), rhs)

    def _try(
        self, stage: Stage, it: Iterate, linear: _Linear, dz: np.ndarray, alpha: float, steady: bool, width: int
    ) -> _Trial:
        """What a fraction alpha of a step leads to."""
        noise, tangent = self.noise(stage), stage.models[width]

        def one(own: AnyArray, part: Part, recording: tuple[AnyArray, Path, Samples]):
            now, path, samples = recording
            step = np.concatenate([dz, self._own_step(part, own, dz)])
            plan = replan(stage.model, path, part.lin, part.f, part.gains, step, alpha)
            z = now + alpha * step
            path, lin = follow_and_linearise(stage.model, tangent, z, noise, plan, path.hint[0], samples, steady)

            def cost() -> float:
                return cost_of(stage.model, z, noise, path, samples)

            def noise_change() -> float:
                if not steady:
                    return 0.0
                return float(np.sum(np.asarray(path.w) ** 2)) / 2 - noise_cost(stage.model, now, path, z)

            part, (here, change) = self._swept(stage, z, path, lin, cost, noise_change)
            return z[dz.shape[0] :], path, part, here, change

        items = list(zip(it.own, linear.parts, self._recordings(it), strict=True))
        owns, paths, parts, costs, changes = zip(*self._each(one, items), strict=True)
        new = Iterate(np.asarray(it.z) + alpha * dz, owns, paths)
        cost = self._prior(new) + float(sum(costs))
        return _Trial(new, cost, float(sum(changes)), self._reduced(new, list(parts)))

    def retrack(self, stage: Stage, it: Iterate, linear: _Linear | None = None) -> Iterate:
        """The states of an iterate as a trajectory of another stage's simulator, under the feedback that its linear
        problem asked for; without one held at any cost.
        """
        noise = self.noise(stage)

        def one(part: Part | None, recording: tuple[Array, Path, Samples]) -> Path:
            z, path, samples = recording
            ahead = before(path.x)
            gains = part.gains if part else stiff_gains(stage.model, z, noise, ahead)
            return follow(stage.model, z, noise, Plan(ahead, path.w, gains), samples.u, path.hint[0])

        items = list(zip(linear.parts if linear else [None] * len(it.paths), self._recordings(it), strict=True))
        return it._replace(paths=tuple(self._each(one, items)))

    def preparations(self, stage: Stage, path: Path) -> tuple[list[Callable[[], None]], Linearised, Filtered]:
        """Calls that compile what `run` will call, none waiting for another, the longest first; and arrays of the form
        that a block's sweeps have. `path` has the form of the first recording's.
        """
        p = self.problem
        samples, noise = p.samples[0], self.noise(stage)
        z = np.concatenate([p.z0, np.zeros(len(p.own_weight))])
        calls, lin, f = recording.preparations(stage.model, z, noise, path, samples, self._steady(stage))
        calls += self.level_preparations(stage, path, lin)
        if self.settings.outliers:
            calls.append(outliers.preparation(lin, f))
        return calls, lin, f

    def level_preparations(self, stage: Stage, path: Path, lin: Linearised) -> list[Callable[[], None]]:
        """Of `preparations`, what finds noise levels; `lin` and `path`: of the form of a block."""
        s = self.settings
        if not (s.process or s.sensors):
            return []
        w = path.w[: lin.A.shape[0]]
        evidence = Evidence([at_present(lin)], w, np.eye(lin.A.shape[1]), np.zeros(self.sensor.shape))
        return [levels.preparation(evidence, s.process, s.sensors, self.noise(stage).process.size, s.together)]

    # --- the iteration

    def _steady(self, stage: Stage) -> bool:
        """Whether the noise's effect is held while parameters change."""
        return self.settings.marginal and self.settings.determinant and stage.model.can_steady

    def begin(self, it: Iterate, stage: Stage) -> tuple[Iterate, float]:
        """The first stage alone, roughly: where it leads and what that costs."""
        it, linear, _ = self._minimise(stage, it, rough=True, steady=self._steady(stage))
        self.update_weights(it, linear)
        return it, self.cost(stage, it)

    def run(self, it: Iterate, stages: Sequence[Stage]) -> Fit:
        """All stages in turn; the last one to convergence, with its noise levels and log-determinant."""
        self.iterate = it
        linear, result = None, ESTIMATE_RESULTS.successful
        steady = self._steady(stages[0])
        adapted = self.settings.process or self.settings.sensors or self.settings.outliers
        self._used = 0
        for self.stage, stage in enumerate(stages):
            self._width = 0
            if linear is not None:  # the same states under the stage's own noise and friction
                it = self.iterate = self.retrack(stage, it, linear)
            last = stage is stages[-1]
            it, linear, result = self._minimise(stage, it, rough=True, steady=steady)
            if result == ESTIMATE_RESULTS.nonfinite:
                break
            if self.stage == 0:
                linear, _ = self.update_weights(it, linear)
                self.first_cost = self.cost(stage, it)
            # in the last stage in turn with the iteration, until weights, levels and parameters agree
            for _ in range((_LEVEL_ROUNDS if last else 1) if adapted else 0):
                linear, reweighted = self.update_weights(it, linear)
                it, linear, relevelled = self.update_levels(stage, it, linear)
                self.iterate = it
                if not (last and (reweighted or relevelled)):
                    break
                it, linear, result = self._minimise(stage, it, rough=True, linear=linear, steady=steady)
        assert linear is not None
        for left in reversed(range(_LEVEL_ROUNDS)):  # once, unless weights change by what the end is like
            it, linear, result = self._to_the_end(stages[-1], it, linear, result, steady)
            if not left or result != ESTIMATE_RESULTS.successful:
                break
            linear, reweighted = self.update_weights(it, linear)
            if not reweighted:
                break
        return self._finish(stages[-1], it, linear, result)

    def _to_the_end(
        self, stage: Stage, it: Iterate, linear: _Linear, result: Any, steady: bool
    ) -> tuple[Iterate, _Linear, Any]:
        """From a rough minimum to that with the log-determinant, levels and weights held."""
        if steady and result == ESTIMATE_RESULTS.successful:
            if self.settings.process or self.settings.silent:
                return self._minimise(stage, it, rough=False, linear=linear, steady=True)
            linear = self.linear(stage, it)
        for _ in range(SLOPE_ROUNDS):  # to the end, with the slope of the log-determinant until that has settled
            if result != ESTIMATE_RESULTS.successful:
                break
            old = np.asarray(it.z)
            slope = self._slope(stage, it, linear) if self.settings.determinant else np.zeros_like(old)
            it, linear, result = self._minimise(stage, it, rough=False, slope=slope, linear=linear)
            d = np.asarray(it.z) - old
            if not slope.any() or float(d @ linear.N @ d) < SAME_SLOPE**2:
                break
        return it, linear, result

    def _minimise(
        self,
        stage: Stage,
        it: Iterate,
        *,
        rough: bool,
        slope: np.ndarray | None = None,
        linear: _Linear | None = None,
        steady: bool = False,
    ) -> tuple[Iterate, _Linear, Any]:
        """Levenberg-Marquardt on J, to the end or only roughly.

        With a slope, on J + log-determinant: the slope (at the start) proposes, the determinant itself decides.

        `steady`: the noise is what it does to the velocities, whatever the parameters. Measured as an impulse it lowers
        J by whatever makes it do more (a small inertia), and the log-determinant answers with the opposite slope; where
        the levels are found from the same recordings the two cancel, and this does without both.
        """
        s, p = self.settings, self.problem
        lower, upper = p.lower, p.upper
        full = slope is not None and bool(slope.any())
        if full:
            lower, upper = np.maximum(lower, it.z - _NEAR), np.minimum(upper, it.z + _NEAR)
        reach, calm = Reach(1e-4 if rough else 1e-9, len(stage.smoother), self._width, rough), 0
        cost = self.cost(stage, it)
        if reach.width or linear is None:
            linear = self.linear(stage, it, steady, reach.width)
        self._say(cost, 0.0, reach.damping)
        if not np.isfinite(cost):  # nothing is below it
            return it, linear, ESTIMATE_RESULTS.nonfinite
        result = ESTIMATE_RESULTS.iteration_limit
        while self._used < s.max_iterations:
            low, high = np.maximum(lower - it.z, -_TRUST), np.minimum(upper - it.z, _TRUST)
            g = linear.g - slope if slope is not None else linear.g
            d = box_step(linear.N, g, low, high, reach.damping)
            done = _promised(cost, linear, g, d) < (_ROUGH if rough else s.tolerance) * abs(cost)
            if not done:
                self._used += 1
                alpha, little = reach.alpha, max(s.tolerance * abs(cost), _LITTLE)
                new, new_cost, noise_change, ahead = self._try(stage, it, linear, d, alpha, steady, reach.width)
                gain = cost - new_cost + noise_change
                if full and np.isfinite(new_cost):
                    gain += self._log_determinant(linear) - self._log_determinant(ahead)
                # half the squared length of the step in posterior standard deviations: what the cost would gain by it
                change = float(d @ linear.N @ d) / 2
                if np.isfinite(gain) and gain >= 0:
                    done = rough and gain < _ROUGH * abs(cost)
                    calm = calm + 1 if gain < little else 0  # the second step that gains nothing ends it
                    reach.accept(gain, _promised(cost, linear, g, d, alpha))
                    it, cost, linear, self.iterate = new, new_cost, ahead, new
                    self._moved = True
                else:
                    # near a kink (a joint about to stick) full steps overshoot: below the noise this is the end
                    calm = calm + 1 if change < _LITTLE else calm
                    self._refused = max(self._refused, change)
                    if reach.refuse(np.sqrt(2 * change)):
                        linear = self.linear(stage, it, steady, reach.width)
                self._say(cost, alpha * float(np.max(np.abs(d), initial=0.0)), reach.damping)
                done |= calm >= 2 or reach.ended or (rough and reach.alpha < _SHORT)
            if done and not rough and reach.narrow():
                linear, calm = self.linear(stage, it, steady), 0
            elif done:
                # with a slope: it has been followed as far as it holds
                stuck = reach.stuck and not rough and not full
                result = ESTIMATE_RESULTS.no_progress if stuck else ESTIMATE_RESULTS.successful
                break
        self._width = reach.width
        if reach.width:
            linear = self.linear(stage, it, steady)
        return it, linear, result

    def update_levels(self, stage: Stage, it: Iterate, linear: _Linear) -> tuple[Iterate, _Linear, bool]:
        """Noise levels from the evidence, those that are to be estimated; whether they changed noticeably."""
        s = self.settings
        process, sensor = estimate_levels(
            self._evidence(it, linear), s.process, s.sensors, stage.noise.process.size, s.together
        )
        if s.sensors and self.problem.least_sd is not None:
            sensor = np.maximum(sensor, self.problem.least_sd / (np.asarray(stage.noise.sensor) * self.sensor))
        if np.max(np.abs(np.log(np.append(sensor, process)))) < SAME_LEVEL:
            return it, linear, False
        self.process, self.sensor = self.process * process, self.sensor * sensor
        it = it._replace(paths=tuple(path._replace(w=np.asarray(path.w) / process) for path in it.paths))

        def one(part: Part, path: Path) -> Part:
            lin = at_levels(part.lin, process, sensor)
            return self._filtered(lin, path.w, part.Y0, part.P0)[0]

        parts = self._each(one, list(zip(linear.parts, it.paths, strict=True)))
        return it, self._reduced(it, parts), True

    def update_weights(self, it: Iterate, linear: _Linear) -> tuple[_Linear, bool]:
        """Weights of the readings, where some may be wild; whether any changed noticeably."""
        share, old, samples = self.settings.outliers, self.root_weights, self.problem.samples
        if not share:
            return linear, False
        new = outliers.reweighted(share, linear.parts, samples, old)
        if max(float(np.max(np.abs(a**2 - b**2))) for a, b in zip(new, old, strict=True)) < outliers.SAME_WEIGHT:
            return linear, False
        self.root_weights = new

        def one(part: Part, path: Path, ratio: np.ndarray) -> Part:
            return self._filtered(outliers.rescaled(part.lin, ratio), path.w, part.Y0, part.P0)[0]

        ratios = [a / b for a, b in zip(new, old, strict=True)]
        return self._reduced(it, self._each(one, list(zip(linear.parts, it.paths, ratios, strict=True)))), True

    def _evidence(self, it: Iterate, linear: _Linear) -> list[Evidence]:
        out = []
        pairs = zip(self.problem.samples, self.root_weights, strict=True)
        counted = [outliers.counts(np.asarray(samples.seen), root) for samples, root in pairs]
        for part, path, seen in zip(linear.parts, it.paths, counted, strict=True):
            still = [at_present(lin) for lin in part.lin]
            out.append(Evidence(still, path.w, part.P0, seen, float(part.q) + part.log_det / 2))
        return out

    def _slope(self, stage: Stage, it: Iterate, linear: _Linear) -> np.ndarray:
        """Derivative of the log-determinant in the shared parameters, states and own ones following, by differences."""
        noise, count = self.noise(stage), it.z.shape[0]

        def at(dz: np.ndarray) -> float:
            parts = []
            for part, own, (z, path, samples) in zip(linear.parts, it.own, self._recordings(it), strict=True):
                rest = self._own_step(part, own, dz) - self._own_step(part, own, 0 * dz)
                step = np.concatenate([dz, rest])
                there = nudged(stage.model, path, part.lin, part.f, step)
                parts.append(self._part(stage, noise, z + step, there, samples))
            return self._log_determinant(linear._replace(parts=tuple(parts)))

        def ahead(directions: np.ndarray) -> np.ndarray:
            return np.array(self._each(at, [(_DIFFERENCE * d,) for d in directions]))

        # first along draws from the posterior: a slope that moves nothing by its standard deviations need not be known
        if count > _PROBES:
            values, vectors = np.linalg.eigh(np.asarray(linear.N))
            some = (
                np.random.default_rng(0).normal(size=(_PROBES, count)) / np.sqrt(np.maximum(values, 1e-12)) @ vectors.T
            )
            scale = np.maximum(1.0, np.max(np.abs(some)))
            change = (ahead(some / scale) - self._log_determinant(linear)) / _DIFFERENCE
            if np.sqrt(np.mean(change**2) / count) * scale < _NO_SLOPE:  # about what it moves one parameter by
                return np.zeros(count)
        eye = np.eye(count)
        return (ahead(eye) - ahead(-eye)) / (2 * _DIFFERENCE)

    def _log_determinant(self, linear: _Linear) -> float:
        if self.settings.marginal:
            return sum(part.log_det for part in linear.parts) / 2
        return sum(log_density(part.lin) for part in linear.parts)

    # --- the result

    def snapshot(self, stage: Stage, it: Iterate) -> Fit:
        """A fit of an iterate that did not converge (interrupted)."""
        return self._finish(stage, it, self.linear(stage, it), ESTIMATE_RESULTS.interrupted)

    def _finish(self, stage: Stage, it: Iterate, linear: _Linear, result: Any) -> Fit:
        p, count = self.problem, it.z.shape[0]
        N, z, slope = np.asarray(linear.N), np.asarray(it.z), -np.asarray(linear.g)
        ended = result == ESTIMATE_RESULTS.successful or result == ESTIMATE_RESULTS.no_progress
        if ended and not self._moved and self._refused > _LARGE:
            result = ESTIMATE_RESULTS.stuck_at_start
        covariance, known, reach, result = posterior(p, z, N, slope, result)  # pyright: ignore[reportArgumentType]
        own = []
        for o, part in zip(it.own, linear.parts, strict=True):
            corner = np.asarray(part.N)[count:, count:] + np.diag(p.own_weight**2)
            inverse = np.linalg.inv(corner) if o.shape[0] else np.zeros((0, 0))
            side = inverse @ np.asarray(part.N)[count:, :count]
            own.append(inverse + side @ known @ side.T)
        return Fit(
            iterate=it,
            cost=self.cost(stage, it),
            result=result,
            iterations=self._used,
            covariance=covariance,
            information=N - np.diag(p.weight**2),
            own_covariance=tuple(own),
            log_det=sum(part.log_det for part in linear.parts),
            history=self.history,
            noise=self.noise(stage),
            slope=slope,
            reach=reach,
            parts=linear.parts,
            root_weights=self.root_weights,
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
