"""Joint estimation of states and parameters, residual form: Levenberg-Marquardt in poses, sparse in time.

The statistical model is that of the simulator form, with other unknowns: the poses q_-1 ... q_K of all steps and the
parameters z. Velocities follow from neighbours, the whitened noise w_k from inverse dynamics:

    x_k = (q_k, v_k),  q_k = q_k-1 moved along v_k,   w_k = transition(x_k, x_k+1) of (q_k-1, q_k, q_k+1; z)
    J = 1/2 sum |w_k|^2 + 1/2 sum |e_k|^2 + 1/2 |(z - z_prior) / sd|^2,     x_0 on its joints

One iteration linearises all rows at once, eliminates the poses in time order by Householder reflections (normal
equations would square the compliance of the joints), solves the reduced problem in the parameters under their bounds
and substitutes back. Poses are damped in the metric of the masses, by the impulses that a displacement costs: any
scale taken from the rows would hold back the free motion by the stiffness of the joints. Acceptance is non-monotone.

A stiff joint makes J a valley as narrow as its compliance and curved like its motion: no step of useful length along
the tangent ends inside. The planned poses are therefore *restored*, forward in time, before they are judged: each
transition keeps the impulses on the bodies that the plan needs and answers its joint rows exactly. On a linear model
this changes nothing. With it the relative compliance may be as small as rounding allows (1e-8); without it (box-plus
alone) Levenberg-Marquardt slows down from 1e-4 on and stalls at 1e-6.

**Source:** Marklund, Servin, Larson (2025), chapter 3, with half the unknowns. Restoration: a form of the lifted Newton
method, Albersmeyer and Diehl (2010). Damping: H. B. Nielsen (1999). Acceptance: Grippo, Lampariello and Lucidi (1986).
"""

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np

from ..._results import ESTIMATE_RESULTS
from ..._typing import Array, Float
from ...math.bordered import BorderedFactor
from ...math.small import solve_upper
from .bounded_step import box_step
from .problem import Fit, Iterate, Problem, Progress, Settings, Stage, posterior
from .reading_weights import all_kept, weighed
from .residual_rows import (
    ResidualLinear,
    ResidualPoint,
    displaced,
    eliminate,
    linear_rows,
    log_determinants,
    read_back,
    sensitivity,
    split_border,
    substitute,
)
from .simulator_form import SAME_SLOPE, SLOPE_ROUNDS

_TRUST = 1.0  # largest step of a parameter in one iteration, in z (one log-unit)
_MEMORY = 5  # a step is accepted if its cost is below the largest of so many before
_LARGEST_DAMPING = 1e8
_EPS = 1e-5  # of the differences that give the slope of the log-determinant
_DEFAULT = Settings()


@dataclasses.dataclass
class ResidualFit(Fit):
    """A `Fit` with the normaliser of the density of the poses.

    `log_density`: sum log|det dw_k / dq_k+1|. The joint objective with its determinant is cost - log_density; with
    the states integrated out it is cost + log_det / 2 (both up to constants of the noise levels and of x_0).
    """

    log_density: float


@dataclasses.dataclass
class _Here:
    """An iterate with what its rows say."""

    z: Array
    own: list[Array]
    points: list[ResidualPoint]
    cost: float  # joint, with priors

    def iterate(self) -> Iterate:
        return Iterate(self.z, tuple(self.own), tuple(p.path for p in self.points))


@dataclasses.dataclass
class _Reduced:
    """All recordings reduced to the shared parameters: 1/2 dz' N dz - g' dz + floor, damping of poses included."""

    factors: list[BorderedFactor]
    own: list[Array]  # T of `split_border`
    N: Float[Array, "p p"]
    g: Float[Array, " p"]
    floor: float


