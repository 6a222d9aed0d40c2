"""Running the estimator of a study: stages, restarts, the check at half the time step, interruption and resumption."""

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..._interruption import Stop
from ..._progress import announce
from ..._results import ESTIMATE_RESULTS
from ..._threads import concurrently
from ...estimation import Settings, Stage
from ...estimation.batch import problem as estimation
from ...estimation.batch.problem import Fit, Iterate
from ...estimation.batch.residual_form import ResidualEstimator
from ...estimation.batch.simulator_form import Estimator
from ...estimation.batch.uncertainty import preparations
from ..file.study import Study
from ..judging import density
from ..judging.error_bars import ErrorBars
from ..judging.half_step import HalfStep, at_half_step
from ..judging.judge import Attempt, failure
from ..judging.misread import LOUD, POOR, ROUGH, Misread, error_of, misread
from ..judging.signatures import Explained
from ..running.checkpoint import keep_iterate, load_iterate
from ..running.setup import Setup
from .restarts import other_starts, surprise

_ROUGHLY = 1e-3  # tolerance of the fits that only tell which density predicts best
_RAN_AWAY = 1e3  # times a fit's cost: that of its trajectories with less noise, which do not follow the motion any more
_ROUNDS = 4  # of noise levels in the residual form
_KEEP_EVERY = 5.0  # between two writings of the iterate [s]
_TOLD = 1.0  # variance in the coordinates of the search, mostly logarithms: a number is known to a factor of e
_LEAST_LOOKS = 30  # linearisations that intervals may take in any case
_PLACINGS = 3  # of late readings, after the first


@dataclasses.dataclass(frozen=True)
class Progress(estimation.Progress):
    """One line of progress; `seconds` since the identification began.

    `phase`: stages; start N, the end of the first stage of another start; restart N, that start to the end;
    doubts, rough fits with other signs and units where the fit predicts badly; intervals, fits with one parameter held.
    """

    phase: str


