"""Why there are several sweeps and kernels: time and digits of each where another one might stand.

Digits are those that agree with the same computation by factors in 64 bits, of the least exact number; where the
solution is known, with that. Times are processor times of one step, or of one triangle.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax.estimation import Filter
from spookax.estimation.batch.sweeps import covariance_filter
from spookax.estimation.linearise import Linearised, linearise
from spookax.math.bordered import _absorb
from spookax.math.sqrt_gaussian import condition, lower, upper
from spookax.study.file.against_scene import sensor_dimensions
from spookax.study.running.setup import set_up

from . import learned_friction
from .identification import STUDY
from .measure import Row, compile_now, row, timed

SECONDS = 2.0  # of the demo's first recording
SAMPLES = 500  # of the mass with learned friction
UNKNOWNS, ROWS = 12, 48
RATIO = 1e8  # of the weights of rows


def run(part: str = "") -> list[Row]:
    """Rows of one part, or of all: "states" of the demo, "slow" parameters, "triangles" of rows."""
    parts = {"states": states, "slow": slow, "triangles": triangles}
    return [line for name, rows in parts.items() if part in ("", name) for line in rows()]


# --- a linear problem of an identification: stiff joints, so that covariances are singular


def states() -> list[Row]:
    lin, w, Y0, P0 = _of_the_demo()
    exact, rows = None, []
    for bits, dtype in ((64, np.float64), (32, np.float32)):
        given = jax.tree.map(lambda a, dtype=dtype: jnp.asarray(a, dtype), (lin, w, Y0, P0))
        for name, sweep in (("factors", _by_factors), ("covariances and parameter columns", _by_covariances)):
            compiled = compile_now(sweep, *given).call
            sd = np.asarray(compiled(*given), np.float64)
            exact = sd if exact is None else exact
            digits = -np.log10(np.max(np.abs(sd - exact)[exact > 0] / exact[exact > 0]) + 1e-17)
            case = f"{lin.A.shape[1]} states, {lin.C.shape[2]} parameters, {bits} bits"
            took = timed(lambda compiled=compiled, given=given: compiled(*given)).processor
            rows += [
                row(case, f"a step, {name}", took / len(lin.A) * 1e6, "us"),
                row(case, f"digits of standard deviations, {name}", float(digits), ""),
            ]
    return rows


def _of_the_demo() -> tuple[Linearised, Any, Any, Any]:
    study = sx.load_study(STUDY)
    cut = study.recordings[0].model_copy(update={"stop": SECONDS})
    study = study.model_copy(update={"recordings": [cut]})
    scene = sx.read_scene(study.scene_path)
    setup = set_up(study, scene, sx.read_recordings(study, sensor_dimensions(scene)))
    stage, start, samples = setup.stages[0], setup.start(), setup.problem.samples[0]
    z, path = jnp.concatenate([jnp.asarray(start.z), jnp.asarray(start.own[0])]), start.paths[0]
    lin = sx.jit(lambda z, path, samples: linearise(stage.model, z, stage.noise, path, samples, 1.0))(z, path, samples)
    n, p = lin.C.shape[1:]
    return lin, path.w, np.zeros((n, p)), 1e-2 * np.eye(n)


def _by_covariances(lin: Linearised, w: Any, Y0: Any, P0: Any) -> jax.Array:
    return jnp.sqrt(jnp.diagonal(covariance_filter(lin, w, Y0, P0).P, axis1=1, axis2=2))


def _by_factors(lin: Linearised, w: Any, Y0: Any, P0: Any) -> jax.Array:
    """The same filter without parameters."""
    del Y0
    n, m = lin.B.shape[1:]

    def forward(carry: tuple[Any, Any], step: tuple[Any, ...]) -> tuple[tuple[Any, Any], Any]:
        mean, S = carry
        A, B, H, J, e, w = step
        both = jnp.concatenate([mean, -w])
        factor = jax.scipy.linalg.block_diag(S, jnp.eye(m, dtype=S.dtype))
        found = condition(both, factor, jnp.concatenate([H, J], axis=1), e)
        to = jnp.concatenate([A, B], axis=1)
        return (to @ found.mean, lower(to @ found.factor)), S

    start = jnp.zeros(n, P0.dtype), jnp.linalg.cholesky(P0)
    _, S = jax.lax.scan(forward, start, (lin.A, lin.B, lin.H, lin.J, lin.e, w))
    return jnp.sqrt(jnp.sum(S * S, axis=2))


# --- many parameters behind a small state


def slow() -> list[Row]:
    of = learned_friction
    case = of.Case(**of.SOURCE)
    start, sd = of.start_of(case, 0)
    f, samples = of.filter_of(case), of.samples_of(case, of.friction_data(0), SAMPLES)
    plain = Filter(f.model, jnp.zeros(0), f.noise)
    name = f"{2 + case.law.size} states, {case.law.size} of them parameters"
    filters = {"blocks of state and parameters": f, "one factor": plain}
    found = {what: (g, g.init(start, sd)) for what, g in filters.items()}
    return [
        row(name, f"a sample, {what}", timed(lambda g=g, b=b: g.run(b, samples)).processor / SAMPLES * 1e6, "us")
        for what, (g, b) in found.items()
    ]


# --- triangles of rows with weights that differ


def triangles() -> list[Row]:
    rng = np.random.default_rng(0)
    solution = rng.integers(1, 9, UNKNOWNS).astype(float)
    R = rng.integers(-9, 10, (ROWS, UNKNOWNS)).astype(float)
    R[: UNKNOWNS // 2] *= RATIO  # as many as determine half of the unknowns
    R = R[rng.permutation(ROWS)]
    M = jnp.asarray(np.column_stack([R, R @ solution]))  # exact: integers
    kernels = {
        "reflections that exchange rows": lambda M: _absorb(jnp.zeros((M.shape[1],) * 2), M)[0],
        "reflections alone": lambda M: jax.vmap(upper)(jnp.stack([M, M]))[0],
        "normal equations": lambda M: jnp.linalg.cholesky(M.T @ M + 1e-300 * jnp.eye(M.shape[1])).T,
    }
    return [line for name, kernel in kernels.items() for line in _triangle(name, kernel, M, solution)]


def _triangle(name: str, kernel: Callable[[Any], Any], M: Any, solution: np.ndarray) -> list[Row]:
    compiled = compile_now(kernel, M).call
    U = np.asarray(compiled(M))
    case = f"{ROWS} rows, {UNKNOWNS} unknowns, weights 1 and {RATIO:g}"
    x = np.linalg.solve(U[:UNKNOWNS, :UNKNOWNS], U[:UNKNOWNS, UNKNOWNS])
    digits = -np.log10(np.max(np.abs(x / solution - 1)) + 1e-17)
    return [
        row(case, f"digits of the solution, {name}", float(digits), ""),
        row(case, f"time, {name}", timed(lambda: compiled(M), budget=0.5, most=10_000).processor * 1e6, "us"),
    ]
