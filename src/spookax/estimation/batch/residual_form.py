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
import functools
import time
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np

from ..._results import ESTIMATE_RESULTS
from ...math.small import solve_upper
from ..levenberg_marquardt import Budget, Tried, minimise
from .problem import Fit, Iterate, Problem, Progress, Settings, Stage, posterior
from .residual_recordings import Poses, ResidualRecordings
from .residual_steps import NielsenDamping, NonMonotone, Point, PoseStep, PoseSteps, SmallSteps
from .simulator_form import SAME_SLOPE, SLOPE_ROUNDS

_DEFAULT = Settings()


@dataclasses.dataclass
class ResidualFit(Fit):
    """A `Fit` with the normaliser of the density of the poses.

    `log_density`: sum log|det dw_k / dq_k+1|. The joint objective with its determinant is cost - log_density; with
    the states integrated out it is cost + log_det / 2 (both up to constants of the noise levels and of x_0).
    """

    log_density: float


class ResidualEstimator(ResidualRecordings):
    """The iteration of one stage after the other. Keeps the last iterate, so that it can be interrupted.

    Used like the simulator form's `Estimator`. The model must be an `AbstractResidualModel`, for a scene: process
    noise on the bodies.
    """

    def __init__(self, problem: Problem, settings: Settings, report: Callable[[Progress], None] | None = None):
        super().__init__(problem, settings)
        self.report = report
        self.history: list[Progress] = []
        self.iterate: Iterate | None = None
        self.stage = 0
        self._began = time.perf_counter()

    def run(self, it: Iterate, stages: Sequence[Stage]) -> ResidualFit:
        """All stages in turn; the last one to convergence. `it` holds trajectories of the simulator."""
        here, result, budget = None, ESTIMATE_RESULTS.successful, Budget(self.settings.max_iterations)
        for self.stage, stage in enumerate(stages):
            here, result = self._minimise(stage, self.read_back(stage, it), stage is stages[-1], budget)
            it = here.iterate()
        assert here is not None
        return self._finish(stages[-1], here, result, budget.used)  # pyright: ignore[reportArgumentType]

    def snapshot(self, stage: Stage, it: Iterate) -> ResidualFit:
        """A fit of an iterate that did not converge (interrupted)."""
        return self._finish(stage, self.read_back(stage, it), ESTIMATE_RESULTS.interrupted, len(self.history))

    # --- the iteration

    def _minimise(self, stage: Stage, here: Poses, last: bool, budget: Budget) -> tuple[Poses, ESTIMATE_RESULTS]:
        """One stage; the last one with the slope of the log-determinant until that has settled."""
        slope, since, damping = jnp.zeros_like(here.z), here.z, NielsenDamping()
        point = PoseSteps(self, stage, slope, budget).begun(here)
        self._say(budget.used, here.cost, 0.0, damping.value)
        slopes = 0  # that were found so far
        while True:
            steps = PoseSteps(self, stage, slope, budget)
            acceptance = NonMonotone(damping, steps.value(point), point)
            end = SmallSteps(budget, self.settings.tolerance, 2 if last else 1)
            ended = minimise(point, steps, acceptance, end, functools.partial(self._tried, budget))
            point, reduced, result = ended.point, ended.step.reduced, ended.ending.result
            if result != ESTIMATE_RESULTS.successful:
                return acceptance.best.poses, result
            here, N = point.poses, reduced.N
            settled = slopes > 0 and float((here.z - since) @ N @ (here.z - since)) < SAME_SLOPE**2
            if not last or not self.settings.determinant or settled or slopes == SLOPE_ROUNDS:
                return here, result
            assert point.linear is not None
            slope, since, slopes = self.slope(stage, here, point.linear, reduced), here.z, slopes + 1

    def _tried(self, budget: Budget, tried: Tried[Point, PoseStep]) -> None:
        poses = tried.point.poses
        if tried.taken:
            self.iterate = poses.iterate()
        size = float(np.max(np.abs(tried.step.d), initial=0.0))
        self._say(budget.used, poses.cost, size, tried.damping)

    def _finish(self, stage: Stage, here: Poses, result: ESTIMATE_RESULTS, used: int) -> ResidualFit:
        p, linear = self.problem, self.linear(stage, here)
        reduced = self.reduce(linear, here, 0.0)
        z, N, slope = np.asarray(here.z), np.asarray(reduced.N), -np.asarray(reduced.g)
        covariance, known, reach, result = posterior(p, z, N, slope, result)
        own = []
        for factor, T in zip(reduced.factors, reduced.own, strict=True):
            m = T.shape[0]
            half = solve_upper(factor.border_triangle[:m, :m], jnp.eye(m))
            own.append(np.asarray(half @ half.T + T[:, :-1] @ known @ T[:, :-1].T))
        half_log_det, log_density = self.log_determinants(stage, linear)
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

    def _say(self, iteration: int, cost: float, step: float, damping: float) -> None:
        line = Progress(self.stage, iteration, cost, step, damping, time.perf_counter() - self._began)
        self.history.append(line)
        if self.report:
            self.report(line)


def fit_residual(
    problem: Problem,
    stages: Sequence[Stage],
    start: Iterate,
    settings: Settings = _DEFAULT,
    report: Callable[[Progress], None] | None = None,
) -> ResidualFit:
    """Run a `ResidualEstimator` from `start` (trajectories of the simulator, see `track`) through the stages."""
    return ResidualEstimator(problem, settings, report).run(start, stages)
