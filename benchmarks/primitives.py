"""What there is to compile: primitives and fusions by part of a step, and the seconds to trace, lower and compile them.

A primitive or fusion belongs to the part whose code is innermost among the calls that made it. Primitives are counted
as often as a function is called, and (`once`) each function that is traced once a single time. Fusions are those of
a program compiled as the estimators' are, and every loop's body counts once. Seconds are processor time of all
threads, which depends least on what else the machine does.
"""

import collections
import functools
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax._compiled import QUICK, known_options
from spookax.constraints import prepare
from spookax.estimation.batch import one_recording
from spookax.estimation.batch.simulator_form import DEFAULT_SETTINGS, Estimator
from spookax.estimation.batch.step_blocks import split, split_path
from spookax.estimation.linearise import before
from spookax.stepping import step
from spookax.stepping.spook import default_solver
from spookax.study.file.against_scene import sensor_dimensions
from spookax.study.running.setup import set_up

from . import sizes
from .equations import HERE, Place, equations
from .gradients import MODES, Case
from .measure import ROOT, Row
from .mechanisms import Mechanism, four_bar, furuta, swinging

Program = tuple[Callable[..., Any], tuple[Any, ...]]
PARTS = {  # modules of each part, of a path below src/spookax
    "gyroscopic block": ("constraints/gyro.py",),
    "pivoting and its checks": ("complementarity/", "stepping/pivoting.py"),
    "factor and substitution": ("stepping/saddle.py", "math/block_sparse.py", "math/level_loop.py"),
    "assembly of rows": ("constraints/", "stepping/impacts.py"),
    "solve, march and their rules": ("stepping/",),
    "estimator": ("estimation/", "models/"),
}
REST = "the rest"
STEPS = 100
LINES = 25  # that `primitives.lines` prints for every program


def run(part: str = "") -> list[Row]:
    """Parts of every program; `lines`: the lines that most primitives come from; `sizes`: larger mechanisms."""
    if part == "sizes":
        return sizes.run()
    programs = {**_of_steps(), **_of_identification()}
    return [row for name, program in programs.items() for row in (_lines if part == "lines" else _parts)(name, program)]


# --- the programs


def _of_steps() -> dict[str, Program]:
    mechanisms = [furuta(), four_bar(), swinging(16)]
    programs = {f"{mechanism.name}: {name}": program for mechanism in mechanisms for name, program in _steps(mechanism)}
    case = Case(furuta(), {"shoulder": (0.3, 0.0), "elbow": (1.0, 0.0)}, "pendulum")
    x = jnp.asarray(case.inputs())
    gradients = {f"furuta: gradient, {mode} mode": (d(case.loss()), (x,)) for mode, d in MODES.items()}
    return programs | gradients


def _steps(mechanism: Mechanism) -> Iterator[tuple[str, Program]]:
    system, params, state = mechanism.load()
    controls = jnp.asarray(mechanism.controls(1, STEPS)[0])
    solver = default_solver(system)

    def one(prepared: Any, state: Any, command: Any, guess: Any) -> Any:
        return step(system, prepared, state, command, solver=solver, guess=guess)

    def rollout(params: Any, state: Any, controls: Any) -> Any:
        return sx.rollout(system, params, state, controls)

    prepared = jax.jit(functools.partial(prepare, system))(params)
    yield "step", (one, (prepared, state, controls[0], jnp.zeros(len(system.boxes))))
    yield "rollout", (rollout, (params, state, controls))


def _of_identification() -> dict[str, Program]:
    """What `identify` of the demo compiles, as its estimator calls it."""
    study = sx.load_study(ROOT / "demo/furuta_study.yaml")
    scene = sx.read_scene(study.scene_path)
    setup = set_up(study, scene, sx.read_recordings(study, sensor_dimensions(scene)))
    stage, path = setup.stages[0], setup.plans()[0][0]
    calls: list[Any] = Estimator(setup.problem, DEFAULT_SETTINGS).preparations(stage, path)[0]
    programs = {f"demo: {call.func.__self__.__name__}": (call.func.__self__.__wrapped__, call.args) for call in calls}
    block, u = split_path(path)[0], split(setup.problem.samples[0].u)[0]
    z = np.concatenate([setup.problem.z0, np.zeros(len(setup.problem.own_weight))])
    gains = np.zeros((*block.w.shape, stage.model.tangent_size))
    first = jax.tree.map(lambda a: a[0], block.x)
    follow: Any = one_recording._follow
    args = stage.model, z, stage.noise, before(block.x), block.w, gains, u, first, block.guess[0]
    return {"demo: _follow": (follow.__wrapped__, args), **programs}


