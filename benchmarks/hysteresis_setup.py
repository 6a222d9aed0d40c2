"""The source's two experiments with elasto-slide elements: records, banks, scores (`tests/data/hysteresis.json`)."""

import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spookax.estimation import IMM, Coupled, Filter, Problem, Recursion, Settings, Stage, fit, others
from spookax.estimation.batch.problem import Fit, Iterate
from spookax.estimation.linearise import Path, all_successful
from spookax.models import Blocks, ElastoSlide
from spookax.models.hysteresis import recording
from spookax.protocol import Noise, Samples

from .measure import ROOT

SETUP: dict[str, Any] = json.loads((ROOT / "tests/data/hysteresis.json").read_text(encoding="utf-8"))
STEP, LEFT_OUT = SETUP["step"], SETUP["left_out"]
GRID = np.array(SETUP["grid"])
TRANSITION = np.where(np.eye(len(GRID)) > 0, SETUP["stay"], SETUP["change"])


class Variant(NamedTuple):
    """What the source's text leaves open, or what may be done otherwise."""

    plant_noisy: bool = True  # whether the noise of the displacement moves the plant, too
    seconds: bool = True  # whether the k of the displacement is in seconds
    mixing: bool = True
    coupled: bool = True
    process_variance: float = SETUP["process_variance"]  # Q of a step
    output_sd: float = SETUP["output_sd"]


VARIANTS = {
    "default": Variant(),
    "input noise only on the measured input": Variant(plant_noisy=False),
    "k = sample number": Variant(seconds=False),
    "no mixing": Variant(mixing=False),
    "Q = 1e-4": Variant(process_variance=1e-4),
    "Q = 1e-2": Variant(process_variance=1e-2),
    "measurement noise sd 1e-2, R matched": Variant(output_sd=1e-2),
    "other elements ignored in the innovation": Variant(coupled=False),
}


class Records(NamedTuple):
    """Runs of an experiment."""

    u: np.ndarray  # measured displacement (runs, samples)
    y: np.ndarray  # measured force
    force: np.ndarray  # true one
    regime: np.ndarray  # of every element: 0 sticks, 1 and -1 slip (runs, samples, elements)