@dataclasses.dataclass
class _Damping:
    """Nielsen's rule."""

    value: float = 1e-6
    growth: float = 2.0

    def accept(self, gain: float, predicted: float) -> None:
        ratio = min(gain / predicted, 1.0) if predicted > 0 else 1.0
        self.value, self.growth = max(self.value * max(1 / 3, 1 - (2 * ratio - 1) ** 3), 1e-12), 2.0

    def reject(self) -> None:
        self.value, self.growth = self.value * self.growth, 2 * self.growth


class ResidualEstimator:
    """The iteration of one stage after the other. Keeps the last iterate, so that it can be interrupted.

    Used like the simulator form's `Estimator`. The model must be an `AbstractResidualModel`, for a scene: process
    noise on the bodies.
    """

    def __init__(self, problem: Problem, settings: Settings, report: Callable[[Progress], None] | None = None):
        self.problem, self.settings, self.report = problem, settings, report
        self.weigh(problem.root_weights or all_kept(problem.samples))
        self.history: list[Progress] = []
        self.iterate: Iterate | None = None
        self.stage = 0
        self._began = time.perf_counter()

    def run(self, it: Iterate, stages: Sequence[Stage]) -> ResidualFit:
        """All stages in turn; the last one to convergence. `it` holds trajectories of the simulator."""
        here, result, used = None, ESTIMATE_RESULTS.successful, 0
        for number, stage in enumerate(stages):
            self.stage = number
            here = self._read_back(stage, it)
            here, result, used = self._stage(number, stage, here, number == len(stages) - 1, used)
            it = here.iterate()
        assert here is not None
        return self._finish(stages[-1], here, result, used)  # pyright: ignore[reportArgumentType]

    def snapshot(self, stage: Stage, it: Iterate) -> ResidualFit:
        """A fit of an iterate that did not converge (interrupted)."""
        return self._finish(stage, self._read_back(stage, it), ESTIMATE_RESULTS.interrupted, len(self.history))

    def weigh(self, root_weights: tuple[np.ndarray, ...]) -> None:
        """Let readings count as much as these say; weights are found between runs (`Estimator.update_weights`)."""
        self.root_weights, self.samples = root_weights, weighed(self.problem, root_weights)

    # --- all recordings

    def _here(self, z: Array, own: Sequence[Array], points: list[ResidualPoint]) -> _Here:
        p = self.problem
        total = float(np.sum((p.weight * (np.asarray(z) - p.prior)) ** 2))
        total += sum(float(np.sum((p.own_weight * np.asarray(o)) ** 2)) for o in own)
        total += sum(float(jnp.sum(q.path.w**2) + jnp.sum(q.e**2)) for q in points)
        return _Here(z, list(own), points, total / 2)

    def _read_back(self, stage: Stage, it: Iterate) -> _Here:
        """The same states, explained by the stage's own noise and friction."""
        points = [
            read_back(stage.model, jnp.concatenate([it.z, own]), stage.noise, path.x, samples)  # pyright: ignore
            for own, path, samples in zip(it.own, it.paths, self.samples, strict=True)
        ]
        return self._here(jnp.asarray(it.z), [jnp.asarray(own) for own in it.own], points)

    def _linear(self, stage: Stage, here: _Here) -> list[ResidualLinear]:
        weight, sd = jnp.asarray(self.problem.own_weight), self.problem.initial_sd
        return [
            linear_rows(stage.model, jnp.concatenate([here.z, own]), stage.noise, point, samples, weight, sd)  # pyright: ignore
            for own, point, samples in zip(here.own, here.points, self.samples, strict=True)
        ]

    def _reduce(self, linear: list[ResidualLinear], here: _Here, damping: float) -> _Reduced:
        weight = jnp.asarray(self.problem.weight) ** 2
        away = here.z - jnp.asarray(self.problem.prior)
        N, g, floor = jnp.diag(weight), -weight * away, float(weight @ away**2) / 2
        factors = [eliminate(part.rows, jnp.asarray(damping)) for part in linear]
        split = [split_border(factor, here.z.shape[0]) for factor in factors]
        for factor, (_, R) in zip(factors, split, strict=True):
            N, g = N + R[:, :-1].T @ R[:, :-1], g - R[:, :-1].T @ R[:, -1]
            floor += float(factor.unexplained + R[:, -1] @ R[:, -1]) / 2
        return _Reduced(factors, [T for T, _ in split], N, g, floor)

    def _try(self, stage: Stage, here: _Here, linear: list[ResidualLinear], reduced: _Reduced, dz: Array):
        """(new iterate, squared length of the planned displacements)."""
        own, points, length = [], [], 0.0
        for i, (part, samples) in enumerate(zip(linear, self.samples, strict=True)):
            T, z = reduced.own[i], jnp.concatenate([here.z, here.own[i]])
            d_own = -(T[:, :-1] @ dz + T[:, -1])
            d = substitute(reduced.factors[i], jnp.concatenate([d_own, dz]))
            step = jnp.concatenate([dz, d_own])
            points.append(displaced(stage.model, z, step, d, stage.noise, part, samples))  # pyright: ignore
            own.append(here.own[i] + d_own)
            length += float(jnp.sum((part.rows.damping * d) ** 2))
        return self._here(here.z + dz, own, points), length

    def _slope(self, stage: Stage, here: _Here, linear: list[ResidualLinear], reduced: _Reduced) -> Array:
        """Derivative of the log-determinant in the shared parameters, poses and offsets following them: 1/2 sum log|F|,
        or minus the log-density of the poses for the joint objective.
        """
        slopes = [sensitivity(factor) for factor in reduced.factors]

        def at(dz: Array) -> float:
            own = [o - T[:, :-1] @ dz for o, T in zip(here.own, reduced.own, strict=True)]
            points = []
            for i, (part, samples) in enumerate(zip(linear, self.samples, strict=True)):
                d_own = own[i] - here.own[i]
                z, step = jnp.concatenate([here.z, here.own[i]]), jnp.concatenate([dz, d_own])
                d = slopes[i] @ jnp.concatenate([d_own, dz])
                points.append(displaced(stage.model, z, step, d, stage.noise, part, samples))  # pyright: ignore
            half, density = self._log_determinants(stage, self._linear(stage, self._here(here.z + dz, own, points)))
            return half if self.settings.marginal else -density

        base = at(jnp.zeros_like(here.z))
        return jnp.array([at(row) - base for row in _EPS * jnp.eye(here.z.shape[0])]) / _EPS

    def _log_determinants(self, stage: Stage, linear: list[ResidualLinear]) -> tuple[float, float]:
        """(1/2 sum log|F|, sum log|det dw/dq|) of all recordings."""
        found = [log_determinants(part.rows, stage.model.noise_size) for part in linear]
        return sum(float(full - silent) for full, silent, _ in found), sum(float(d) for _, _, d in found)

    # --- the iteration

    def _stage(self, number: int, stage: Stage, here: _Here, last: bool, used: int):
        s, p, damping, small_steps = self.settings, self.problem, _Damping(), 0
        linear, value = self._linear(stage, here), here.cost
        extra, rounds, since = jnp.zeros_like(here.z), 0, here.z  # slope of the log-determinant, where it was taken
        recent, best = deque([value], maxlen=_MEMORY), (value, here)
        self._say(number, used, value, 0.0, damping.value)
        while True:
            reduced = self._reduce(linear, here, damping.value)
            g = reduced.g - extra
            low, high = jnp.asarray(p.lower) - here.z, jnp.asarray(p.upper) - here.z
            tolerance = s.tolerance * abs(value)
            if small_steps > last or (small_steps and _promise(reduced.N, g, low, high) < tolerance):
                moved = here.z - since
                settled = rounds > 0 and float(moved @ reduced.N @ moved) < SAME_SLOPE**2
                if not last or not s.determinant or settled or rounds == SLOPE_ROUNDS:
                    return here, ESTIMATE_RESULTS.successful, used
                extra, since = self._slope(stage, here, linear, reduced), here.z
                rounds, small_steps, value = rounds + 1, 0, here.cost + float(extra @ here.z)
                recent, best = deque([value], maxlen=_MEMORY), (value, here)
                continue
            if used >= s.max_iterations:
                return best[1], ESTIMATE_RESULTS.iteration_limit, used
            used += 1
            bounds = np.maximum(low, -_TRUST), np.minimum(high, _TRUST)
            dz = jnp.asarray(box_step(np.asarray(reduced.N), np.asarray(g), *bounds, damping.value))
            new, length = self._try(stage, here, linear, reduced, dz)
            new_value = new.cost + float(extra @ new.z)
            if np.isfinite(new_value) and new_value <= max(recent) + 1e-9 * abs(value):
                planned = reduced.floor + float(dz @ reduced.N @ dz / 2 - reduced.g @ dz + extra @ new.z)
                damping.accept(value - new_value, value - planned + damping.value * length / 2)
                small_steps = small_steps + 1 if abs(value - new_value) < tolerance else 0
                here, value, linear = new, new_value, self._linear(stage, new)
                recent.append(value)
                best = min(best, (value, here), key=lambda b: b[0])
                self.iterate = here.iterate()
            else:
                damping.reject()
                if damping.value > _LARGEST_DAMPING:
                    return best[1], ESTIMATE_RESULTS.no_progress, used
            self._say(number, used, here.cost, float(jnp.max(jnp.abs(dz), initial=0.0)), damping.value)

    def _finish(self, stage: Stage, here: _Here, result: ESTIMATE_RESULTS, used: int) -> ResidualFit:
        p, linear = self.problem, self._linear(stage, here)
        reduced = self._reduce(linear, here, 0.0)
        z, N, slope = np.asarray(here.z), np.asarray(reduced.N), -np.asarray(reduced.g)
        covariance, known, reach, result = posterior(p, z, N, slope, result)
        own = []
        for factor, T in zip(reduced.factors, reduced.own, strict=True):
            m = T.shape[0]
            half = solve_upper(factor.border_triangle[:m, :m], jnp.eye(m))
            own.append(np.asarray(half @ half.T + T[:, :-1] @ known @ T[:, :-1].T))
        half_log_det, log_density = self._log_determinants(stage, linear)
        return ResidualFit(
            iterate=here.iterate(),
            cost=here.cost,
            result=result,
            iterations=used,
            covariance=covariance,
            information=N - np.diag(p.weight**2),
            own_covariance=tuple(own),
            log_det=2 * half_log_det,
            history=self.history,
            noise=stage.noise,
            slope=slope,
            reach=reach,
            root_weights=self.root_weights,
            log_density=log_density,
        )

    def _say(self, stage: int, iteration: int, cost: float, step: float, damping: float) -> None:
        line = Progress(stage, iteration, cost, step, damping, time.perf_counter() - self._began)
        self.history.append(line)
        if self.report:
            self.report(line)


def _promise(N: Array, g: Array, low: Array, high: Array) -> float:
    """The decrease that one parameter alone promises, at most: half its squared projected gradient step in sd."""
    D = jnp.sqrt(jnp.where(jnp.diagonal(N) > 0, jnp.diagonal(N), 1.0))
    return float(jnp.max((D * jnp.clip(g / D**2, low, high)) ** 2, initial=0.0)) / 2


def fit_residual(
    problem: Problem,
    stages: Sequence[Stage],
    start: Iterate,
    settings: Settings = _DEFAULT,
    report: Callable[[Progress], None] | None = None,
) -> ResidualFit:
    """Run a `ResidualEstimator` from `start` (trajectories of the simulator, see `track`) through the stages."""
    return ResidualEstimator(problem, settings, report).run(start, stages)