# --- counting


def _parts(name: str, program: Program) -> list[Row]:
    traced, seconds, compiled = _compiled(*program)
    once, called = collections.Counter(), collections.Counter()
    for place, new in equations(traced.jaxpr.jaxpr):
        called[_part(place)] += 1
        once[_part(place)] += new
    fusions = collections.Counter(map(_part, _fusions(compiled.as_text())))
    rows: list[Row] = [
        {"case": name, "part": part, "primitives": called[part], "once": once[part], "fusions": fusions[part]}
        for part in (*PARTS, REST)
        if called[part] or fusions[part]
    ]
    whole: Row = {"primitives": called.total(), "once": once.total(), "fusions": fusions.total()}
    return [*rows, {"case": name, "part": "whole", **whole, **seconds}]


def _lines(name: str, program: Program) -> list[Row]:
    traced, _, _ = _compiled(*program, only_trace=True)
    count = collections.Counter(
        next((f"{file}:{line} {function}" for file, function, line in place), "elsewhere")
        for place, _ in equations(traced.jaxpr.jaxpr)
    )
    return [{"case": name, "line": line, "primitives": number} for line, number in count.most_common(LINES)]


def _compiled(
    function: Callable[..., Any], args: tuple[Any, ...], only_trace: bool = False
) -> tuple[Any, dict[str, float], Any]:
    """The program traced, lowered and compiled, and the seconds of each."""
    arrays, rest = eqx.partition(args, eqx.is_array)

    def of_arrays(arrays: Any) -> Any:
        return eqx.filter(function(*eqx.combine(arrays, rest)), eqx.is_array)

    options = known_options(QUICK)
    jax.clear_caches()
    began = time.process_time()
    traced = jax.jit(of_arrays, compiler_options=options).trace(arrays)
    after_trace = time.process_time()
    if only_trace:
        return traced, {}, None
    lowered = traced.lower()
    after_lower = time.process_time()
    compiled = lowered.compile()
    end = time.process_time()
    times = {"trace [s]": after_trace - began, "lower [s]": after_lower - after_trace, "compile [s]": end - after_lower}
    return traced, times, compiled


def _part(place: Place) -> str:
    """Innermost call that a part owns."""
    for file, _, _ in place:
        for part, modules in PARTS.items():
            if file.startswith(modules):
                return part
    return REST


def _fusions(hlo: str) -> Iterator[Place]:
    """Place of every fusion of a compiled program, from the tables at the head of its text."""
    tables: dict[str, dict[int, str]] = {}
    for title, body in re.findall(r"^(\w+)\n((?:\d+ .*\n)+)", hlo, re.MULTILINE):
        tables[title] = {int(k): v for k, v in (line.split(" ", 1) for line in body.splitlines())}

    def number(text: str, field: str) -> int:
        found = re.search(rf"{field}=(\d+)", text)
        return int(found[1]) if found else 0

    @functools.cache
    def place(frame: int) -> Place:
        text = tables.get("StackFrames", {}).get(frame)
        if text is None:
            return ()
        location = tables["FileLocations"][number(text, "file_location_id")]
        file = tables["FileNames"][number(location, "file_name_id")].strip('"')
        name = tables["FunctionNames"][number(location, "function_name_id")].strip('"')
        mine = ((file[len(HERE) :], name, number(location, "line")),) if file.startswith(HERE) else ()
        return mine + place(number(text, "parent_frame_id") - 1)

    for line in hlo.splitlines():
        if " fusion(" in line:
            yield place(number(line, "stack_frame_id"))
