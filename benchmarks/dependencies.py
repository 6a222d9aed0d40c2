"""The libraries of `docs/dependencies.md` beside our own code, on the same problems.

`assembly`: loops closed by `state_from_joints`, and by optimistix (Levenberg and Marquardt's method on what the
joints violate, over small motions of all bodies). `boxes`: batches of friction-like box problems by
`ProjectedGaussSeidel` and by jaxopt's `BoxCDQP`, where that is installed. `solves`: small linear systems by
`math.small` and by lineax. `baseline`: the demo by least squares of the simulation error, which is optimistix, and of
the equation error, beside the truth.
"""

import functools
import importlib.util
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx

import spookax as sx
from spookax.complementarity import MLCP, ProjectedGaussSeidel, solve_mlcp
from spookax.constraints import frames, prepare
from spookax.math import rotation, small
from spookax.models import ParameterMap
from spookax.models.parameters import natural_values
from spookax.stepping import closing
from spookax.stepping.start import assembly_error, coordinates_of, forward_kinematics, new_state
from spookax.study.comparing.equation_error import EquationErrorFit, equation_error
from spookax.study.comparing.simulation_error import simulation_error
from spookax.study.file.against_scene import sensor_dimensions
from spookax.study.recordings.recording import read_recordings
from spookax.study.running.setup import free_parameters
from spookax.system import Params, State, System

from .chain import ladder
from .measure import ROOT, Row, compile_now, timed

BATCH, SIZE = 4096, 6
RUNGS = 8
SWEEPS = 50
SEED = 5


def run(part: str = "") -> list[Row]:
    """Rows of one part, or of all."""
    parts: dict[str, Callable[[], list[Row]]] = {
        "assembly": _assembly,
        "boxes": _boxes,
        "solves": _solves,
        "baseline": _baseline,
    }
    return [row for name, rows in parts.items() if part in ("", name) for row in rows()]


def _row(case: str, by: str, call: Callable[..., Any], *args: Any, error: Callable[[Any], float]) -> Row:
    compiled = compile_now(call, *args)
    seconds = timed(lambda: compiled.call(*args)).best
    return {
        "case": case,
        "by": by,
        "compile [s]": round(compiled.seconds, 2),
        "time [us]": round(1e6 * seconds, 1),
        "error": error(compiled.call(*args)),
    }


def _assembly() -> list[Row]:
    """Every axis that decides is given, so that there is one solution, and its derivative in all lengths."""
    rows = []
    scenes = {
        "four-bar": (sx.read_scene(ROOT / "scenes/four_bar.yaml"), ("drive",), -1.2),
        f"ladder of {RUNGS} loops": (ladder(RUNGS), tuple(f"left{i}" for i in range(RUNGS)), 0.1),
    }
    for case, (scene, decide, at) in scenes.items():
        system, params = sx.build(scene)
        given: dict[str, float] = {name: at for name in decide}  # noqa: C420 (the type checker)
        ways = {
            "ours": functools.partial(_ours, system, given),
            "optimistix": functools.partial(_by_optimistix, system, given),
        }
        for by, place in ways.items():

            def gap(state: State, system: System = system, params: Params = params) -> float:
                return float(assembly_error(system, params, state))

            rows.append(_row(case, by, place, params, error=gap))
        slopes = {by: _slope(place) for by, place in ways.items()}
        wanted = jax.tree.leaves(jax.jit(slopes["ours"])(params))
        for by, slope in slopes.items():

            def off(found: Params, wanted: list[jax.Array] = wanted) -> float:
                both = zip(jax.tree.leaves(found), wanted, strict=True)
                return max(float(jnp.max(jnp.abs(a - b), initial=0.0)) for a, b in both)

            rows.append(_row(f"{case}, derivative", by, slope, params, error=off))
    return rows


def _ours(system: System, given: dict[str, float], params: Params) -> State:
    return sx.state_from_joints(system, params, given)


def _by_optimistix(system: System, given: dict[str, float], params: Params) -> State:
    """From the same pose of the tree: least squares of what is violated, in small motions d of all bodies."""
    fixed, prepared = tuple(system.axis_names().index(name) for name in given), prepare(system, params)
    position = coordinates_of(system, given, {})[2]
    near = jnp.stack([position[name] for name in system.axis_names()])
    target = jnp.array(list(given.values()))
    r, e = forward_kinematics(system, prepared, position)

    def moved(d: jax.Array) -> tuple[jax.Array, jax.Array]:
        return r + d[:, :3], jax.vmap(rotation.plus)(e, d[:, 3:])

    def violated(d: jax.Array, args: tuple[Params, jax.Array]) -> jax.Array:
        params, target = args
        kin = frames.kinematics(system, *moved(d), prepare(system, params).geometry)
        found, _ = closing.violated(system, params, kin, near, jnp.zeros(()))
        return jnp.concatenate([found.gap.reshape(-1), closing.missed(system, kin, target, fixed)])

    solver = optx.LevenbergMarquardt(rtol=1e-11, atol=1e-11)
    zero = jnp.zeros((system.num_bodies, 6))
    d = optx.least_squares(violated, solver, zero, args=(params, target), max_steps=60, throw=False).value
    return new_state(system, *moved(d), zero, near)


