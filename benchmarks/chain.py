"""Long chains and ladders of loops: time per step, compile time and trials of active sets against the size."""

import functools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax.constraints import prepare
from spookax.estimation.batch import one_recording
from spookax.models import Multibody, ParameterMap, ProcessNoise
from spookax.protocol import Noise
from spookax.protocol.asked import first_guess
from spookax.scene import Scene
from spookax.stepping import half_kick_back, state_from_joints
from spookax.system import build

from .measure import Row, compile_now, row, timed

LINKS = (16, 64, 256)
RUNGS = (8, 32)
FOLLOWED = 48  # links of an identification
RUNS, ROUNDS = 3, 10
STEPS = 200
STEP = 0.002  # s
LINK = 1 / 16  # m; links that shrink with their number would swing faster than the step follows


def run(part: str = "") -> list[Row]:
    """Rows of all mechanisms, the least of some runs; ratios are to the smallest of a kind. `part`: "followed".

    Each run is a process of its own: what was compiled before slows down what is compiled after.
    """
    if part == "followed":
        return followed()
    rows: list[Row] = []
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as alone:
        for kind, (sizes, _) in KINDS.items():
            first: dict[str, float] = {}
            for size in sizes:
                found = [alone.submit(_measured, kind, size).result() for _ in range(RUNS)]
                for (quantity, _, unit), *others in zip(found[0], *found, strict=True):
                    value = min(value for _, value, _ in others)
                    least = first.setdefault(quantity, value)
                    against = {"over": least, "to": f"{sizes[0]}"} if unit in ("µs", "s") else {}
                    rows.append(row(f"{kind}, {size}", quantity, value, unit, **against))
                    print(rows[-1], flush=True)
    return rows


def chain(links: int, coulomb: float = 0.0, link: float = LINK) -> Scene:
    """Links of one length [m], a kilogram a metre, that hang, hinges across each other in turn."""
    inertia = (link**3 / 12, link**3 / 12, link**3 / 100)
    body: dict[str, Any] = {"mass": link, "com": (0, 0, -link / 2), "inertia": inertia}
    bodies: dict[str, Any] = {f"b{i}": body for i in range(links)}
    joints: dict[str, Any] = {
        f"j{i}": {
            "type": "hinge",
            "parent": f"b{i - 1}" if i else "world",
            "child": f"b{i}",
            "at": (0, 0, -link if i else 0),
            "axis": (i % 2, 1 - i % 2, 0),
            "friction": {"coulomb": coulomb},
        }
        for i in range(links)
    }
    return Scene(spookax=1, step=STEP, bodies=bodies, joints=joints)


def ladder(rungs: int) -> Scene:
    """Two chains of links that hang side by side, and a rung between every two joints: a loop for each."""
    side = 1 / rungs
    link = {"mass": side, "com": (0, 0, -side / 2), "inertia": (side**3 / 12, side**3 / 12, side**3 / 100)}
    rung = {"mass": side, "com": (side / 2, 0, 0), "inertia": (side**3 / 100, side**3 / 12, side**3 / 12)}
    bodies: dict[str, Any] = {}
    joints: dict[str, Any] = {}
    hinge = {"type": "hinge", "axis": (0, 1, 0)}
    for i in range(rungs):
        bodies |= {f"left{i}": link, f"right{i}": link, f"rung{i}": rung}
        for name, x in (("left", 0.0), ("right", side)):
            parent = f"{name}{i - 1}" if i else "world"
            at = (0, 0, -side) if i else (x, 0, 0)
            joints[f"{name}{i}"] = {**hinge, "parent": parent, "child": f"{name}{i}", "at": at}
        joints[f"on{i}"] = {**hinge, "parent": f"left{i}", "child": f"rung{i}", "at": (0, 0, -side)}
        joints[f"close{i}"] = {
            **hinge,
            "parent": f"rung{i}",
            "child": f"right{i}",
            "at": (side, 0, 0),
            "child_at": (0, 0, -side),
        }
    return Scene(spookax=1, step=STEP, bodies=bodies, joints=joints)


