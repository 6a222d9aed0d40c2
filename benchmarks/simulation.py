"""Rollouts of three scenes: one environment, a batch, compile times, and the peer on the same mechanisms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax._compiled import compiler_options
from spookax.constraints import prepare
from spookax.stepping import step

from . import peer
from .measure import MIB, ROOT, Row, compile_now, row, timed

SCENES = {
    "furuta": ("demo/furuta.yaml", 2.0),  # amplitude of the input [V, N m]
    "four_bar": ("scenes/four_bar.yaml", 0.3),
    "pendulum": ("scenes/pendulum.yaml", 0.0),
}
STEPS = 1000
BATCH, BATCH_STEPS = 256, 100


def run() -> list[Row]:
    """Rows of all scenes."""
    rows: list[Row] = []
    for name, (file, amplitude) in SCENES.items():
        rows += _scene(name, file, amplitude)
    if not peer.installed():
        rows.append({"case": "all", "quantity": "ratio to MuJoCo", "unit": "peer not installed"})
    return rows


def sines(count: int, steps: int, motors: int, h: float, amplitude: float) -> np.ndarray:
    """Inputs of 1 Hz, each environment with its own phase."""
    phase = np.linspace(0, np.pi, count, endpoint=False)[:, None]
    wave = amplitude * np.sin(2 * np.pi * h * np.arange(steps)[None] + phase)
    return np.repeat(wave[:, :, None], motors, axis=2)


def _scene(name: str, file: str, amplitude: float) -> list[Row]:
    scene = sx.read_scene(ROOT / file)
    system, params, state = sx.load(scene)
    motors = len(system.motors)

    def rollout(params: sx.Params, state: sx.State, controls: Any) -> sx.Trajectory:
        return sx.rollout(system, params, state, controls, throw=False)

    def one_step(params: sx.Params, state: sx.State, command: Any) -> Any:
        return step(system, prepare(system, params), state, command)

    controls = jnp.asarray(sines(1, STEPS, motors, scene.step, amplitude)[0])
    many = jnp.asarray(sines(BATCH, BATCH_STEPS, motors, scene.step, amplitude))
    stepped = compile_now(one_step, params, state, controls[0])
    single = compile_now(rollout, params, state, controls)
    plain = compile_now(rollout, params, state, controls, options=compiler_options())
    states = jax.tree.map(lambda a: jnp.broadcast_to(a, (BATCH, *jnp.shape(a))), state)
    batched = compile_now(jax.vmap(rollout, in_axes=(None, 0, 0)), params, states, many)

    trajectory = single.call(params, state, controls)
    assert int(trajectory.failed_step) < 0, f"{name}: a step failed"
    alone = timed(lambda: single.call(params, state, controls))
    elder = timed(lambda: plain.call(params, state, controls))
    together = timed(lambda: batched.call(params, states, many))
    per_step, per_batch = 1e6 / STEPS, 1e6 / (BATCH * BATCH_STEPS)

    other: dict[str, Any] = {}
    other_batch: dict[str, Any] = {}
    rows: list[Row] = []
    if peer.installed():
        starts = {joint: start.position for joint, start in scene.initial.items()}
        mujoco = peer.Peer.of(name, starts)
        theirs = timed(lambda: mujoco.rollout(np.asarray(controls)[None]))
        theirs_batch = timed(lambda: mujoco.rollout(np.asarray(many)))
        label = f"MuJoCo {mujoco.version}"
        other = {"over": theirs.best * per_step, "to": label}
        other_batch = {"over": theirs_batch.best * per_batch, "to": label}
        path = mujoco.rollout(np.asarray(controls)[None])[0]
        away = np.stack([trajectory.joint(joint)[0][1:] for joint in mujoco.joints()], axis=1) - path
        second = slice(0, round(1 / scene.step))
        rms = float(np.sqrt(np.mean(away[second] ** 2)))
        rows = [
            row(name, f"{label}: step", theirs.best * per_step, "µs", median=theirs.median * per_step),
            row(name, f"{label}: step in a batch", theirs_batch.best * per_batch, "µs"),
            row(name, f"RMS difference of angles to {label}, first second", rms, "rad"),
        ]
    return [
        row(name, "step in a rollout", alone.best * per_step, "µs", median=alone.median * per_step, **other),
        row(
            name,
            f"step in a batch of {BATCH}",
            together.best * per_batch,
            "µs",
            median=together.median * per_batch,
            **other_batch,
        ),
        row(name, f"throughput of {BATCH} environments", BATCH * BATCH_STEPS / together.best, "steps/s"),
        row(name, "step in a batch, processor time of all threads", together.processor * per_batch, "µs"),
        *rows,
        row(name, "compile one step", stepped.seconds, "s"),
        row(name, "compile rollout", single.seconds, "s"),
        row(name, "compile batched rollout", batched.seconds, "s"),
        row(
            name,
            "compile rollout with the estimators' options",
            plain.seconds,
            "s",
            over=single.seconds,
            to="default options",
        ),
        row(
            name,
            "step in a rollout with the estimators' options",
            elder.best * per_step,
            "µs",
            over=alone.best * per_step,
            to="default options",
        ),
        *_memory(name, "rollout", single.temporary),
        *_memory(name, "batched rollout", batched.temporary),
    ]


def _memory(name: str, what: str, size: float | None) -> list[Row]:
    return [] if size is None else [row(name, f"temporary memory of the {what}", size / MIB, "MiB")]
