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
from typing import Any, NamedTuple

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
from .linearise import Path, after, before, chunked, residuals, whitened
from .simulator_form import Fit, Iterate, Problem, Progress, Settings, Stage, box_step

_TRUST = 1.0  # largest step of a parameter in one iteration, in z (one log-unit)
_ON_JOINTS = 1e-9  # sd of x_0 off the joints, relative to that of its free directions
_MEMORY = 5  # a step is accepted if its cost is below the largest of so many before
_FIRST_DAMPING, _LARGEST_DAMPING = 1e-6, 1e8
_EPS = 1e-5  # of the differences that give the slope of the log-determinant


# ---------------------------------------------------------------------------------------------------------------
# compiled pieces, one recording each


class Point(NamedTuple):
    """A path with everything that its rows say there."""

    path: Path
    impulse: Float[Array, "steps r"]  # of the stiff rows
    e: Float[Array, "steps c"]  # whitened readings minus predictions


class Linear(NamedTuple):
    """Rows of a recording about its path."""

    rows: bordered.Problem  # `damping` holds the metric of the masses
    poses: Any  # q_-1 ... q_K
    impulse: Rows  # of the stiff rows: Jacobian and value


def _moved(model: AbstractResidualModel, x: Any, d: Array) -> Any:
    """Pose box-plus d; the velocity is the old one."""
    return model.retract(x, jnp.concatenate([d, jnp.zeros_like(d)]))


def _at(x: Any, k: int) -> Any:
    return jax.tree.map(lambda a: a[k], x)


def _part(x: Any, start: int, stop: int | None) -> Any:
    return jax.tree.map(lambda a: a[start:stop], x)


def _with_first(first: Any, x: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, x)


@eqx.filter_jit
def read_back(model: AbstractResidualModel, z: Array, noise: Noise, x: Any, samples: Samples) -> Point:
    """States with the noise, hints and impulses that explain them."""
    p = model.prepare(z)
    found = jax.vmap(lambda x, x1, u: model.transition(x, x1, p, u, noise))(before(x), after(x), samples.u)
    path = Path(x, found.w, found.hint)
    return Point(path, found.impulse, residuals(model, z, noise, path, samples))


@eqx.filter_jit
def linear_rows(
    model: AbstractResidualModel,
    z: Float[Array, " p"],
    noise: Noise,
    point: Point,
    samples: Samples,
    own_weight: Float[Array, " own"],
    sd: float,
) -> Linear:
    """Whitened rows of one recording about its path.

    State block j is the pose q_j-1. The border is (own parameters, shared parameters), with the prior of the former.
    The rows of `triples` are the noises of a step, then its readings.
    """
    half, m, c = model.tangent_size // 2, model.noise_size, point.e.shape[1]
    steps, p, p_own = point.e.shape[0], z.shape[0], own_weight.shape[0]
    p0, first = model.prepare(z), _at(point.path.x, 0)
    poses = _with_first(model.earlier(first, p0), point.path.x)

    def split(J: Array, blocks: int, residual: Array) -> Rows:
        states, shared, own = jnp.split(J, (blocks * half, blocks * half + p - p_own), axis=-1)
        states = states.reshape(*J.shape[:-1], blocks, half)
        return Rows(states, jnp.concatenate([own, shared], axis=-1), residual)

    def one(args):
        q0, q1, q2, u, y, s, seen = args

        def rows(d: Array) -> Array:
            p = model.prepare(z + d[3 * half :])
            q = [_moved(model, x, d[i * half : (i + 1) * half]) for i, x in enumerate((q0, q1, q2))]
            x, x1 = model.joined(q[0], q[1], p), model.joined(q[1], q[2], p)
            t = model.transition(x, x1, p, u, noise)
            predicted = jax.vmap(lambda s: model.observe(x, x1, p, s))(s)
            return jnp.concatenate([t.w, whitened(model, noise, predicted, y, seen), t.impulse])

        return jax.jacfwd(rows)(jnp.zeros(3 * half + p, dtype=z.dtype))

    data = (*(_part(poses, i, steps + i) for i in range(3)), samples.u, samples.y, samples.s, samples.seen)
    J = chunked(one, data, steps)
    triples = split(J[:, : m + c], 3, jnp.concatenate([point.path.w, point.e], axis=1))
    impulse = split(J[:, m + c :], 3, point.impulse)

    scale = jnp.concatenate([jnp.full(half, sd), jnp.full(half, 10 * sd)])

    def initial(d: Array) -> tuple[Array, Array]:
        """x_0 off where it is, and off its joints, in standard deviations; only the latter counts now."""
        p = model.prepare(z + d[2 * half :])
        x = model.joined(_moved(model, _at(poses, 0), d[:half]), _moved(model, _at(poses, 1), d[half : 2 * half]), p)
        off = model.local(x, model.start(x, p)) / (_ON_JOINTS * scale)
        return jnp.concatenate([model.local(x, first) / scale, off]), jnp.concatenate([jnp.zeros_like(scale), off])

    J, at = jax.jacfwd(initial, has_aux=True)(jnp.zeros(2 * half + p, dtype=z.dtype))
    blocks = (steps + 1, 0)
    none = Rows(jnp.zeros((*blocks, 2, half)), jnp.zeros((*blocks, p)), jnp.zeros(blocks))
    metric = jnp.linalg.norm(model.tracking_gain(first, p0, noise)[:, :half], axis=0)
    prior = jnp.eye(p_own, p) * own_weight[:, None]
    rows = bordered.Problem(
        triples,
        none,
        split(J, 2, at),
        jnp.broadcast_to(metric, (steps + 2, half)),
        prior,
        own_weight * z[p - p_own :],
    )
    return Linear(rows, poses, impulse)


