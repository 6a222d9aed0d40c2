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
from typing import Any

import numpy as np

from ..._results import ESTIMATE_RESULTS
from ...protocol import HeldNoise
from ..levenberg_marquardt import AbstractStopping, Budget, Ending, Step, Tried, minimise
from ..linearise import Linearised, Path
from . import levels, one_recording, reading_weights
from .all_recordings import AllRecordings, Linear
from .levels import SAME_LEVEL, Evidence, at_present, estimate_levels
from .noise_kept import EFFECT, IMPULSES, AbstractKept
from .one_recording import at_levels
from .problem import Fit, Iterate, Part, Problem, Progress, Settings, Stage, posterior
from .reach import Reach
from .simulator_steps import (
    COST_ALONE,
    AbstractObjective,
    Point,
    Roughly,
    TrajectorySteps,
    WithDeterminant,
    to_the_end,
)
from .sweeps import Filtered

_LARGE = 1.0  # change of the cost (a log-likelihood) that would have been worth a step
_LEVEL_ROUNDS = 4  # of noise levels and weights; and of weights once these have settled
SLOPE_ROUNDS = 6
SAME_SLOPE = 0.01  # step of a parameter, in its standard deviations, after which the slope is the same

DEFAULT_SETTINGS = Settings()


class Estimator(AllRecordings):
    """The iteration of one stage after the other. Keeps the last iterate and its stage: it can be interrupted.

    Noise levels and weights of the readings are held while a step is judged.
    """

    def __init__(self, problem: Problem, settings: Settings, report: Callable[[Progress], None] | None = None):
        super().__init__(problem, settings)
        self.report = report
        self.history: list[Progress] = []
        self.iterate: Iterate | None = None
        self.stage = 0
        self._budget = Budget(settings.max_iterations)
        self.first_cost: float | None = None  # after the first stage, at the levels as given
        self._width = 0  # of the model that the present stage is linearised with, see `Reach`
        self._moved, self._refused = False, 0.0  # whether any step was accepted; what the refused ones promised
        self._began = time.perf_counter()

    def preparations(self, stage: Stage, path: Path) -> tuple[list[Callable[[], None]], Linearised, Filtered]:
        """Calls that compile what `run` will call, none waiting for another, the longest first; and arrays of the form
        that a block's sweeps have. `path` has the form of the first recording's.
        """
        p = self.problem
        samples, noise = p.samples[0], self.noise(stage)
        z = np.concatenate([p.z0, np.zeros(len(p.own_weight))])
        calls, lin, f = one_recording.preparations(stage.model, z, noise, path, samples, self._kept(stage).share)
        calls += self.level_preparations(stage, path, lin)
        if self.settings.outliers:
            calls.append(reading_weights.preparation(lin, f))
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

    def _kept(self, stage: Stage) -> AbstractKept:
        """What of the noise stays while parameters change."""
        marginal = self.settings.marginal and self.settings.determinant
        return EFFECT if marginal and stage.model.offers(HeldNoise) is not None else IMPULSES

    def kept_at_the_end(self, stage: Stage) -> AbstractKept:
        """The same in the last steps: the noise's effect only where the noise levels tell nothing of the parameters."""
        return self._kept(stage) if self.settings.process or self.settings.silent else IMPULSES

    def begin(self, it: Iterate, stage: Stage) -> tuple[Iterate, float]:
        """The first stage alone, roughly: where it leads and what that costs."""
        it, linear, _ = self._roughly(stage, it, None, self._kept(stage))
        self.update_weights(it, linear)
        return it, self.cost(stage, it)

    def run(self, it: Iterate, stages: Sequence[Stage]) -> Fit:
        """All stages in turn; the last one to convergence, with its noise levels and log-determinant."""
        self.iterate = it
        linear, ending = None, Ending.settled
        kept = self._kept(stages[0])
        adapted = self.settings.process or self.settings.sensors or self.settings.outliers
        self._budget = Budget(self.settings.max_iterations)
        for self.stage, stage in enumerate(stages):
            self._width = 0
            if linear is not None:
                it, linear = self._next(stages[self.stage - 1], stage, it, linear, kept)
                self.iterate = it
            last = stage is stages[-1]
            it, linear, ending = self._roughly(stage, it, linear, kept)
            if ending is Ending.nonfinite:
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
                it, linear, ending = self._roughly(stage, it, linear, kept)
        assert linear is not None
        result = ending.result
        for left in reversed(range(_LEVEL_ROUNDS)):  # once, unless weights change by what the end is like
            it, linear, result = self._to_the_end(stages[-1], it, linear, result, kept)
            if not left or result != ESTIMATE_RESULTS.successful:
                break
            linear, reweighted = self.update_weights(it, linear)
            if not reweighted:
                break
        return self._finish(stages[-1], it, linear, result)

    def _next(
        self, last: Stage, stage: Stage, it: Iterate, linear: Linear, kept: AbstractKept
    ) -> tuple[Iterate, Linear]:
        """The same states under a stage's noise and friction; nothing is simulated where the noise alone changes."""
        now, then = stage.noise, last.noise
        pairs = (now.process, then.process), (now.sensor, then.sensor)
        ratios = [np.asarray(a) / np.asarray(b) for a, b in pairs]
        if stage.model is last.model and all(np.all(np.isfinite(r) & (r > 0)) for r in ratios):
            return self._at_levels(it, linear, *ratios)
        still = self.attempt(stage, it, linear, np.zeros_like(it.z), 0.0, kept, 0)
        return still.iterate, still.linear

    def _at_levels(self, it: Iterate, linear: Linear, process: Any, sensor: Any) -> tuple[Iterate, Linear]:
        """The same states, their noise levels changed by these factors."""
        it = it._replace(paths=tuple(path._replace(w=np.asarray(path.w) / process) for path in it.paths))

        def one(part: Part, path: Path) -> Part:
            lin = at_levels(part.lin, process, sensor)
            return self.filtered_part(lin, path.w, part.Y0, part.P0)[0]

        return it, self.reduced(it, self.each(one, list(zip(linear.parts, it.paths, strict=True))))

    def _to_the_end(
        self, stage: Stage, it: Iterate, linear: Linear, result: Any, kept: AbstractKept
    ) -> tuple[Iterate, Linear, Any]:
        """From a rough minimum to that with the log-determinant, levels and weights held."""
        if result != ESTIMATE_RESULTS.successful:
            return it, linear, result
        if not np.all(np.isfinite(linear.N)):
            return it, linear, ESTIMATE_RESULTS.nonfinite
        end = to_the_end(self._budget, self.settings)
        if kept is EFFECT:
            if self.kept_at_the_end(stage) is EFFECT:
                it, linear, ending = self._minimise(stage, it, linear, self._reach(stage), end, EFFECT)
                return it, linear, ending.result
            linear = self.linear(stage, it)
        for _ in range(SLOPE_ROUNDS):  # with the slope of the log-determinant until that has settled
            old, objective = np.asarray(it.z), COST_ALONE
            if self.settings.determinant and (slope := self.slope(stage, it, linear)).any():
                objective = WithDeterminant(self, slope, old)
            end.begin()
            it, linear, ending = self._minimise(stage, it, linear, self._reach(stage), end, IMPULSES, objective)
            # a slope has been followed as far as it holds
            followed = ending is Ending.stuck and objective is not COST_ALONE
            result = ESTIMATE_RESULTS.successful if followed else ending.result
            d = np.asarray(it.z) - old
            settled = objective is COST_ALONE or float(d @ linear.N @ d) < SAME_SLOPE**2
            if settled or result != ESTIMATE_RESULTS.successful:
                break
        return it, linear, result

    def _reach(self, stage: Stage) -> Reach:
        return Reach.to_the_end(len(stage.smoother), self._width)

    def _roughly(
        self, stage: Stage, it: Iterate, linear: Linear | None, kept: AbstractKept
    ) -> tuple[Iterate, Linear, Ending]:
        """The first few steps; where no more is gained by them is no failure."""
        reach, end = Reach.roughly(len(stage.smoother), self._width), Roughly(self._budget, self.settings)
        return self._minimise(stage, it, linear, reach, end, kept)

    def _minimise(
        self,
        stage: Stage,
        it: Iterate,
        linear: Linear | None,
        reach: Reach,
        end: AbstractStopping,
        kept: AbstractKept,
        objective: AbstractObjective = COST_ALONE,
    ) -> tuple[Iterate, Linear, Ending]:
        """Levenberg-Marquardt on an objective; `linear`: at the iterate, if it is known there for the stage's model."""
        cost = self.cost(stage, it)
        if reach.width or linear is None:
            linear = self.linear(stage, it, kept, reach.width)
        self._say(cost, 0.0, reach.damping)
        steps = TrajectorySteps(self, stage, self._budget, kept, objective)
        ended = minimise(Point(it, cost, linear), steps, reach, end, self._tried)
        point = ended.point
        self._width = reach.width
        if reach.width:
            point = steps.linearised(point, 0)
        return point.iterate, point.linear, ended.ending

    def _tried(self, tried: Tried[Point, Step]) -> None:
        if tried.taken:
            self.iterate, self._moved = tried.point.iterate, True
        else:  # half the squared length of the step in standard deviations: what the cost would have gained by it
            self._refused = max(self._refused, tried.step.length**2 / 2)
        self._say(tried.value, tried.fraction * float(np.max(np.abs(tried.step.d), initial=0.0)), tried.damping)

    def update_levels(self, stage: Stage, it: Iterate, linear: Linear) -> tuple[Iterate, Linear, bool]:
        """Noise levels from the evidence, those that are to be estimated; whether they changed noticeably."""
        s = self.settings
        process, sensor = estimate_levels(
            self.evidence(it, linear), s.process, s.sensors, stage.noise.process.size, s.together
        )
        if s.sensors and self.problem.least_sd is not None:
            sensor = np.maximum(sensor, self.problem.least_sd / (np.asarray(stage.noise.sensor) * self.sensor))
        if np.max(np.abs(np.log(np.append(sensor, process)))) < SAME_LEVEL:
            return it, linear, False
        self.process, self.sensor = self.process * process, self.sensor * sensor
        return *self._at_levels(it, linear, process, sensor), True

    def update_weights(self, it: Iterate, linear: Linear) -> tuple[Linear, bool]:
        """Weights of the readings, where some may be wild; whether any changed noticeably."""
        share, old, samples = self.settings.outliers, self.root_weights, self.problem.samples
        if not share:
            return linear, False
        new = reading_weights.reweighted(share, linear.parts, samples, old)
        if max(float(np.max(np.abs(a**2 - b**2))) for a, b in zip(new, old, strict=True)) < reading_weights.SAME_WEIGHT:
            return linear, False
        self.root_weights = new

        def one(part: Part, path: Path, ratio: np.ndarray) -> Part:
            return self.filtered_part(reading_weights.rescaled(part.lin, ratio), path.w, part.Y0, part.P0)[0]

        ratios = [a / b for a, b in zip(new, old, strict=True)]
        return self.reduced(it, self.each(one, list(zip(linear.parts, it.paths, ratios, strict=True)))), True

    # --- the result

    def snapshot(self, stage: Stage, it: Iterate) -> Fit:
        """A fit of an iterate that did not converge (interrupted)."""
        return self._finish(stage, it, self.linear(stage, it), ESTIMATE_RESULTS.interrupted)

    def _finish(self, stage: Stage, it: Iterate, linear: Linear, result: Any) -> Fit:
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
            iterations=self._budget.used,
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
        line = Progress(self.stage, self._budget.used, cost, step, damping, time.perf_counter() - self._began)
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