def _slope(place: Callable[[Params], State]) -> Callable[[Params], Params]:
    return jax.grad(lambda params: jnp.sum(place(params).r ** 2))


def _boxes() -> list[Row]:
    """Six rows each, symmetric, as of two contacts or six joints with dry friction."""
    rng = np.random.default_rng(SEED)
    A = rng.normal(size=(BATCH, SIZE, SIZE))
    N = jnp.asarray(A @ A.transpose(0, 2, 1) / SIZE + 0.5 * np.eye(SIZE))
    q, bound = jnp.asarray(2 * rng.normal(size=(BATCH, SIZE))), jnp.asarray(rng.uniform(0.1, 1.0, (BATCH, SIZE)))

    def ours(N: jax.Array, q: jax.Array, bound: jax.Array) -> jax.Array:
        solver = ProjectedGaussSeidel(sweeps=SWEEPS)
        return jax.vmap(lambda N, q, b: solve_mlcp(MLCP(N, q, -b, b), solver).x)(N, q, bound)

    def residual(x: jax.Array) -> float:
        return float(jnp.max(jnp.abs(x - jnp.clip(x - (jnp.einsum("bij,bj->bi", N, x) + q), -bound, bound))))

    rows = [_row(f"{BATCH} boxes of {SIZE} rows", "ours", ours, N, q, bound, error=residual)]
    if importlib.util.find_spec("jaxopt"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # its upkeep has ended, as it says
            from jaxopt import BoxCDQP  # pyright: ignore[reportMissingImports]

        def theirs(N: jax.Array, q: jax.Array, bound: jax.Array) -> jax.Array:
            solver = BoxCDQP(maxiter=SWEEPS, tol=1e-6)
            zero = jnp.zeros(SIZE)
            return jax.vmap(lambda N, q, b: solver.run(zero, params_obj=(N, q), params_ineq=(-b, b)).params)(
                N, q, bound
            )

        rows.append(_row(f"{BATCH} boxes of {SIZE} rows", "jaxopt", theirs, N, q, bound, error=residual))
    return rows


def _solves() -> list[Row]:
    """Single systems, one after the other as a step has them, and a batch."""
    rng = np.random.default_rng(SEED)
    A = jnp.asarray(rng.normal(size=(BATCH, SIZE, SIZE)) + 3 * np.eye(SIZE))
    b = jnp.asarray(rng.normal(size=(BATCH, SIZE)))

    def by_lineax(A: jax.Array, b: jax.Array) -> jax.Array:
        return lx.linear_solve(lx.MatrixLinearOperator(A), b, lx.LU()).value

    def by_small(A: jax.Array, b: jax.Array) -> jax.Array:
        return small.solve(A, b[:, None])[:, 0]

    def wrong(x: jax.Array) -> float:
        return float(jnp.max(jnp.abs(jnp.einsum("bij,bj->bi", A, x) - b)))

    rows = []
    for by, one in (("ours", by_small), ("lineax", by_lineax)):

        def in_turn(A: jax.Array, b: jax.Array, one: Callable[..., jax.Array] = one) -> jax.Array:
            return jax.lax.scan(lambda _, at: (None, one(*at)), None, (A, b))[1]

        rows.append(_row(f"{BATCH} systems of {SIZE}, in turn", by, in_turn, A, b, error=wrong))
        rows.append(_row(f"{BATCH} systems of {SIZE}, a batch", by, jax.vmap(one), A, b, error=wrong))
    return rows


def _baseline() -> list[Row]:
    """The worst parameter of the demo in per cent of the truth; from the study's starts, 50 % off."""
    study = sx.load_study(ROOT / "demo/furuta_study.yaml")
    scene = sx.read_scene(study.scene_path)
    recordings = read_recordings(study, sensor_dimensions(scene))
    truth = json.loads((ROOT / "demo/truth.json").read_text(encoding="utf-8"))["parameters"]
    system, _ = sx.build(scene, unknown=frozenset(study.parameters))
    shared = ParameterMap(system, free_parameters(study, scene))
    true = np.array([truth[path] for path in shared.paths])
    rows: list[Row] = []
    for name, way in {"equation error": equation_error, "simulation error": simulation_error}.items():
        seconds, z = [], None
        for _ in range(2):
            began = time.process_time()
            told = way(study, scene, recordings)
            z = told.z if isinstance(told, EquationErrorFit) else told
            seconds.append(time.process_time() - began)
        found = np.full(true.shape, np.nan) if z is None else np.asarray(natural_values(shared, jnp.asarray(z))[0])
        off = 100 * np.abs(found / true - 1)
        rows.append(
            {
                "case": f"demo by {name}",
                "processor, first [s]": round(seconds[0], 1),
                "again [s]": round(seconds[1], 1),
                "worst [%]": round(float(np.max(off)), 2),
                "of": shared.paths[int(np.argmax(off))],
            }
        )
    return rows