class Solver:
    """One identification. Afterwards `fit`, `lines` and the others hold what came of it."""

    def __init__(
        self,
        study: Study,
        setup: Setup,
        report: Callable[[Progress], None] | None,
        stop: Stop,
        keep: Path | None = None,
    ):
        self.study, self.setup, self.report, self.stop, self.keep = study, setup, report, stop, keep
        self.phase = "stages"
        self.began = time.perf_counter()
        self.lines: list[Progress] = []
        self.fit: Fit | None = None
        self.running: Estimator | ResidualEstimator | None = None
        self.levels: Estimator | None = None  # has the noise levels of the running estimator
        self._kept, self._keeping = -np.inf, threading.Lock()  # when; other starts report from several threads
        self.stage = 0  # that the running estimator began with; afterwards that of the fit
        self.interrupted = False
        self.failure = ""  # why the fit counts as failed
        self.drawn = self.followed = 0  # other starts, and those of them that went beyond their first stage
        self.bars: ErrorBars | None = None
        self.half_step: HalfStep | None = None  # of the fit, also where it counts as failed: the step may be why
        self.candidates: list[density.Candidate] = []  # densities that were tried, at present or for the fit
        self.chosen = 0  # of them
        self.misread: Misread | None = None  # a sign or unit with which a failed fit would have gone well
        how = study.estimator.process_noise.estimate
        self.by_prediction = how == "prediction" and study.estimator.form == "simulator"
        self.read, self.left_out = density.without_the_end(setup) if self.by_prediction else (setup, ())

    def run(self, resume: Path | None) -> None:
        """Estimate; an interruption (KeyboardInterrupt) leaves the last iterate, but a second Ctrl-C gets through."""
        self.stop.check()
        estimator = self._estimator(self.read)
        if resume is None:
            self.stage, start = 0, self._start(estimator)
        else:
            self.stage, estimator.process, estimator.sensor, it = load_iterate(resume, self.setup)
            start = estimator.retrack(self.setup.stages[self.stage], it)
        try:
            first = self._attempt(estimator, self.read, start)
            self._take(self._restarted(first, estimator.first_cost))
            self._place()
            self._doubt()
            self._count_errors()
        except KeyboardInterrupt:
            if self.stop.at_once:
                raise
            self.interrupted = True
            if self.fit is None:
                self.fit = self._snapshot(estimator)
            else:  # in a restart, a check or among densities: what was found before stands
                self.stage = len(self.setup.stages) - 1

    def _start(self, estimator: Estimator) -> Iterate:
        """The first trajectories; meanwhile all that will be called is compiled, on all cores."""
        setup = self.setup
        plans = setup.plans()
        if self.study.estimator.form == "residual":
            return setup.start(plans)
        path = plans[0][0]
        calls, lin, f = estimator.preparations(setup.stages[0], path)
        if self.by_prediction:  # other levels are found from then on
            for settings in {self._settings_of_chain(), self._settings_of_all()} - {estimator.settings}:
                later = Estimator(setup.problem, settings)
                calls += later.level_preparations(setup.stages[0], path, lin)
        tasks: list[Callable[[], Any]] = [lambda: setup.start(plans), *calls, *preparations(lin, f)]
        for _ in tasks:
            announce("", "due")
        return concurrently([functools.partial(self._unless_stopped, task) for task in tasks])[0]

    def _unless_stopped(self, task: Callable[[], Any]) -> Any:
        self.stop.check()
        return task()

    def _solve(self, estimator: Estimator, setup: Setup, start: Iterate | None = None) -> Fit:
        """From the present stage to the last, in the form that the study asks for."""
        self.running = self.levels = estimator
        start, stages = start or setup.start(), setup.stages[self.stage :]
        if self.study.estimator.form == "residual":
            return self._residual_form(estimator, setup, start, stages)
        fit = estimator.run(start, stages)
        self.stage = len(setup.stages) - 1
        return fit

    def _snapshot(self, estimator: Estimator) -> Fit:
        """What an interrupted first solution had reached."""
        running = self.running
        if running is None or running.iterate is None:
            raise KeyboardInterrupt
        self.stage += running.stage
        stage = self.setup.stages[self.stage]
        # its own levels are in the simulator form's estimator, whichever form is running
        levelled = stage if running is estimator else Stage(stage.model, estimator.noise(stage))
        return running.snapshot(levelled, running.iterate)

    def _estimator(self, setup: Setup) -> Estimator:
        return Estimator(setup.problem, self._settings(), self._say)

    def _settings(self) -> Settings:
        s = self.study.estimator
        levels = {"process": bool(s.process_noise.estimate), "sensors": bool(s.sensor_noise.estimate)}
        settings = Settings(
            s.max_iterations, s.tolerance, s.objective == "marginal", outliers=s.outliers or 0.0, **levels
        )
        return _roughly(settings) if self.by_prediction else settings

    def _settings_of_all(self) -> Settings:
        """Of the fit of all readings, where the evidence's density predicts best."""
        s, asked = self.study.estimator, self.study.estimator.sensor_noise.estimate
        return dataclasses.replace(
            self._settings(), tolerance=s.tolerance, sensors=asked is not False, together=asked is None
        )

    def _settings_of_chain(self, rough: bool = False) -> Settings:
        """Of fits whose density is lower than the evidence's: what the model lacks is left to the sensors."""
        settings = dataclasses.replace(self._settings_of_all(), process=False, silent=True)
        return _roughly(settings) if rough else settings

    def _last_settings(self) -> Settings:
        """Of the last fit of all readings."""
        if not self.by_prediction:
            return self._settings()
        return self._settings_of_chain() if self.candidates and self.chosen > 0 else self._settings_of_all()

    def _attempt(self, estimator: Estimator, setup: Setup, start: Iterate) -> Attempt:
        """From a start to the end, with the densities that may follow, and what is wrong with the result."""
        fit = self._solve(estimator, setup, start)
        self.fit = self.fit or fit
        candidates = self._densities(setup, fit) if self.by_prediction and _usable(fit) else []
        chosen = density.best(candidates) if candidates else 0
        best = candidates[chosen].fit if candidates else fit
        return Attempt(fit, candidates, chosen, failure(setup, best, candidates, self._first_cost(estimator)))

    def _first_cost(self, estimator: Estimator) -> float | None:
        """Before the process noise was made to explain it, where nothing else is known to."""
        s = self.study.estimator
        hidden = s.form == "simulator" and bool(s.process_noise.estimate) and not s.sensor_noise.estimate
        return estimator.first_cost if hidden and not self.by_prediction else None

    def _densities(self, setup: Setup, fit: Fit) -> list[density.Candidate]:
        """Fits with falling densities of what is not left out, each judged by what is."""
        phase, self.phase = self.phase, "density"
        first, tried = not self.candidates, [density.candidate(self.setup, self.left_out, fit)]
        if first:  # an interruption keeps the best so far
            self.candidates = tried
        for factor in density.FALL:
            if density.enough(self.setup, tried):
                break
            fit = self._warm(setup, tried[-1].fit, factor, self._settings_of_chain(rough=True))
            if not _usable(fit) or fit.result == ESTIMATE_RESULTS.iteration_limit:  # an even lower one is no nearer
                break
            tried.append(density.candidate(self.setup, self.left_out, fit, self._seen_alike(setup, fit, tried[0].fit)))
            if first:
                self.chosen = density.best(tried)
                self.fit = tried[self.chosen].fit
            if fit.history[0].cost > _RAN_AWAY * tried[-2].fit.cost:  # and is caught again only by chance
                break
        self.phase = phase
        return tried

    def _take(self, found: Attempt) -> None:
        """The result: all readings with the density that predicts best, where densities were tried."""
        self.fit, self.candidates, self.chosen, self.failure = found
        if found.candidates:
            self.phase, chosen = "all readings", found.candidates[found.chosen]
            self.fit, self.setup = chosen.fit, self.setup.replaced(chosen.fit.iterate.z)
            strayed = density.strayed(chosen)
            fits: list[Fit] = []
            if not strayed:
                fits.append(self._warm(self.setup, chosen.fit, 1.0, self._last_settings()))
            if strayed or self._fault(fits[0]) != (False, False):
                fits.append(self._lowered(self._anew(found), chosen.process / found.candidates[0].process))
            # of two that have failed the one that explains more
            last = min(fits, key=lambda fit: (*self._fault(fit), np.nan_to_num(fit.cost, nan=np.inf)))
            self.fit, self.failure = last, failure(self.setup, last, found.candidates, None)

    def _fault(self, fit: Fit) -> tuple[bool, bool]:
        """Whether a fit of all readings has failed, and whether it did not end within its iterations."""
        failed = bool(failure(self.setup, fit, [], None))
        return failed, bool(fit.result == ESTIMATE_RESULTS.iteration_limit)

    def _place(self) -> None:
        """Readings of sensors with a delay where that has come out, and the fit from there, until they stay."""
        assert self.fit is not None
        for _ in range(_PLACINGS):
            placed = self.setup.replaced(self.fit.iterate.z)
            if placed is self.setup or not _usable(self.fit):
                return
            self.setup, self.phase = placed, "delays"
            if self.study.estimator.form == "residual":
                estimator = self._estimator(placed)
                estimator.process, estimator.sensor = _levels(self.fit, placed.stages[-1])
                self.fit = self._residual_form(estimator, placed, self.fit.iterate, placed.stages[-1:])
            else:
                self.fit = self._warm(placed, self.fit, 1.0, self._last_settings())

    def _doubt(self) -> None:
        """Where the fit predicts badly or has failed: whether another sign or unit of a channel would have predicted
        well.
        """
        if self.by_prediction and self.fit is not None:
            self.phase = "doubts"
            reached = error_of(self.candidates[self.chosen]) if self.candidates else np.inf
            poor = bool(self.failure) or not reached < POOR
            loud = bool(np.max(np.asarray(self.fit.noise.sensor) / self.setup.sensor_sd) > LOUD)
            if poor or (loud and not reached < ROUGH):
                self.misread = misread(self.study, self.setup, self._settings(), reached, self._say, units=poor)

    def _anew(self, found: Attempt) -> Fit:
        """A fit of all readings with the parameters of one whose trajectories lead elsewhere in the end, as those of an
        unstable motion do: they begin along the readings, first with the parameters held, and with the process noise
        that the evidence asked for. It may change with the parameters, but is held where it would run away: with so
        much of it that nothing is told any more of a parameter that the first part of the readings told.
        """
        setup, z = self.setup, np.asarray(found.candidates[found.chosen].fit.iterate.z)
        problem, stage = dataclasses.replace(setup.problem, z0=z), setup.stages[-1]
        held = dataclasses.replace(problem, lower=z, upper=z)
        first = found.candidates[0].fit
        follows = dataclasses.replace(setup, problem=held).start()
        unit = np.atleast_1d(setup.stages[0].noise.process / first.noise.process)  # of the noise that it has
        follows = follows._replace(paths=tuple(path._replace(w=path.w * unit) for path in follows.paths))

        def begun(evidence: bool) -> Fit:
            settings = dataclasses.replace(self._settings(), process=evidence)
            along, free = (Estimator(p, settings, self._say) for p in (held, problem))
            for estimator in (along, free):
                estimator.process, estimator.sensor = _levels(first, stage)
            return free.run(along.begin(follows, stage)[0], [stage])

        fit = begun(evidence=True)
        before, now = (np.diag(f.covariance) < _TOLD for f in (first, fit))
        return begun(evidence=False) if np.any(before & ~now) else fit

    def _lowered(self, fit: Fit, ratio: np.ndarray) -> Fit:
        """The same with the process noise times a ratio, as far as trajectories can be followed so far down."""
        settings = self._last_settings()
        count = max(int(np.ceil(np.log(np.min(ratio)) / np.log(density.FALL[0]))), 0)
        for step in range(count):
            last = step == count - 1
            lower = self._warm(self.setup, fit, ratio ** (1 / count), settings if last else _roughly(settings))
            if failure(self.setup, lower, [], None):
                break
            fit = lower
            if last:
                return fit
        return self._warm(self.setup, fit, 1.0, settings)

    def _seen_alike(self, setup: Setup, fit: Fit, other: Fit) -> Fit | None:
        """Parameters of a fit, held, with the trajectories that follow the readings as closely as those of another one.

        A fit that leaves what the model lacks to the sensors is beside the readings where they end. A simulation that
        starts there tells of that, and not of the parameters.
        """
        z = np.asarray(fit.iterate.z)
        held = dataclasses.replace(setup, problem=dataclasses.replace(setup.problem, z0=z, lower=z, upper=z))
        kept = dataclasses.replace(self._settings_of_chain(rough=True), sensors=False)
        phase, self.phase = self.phase, "judging"
        seen = self._warm(held, fit, 1.0, kept, other)
        self.phase = phase
        return seen if _usable(seen) else None

    def _warm(
        self, setup: Setup, fit: Fit, factor: float | np.ndarray, settings: Settings, levels: Fit | None = None
    ) -> Fit:
        """A fit in the last stage from the trajectories of another one, its process noise times a factor; `levels`: of
        both noises, the fit's where left out.
        """
        self.stop.check()
        stage = setup.stages[-1]
        before, estimator = (Estimator(setup.problem, settings, self._say) for _ in range(2))
        before.process, before.sensor = _levels(fit, stage)
        process, sensor = _levels(levels or fit, stage)
        estimator.process, estimator.sensor = process * factor, sensor.copy()
        # what another fit has weighed keeps its weight, what it has not read has that of the beginning
        read = [np.asarray(samples.weight) > 0 for samples in self.read.problem.samples]
        before.root_weights = estimator.root_weights = tuple(
            np.where(there, found, first)
            for there, found, first in zip(read, fit.root_weights, estimator.root_weights, strict=True)
        )
        start = estimator.retrack(stage, fit.iterate, before.linear(stage, fit.iterate))
        return estimator.run(start, [stage])

    def _restarted(self, found: Attempt, cost: float | None) -> Attempt:
        """Another start, each parameter times or divided by up to three, if the first one has failed; `cost`: of its
        first stage.

        The first stage of all of them as a batch; then those that explain more than the first start did at that point,
        the most promising first, until one has not failed.
        """
        count, p = self.study.estimator.restarts, self.read.problem
        if not (count and found.failure):
            return found
        starts, self.drawn = other_starts(self.read, count), count
        setups = [dataclasses.replace(self.read, problem=dataclasses.replace(p, z0=z0)) for z0 in starts]
        begun = concurrently([functools.partial(self._begin, k, setup) for k, setup in enumerate(setups)])
        limit = np.inf if cost is None or not np.isfinite(cost) else cost
        for k in sorted(range(count), key=lambda k: begun[k][1]):
            if not (found.failure and begun[k][1] < limit):
                break
            self.phase, self.stage, self.followed = f"restart {k + 1}", 0, self.followed + 1
            again = self._attempt(self._estimator(setups[k]), setups[k], begun[k][0])
            if (bool(again.failure), surprise(again, setups[k])) < (True, surprise(found, self.read)):
                found = again
        return found

    def _begin(self, k: int, setup: Setup) -> tuple[Iterate, float]:
        """The iterate and the cost that the first stage of a start ends with (infinite where it ends nowhere)."""
        self.stop.check()
        estimator = Estimator(setup.problem, self._settings(), lambda _: self.stop.check())
        iterate, cost = estimator.begin(setup.start(), setup.stages[0])
        line = estimator.history[-1]
        self._say(dataclasses.replace(line, cost=cost), f"start {k + 1}")
        return iterate, cost if np.isfinite(cost) else np.inf

    def _residual_form(self, estimator: Estimator, setup: Setup, it: Iterate, stages: Sequence[Stage]) -> Fit:
        """All stages in the residual form; noise levels from the sweeps, in turn with it."""
        rough = dataclasses.replace(estimator.settings, determinant=False)
        self.running = residual = ResidualEstimator(setup.problem, rough, self._say)
        it = residual.run(it, [Stage(s.model, estimator.noise(s)) for s in stages]).iterate
        self.stage, last = len(setup.stages) - 1, stages[-1]
        s = estimator.settings
        for _ in range(_ROUNDS if s.process or s.sensors or s.outliers else 0):
            linear, reweighted = estimator.update_weights(it, estimator.linear(last, it))
            it, _, relevelled = estimator.update_levels(last, it, linear)
            if not (reweighted or relevelled):
                break
            residual.weigh(estimator.root_weights)
            it = residual.run(it, [Stage(last.model, estimator.noise(last))]).iterate
        residual.settings = estimator.settings
        return residual.run(it, [Stage(last.model, estimator.noise(last))])

    def _count_errors(self) -> None:
        """What widens the error bars whatever the recordings look like."""
        assert self.fit is not None
        self.bars = ErrorBars(self.setup, self.fit)
        if self.study.estimator.check_half_step and self.fit.result == ESTIMATE_RESULTS.successful:
            self.phase = "half step"
            self.half_step = at_half_step(self.study, self.setup, self.fit, self._last_settings())
            if self.half_step is not None and self.stands():
                self.bars.count_half_step(self.half_step.shift)

    def look_closer(self, told: Sequence[Explained]) -> None:
        """Error bars with the faults that may be there, and intervals from profiles; Ctrl-C leaves what is found."""
        if self.bars is None or not self.stands():
            return
        self.bars.count_fault(told)
        if self.study.estimator.form == "residual":
            return
        self.phase, most = "intervals", max(_LEAST_LOOKS, len(self.lines) // 2)  # half of what the fit took
        try:
            self.bars.profile(self._last_settings(), most, self._looked, self.stop)
        except KeyboardInterrupt:
            if self.stop.at_once:
                raise
            self.interrupted = True

    def stands(self) -> bool:
        """Whether there is a fit that has not failed."""
        fit = self.fit
        if fit is None or self.failure or self.interrupted:
            return False
        return bool(fit.result == ESTIMATE_RESULTS.successful)

    def _looked(self, count: int, rise: float, offset: float) -> None:
        assert self.fit is not None
        last = len(self.setup.stages) - 1
        self._say(estimation.Progress(last, count, self.fit.cost + rise, abs(offset), 0.0, 0.0))

    @property
    def iterations(self) -> int:
        """Of all runs to the end, the check and the first stages of other starts left out."""
        whole = ("stages", "restart", "density", "all readings", "delays")
        lines = [line.iteration for line in self.lines if line.phase.startswith(whole)]
        return sum(after > before for before, after in pairwise(lines))

    def _say(self, line: estimation.Progress, phase: str | None = None) -> None:
        seconds = time.perf_counter() - self.began
        progress = Progress(**{**vars(line), "seconds": seconds}, phase=phase or self.phase)
        self.lines.append(progress)
        self._keep_iterate()
        if self.report:
            self.report(progress)
        if self.stop.asked:
            self._keep_iterate()
        self.stop.check()

    def _keep_iterate(self) -> None:
        """What there is now, for a run that is cut short: what was found if there is that, else the iterate."""
        running, levels, last = self.running, self.levels, len(self.setup.stages) - 1
        if self.keep is None or running is None or levels is None or running.iterate is None:
            return
        with self._keeping:
            now = time.monotonic()
            if now < self._kept + _KEEP_EVERY and not self.stop.asked:
                return
            if self.fit is not None:
                keep_iterate(self.keep, last, self.fit.noise, self.fit.iterate)
            else:
                stage = min(self.stage + running.stage, last)
                keep_iterate(self.keep, stage, levels.noise(self.setup.stages[stage]), running.iterate)
            self._kept, self.stop.after = now, "this step"
            self.stop.kept = f"{self.keep} has an iterate, from which --resume goes on"


def _levels(fit: Fit, stage: Stage) -> tuple[np.ndarray, np.ndarray]:
    """Noise levels of a fit, process and sensors, relative to those that a stage begins with."""
    pairs = (fit.noise.process, stage.noise.process), (fit.noise.sensor, stage.noise.sensor)
    process, sensor = (np.asarray(found) / np.asarray(begun) for found, begun in pairs)
    return process, sensor


def _roughly(settings: Settings) -> Settings:
    return dataclasses.replace(settings, tolerance=max(settings.tolerance, _ROUGHLY))


def _usable(fit: Fit) -> bool:
    """Whether other densities may go on from a fit."""
    return not (fit.result == ESTIMATE_RESULTS.nonfinite or fit.result == ESTIMATE_RESULTS.stuck_at_start)