KINDS = {
    "chain": (LINKS, chain),
    "chain, dry friction": (LINKS, functools.partial(chain, coulomb=1e-3)),
    "ladder of loops": (RUNGS, ladder),
}


def _measured(kind: str, size: int) -> list[tuple[str, float, str]]:
    sx.enable_x64()
    system, params = build(KINDS[kind][1](size))
    name = system.axes[0].name
    state = jax.jit(state_from_joints, static_argnums=0)(system, params, {name: {"position": 0.0, "rate": 1.0}})

    def rollout(params: sx.Params, state: sx.State) -> sx.Trajectory:
        return sx.rollout(system, params, state, jnp.zeros((STEPS, 0)), throw=False)

    compiled = compile_now(rollout, params, state)
    trajectory = compiled.call(params, state)
    assert int(trajectory.failed_step) < 0, f"step {int(trajectory.failed_step)} failed"
    found = [
        ("one step in a rollout", timed(lambda: compiled.call(params, state)).best * 1e6 / STEPS, "µs"),
        ("compile the rollout", compiled.seconds, "s"),
        ("levels of the factorisation", float(len(system.pattern.levels)), ""),
    ]
    if system.friction_axes:
        pivots = np.asarray(trajectory.pivots)
        found += [("pivots or trials, mean", float(pivots.mean()), ""), ("the most in a step", float(pivots.max()), "")]
    return found


def followed() -> list[Row]:
    """A step inside an identification, which follows a plan with noise and feedback, over one of `rollout`: dry
    friction in every joint, the same motion. Both take turns, and the least of each counts."""
    sx.enable_x64()
    sensors = {"angle": {"type": "joint_position", "joint": "j0", "sd": 1e-3}}
    parts = chain(FOLLOWED, coulomb=1e-3).model_dump(exclude_unset=True) | {"sensors": sensors}
    system, params = build(Scene.model_validate(parts))
    state = jax.jit(state_from_joints, static_argnums=0)(system, params, {"j0": {"position": 0.0, "rate": 1.0}})

    def plain(params: sx.Params, state: sx.State) -> sx.Trajectory:
        return sx.rollout(system, params, state, jnp.zeros((STEPS, 0)), throw=False)

    rollout = compile_now(plain, params, state).call
    none = ParameterMap(system, ())
    model = Multibody(system, params, none, none, ProcessNoise("joints", 1e-3), (0,))
    begin = jax.jit(lambda s: half_kick_back(system, prepare(system, params), s, jnp.zeros(0)))(state)
    x0, z = model.body_state(begin, params.com), np.zeros(0)
    plan = jax.tree.map(lambda a: np.broadcast_to(np.asarray(a), (STEPS, *a.shape)), x0)
    w, gains = np.zeros((STEPS, model.noise_size)), jnp.zeros((STEPS, model.noise_size, model.tangent_size))
    noise = Noise(jnp.ones(()), jnp.ones(1))

    def evaluation() -> Any:
        block = plan, w, gains, np.zeros((STEPS, 0))
        return one_recording._follow(model, z, noise, *block, x0, first_guess(model))

    _, path = evaluation()
    trajectory = rollout(params, state)
    apart = float(np.max(np.abs(np.asarray(path.x.near)[1:-1] - np.asarray(trajectory.position)[1:STEPS])))
    assert int(trajectory.failed_step) < 0
    times = [[timed(call, 0.0, 1).best for call in (lambda: rollout(params, state), evaluation)] for _ in range(ROUNDS)]
    alone, inside = np.min(times, axis=0) * 1e6 / STEPS
    case = f"chain, dry friction, {FOLLOWED}"
    return [
        row(case, "one step in a rollout", alone, "µs"),
        row(case, "one step of an identification", inside, "µs", over=alone, to="rollout"),
        row(case, "how far the motions are apart", apart, "rad"),
    ]
