"""Joint estimation of states and parameters, residual form: Levenberg-Marquardt in poses, sparse in time.

The statistical model is that of the simulator form, with other unknowns: the poses q_-1 ... q_K of all steps and the
parameters z. Velocities follow from neighbours, the whitened noise w_k from inverse dynamics:

    x_k = (q_k, v_k),  q_k = q_k-1 moved along v_k,   w_k = transition(x_k, x_k+1) of (q_k-1, q_k, q_k+1; z)
    J = 1/2 sum |w_k|^2 + 1/2 sum |e_k|^2 + 1/2 |(z - z_prior) / sd|^2,     x_0 on the joints

One iteration linearises all rows at once, eliminates the poses in time order by Householder reflections
(`math.bordered`; the border is z, offsets of a recording first, so that they are eliminated with it), solves the
reduced problem in the parameters under their bounds, and substitutes back. Damping of poses is in the metric of the
masses: the impulses that a displacement costs. Costs may rise for a few iterations (non-monotone acceptance).

Stiff joints make J a valley as narrow as their compliance and curved as their motion, so that no step of useful size
along its tangent stays inside. The planned poses are therefore *restored*, forward in time: every transition keeps
the impulses that the plan needs and answers its joint rows exactly. On a linear model this changes nothing.

**Source:** Marklund, Servin, Larson (2025), chapter 3, with half the unknowns; restoration as in lifted Newton methods
(Albersmeyer, Diehl (2010)); H. B. Nielsen, Damping parameter in Marquardt's method (1999); Grippo, Lampariello,
Lucidi (1986) for the acceptance.
"""

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._results import ESTIMATE_RESULTS
from .._typing import Array, Float, Scalar
from ..math import bordered
from ..math.bordered import Rows
from ..math.small import solve_upper
from ..protocol import AbstractResidualModel, Noise, Samples
from .linearise import Path, after, before, residuals, whitened
from .simulator_form import Fit, Iterate, Problem, Progress, Settings, Stage, box_step, cost_of

_TRUST = 1.0  # largest step of a parameter in one iteration, in z (one log-unit)
_ON_JOINTS = 1e-9  # sd of x_0 off the joints, relative to that of its free directions
_MEMORY = 5  # a step is accepted if its cost is below the largest of so many before
_FIRST_DAMPING, _LARGEST_DAMPING = 1e-6, 1e8
_CHUNK = 256  # steps differentiated at once
_EPS = 1e-5  # of the differences that give the slope of the log-determinant


# ---------------------------------------------------------------------------------------------------------------
# compiled pieces, one recording each


def _moved(model: AbstractResidualModel, x: Any, d: Array) -> Any:
    """Pose box-plus d; the velocity is the old one."""
    return model.retract(x, jnp.concatenate([d, jnp.zeros_like(d)]))


def _poses(model: AbstractResidualModel, p: Any, x: Any) -> Any:
    """Poses q_-1 ... q_K of states x_0 ... x_K."""
    first = model.earlier(jax.tree.map(lambda a: a[0], x), p)
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, x)


def _pick(x: Any, start: int, stop: int | None) -> Any:
    return jax.tree.map(lambda a: a[start:stop], x)


@eqx.filter_jit
def read_back(model: AbstractResidualModel, z: Array, noise: Noise, x: Any, u: Array) -> Path:
    """States with the noise and the hints that explain them."""
    p = model.prepare(z)
    found = jax.vmap(lambda x, x1, u: model.transition(x, x1, p, u, noise))(before(x), after(x), u)
    return Path(x, found.w, found.hint)


