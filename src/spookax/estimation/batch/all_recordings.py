"""All recordings of a problem at one iterate: cost, linear problem, trial steps, the slope of the log-determinant.

The recordings know nothing of each other but the shared parameters; each is worked through on its own core.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from ..._compiled import on_device
from ..._threads import concurrently
from ..._typing import AnyArray, Array
from ...protocol import Noise, Samples
from ..linearise import Linearised, Path, before
from . import reading_weights
from .levels import Evidence, at_present
from .noise_kept import IMPULSES, AbstractKept
from .one_recording import (
    Plan,
    cost_of,
    filtered,
    first_spread,
    follow,
    follow_and_linearise,
    gains_of,
    linearised,
    log_density,
    nudged,
    replan,
    stiff_gains,
)
from .problem import Iterate, Part, Problem, Settings, Stage
from .step_blocks import readings_on_device

_PROBES = 2
_NO_SLOPE = 0.05  # step of the parameters, in standard deviations, that is not worth one more iteration
_DIFFERENCE = 1e-3  # for the slope, in z: rounding of a determinant grows with stiffness

T = TypeVar("T")


class Linear(NamedTuple):
    """All recordings with their priors, own parameters eliminated: 1/2 dz' N dz - g' dz + q."""

    parts: tuple[Part, ...]
    N: np.ndarray
    g: np.ndarray
    q: float


class TrialStep(NamedTuple):
    """An iterate with what decides about it. Most are accepted, and trajectories are linearised while simulated."""

    iterate: Iterate
    cost: float
    noise_change: float  # what its noise costs, less what of it stays would have cost under the old parameters
    linear: Linear


def promised(cost: float, linear: Linear, g: np.ndarray, d: np.ndarray, alpha: float = 1.0) -> float:
    """What the cost gains by a fraction of a step d if the linear problem is right: states go the same part of theirs.

    `g`: of the linear problem, less a slope of what the cost does not contain.
    """
    parameters = alpha * g @ d - alpha**2 * d @ linear.N @ d / 2
    states = max(cost - linear.q, 0.0)  # below zero by rounding alone
    return float(parameters + (1 - (1 - alpha) ** 2) * states)


class AllRecordings:
    """A problem, and the noise levels and weights of its readings as found so far.

    `process`, `sensor`: factors on the stages' noise levels; `root_weights`: of the readings.
    """

    def __init__(self, problem: Problem, settings: Settings):
        self.problem, self.settings = problem, settings
        self.process: Any = 1.0
        self.sensor = np.ones(problem.samples[0].y.shape[-1])
        self.root_weights = problem.root_weights or reading_weights.all_kept(problem.samples)

    @property
    def root_weights(self) -> tuple[np.ndarray, ...]:
        """Of every reading, shaped as `Samples.weight`. Setting them is when readings go to the device."""
        return self._root_weights

    @root_weights.setter
    def root_weights(self, weights: tuple[np.ndarray, ...]) -> None:
        self._root_weights = weights
        self._readings = [readings_on_device(samples) for samples in reading_weights.weighed(self.problem, weights)]

    def noise(self, stage: Stage) -> Noise:
        """The noise levels of a stage as estimated so far."""
        process, sensor = np.asarray(stage.noise.process), np.asarray(stage.noise.sensor)
        return Noise(on_device(process * self.process), on_device(sensor * self.sensor))

    def prior(self, it: Iterate) -> float:
        p = self.problem
        total = np.sum((p.weight * (np.asarray(it.z) - p.prior)) ** 2)
        return float(total + sum(np.sum((p.own_weight * np.asarray(o)) ** 2) for o in it.own)) / 2

    def _recordings(self, it: Iterate) -> list[tuple[np.ndarray, Path, list[Samples]]]:
        """(all parameters, path, blocks of samples) of every recording."""
        z = [np.concatenate([it.z, own]) for own in it.own]
        return list(zip(z, it.paths, self._readings, strict=True))

    @staticmethod
    def each(task: Callable[..., T], items: Sequence[tuple]) -> list[T]:
        """The task on all items, on all cores."""
        return concurrently([functools.partial(task, *item) for item in items])

    def cost(self, stage: Stage, it: Iterate) -> float:
        """Joint cost with priors."""
        noise = self.noise(stage)

        def one(z: Array, path: Path, samples: list[Samples]) -> float:
            return cost_of(stage.model, z, noise, path, samples)

        return self.prior(it) + sum(self.each(one, self._recordings(it)))

    def linear(self, stage: Stage, it: Iterate, kept: AbstractKept = IMPULSES, width: int = 0) -> Linear:
        """Linearise and filter every recording and reduce to the shared parameters."""
        part = functools.partial(self._part, stage, self.noise(stage), kept=kept, width=width)
        return self.reduced(it, self.each(part, self._recordings(it)))

    def reduced(self, it: Iterate, parts: list[Part]) -> Linear:
        # on the host: small, and of another shape for every study
        p, count, z = self.problem, it.z.shape[0], np.asarray(it.z)
        total_N, total_g = np.diag(p.weight**2), -(p.weight**2) * (z - p.prior)
        total_q = self.prior(it) + sum(float(part.q) for part in parts)
        for own, part in zip(it.own, parts, strict=True):
            N, g, own = np.asarray(part.N), np.asarray(part.g), np.asarray(own)
            side, rhs = N[:count, count:], np.column_stack([N[count:, :count], g[count:] - p.own_weight**2 * own])
            both = np.linalg.solve(N[count:, count:] + np.diag(p.own_weight**2), rhs)
            total_q -= float(rhs[:, -1] @ both[:, -1]) / 2
            total_N = total_N + N[:count, :count] - side @ both[:, :-1]
            total_g = total_g + g[:count] - side @ both[:, -1]
        return Linear(tuple(parts), total_N, total_g, total_q)

    def _part(
        self,
        stage: Stage,
        noise: Noise,
        z: AnyArray,
        path: Path,
        samples: list[Samples],
        *,
        kept: AbstractKept = IMPULSES,
        width: int = 0,
    ) -> Part:
        lin = linearised(stage.models[width], z, noise, path, samples, kept.share)
        return self._swept(stage, z, path, lin)[0]

    def _swept(
        self, stage: Stage, z: AnyArray, path: Path, lin: list[Linearised], *beside: Callable[[], float]
    ) -> tuple[Part, list[float]]:
        x0 = jax.tree.map(lambda a: np.asarray(a)[0], path.x)
        P0, Y0 = first_spread(stage.model, z, x0, self.problem.initial_sd, lin[0])
        return self.filtered_part(lin, path.w, Y0, P0, *beside)

    @staticmethod
    def filtered_part(
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

    def attempt(
        self, stage: Stage, it: Iterate, linear: Linear, dz: np.ndarray, alpha: float, kept: AbstractKept, width: int
    ) -> TrialStep:
        """What a fraction alpha of a step leads to."""
        noise, tangent = self.noise(stage), stage.models[width]

        def one(own: AnyArray, part: Part, recording: tuple[AnyArray, Path, list[Samples]]):
            now, path, samples = recording
            step = np.concatenate([dz, self._own_step(part, own, dz)])
            plan = replan(stage.model, path, part.lin, part.f, part.gains, step, alpha)
            z = now + alpha * step
            path, lin = follow_and_linearise(stage.model, tangent, z, noise, plan, path.guess[0], samples, kept.share)

            def cost() -> float:
                return cost_of(stage.model, z, noise, path, samples)

            def noise_change() -> float:
                return kept.change(stage.model, path, z, now)

            part, (here, change) = self._swept(stage, z, path, lin, cost, noise_change)
            return z[dz.shape[0] :], path, part, here, change

        items = list(zip(it.own, linear.parts, self._recordings(it), strict=True))
        owns, paths, parts, costs, changes = zip(*self.each(one, items), strict=True)
        new = Iterate(np.asarray(it.z) + alpha * dz, owns, paths)
        cost = self.prior(new) + float(sum(costs))
        return TrialStep(new, cost, float(sum(changes)), self.reduced(new, list(parts)))

    def retrack(self, stage: Stage, it: Iterate, linear: Linear | None = None) -> Iterate:
        """The states of an iterate as a trajectory of another stage's simulator, under the feedback that its linear
        problem asked for; without one held at any cost.
        """
        noise = self.noise(stage)

        def one(part: Part | None, recording: tuple[Array, Path, list[Samples]]) -> Path:
            z, path, samples = recording
            ahead = before(path.x)
            gains = part.gains if part else stiff_gains(stage.model, z, noise, ahead)
            return follow(
                stage.model, z, noise, Plan(ahead, path.w, gains), [block.u for block in samples], path.guess[0]
            )

        items = list(zip(linear.parts if linear else [None] * len(it.paths), self._recordings(it), strict=True))
        return it._replace(paths=tuple(self.each(one, items)))

    def evidence(self, it: Iterate, linear: Linear) -> list[Evidence]:
        out = []
        pairs = zip(self.problem.samples, self.root_weights, strict=True)
        counted = [reading_weights.counts(np.asarray(samples.weight), root) for samples, root in pairs]
        for part, path, readings in zip(linear.parts, it.paths, counted, strict=True):
            still = [at_present(lin) for lin in part.lin]
            out.append(Evidence(still, path.w, part.P0, readings, float(part.q) + part.log_det / 2))
        return out

    def slope(self, stage: Stage, it: Iterate, linear: Linear) -> np.ndarray:
        """Derivative of the log-determinant in the shared parameters, states and own ones following, by differences."""
        noise, count = self.noise(stage), it.z.shape[0]

        def at(dz: np.ndarray) -> float:
            parts = []
            for part, own, (z, path, samples) in zip(linear.parts, it.own, self._recordings(it), strict=True):
                rest = self._own_step(part, own, dz) - self._own_step(part, own, 0 * dz)
                step = np.concatenate([dz, rest])
                there = nudged(stage.model, path, part.lin, part.f, step)
                parts.append(self._part(stage, noise, z + step, there, samples))
            return self.log_determinant(linear._replace(parts=tuple(parts)))

        def ahead(directions: np.ndarray) -> np.ndarray:
            return np.array(self.each(at, [(_DIFFERENCE * d,) for d in directions]))

        # first along draws from the posterior: a slope that moves nothing by its standard deviations need not be known
        if count > _PROBES:
            values, vectors = np.linalg.eigh(np.asarray(linear.N))
            some = (
                np.random.default_rng(0).normal(size=(_PROBES, count)) / np.sqrt(np.maximum(values, 1e-12)) @ vectors.T
            )
            scale = np.maximum(1.0, np.max(np.abs(some)))
            change = (ahead(some / scale) - self.log_determinant(linear)) / _DIFFERENCE
            if np.sqrt(np.mean(change**2) / count) * scale < _NO_SLOPE:  # about what it moves one parameter by
                return np.zeros(count)
        eye = np.eye(count)
        return (ahead(eye) - ahead(-eye)) / (2 * _DIFFERENCE)

    def log_determinant(self, linear: Linear) -> float:
        if self.settings.marginal:
            return sum(part.log_det for part in linear.parts) / 2
        return sum(log_density(part.lin) for part in linear.parts)
