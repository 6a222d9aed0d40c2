"""All recordings of a problem in poses, at one iterate: cost, linear problem, trial steps, slope of the determinant."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from ..._typing import Array, Float
from ...math.bordered import BorderedFactor
from .problem import Iterate, Problem, Settings, Stage
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

_EPS = 1e-5  # of the differences that give the slope of the log-determinant


@dataclasses.dataclass
class Poses:
    """An iterate with what its rows say."""

    z: Array
    own: list[Array]
    points: list[ResidualPoint]
    cost: float  # joint, with priors

    def iterate(self) -> Iterate:
        return Iterate(self.z, tuple(self.own), tuple(p.path for p in self.points))


@dataclasses.dataclass
class Reduced:
    """All recordings reduced to the shared parameters: 1/2 dz' N dz - g' dz + floor, damping of poses included."""

    factors: list[BorderedFactor]
    own: list[Array]  # T of `split_border`
    N: Float[Array, "p p"]
    g: Float[Array, " p"]
    floor: float


class ResidualRecordings:
    """A problem, and the weights of its readings."""

    def __init__(self, problem: Problem, settings: Settings):
        self.problem, self.settings = problem, settings
        self.weigh(problem.root_weights or all_kept(problem.samples))

    def weigh(self, root_weights: tuple[np.ndarray, ...]) -> None:
        """Let readings count as much as these say; weights are found between runs (`Estimator.update_weights`)."""
        self.root_weights, self.samples = root_weights, weighed(self.problem, root_weights)

    def poses(self, z: Array, own: Sequence[Array], points: list[ResidualPoint]) -> Poses:
        p = self.problem
        total = float(np.sum((p.weight * (np.asarray(z) - p.prior)) ** 2))
        total += sum(float(np.sum((p.own_weight * np.asarray(o)) ** 2)) for o in own)
        total += sum(float(jnp.sum(q.path.w**2) + jnp.sum(q.e**2)) for q in points)
        return Poses(z, list(own), points, total / 2)

    def read_back(self, stage: Stage, it: Iterate) -> Poses:
        """The same states, explained by the stage's own noise and friction."""
        points = [
            read_back(stage.model, jnp.concatenate([it.z, own]), stage.noise, path.x, samples)  # pyright: ignore
            for own, path, samples in zip(it.own, it.paths, self.samples, strict=True)
        ]
        return self.poses(jnp.asarray(it.z), [jnp.asarray(own) for own in it.own], points)

    def linear(self, stage: Stage, here: Poses) -> list[ResidualLinear]:
        weight, sd = jnp.asarray(self.problem.own_weight), self.problem.initial_sd
        return [
            linear_rows(stage.model, jnp.concatenate([here.z, own]), stage.noise, point, samples, weight, sd)  # pyright: ignore
            for own, point, samples in zip(here.own, here.points, self.samples, strict=True)
        ]

    def reduce(self, linear: list[ResidualLinear], here: Poses, damping: float) -> Reduced:
        weight = jnp.asarray(self.problem.weight) ** 2
        away = here.z - jnp.asarray(self.problem.prior)
        N, g, floor = jnp.diag(weight), -weight * away, float(weight @ away**2) / 2
        factors = [eliminate(part.rows, jnp.asarray(damping)) for part in linear]
        split = [split_border(factor, here.z.shape[0]) for factor in factors]
        for factor, (_, R) in zip(factors, split, strict=True):
            N, g = N + R[:, :-1].T @ R[:, :-1], g - R[:, :-1].T @ R[:, -1]
            floor += float(factor.unexplained + R[:, -1] @ R[:, -1]) / 2
        return Reduced(factors, [T for T, _ in split], N, g, floor)

    def attempt(self, stage: Stage, here: Poses, linear: list[ResidualLinear], reduced: Reduced, dz: Array):
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
        return self.poses(here.z + dz, own, points), length

    def slope(self, stage: Stage, here: Poses, linear: list[ResidualLinear], reduced: Reduced) -> Array:
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
            half, density = self.log_determinants(stage, self.linear(stage, self.poses(here.z + dz, own, points)))
            return half if self.settings.marginal else -density

        base = at(jnp.zeros_like(here.z))
        return jnp.array([at(row) - base for row in _EPS * jnp.eye(here.z.shape[0])]) / _EPS

    def log_determinants(self, stage: Stage, linear: list[ResidualLinear]) -> tuple[float, float]:
        """(1/2 sum log|F|, sum log|det dw/dq|) of all recordings."""
        found = [log_determinants(part.rows, stage.model.noise_size) for part in linear]
        return sum(float(full - silent) for full, silent, _ in found), sum(float(d) for _, _, d in found)