def plant(u: np.ndarray, reach: np.ndarray, stiffness: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Force and regimes of the elements (1) to (9), written out. `stiffness`: (elements,) or (samples, elements)."""
    stiffness = np.broadcast_to(stiffness, (u.shape[1], len(reach)))
    zeta, force, regime = np.zeros((len(u), len(reach))), np.zeros(u.shape), np.zeros((*u.shape, len(reach)))
    for k in range(u.shape[1]):
        d = u[:, k, None] - zeta
        c = np.clip(d, -reach, reach)
        force[:, k], regime[:, k] = c @ stiffness[k], np.sign(d - c)
        zeta = zeta + (d - c)
    return force, regime


def draw(name: str, seed: int, variant: Variant = Variant(), stiffness: np.ndarray | None = None) -> Records:  # noqa: B008
    """Runs of experiment A or B with noise of this seed; `stiffness` may change from sample to sample."""
    rng, it = np.random.default_rng(seed), SETUP["experiments"][name]
    k = np.arange(SETUP["samples"]) * (STEP if variant.seconds else 1.0)
    clean = np.sin(2 * np.pi / 16 * k) * np.sin(2 * np.pi * 30 / 16 * k)
    u = clean + SETUP["input_sd"] * rng.normal(size=(SETUP["runs"], len(k)))
    moving = u if variant.plant_noisy else np.broadcast_to(clean, u.shape)
    force, regime = plant(moving, np.array(it["reach"]), np.array(it["stiffness"]) if stiffness is None else stiffness)
    return Records(u, force + variant.output_sd * rng.normal(size=u.shape), force, regime)


def bank(name: str, variant: Variant = Variant()) -> Coupled:  # noqa: B008
    """The source's estimator: a bank over the grid of stiffnesses for every element of the model."""
    density = np.sqrt(variant.process_variance / STEP)
    noise = Noise(jnp.ones(()), jnp.array([variant.output_sd]))

    def element(reach: float) -> IMM:
        models = [ElastoSlide([K], [reach], STEP, density, printed=True) for K in GRID]
        return IMM([Filter(m, jnp.zeros(0), noise) for m in models], TRANSITION, variant.mixing)

    reaches = SETUP["experiments"][name]["model_reach"]
    return Coupled([element(reach) for reach in reaches], others if variant.coupled else None)


def started(estimator: Coupled, records: Records, seed: int) -> tuple[Any, Samples]:
    """First beliefs and samples of all runs; the blocks are believed to stand at places drawn from (0, 1)."""
    count = estimator.elements.transition.shape[:2]
    zeta = np.random.default_rng(seed).uniform(size=(len(records.u), *count, 1))
    first, samples = jax.vmap(recording)(jnp.asarray(records.u), jnp.asarray(records.y))
    sd = jnp.full((*count, 1), SETUP["initial_variance"] ** 0.5)

    def one(zeta: jax.Array, u: jax.Array):
        return estimator.init(Blocks(zeta, jnp.full(count, u)), sd)

    return jax.jit(jax.vmap(one))(jnp.asarray(zeta), first.u), samples


def rms(a: np.ndarray) -> float:
    return float(np.sqrt(np.mean(a**2)))


class Scores(NamedTuple):
    """Of a bank, after the samples that are left out."""

    mean_error: float  # rms error of the force averaged over the runs [% of its rms]
    single_error: float  # the same of single runs [%]
    stiffness: np.ndarray  # of the elements, over runs and samples
    regime_error: float  # share of samples in which the likeliest mode's regime is not the plant's [%]; A only


def scores(name: str, records: Records, found: Recursion) -> Scores:
    modes = found.modes  # (samples, runs, elements, ...)
    assert modes is not None
    total = np.asarray(modes.fitted).sum(axis=(2, 3, 4)).T
    error, true = (total - records.force)[:, LEFT_OUT:], records.force[:, LEFT_OUT:]
    scale = rms(true.mean(axis=0))
    reach = np.array(SETUP["experiments"][name]["model_reach"])
    d = np.asarray(modes.likeliest.u - modes.likeliest.zeta[..., 0])
    regime = np.where(np.abs(d) <= reach, 0, np.sign(d)).transpose(1, 0, 2)
    wrong = np.mean((regime != records.regime)[:, LEFT_OUT:]) if regime.shape == records.regime.shape else np.nan
    return Scores(
        100 * rms(error.mean(axis=0)) / scale,
        100 * rms(error) / scale,
        (np.asarray(modes.probability) @ GRID)[LEFT_OUT:].mean(axis=(0, 1)),
        100 * float(wrong),
    )


# ---------------------------------------------------------------------------------------------------------------
# the batch method


def fitted(
    model: ElastoSlide,
    u: np.ndarray,
    y: np.ndarray,
    sd: float,
    settings: Settings,
    initial_sd: float = 1.0,
    weight: float = 0.0,
) -> tuple[np.ndarray, np.ndarray, Fit]:
    """Parameters and simulated force by `estimation.fit`, started at the model's own values with blocks at zero.

    `weight`: 1/sd of a prior of the parameters about these values.
    """
    first, samples = recording(u, y, np.zeros(model.tangent_size))
    z0, noise = model.values, Noise(jnp.ones(()), jnp.array([sd]))
    states = model.simulate(z0, first, samples)
    states = jax.tree.map(lambda a: np.concatenate([a, a[-1:]]), states)
    path = Path(states, np.zeros((len(u), model.noise_size)), np.zeros((len(u), 0)), all_successful(len(u)))
    wide = np.full(len(z0), 30.0)
    problem = Problem((samples,), z0, z0, np.full(len(z0), weight), -wide, wide, np.zeros(0), initial_sd)
    found = fit(problem, [Stage(model, noise)], Iterate(z0, (np.zeros(0),), (path,)), settings)
    z = np.asarray(found.iterate.z)
    return z, forces(model, z, jax.tree.map(lambda a: a[0], found.iterate.paths[0].x), samples), found


@jax.jit
def _forces(model: ElastoSlide, z: jax.Array, first: Blocks, samples: Samples) -> jax.Array:
    p = model.prepare(z)
    return jax.vmap(lambda x: model.force(x, p))(model.simulate(z, first, samples))


def forces(model: ElastoSlide, z: Any, first: Blocks, samples: Samples) -> np.ndarray:
    """Simulated without process noise."""
    return np.asarray(_forces(model, jnp.asarray(z), jax.tree.map(jnp.asarray, first), samples))


def deflections(u: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Of the springs (samples, elements), blocks at zero first: the regressors of least squares in the stiffnesses."""
    zeta, out = np.zeros(len(reach)), np.zeros((len(u), len(reach)))
    for k in range(len(u)):
        out[k] = np.clip(u[k] - zeta, -reach, reach)
        zeta = u[k] - out[k]
    return out