@eqx.filter_jit
def linear_rows(
    model: AbstractResidualModel,
    z: Float[Array, " p"],
    noise: Noise,
    path: Path,
    samples: Samples,
    own_weight: Float[Array, " own"],
    sd: float,
) -> bordered.Problem:
    """Whitened rows of one recording about its path; `damping` holds the metric of the masses.

    State block j is the pose q_j-1. The border is (own parameters, shared parameters), with the prior of the former.
    The rows of `triples` are the noises of a step, then its readings.
    """
    half, count = model.tangent_size // 2, z.shape[0] - own_weight.shape[0]
    p0 = model.prepare(z)
    poses = _poses(model, p0, path.x)
    first = jax.tree.map(lambda a: a[0], path.x)

    def one(args):
        x0, x1, x2, u, y, s, seen = args

        def rows(d: Array) -> Array:
            p = model.prepare(z + d[3 * half :])
            a, b, c = (_moved(model, x, d[i * half : (i + 1) * half]) for i, x in enumerate((x0, x1, x2)))
            here, there = model.joined(a, b, p), model.joined(b, c, p)
            predicted = jax.vmap(lambda s: model.observe(here, there, p, s))(s)
            w = model.transition(here, there, p, u, noise).w
            return jnp.concatenate([w, whitened(model, noise, predicted, y, seen)])

        return jax.jacfwd(rows)(jnp.zeros(3 * half + z.shape[0], dtype=z.dtype))

    def initial(d: Array) -> Array:
        """x_0 off where it is, and off its joints, in standard deviations."""
        p = model.prepare(z + d[2 * half :])
        start, here = (_moved(model, jax.tree.map(lambda a: a[i], poses), d[i * half : (i + 1) * half]) for i in (0, 1))
        here = model.joined(start, here, p)
        off = model.local(here, model.start(here, p))
        return jnp.concatenate([model.local(here, first), off / _ON_JOINTS]) / jnp.tile(scale, 2)

    def border(J: Array) -> Array:
        return jnp.concatenate([J[..., count:], J[..., :count]], axis=-1)

    scale = jnp.concatenate([jnp.full(half, sd), jnp.full(half, 10 * sd)])
    steps = (poses, samples.u, samples.y, samples.s, samples.seen)
    data = (_pick(poses, 0, -2), _pick(poses, 1, -1), _pick(poses, 2, None), *steps[1:])
    J = jax.lax.map(one, data, batch_size=min(_CHUNK, path.w.shape[0]))
    e = residuals(model, z, noise, path, samples)
    triples = Rows(
        J[..., : 3 * half].reshape(*J.shape[:2], 3, half),
        border(J[..., 3 * half :]),
        jnp.concatenate([path.w, e], axis=1),
    )
    zero = jnp.zeros(2 * half + z.shape[0], dtype=z.dtype)
    J, at = jax.jacfwd(initial)(zero), initial(zero)
    start = Rows(
        J[:, : 2 * half].reshape(-1, 2, half), border(J[:, 2 * half :]), at.at[: 2 * half].set(0.0)
    )
    blocks = path.w.shape[0] + 2
    none = Rows(
        jnp.zeros((blocks - 1, 0, 2, half)), jnp.zeros((blocks - 1, 0, z.shape[0])), jnp.zeros((blocks - 1, 0))
    )
    metric = jnp.linalg.norm(model.tracking_gain(first, p0, noise)[:, :half], axis=0)
    prior = jnp.concatenate([jnp.diag(own_weight), jnp.zeros((own_weight.shape[0], count))], axis=1)
    return bordered.Problem(
        triples, none, start, jnp.broadcast_to(metric, (blocks, half)), prior, own_weight * z[count:]
    )


@eqx.filter_jit
def eliminate(problem: bordered.Problem, damping: Array) -> bordered.Factor:
    """The rows reduced to the border, under so much damping in the metric of the masses."""
    return bordered.eliminate(eqx.tree_at(lambda q: q.damping, problem, jnp.sqrt(damping) * problem.damping))


@eqx.filter_jit
def log_determinants(model: AbstractResidualModel, problem: bordered.Problem) -> tuple[Scalar, Scalar]:
    """Half the log-determinants of the Hessian in the poses: all rows, and without the readings.

    The second is sum log|det dw_k / dq_k+1| and a constant of x_0, the normaliser of the density of the poses; the
    difference is 1/2 sum log|F_k| of the simulator form.
    """

    def bare(rows: Rows, count: int | None = None) -> Rows:
        return Rows(rows.states[..., :count, :, :], rows.border[..., :count, :0], rows.residual[..., :count])

    none = jnp.zeros((0, 0)), jnp.zeros(0)
    undamped = jnp.zeros_like(problem.damping)
    pairs, initial = bare(problem.pairs), bare(problem.initial)
    full = bordered.Problem(bare(problem.triples), pairs, initial, undamped, *none)
    silent = bordered.Problem(bare(problem.triples, model.noise_size), pairs, initial, undamped, *none)
    return bordered.eliminate(full).logdet, bordered.eliminate(silent).logdet