@eqx.filter_jit
def eliminate(rows: bordered.Problem, damping: Array) -> bordered.Factor:
    """The rows reduced to the border, under so much damping in the metric of the masses."""
    return bordered.eliminate(eqx.tree_at(lambda q: q.damping, rows, jnp.sqrt(damping) * rows.damping))


substitute = eqx.filter_jit(bordered.back_substitute)
sensitivity = eqx.filter_jit(bordered.sensitivity)


@eqx.filter_jit
def displaced(
    model: AbstractResidualModel, z: Array, dz: Array, d: Array, noise: Noise, linear: Linear, samples: Samples
) -> Point:
    """The path with its poses moved by d and its parameters by dz, restored to the stiff rows."""
    p, p_own = model.prepare(z + dz), linear.rows.prior_border.shape[0]
    count = z.shape[0] - p_own
    plan = jax.vmap(lambda x, d: _moved(model, x, d))(linear.poses, d)
    three = jnp.stack([d[:-2], d[1:-1], d[2:]], axis=1)
    border = jnp.concatenate([dz[count:], dz[:count]])
    rows = linear.impulse
    impulse = rows.residual + jnp.einsum("krsb,ksb->kr", rows.states, three) + rows.border @ border

    def body(x, step):
        target, u, impulse = step
        x1, t = model.restore(x, target, p, u, noise, impulse)
        return x1, (x1, t)

    x0 = model.start(model.joined(_at(plan, 0), _at(plan, 1), p), p)
    _, (x, t) = jax.lax.scan(body, x0, (_part(plan, 2, None), samples.u, impulse))
    path = Path(_with_first(x0, x), t.w, t.hint)
    return Point(path, t.impulse, residuals(model, z + dz, noise, path, samples))


@eqx.filter_jit
def log_determinants(rows: bordered.Problem, noises: int) -> tuple[Scalar, Scalar]:
    """Half the log-determinants of the Hessian in the poses: of all rows, and without the readings.

    The second is sum log|det dw_k / dq_k+1| and a constant of x_0, the normaliser of the density of the poses; the
    difference is 1/2 sum log|F_k| of the simulator form, up to the prior of x_0.
    """

    def bare(part: Rows, count: int | None = None) -> Rows:
        return Rows(part.states[..., :count, :, :], part.border[..., :count, :0], part.residual[..., :count])

    def half_log_det(triples: Rows) -> Scalar:
        none = jnp.zeros_like(rows.damping), jnp.zeros((0, 0)), jnp.zeros(0)
        return bordered.eliminate(bordered.Problem(triples, bare(rows.pairs), bare(rows.initial), *none)).logdet

    return half_log_det(bare(rows.triples)), half_log_det(bare(rows.triples, noises))


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


@dataclasses.dataclass
class _Here:
    """An iterate with what its rows say."""

    z: Array
    own: list[Array]
    points: list[Point]
    cost: float  # joint, with priors

    def iterate(self) -> Iterate:
        return Iterate(self.z, tuple(self.own), tuple(p.path for p in self.points))


