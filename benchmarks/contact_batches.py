"""Batches of bodies that touch, beside MuJoCo and MJX in one run, and what contacts add to compiling a rollout.

1024 boxes that fall a little way onto a plane and 256 quadrupeds on their feet, all of one model: steps per second of
`sx.rollouts` called by itself, of MuJoCo's loop with as many threads as cores, and of MJX, a scan under `jax.vmap`.
Compiling is compared with the same scene without its contacts: 1.5 times that and 5 s are the limit.
"""

import importlib.metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import spookax as sx

from . import peer
from .contact_speed import SCENES, Other
from .measure import Row, compile_now, row, timed

BATCHES = {"box": (1024, 100), "quadruped": (256, 100)}  # copies, steps
BUDGET = 3.0  # of repetitions [s]


def run(part: str = "") -> list[Row]:
    """Rows of both parts, or of `speed` or `compile`."""
    rows = [line for name in BATCHES if part in ("", "speed") for line in _speed(name, *BATCHES[name])]
    return rows + [line for name in SCENES if part in ("", "compile") for line in _compile(name)]


def _repeated(tree: Any, size: int) -> Any:
    return jax.tree.map(lambda a: jnp.broadcast_to(a, (size, *jnp.shape(a))), tree)


def _speed(name: str, size: int, steps: int) -> list[Row]:
    scene, case = SCENES[name](), f"{name}, {size} copies"
    system, params, state = sx.load(scene)
    states, controls = _repeated(state, size), jnp.zeros((size, steps, len(system.motors)))
    found = sx.rollouts(system, params, states, controls, throw=False)
    ours = size * steps / timed(lambda: sx.rollouts(system, params, states, controls, throw=False), BUDGET).best
    height = float(np.max(np.asarray(found.r)[:, -1, :, 2]))
    rows = [
        row(case, "copies whose steps failed", float(np.sum(np.asarray(found.failed_step) >= 0)), ""),
        row(case, "height at the end", height, "m"),
        row(case, "steps per second", ours, "steps/s"),
    ]
    if not peer.mujoco():
        return rows
    other = Other(scene, "Newton")
    theirs = {other.label: size * steps / other.time(0, steps, size, peer.all_threads())}
    if mjx := peer.mjx():
        model, data = mjx.put_model(other.model), _repeated(mjx.put_data(other.model, other.start), size)
        commands = jnp.zeros((size, steps, other.model.nu))
        program = compile_now(jax.vmap(peer.Mjx.rollout, in_axes=(None, 0, 0)), model, data, commands)
        label = f"MJX {importlib.metadata.version('mujoco-mjx')}"
        theirs[label] = size * steps / timed(lambda: program.call(model, data, commands), BUDGET).best
        rows.append(row(case, f"compile, {label}", program.seconds, "s"))
    return rows + [row(case, f"steps per second, {k}", v, "steps/s", over=ours, to="ours") for k, v in theirs.items()]


def _compile(name: str) -> list[Row]:
    scene = SCENES[name]()
    took = {}
    for label, kept in (("with contacts", scene.contacts), ("without", None)):
        system, params, state = sx.load(scene.model_copy(update={"contacts": kept}))
        controls = jnp.zeros((100, len(system.motors)))
        took[label] = compile_now(lambda s, u, x=system, p=params: sx.rollout(x, p, s, u, throw=False), state, controls)
    found, bare = (took[label].seconds for label in ("with contacts", "without"))
    return [
        row(name, "compile a rollout without contacts", bare, "s"),
        row(name, "compile it with contacts", found, "s", over=1.5 * bare + 5, to="1.5 times that and 5 s"),
    ]