def displaced(
    model: AbstractResidualModel, z: Array, dz: Array, d: Array, noise: Noise, path: Path, u: Array
) -> Path:
    """The path with its poses moved by d (K + 2 blocks) and its parameters by dz, restored to the stiff rows."""
    p0, p = model.prepare(z), model.prepare(z + dz)
    poses = _poses(model, p0, path.x)

    def impulses(t: Array) -> Array:
        p = model.prepare(z + t * dz)
        q = jax.vmap(lambda x, d: _moved(model, x, t * d))(poses, d)
        x = jax.vmap(lambda a, b: model.joined(a, b, p))(before(q), after(q))
        return jax.vmap(lambda x, x1, u: model.transition(x, x1, p, u, noise).impulse)(before(x), after(x), u)

    now = jax.vmap(lambda x, x1, u: model.transition(x, x1, p0, u, noise).impulse)(before(path.x), after(path.x), u)
    _, change = jax.jvp(impulses, (jnp.zeros((), z.dtype),), (jnp.ones((), z.dtype),))
    plan = jax.vmap(lambda x, d: _moved(model, x, d))(poses, d)

    def body(x, step):
        target, u, impulse = step
        x1 = model.restore(x, target, p, u, impulse)
        return x1, x1

    x0 = model.start(model.joined(*(jax.tree.map(lambda a: a[i], plan) for i in (0, 1)), p), p)  # pyright: ignore
    _, x = jax.lax.scan(body, x0, (_pick(plan, 2, None), u, now + change))
    return read_back(model, z + dz, noise, jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), x0, x), u)


@eqx.filter_jit
def trial(
    model: AbstractResidualModel,
    z: Array,
    dz: Float[Array, " shared"],
    d_own: Float[Array, " own"],
    noise: Noise,
    path: Path,
    samples: Samples,
    metric: Float[Array, "blocks half"],
    factor: bordered.Factor,
) -> tuple[Path, Scalar, Scalar]:
    """The path that a step of the parameters plans, restored; cost there; squared length of the plan."""
    d = bordered.back_substitute(factor, jnp.concatenate([d_own, dz]))
    step = jnp.concatenate([dz, d_own])
    new = displaced(model, z, step, d, noise, path, samples.u)
    return new, cost_of(model, z + step, noise, new, samples), jnp.sum((metric * d) ** 2)


@eqx.filter_jit
def log_det_slope(
    model: AbstractResidualModel,
    z: Array,
    noise: Noise,
    path: Path,
    samples: Samples,
    own_weight: Array,
    sd: float,
    factor: bordered.Factor,
) -> Float[Array, " shared"]:
    """Derivative of 1/2 sum log|F| with respect to the shared parameters, poses and offsets following them."""
    count = z.shape[0] - own_weight.shape[0]
    own, _ = _own_step(factor, count)
    slope = bordered.sensitivity(factor)

    def at(dz: Array) -> Scalar:
        d_own = -own[:, :-1] @ dz
        step = jnp.concatenate([dz, d_own])
        new = displaced(model, z, step, slope @ jnp.concatenate([d_own, dz]), noise, path, samples.u)
        problem = linear_rows(model, z + step, noise, new, samples, own_weight, sd)
        full, silent = log_determinants(model, problem)
        return full - silent

    return (jax.lax.map(at, _EPS * jnp.eye(count, dtype=z.dtype)) - at(jnp.zeros(count, z.dtype))) / _EPS


def _own_step(factor: bordered.Factor, count: int) -> tuple[Array, Array]:
    """(T, R): own parameters of least cost are -T [dz; 1]; R is the triangle of the shared ones and its right side."""
    rows = jnp.concatenate([factor.border_triangle, factor.border_residual[:, None]], axis=1)
    m = rows.shape[0] - count
    return solve_upper(rows[:m, :m], rows[:m, m:]), rows[m:, m:]


# ---------------------------------------------------------------------------------------------------------------
# the iteration


@dataclasses.dataclass
class _Reduced:
    """All recordings reduced to the shared parameters: 1/2 dz' N dz - g' dz + floor, damping of poses included."""

    factors: list[bordered.Factor]
    own: list[Array]
    N: Array
    g: Array
    floor: float


