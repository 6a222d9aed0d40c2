"""The demo's identification: cold, again in the same process, and its pieces."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

import spookax as sx
from spookax._compiled import QUICK, known_options
from spookax.estimation import Settings
from spookax.estimation.batch import step_blocks
from spookax.estimation.batch.one_recording import Plan, filtered, first_spread, follow, gains_of, linearised
from spookax.estimation.batch.simulator_form import Estimator
from spookax.estimation.linearise import before, linearise
from spookax.study.file.against_scene import sensor_dimensions
from spookax.study.running.checkpoint import load_iterate
from spookax.study.running.setup import Setup, set_up

from .measure import MIB, OUT, ROOT, CompileClock, Row, compile_clock, peak_memory, row, temporary_memory, timed

STUDY = ROOT / "demo/furuta_study.yaml"
IDENTIFY_LIMIT, COMPILE_LIMIT = 5.0, 30.0  # [s], what the project allows the demo's identification to take


def run() -> list[Row]:
    """Rows of both identifications and of the pieces of one iteration."""
    study = sx.load_study(STUDY)
    with compile_clock() as clock:
        rows, _ = _identify("cold", study, clock)
        rows.append(row("cold", "peak memory", peak_memory(), "MiB"))
        again, estimate = _identify("again", study, clock)
    folder = estimate.save(OUT / "furuta")
    scene = sx.read_scene(study.scene_path)
    setup = set_up(study, scene, sx.read_recordings(study, sensor_dimensions(scene)))
    first, process, sensor, it = load_iterate(folder, setup)
    rows += [*again, *_pieces(setup, first, process, sensor, it)]
    return [*rows, row("all", "peak memory", peak_memory(), "MiB")]


def _identify(case: str, study: Any, clock: CompileClock) -> tuple[list[Row], sx.Estimate]:
    clock.take()
    began, processor = time.perf_counter(), time.process_time()
    estimate = sx.identify(study)
    total, processor = time.perf_counter() - began, time.process_time() - processor
    compiling = clock.take()
    compile_limit = {"over": COMPILE_LIMIT, "to": f"limit {COMPILE_LIMIT:g} s"}
    identify_limit = {"over": IDENTIFY_LIMIT, "to": f"limit {IDENTIFY_LIMIT:g} s"}
    return [
        row(case, f"identification ({estimate.status})", total, "s"),
        row(case, "of it tracing and compiling", compiling, "s", **compile_limit),
        row(case, "of it identifying", total - compiling, "s", **identify_limit),
        row(case, "processor time of all threads", processor, "s"),
        row(case, "iterations", float(estimate.content["iterations"]), ""),
    ], estimate


def _pieces(setup: Setup, first: int, process: Any, sensor: Any, it: Any) -> list[Row]:
    """The compiled pieces of an iteration, at the estimate."""
    estimator, stage = Estimator(setup.problem, Settings()), setup.stages[first]
    estimator.process, estimator.sensor = process, sensor
    noise = estimator.noise(stage)
    (path,), (samples,), (own,) = it.paths, setup.problem.samples, it.own
    z = jnp.concatenate([it.z, own])
    lin = linearised(stage.model, z, noise, path, samples)
    x0 = jax.tree.map(lambda a: a[0], path.x)
    P0, Y0 = first_spread(stage.model, z, x0, setup.problem.initial_sd, lin[0])
    plan = Plan(before(path.x), path.w, gains_of(lin))
    case = f"{path.w.shape[0]} steps"
    whole = timed(lambda: estimator.linear(stage, it))
    pieces = {
        "linearisation": lambda: linearised(stage.model, z, noise, path, samples),
        "filter with parameter columns": lambda: filtered(lin, path.w, Y0, P0),
        "gains of the feedback": lambda: gains_of(lin),
        "tracking rollout": lambda: follow(stage.model, z, noise, plan, samples.u, path.guess[0]),
    }
    rows = [row(case, "one linear problem", whole.best * 1e3, "ms", median=whole.median * 1e3)]
    for name, call in pieces.items():
        times = timed(call)
        share = {"over": whole.best * 1e3, "to": "one linear problem"}
        rows.append(row(case, name, times.best * 1e3, "ms", median=times.median * 1e3, **share))
    block, readings = step_blocks.split_path(path)[0], step_blocks.split(samples)[0]
    jax.clear_caches()
    began = time.perf_counter()
    at = stage.model, z, noise, block, readings
    jitted: Any = eqx.filter_jit(linearise, compiler_options=known_options(QUICK))  # pyright: ignore[reportCallIssue]
    compiled = jitted.lower(*at).compile()
    rows.append(row("one block", "compile linearisation as one program", time.perf_counter() - began, "s"))
    temporary = temporary_memory(compiled.compiled)
    if temporary is not None:
        rows.append(row("one block", "temporary memory of the linearisation", temporary / MIB, "MiB"))
    return rows