class ResidualEstimator:
    """The iteration of one stage after the other. Keeps the last iterate, so that it can be interrupted."""

    def __init__(self, problem: Problem, settings: Settings, report: Callable[[Progress], None] | None = None):
        self.problem, self.settings, self.report = problem, settings, report
        self.history: list[Progress] = []
        self.iterate: Iterate | None = None
        self._began = time.perf_counter()

    def run(self, it: Iterate, stages: Sequence[Stage]) -> Fit:
        """All stages in turn; the last one to convergence. `it` holds trajectories of the simulator."""
        here, result, used = None, ESTIMATE_RESULTS.successful, 0
        for number, stage in enumerate(stages):
            here = self._read_back(stage, it)
            here, result, used = self._stage(number, stage, here, number == len(stages) - 1, used)
            it = here.iterate()
        assert here is not None
        return self._finish(stages[-1], here, result, used)

    def snapshot(self, stage: Stage, it: Iterate) -> Fit:
        """A fit of an iterate that did not converge (interrupted)."""
        return self._finish(stage, self._read_back(stage, it), ESTIMATE_RESULTS.interrupted, len(self.history))

    def _here(self, z: Array, own: Sequence[Array], points: list[Point]) -> _Here:
        p = self.problem
        prior = float(np.sum((p.weight * (np.asarray(z) - p.prior)) ** 2))
        prior += sum(float(np.sum((p.own_weight * np.asarray(o)) ** 2)) for o in own)
        cost = sum(float(jnp.sum(q.path.w**2) + jnp.sum(q.e**2)) for q in points)
        return _Here(z, list(own), points, (cost + prior) / 2)

    def _read_back(self, stage: Stage, it: Iterate) -> _Here:
        """The same states, explained by the stage's own noise and friction."""
        points = [
            read_back(stage.model, jnp.concatenate([it.z, own]), stage.noise, path.x, samples)
            for own, path, samples in zip(it.own, it.paths, self.problem.samples, strict=True)
        ]
        return self._here(it.z, it.own, points)

    def _linear(self, stage: Stage, here: _Here) -> list[Linear]:
        weight, sd = jnp.asarray(self.problem.own_weight), self.problem.initial_sd
        return [
            linear_rows(stage.model, jnp.concatenate([here.z, own]), stage.noise, point, samples, weight, sd)
            for own, point, samples in zip(here.own, here.points, self.problem.samples, strict=True)
        ]

    def _reduce(self, linear: list[Linear], here: _Here, damping: float) -> _Reduced:
        weight = jnp.asarray(self.problem.weight) ** 2
        away = here.z - jnp.asarray(self.problem.prior)
        N, g, floor = jnp.diag(weight), -weight * away, float(weight @ away**2) / 2
        factors, own = [], []
        for part in linear:
            factor = eliminate(part.rows, jnp.asarray(damping))
            T, R = _own_step(factor, here.z.shape[0])
            N, g = N + R[:, :-1].T @ R[:, :-1], g - R[:, :-1].T @ R[:, -1]
            floor += float(factor.unexplained + R[:, -1] @ R[:, -1]) / 2
            factors.append(factor)
            own.append(T)
        return _Reduced(factors, own, N, g, floor)

    def _try(self, stage: Stage, here: _Here, linear: list[Linear], reduced: _Reduced, dz: Array):
        """(new iterate, squared length of the planned displacements)."""
        own, points, length = [], [], 0.0
        for i, (part, samples) in enumerate(zip(linear, self.problem.samples, strict=True)):
            T, z = reduced.own[i], jnp.concatenate([here.z, here.own[i]])
            d_own = -(T[:, :-1] @ dz + T[:, -1])
            d = substitute(reduced.factors[i], jnp.concatenate([d_own, dz]))
            step = jnp.concatenate([dz, d_own])
            points.append(displaced(stage.model, z, step, d, stage.noise, part, samples))
            own.append(here.own[i] + d_own)
            length += float(jnp.sum((part.rows.damping * d) ** 2))
        return self._here(here.z + dz, own, points), length

    def _slope(self, stage: Stage, here: _Here, linear: list[Linear], reduced: _Reduced) -> Array:
        """Derivative of 1/2 sum log|F| with respect to the shared parameters, poses and offsets following them."""
        slopes = [sensitivity(factor) for factor in reduced.factors]

        def at(dz: Array) -> float:
            total = 0.0
            for i, (part, samples) in enumerate(zip(linear, self.problem.samples, strict=True)):
                d_own = -reduced.own[i][:, :-1] @ dz
                z, step = jnp.concatenate([here.z, here.own[i]]), jnp.concatenate([dz, d_own])
                d = slopes[i] @ jnp.concatenate([d_own, dz])
                point = displaced(stage.model, z, step, d, stage.noise, part, samples)
                weight, sd = jnp.asarray(self.problem.own_weight), self.problem.initial_sd
                moved = linear_rows(stage.model, z + step, stage.noise, point, samples, weight, sd)
                full, silent = log_determinants(moved.rows, stage.model.noise_size)
                total += float(full - silent)
            return total

        base = at(jnp.zeros_like(here.z))
        return jnp.array([at(row) - base for row in _EPS * jnp.eye(here.z.shape[0])]) / _EPS

    def _stage(self, number: int, stage: Stage, here: _Here, last: bool, used: int):
        s, p = self.settings, self.problem
        damping, growth, small_steps = _FIRST_DAMPING, 2.0, 0
        linear, value = self._linear(stage, here), here.cost
        extra, pending = jnp.zeros_like(here.z), s.marginal and last  # slope of the log-determinant, once it is known
        recent, best = deque([value], maxlen=_MEMORY), (value, here)
        result = ESTIMATE_RESULTS.iteration_limit
        self._say(number, used, value, 0.0, damping)
        while used < s.max_iterations:
            reduced = self._reduce(linear, here, damping)
            g = reduced.g - extra
            low, high = jnp.asarray(p.lower) - here.z, jnp.asarray(p.upper) - here.z
            if small_steps and (small_steps > last or _promise(reduced.N, g, low, high) < s.tolerance * abs(value)):
                if not pending:
                    result = ESTIMATE_RESULTS.successful
                    break
                extra, pending, small_steps = self._slope(stage, here, linear, reduced), False, 0
                value += float(extra @ here.z)
                recent, best = deque([value], maxlen=_MEMORY), (value, here)
                continue
            used += 1
            dz = box_step(reduced.N, g, jnp.maximum(low, -_TRUST), jnp.minimum(high, _TRUST), jnp.asarray(damping))
            new, length = self._try(stage, here, linear, reduced, dz)
            new_value = new.cost + float(extra @ new.z)
            if np.isfinite(new_value) and new_value <= max(recent) + 1e-9 * abs(value):
                model = reduced.floor + float(dz @ reduced.N @ dz / 2 - reduced.g @ dz + extra @ new.z)
                predicted = value - (model - damping * length / 2)
                ratio = (value - new_value) / predicted if predicted > 0 else 1.0
                damping, growth = max(damping * max(1 / 3, 1 - (2 * min(ratio, 1.0) - 1) ** 3), 1e-12), 2.0
                small_steps = small_steps + 1 if abs(value - new_value) < s.tolerance * abs(value) else 0
                here, value = new, new_value
                recent.append(value)
                best = min(best, (value, here), key=lambda b: b[0])
                linear = self._linear(stage, here)
                self.iterate = here.iterate()
            else:
                damping, growth = damping * growth, 2 * growth
                if damping > _LARGEST_DAMPING:
                    result = ESTIMATE_RESULTS.successful if small_steps else ESTIMATE_RESULTS.no_progress
                    break
            self._say(number, used, here.cost, float(jnp.max(jnp.abs(dz), initial=0.0)), damping)
        return (here if result == ESTIMATE_RESULTS.successful else best[1]), result, used

    def _finish(self, stage: Stage, here: _Here, result: ESTIMATE_RESULTS, used: int) -> Fit:
        p, linear = self.problem, self._linear(stage, here)
        reduced = self._reduce(linear, here, 0.0)
        z, N = np.asarray(here.z), np.asarray(reduced.N)
        covariance = np.zeros_like(N)
        free = (z > p.lower + 1e-9) & (z < p.upper - 1e-9)
        if not np.all(np.isfinite(N)):
            result = ESTIMATE_RESULTS.nonfinite
        elif free.any():
            covariance[np.ix_(free, free)] = np.linalg.inv(N[np.ix_(free, free)])
        own, log_det = [], 0.0
        for part, factor, T in zip(linear, reduced.factors, reduced.own, strict=True):
            m = T.shape[0]
            half = solve_upper(factor.border_triangle[:m, :m], jnp.eye(m))
            own.append(np.asarray(half @ half.T + T[:, :-1] @ covariance @ T[:, :-1].T))
            full, silent = log_determinants(part.rows, stage.model.noise_size)
            log_det += 2 * float(full - silent)
        information = N - np.diag(p.weight**2)
        return Fit(
            here.iterate(), here.cost, result, used, covariance, information, tuple(own), log_det, self.history
        )

    def _say(self, stage: int, iteration: int, cost: float, step: float, damping: float) -> None:
        line = Progress(stage, iteration, cost, step, damping, time.perf_counter() - self._began)
        self.history.append(line)
        if self.report:
            self.report(line)


def _promise(N: Array, g: Array, low: Array, high: Array) -> float:
    """The decrease that one parameter alone promises, at most: half its squared projected gradient step in sd."""
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