class ResidualEstimator:
    """The iteration of one stage after the other. Keeps the last iterate, so that it can be interrupted."""

    def __init__(self, problem: Problem, settings: Settings, report: Callable[[Progress], None] | None = None):
        self.problem, self.settings, self.report = problem, settings, report
        self.history: list[Progress] = []
        self.iterate: Iterate | None = None
        self._began = time.perf_counter()

    def run(self, it: Iterate, stages: Sequence[Stage]) -> Fit:
        """All stages in turn; the last one to convergence. `it` holds trajectories of the simulator."""
        result, used = ESTIMATE_RESULTS.successful, 0
        for number, stage in enumerate(stages):
            it = self._read_back(stage, it)
            it, result, used = self._stage(number, stage, it, number == len(stages) - 1, used)
        return self._finish(stages[-1], it, result, used)

    def snapshot(self, stage: Stage, it: Iterate) -> Fit:
        """A fit of an iterate that did not converge (interrupted)."""
        return self._finish(stage, it, ESTIMATE_RESULTS.interrupted, len(self.history))

    def cost(self, stage: Stage, it: Iterate) -> float:
        """Joint cost with priors."""
        total = self._prior(it)
        for own, path, samples in zip(it.own, it.paths, self.problem.samples, strict=True):
            total += float(cost_of(stage.model, jnp.concatenate([it.z, own]), stage.noise, path, samples))
        return total

    def _prior(self, it: Iterate) -> float:
        p = self.problem
        total = np.sum((p.weight * (np.asarray(it.z) - p.prior)) ** 2)
        return float(total + sum(np.sum((p.own_weight * np.asarray(o)) ** 2) for o in it.own)) / 2

    def _read_back(self, stage: Stage, it: Iterate) -> Iterate:
        """The same states, explained by the stage's own noise and friction."""
        paths = [
            read_back(stage.model, jnp.concatenate([it.z, own]), stage.noise, path.x, samples.u)
            for own, path, samples in zip(it.own, it.paths, self.problem.samples, strict=True)
        ]
        return it._replace(paths=tuple(paths))

    def _rows(self, stage: Stage, it: Iterate) -> list[bordered.Problem]:
        weight, sd = jnp.asarray(self.problem.own_weight), self.problem.initial_sd
        return [
            linear_rows(
                stage.model, jnp.concatenate([it.z, own]), stage.noise, path, samples, weight[: own.shape[0]], sd
            )
            for own, path, samples in zip(it.own, it.paths, self.problem.samples, strict=True)
        ]

    def _reduce(self, rows: list[bordered.Problem], it: Iterate, damping: float) -> _Reduced:
        weight, count = jnp.asarray(self.problem.weight) ** 2, it.z.shape[0]
        away = it.z - jnp.asarray(self.problem.prior)
        N, g, floor = jnp.diag(weight), -weight * away, float(weight @ away**2) / 2
        factors, own = [], []
        for problem in rows:
            factor = eliminate(problem, jnp.asarray(damping))
            T, R = _own_step(factor, count)
            N, g = N + R[:, :-1].T @ R[:, :-1], g - R[:, :-1].T @ R[:, -1]
            floor += float(factor.unexplained + R[:, -1] @ R[:, -1]) / 2
            factors.append(factor)
            own.append(T)
        return _Reduced(factors, own, N, g, floor)

    def _try(self, stage: Stage, it: Iterate, rows: list[bordered.Problem], reduced: _Reduced, dz: Array):
        """(new iterate, its cost, squared length of the planned displacements)."""
        paths, owns, total, length = [], [], 0.0, 0.0
        for own, T, path, samples, problem, factor in zip(
            it.own, reduced.own, it.paths, self.problem.samples, rows, reduced.factors, strict=True
        ):
            d_own = -(T[:, :-1] @ dz + T[:, -1])
            z = jnp.concatenate([it.z, own])
            path, value, moved = trial(
                stage.model, z, dz, d_own, stage.noise, path, samples, problem.damping, factor
            )
            paths.append(path)
            owns.append(own + d_own)
            total, length = total + float(value), length + float(moved)
        new = Iterate(it.z + dz, tuple(owns), tuple(paths))
        return new, total + self._prior(new), length

    def _slope(self, stage: Stage, it: Iterate, reduced: _Reduced) -> Array:
        weight, total = jnp.asarray(self.problem.own_weight), jnp.zeros_like(it.z)
        for own, path, samples, factor in zip(
            it.own, it.paths, self.problem.samples, reduced.factors, strict=True
        ):
            z = jnp.concatenate([it.z, own])
            weights = weight[: own.shape[0]]
            total = total + log_det_slope(
                stage.model, z, stage.noise, path, samples, weights, self.problem.initial_sd, factor
            )
        return total

    def _stage(self, number: int, stage: Stage, it: Iterate, last: bool, used: int):
        s, p = self.settings, self.problem
        damping, growth, small_steps = _FIRST_DAMPING, 2.0, 0
        rows, value = self._rows(stage, it), self.cost(stage, it)
        extra, pending = jnp.zeros_like(it.z), s.marginal and last  # slope of the log-determinant, once it is known
        recent, best = deque([value], maxlen=_MEMORY), (value, it)
        result = ESTIMATE_RESULTS.iteration_limit
        self._say(number, used, value, 0.0, damping)
        while used < s.max_iterations:
            reduced = self._reduce(rows, it, damping)
            g = reduced.g - extra
            low, high = jnp.asarray(p.lower) - it.z, jnp.asarray(p.upper) - it.z
            if small_steps and (small_steps > last or _slack(reduced.N, g, low, high) < s.tolerance * abs(value)):
                if not pending:
                    result = ESTIMATE_RESULTS.successful
                    break
                extra, pending, small_steps = self._slope(stage, it, reduced), False, 0
                value += float(extra @ it.z)
                recent, best = deque([value], maxlen=_MEMORY), (value, it)
                continue
            used += 1
            dz = box_step(reduced.N, g, jnp.maximum(low, -_TRUST), jnp.minimum(high, _TRUST), jnp.asarray(damping))
            new, new_value, length = self._try(stage, it, rows, reduced, dz)
            new_value += float(extra @ new.z)
            if np.isfinite(new_value) and new_value <= max(recent) + 1e-9 * abs(value):
                model = reduced.floor + float(dz @ reduced.N @ dz / 2 - reduced.g @ dz + extra @ new.z)
                predicted = value - (model - damping * length / 2)
                ratio = (value - new_value) / predicted if predicted > 0 else 1.0
                damping, growth = max(damping * max(1 / 3, 1 - (2 * min(ratio, 1.0) - 1) ** 3), 1e-12), 2.0
                small_steps = small_steps + 1 if abs(value - new_value) < s.tolerance * abs(value) else 0
                it, value = new, new_value
                recent.append(value)
                best = min(best, (value, it), key=lambda b: b[0])
                rows = self._rows(stage, it)
                self.iterate = it
            else:
                damping, growth = damping * growth, 2 * growth
                if damping > _LARGEST_DAMPING:
                    result = ESTIMATE_RESULTS.successful if small_steps else ESTIMATE_RESULTS.no_progress
                    break
            self._say(number, used, value - float(extra @ it.z), float(jnp.max(jnp.abs(dz), initial=0.0)), damping)
        return (it if result == ESTIMATE_RESULTS.successful else best[1]), result, used

    def _finish(self, stage: Stage, it: Iterate, result: ESTIMATE_RESULTS, used: int) -> Fit:
        p, rows = self.problem, self._rows(stage, it)
        reduced = self._reduce(rows, it, 0.0)
        z, N = np.asarray(it.z), np.asarray(reduced.N)
        covariance = np.zeros_like(N)
        free = (z > p.lower + 1e-9) & (z < p.upper - 1e-9)
        if not np.all(np.isfinite(N)):
            result = ESTIMATE_RESULTS.nonfinite
        elif free.any():
            covariance[np.ix_(free, free)] = np.linalg.inv(N[np.ix_(free, free)])
        own, log_det = [], 0.0
        for problem, factor, T in zip(rows, reduced.factors, reduced.own, strict=True):
            m = T.shape[0]
            half = solve_upper(factor.border_triangle[:m, :m], jnp.eye(m))
            own.append(np.asarray(half @ half.T + T[:, :-1] @ covariance @ T[:, :-1].T))
            full, silent = log_determinants(stage.model, problem)  # pyright: ignore[reportArgumentType]
            log_det += 2 * float(full - silent)
        information = N - np.diag(p.weight**2)
        value = self.cost(stage, it)
        return Fit(it, value, result, used, covariance, information, tuple(own), log_det, self.history)

    def _say(self, stage: int, iteration: int, cost: float, step: float, damping: float) -> None:
        line = Progress(stage, iteration, cost, step, damping, time.perf_counter() - self._began)
        self.history.append(line)
        if self.report:
            self.report(line)


def _slack(N: Array, g: Array, low: Array, high: Array) -> float:
    """What a projected gradient step in the parameters promises at least: half its squared length in sd."""
    D = jnp.sqrt(jnp.diagonal(N))
    return float(jnp.max((D * jnp.clip(g / D**2, low, high)) ** 2, initial=0.0)) / 2


def fit_residual(
    problem: Problem,
    stages: Sequence[Stage],
    start: Iterate,
    settings: Settings = Settings(),
    report: Callable[[Progress], None] | None = None,
) -> Fit:
    """Run a `ResidualEstimator` from `start` (trajectories of the simulator, see `track`) through the stages."""
    return ResidualEstimator(problem, settings, report).run(start, stages)
