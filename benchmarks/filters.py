"""Filters and smoothers beside dynamax and filterpy: the same linear models and readings, times per sample.

A chain of masses between walls, forces that nobody knows of on every mass, some positions read: the package and
dynamax's extended filter differentiate the model; dynamax's linear filter and filterpy are given its matrices. And a
mass with learned friction, 103 weights behind two states, which all have to differentiate.
"""

import dataclasses
import importlib.util
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import expm

from spookax.estimation import Filter
from spookax.protocol import AbstractVectorModel, Noise, Samples

from .measure import Row, row, timed

STEPS, H = 4000, 0.01
CHAINS = {4: (2, 1), 24: (12, 4)}  # components of the state: masses, positions read


class Linear(AbstractVectorModel):
    """x+ = A x + B w, y = C x + n."""

    tangent_size: int = eqx.field(static=True)
    noise_size: int = eqx.field(static=True)
    num_channels: int = eqx.field(static=True)
    A: jax.Array
    B: jax.Array
    C: jax.Array

    @property
    def reads_pair(self) -> bool:
        return False

    def prepare(self, z):
        return None

    def step(self, x, p, u, w, noise, guess):
        return self.A @ x + self.B @ (noise.process * w), guess

    def observe(self, x, x1, p, s):
        return self.C @ x


@dataclasses.dataclass(frozen=True)
class Problem:
    """Matrices and readings."""

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    sd: float
    y: np.ndarray

    @property
    def Q(self) -> np.ndarray:
        return self.B @ self.B.T


def problem(n: int) -> Problem:
    """A chain with n / 2 masses, discretised exactly, with forces as white noise held over a step."""
    masses, read = CHAINS[n]
    K = 100 * (2 * np.eye(masses) - np.eye(masses, k=1) - np.eye(masses, k=-1))
    F = np.block([[np.zeros((masses, masses)), np.eye(masses)], [-K, -0.1 * np.eye(masses)]])
    G = np.concatenate([np.zeros((masses, masses)), np.eye(masses)])
    both = expm(H * np.block([[F, G], [np.zeros((masses, 3 * masses))]]))
    A, B = both[:n, :n], both[:n, n:] / np.sqrt(H)
    C = np.zeros((read, n))
    C[np.arange(read), np.linspace(0, masses - 1, read).astype(int)] = 1.0
    rng, x, y, sd = np.random.default_rng(0), np.zeros(n), [], 0.01
    for _ in range(STEPS):
        y.append(C @ x + sd * rng.normal(size=read))
        x = A @ x + B @ rng.normal(size=masses)
    return Problem(A, B, C, sd, np.array(y))


class Measured(NamedTuple):
    """Filter, filter and smoother, and the filtered means of what the former returns."""

    forward: Callable[[], Any]
    both: Callable[[], Any] | None
    means: Callable[[Any], np.ndarray]


def ours(p: Problem) -> Measured:
    """The package's."""
    n, m = p.B.shape
    model = Linear(n, m, p.C.shape[0], jnp.asarray(p.A), jnp.asarray(p.B), jnp.asarray(p.C))
    f = Filter(model, np.zeros(0), Noise(jnp.asarray(1.0), jnp.full(p.C.shape[0], p.sd)))
    belief = f.init(np.zeros(n), np.ones(n))
    y = jnp.asarray(p.y)[:, None]
    samples = Samples(jnp.zeros((STEPS, 0)), y, jnp.zeros((STEPS, 1)), jnp.ones_like(y))
    return Measured(
        lambda: f.run(belief, samples),
        lambda: f.smooth(f.run(belief, samples, trail=True)),
        lambda r: np.asarray(r.x),
    )


def dynamax_linear(p: Problem) -> Measured:
    """dynamax's linear Gaussian filter and smoother."""
    from dynamax.linear_gaussian_ssm import inference as of  # pyright: ignore[reportMissingImports]
    from dynamax.linear_gaussian_ssm import lgssm_filter, lgssm_smoother  # pyright: ignore[reportMissingImports]

    n, c = p.A.shape[0], p.C.shape[0]
    params = of.ParamsLGSSM(
        of.ParamsLGSSMInitial(jnp.zeros(n), jnp.eye(n)),
        of.ParamsLGSSMDynamics(jnp.asarray(p.A), jnp.zeros(n), jnp.zeros((n, 0)), jnp.asarray(p.Q)),
        of.ParamsLGSSMEmissions(jnp.asarray(p.C), jnp.zeros(c), jnp.zeros((c, 0)), p.sd**2 * jnp.eye(c)),
    )
    y = jnp.asarray(p.y)
    forward, both = jax.jit(lambda: lgssm_filter(params, y)), jax.jit(lambda: lgssm_smoother(params, y))
    return Measured(forward, both, lambda r: np.asarray(r.filtered_means))


def dynamax_extended(p: Problem) -> Measured:
    """dynamax's extended filter and smoother."""
    from dynamax.nonlinear_gaussian_ssm import ParamsNLGSSM, extended_kalman_filter, extended_kalman_smoother  # pyright: ignore[reportMissingImports]

    n, c = p.A.shape[0], p.C.shape[0]
    A, C, y = jnp.asarray(p.A), jnp.asarray(p.C), jnp.asarray(p.y)
    params = ParamsNLGSSM(
        jnp.zeros(n), jnp.eye(n), lambda x: A @ x, jnp.asarray(p.Q), lambda x: C @ x, p.sd**2 * jnp.eye(c)
    )
    forward = jax.jit(lambda: extended_kalman_filter(params, y))
    both = jax.jit(lambda: extended_kalman_smoother(params, y))
    return Measured(forward, both, lambda r: np.asarray(r.filtered_means))


def filterpy(p: Problem) -> Measured:
    """filterpy's loop over the samples."""
    from filterpy.kalman import KalmanFilter  # pyright: ignore[reportMissingImports]

    def forward() -> tuple[np.ndarray, np.ndarray, KalmanFilter]:
        kf = KalmanFilter(dim_x=p.A.shape[0], dim_z=p.C.shape[0])
        kf.F, kf.H, kf.Q, kf.R = p.A, p.C, p.Q, p.sd**2 * np.eye(p.C.shape[0])
        kf.P = np.eye(p.A.shape[0])
        kf.x = np.zeros(p.A.shape[0])
        means, covariances = [], []
        for y in p.y:
            kf.update(y)
            means.append(kf.x)
            covariances.append(kf.P)
            kf.predict()
        return np.array(means), np.array(covariances), kf

    def both() -> Any:
        means, covariances, kf = forward()
        return kf.rts_smoother(means, covariances)

    return Measured(forward, both, lambda r: r[0])


def learned(name: str) -> Measured:
    """A mass with learned friction: two states and 103 slow weights, the settings of its published filter."""
    from . import learned_friction as of

    case = of.Case(**of.SOURCE)
    data, start, sd = of.friction_data(0), *of.start_of(case, 0)
    f, samples = of.filter_of(case), of.samples_of(case, data, STEPS)
    if name == "spookax":
        belief = f.init(start, sd)
        return Measured(
            lambda: f.run(belief, samples),
            lambda: f.smooth(f.run(belief, samples, trail=True)),
            lambda r: np.concatenate([r.x.x, r.x.z], axis=1),
        )
    model, noise = of.model_of(case), f.noise
    Q = np.diag(np.append(np.full(2, case.process), np.full(sd.size - 2, case.walk)))
    R, C = case.sensor**2 * np.eye(2), np.eye(2, sd.size)
    m0, y = np.append(np.asarray(start.x), np.asarray(start.z)), data.y[:STEPS]

    def step(x: jax.Array, u: jax.Array) -> jax.Array:
        ahead = model.step(x[:2], model.prepare(x[2:]), u, jnp.zeros(2), noise, jnp.zeros(0))[0]
        return jnp.concatenate([ahead, jnp.exp(-1e-4 * of.STEP) * x[2:]])

    if name == "dynamax extended":
        from dynamax import nonlinear_gaussian_ssm as peer  # pyright: ignore[reportMissingImports]

        params = peer.ParamsNLGSSM(
            jnp.asarray(m0), jnp.diag(jnp.asarray(sd**2)), step, jnp.asarray(Q), lambda x, u: x[:2], jnp.asarray(R)
        )
        forward = jax.jit(lambda: peer.extended_kalman_filter(params, jnp.asarray(y), inputs=samples.u))
        both = jax.jit(lambda: peer.extended_kalman_smoother(params, jnp.asarray(y), inputs=samples.u))
        return Measured(forward, both, lambda r: np.asarray(r.filtered_means))
    from filterpy.kalman import ExtendedKalmanFilter  # pyright: ignore[reportMissingImports]

    line, inputs = jax.jit(lambda x, u: (step(x, u), jax.jacrev(step)(x, u))), np.asarray(samples.u)

    def loop() -> np.ndarray:
        kf = ExtendedKalmanFilter(dim_x=sd.size, dim_z=2)
        kf.x, kf.P, kf.Q, kf.R = m0, np.diag(sd**2), Q, R
        means = []
        for u, reading in zip(inputs, y, strict=True):
            kf.update(reading, lambda x: C, lambda x: x[:2])
            means.append(kf.x)
            x, kf.F = map(np.asarray, line(kf.x, u))
            kf.P, kf.x = kf.F @ kf.P @ kf.F.T + kf.Q, x
        return np.array(means)

    return Measured(loop, None, lambda r: r)


PEERS = {"dynamax linear": ("dynamax", dynamax_linear), "dynamax extended": ("dynamax", dynamax_extended)}
PEERS |= {"filterpy": ("filterpy", filterpy)}


def run() -> list[Row]:
    """Times per sample [us] with their ratios to ours, compile times, and the largest difference of the means."""
    there = {name: make for name, (module, make) in PEERS.items() if importlib.util.find_spec(module)}
    for name in PEERS.keys() - there.keys():
        print(f"{name} left out: its package is not installed")
    rows: list[Row] = []
    for n in CHAINS:
        p = problem(n)
        rows += _beside(f"n = {n}", {"spookax": ours(p)} | {name: make(p) for name, make in there.items()})
    names = ["spookax", *(name for name in there if name != "dynamax linear")]
    return rows + _beside("n = 105, 103 slow", {name: learned(name) for name in names})


def _beside(case: str, found: dict[str, Measured]) -> list[Row]:
    rows: list[Row] = []
    for what in ("update", "smoothed sample"):
        best: dict[str, float] = {}
        for name, measured in found.items():
            call = measured.forward if what == "update" else measured.both
            if call is None:
                continue
            began = time.perf_counter()
            jax.block_until_ready(call())
            first = time.perf_counter() - began
            times = timed(call, budget=2.0, least=3 if name != "filterpy" else 1)
            best[name] = times.best / STEPS * 1e6
            over = None if name == "spookax" else best[name]
            line = row(case, f"{what}, {name}", best[name], "us", median=times.median / STEPS * 1e6)
            rows.append(line | ({"ratio": best["spookax"] / over, "to": "ours over this"} if over else {}))
            if name != "filterpy":
                rows.append(row(case, f"compile, {what}, {name}", first - times.best, "s"))
    means = {name: measured.means(measured.forward()) for name, measured in found.items()}
    for name in list(found)[1:]:
        apart = float(np.abs(means[name] - means["spookax"]).max())
        rows.append(row(case, f"largest difference, {name}", apart, ""))
    return rows
