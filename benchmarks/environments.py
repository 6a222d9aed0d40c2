"""Environments in batches beside MuJoCo, MJX and Brax: steps per second with the policy left out, what the gradient of
an episode costs, and how its memory grows with the horizon.

Ours is the whole environment: actions held for a control period, steps, observations with their noise, reward, end of
the episode and the next start. The others take the steps alone. All have the same mechanism (as MJCF), step, actions
and numbers of 32 bits. Ours, MJX and Brax are spread over all devices, on a CPU one for each core; MuJoCo has a thread
for each.
"""

import importlib.metadata
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

import spookax as sx
from spookax._threads import cores
from spookax.envs.environment import Episode
from spookax.mjcf import write_mjcf
from spookax.stepping.batches import in_pieces, spread_of

from . import peer
from .measure import Row, compile_now, row, timed
from .mechanisms import Mechanism

TASKS = ("furuta_swing_up", "cart_pole_balance")  # `contact_batches` has bodies that touch
BRAX = ("cart_pole_balance",)  # mechanisms that it simulates: hinges and slides without dry friction
SIZES = {1: 100, 256: 20, 4096: 4}  # environments: control periods
LARGE = {4096: 20, 65_536: 10}  # on an accelerator
EPISODE = 200  # steps of an episode whose gradient is taken
HORIZONS = (100, 400, 1600, 6400)  # control periods
BUDGET = 2.0  # of repetitions [s]


def run(part: str = "") -> list[Row]:
    """Rows of all parts or one of them, of all tasks or one: `speed.cart_pole_balance`."""
    part, _, only = part.partition(".")
    _as_many_devices_as_cores()
    jax.config.update("jax_enable_x64", False)  # as environments are by default
    tasks = [name for name in TASKS if only in ("", name)]
    return [line for name, of in PARTS.items() if part in ("", name) for task in tasks for line in of(task)]


def speed(name: str) -> list[Row]:
    """Steps per second of batches."""
    sizes = SIZES if jax.default_backend() == "cpu" else SIZES | LARGE
    return [line for size, periods in sizes.items() for line in _speed(name, size, periods)]


def gradient(name: str) -> list[Row]:
    """Time of the gradient of an episode's reward by its actions, over that of the episode."""
    env, size = made(name), 64
    actions, states = _actions(env, size, EPISODE // env.episode.actuation.substeps), _states(env, size)

    def gain(episode: Episode, actions: Any, states: Any) -> Any:
        return jnp.sum(_played(episode, states, actions)[1])

    forward = compile_now(gain, env.episode, actions, states)
    backward = compile_now(lambda e, a, s: jax.value_and_grad(gain, argnums=1)(e, a, s), env.episode, actions, states)
    one, other = (timed(lambda p=p: p.call(env.episode, actions, states), BUDGET).best for p in (forward, backward))
    case = f"{name}, {size} episodes of {EPISODE} steps"
    return [
        row(case, "an episode", one / size * 1e6, "µs"),
        row(case, "its gradient", other / size * 1e6, "µs", over=one / size * 1e6, to="an episode"),
        row(case, "compile, an episode", forward.seconds, "s"),
        row(case, "compile, its gradient", backward.seconds, "s"),
    ]


def memory(name: str) -> list[Row]:
    """Memory of the gradient of one episode against its length, and the power of the length with which it grows."""
    env = made(name)
    needed = {periods: _kept(env, periods) for periods in HORIZONS}
    power = np.polyfit(np.log(list(needed)), np.log(list(needed.values())), 1)[0]
    rows = [row(name, f"memory of the gradient, {n} periods", found / 1024, "KiB") for n, found in needed.items()]
    return [*rows, row(name, "grows with the length to the power", float(power), "")]


PARTS: dict[str, Callable[[str], list[Row]]] = {"speed": speed, "gradient": gradient, "memory": memory}


def _as_many_devices_as_cores() -> None:
    """On a CPU, unless JAX has begun with one."""
    try:
        jax.config.update("jax_num_cpu_devices", cores())
    except RuntimeError as error:
        raise SystemExit("`environments` sets the number of devices: run it by itself") from error


def made(name: str) -> sx.envs.Environment:
    """A task with what MuJoCo has no words for left out of its mechanism: Stribeck's effect and cogging."""
    scene = sx.envs.make(name).scene

    def plain(joint: Any) -> Any:
        friction = joint.friction.model_copy(update={"stribeck": type(joint.friction.stribeck)()})
        return joint.model_copy(update={"friction": friction})

    joints = {name: plain(joint) for name, joint in scene.joints.items()}
    motors = {name: motor.model_copy(update={"cogging": []}) for name, motor in scene.motors.items()}
    return sx.envs.make(name, scene=scene.model_copy(update={"joints": joints, "motors": motors}))


def _states(env: sx.envs.Environment, size: int) -> Any:
    return env.reset_many(jax.random.split(jax.random.PRNGKey(0), size))[0]


def _actions(env: sx.envs.Environment, size: int, periods: int) -> jax.Array:
    """Drawn evenly within their limits."""
    low, high = (jnp.asarray(limit, jnp.float32) for limit in env.action_limits)
    drawn = jax.random.uniform(jax.random.PRNGKey(1), (size, periods, len(env.actions)))
    return low + (high - low) * drawn


def _played(episode: Episode, states: Any, actions: jax.Array, over: Any = None) -> tuple[Any, jax.Array]:
    """Last states and sums of rewards of a batch under actions, (size, periods, actions)."""

    def one(state: Any, actions: jax.Array) -> tuple[Any, jax.Array]:
        def period(state: Any, action: jax.Array) -> tuple[Any, jax.Array]:
            state, out, _ = episode.step_or_reset(state, action)
            return state, out.reward

        state, rewards = jax.lax.scan(period, state, actions)
        return state, jnp.sum(rewards)

    return in_pieces(one, (states, actions), over)


_batch = sx.jit(_played)


def _speed(name: str, size: int, periods: int) -> list[Row]:
    env = made(name)
    held, case = env.episode.actuation.substeps, f"{name}, batch of {size}"
    states, actions = _states(env, size), _actions(env, size, periods)
    if size >= len(jax.devices()) > 1:
        states, actions = sx.spread((states, actions))
    over, done = spread_of(actions), size * periods * held
    found = _batch(env.episode, states, actions, over)
    assert bool(jnp.all(jnp.isfinite(found[1]))), f"{name}: a reward that is no number"
    ours = done / timed(lambda: _batch(env.episode, states, actions, over), BUDGET).best
    others = _theirs(env, name, np.asarray(actions), over)
    return [
        row(case, "environment steps", ours, "steps/s"),
        *(row(case, f"steps, {k}", done / t, "steps/s", over=ours, to="ours") for k, t in others.items()),
    ]


def _theirs(env: sx.envs.Environment, name: str, actions: np.ndarray, over: Any) -> dict[str, float]:
    """Seconds of the others for the same steps."""
    size, periods, _ = actions.shape
    held, motors = env.episode.actuation.substeps, list(env.scene.motors)
    if not peer.mujoco():
        return {}
    commands = np.zeros((size, periods * held, len(motors)), dtype=np.float32)
    commands[:, :, [motors.index(name) for name in env.actions]] = np.repeat(actions, held, axis=1)
    mujoco = peer.Mujoco.of(Mechanism(name, env.scene, periods * held))
    taken = {mujoco.label: timed(lambda: mujoco.rollout(commands.astype(float), peer.all_threads()), BUDGET).best}
    if peer.mjx():
        mjx = peer.Mjx.of(mujoco)
        label = f"MJX {importlib.metadata.version('mujoco-mjx')}"
        taken[label] = _many(lambda data, u: mjx.rollout(mjx.model, data, u), mjx.data, commands, over)
    if name in BRAX and peer.module("brax.generalized.pipeline"):
        taken[f"Brax {importlib.metadata.version('brax')}"] = _brax(env.scene, commands, over)
    return taken


def _brax(scene: sx.Scene, commands: np.ndarray, over: Any) -> float:
    """Seconds of Brax in joint coordinates; it wants a shape in every model."""
    pipeline, mjcf = peer.module("brax.generalized.pipeline"), peer.module("brax.io.mjcf")
    with tempfile.TemporaryDirectory() as folder:
        write_mjcf(scene.model_copy(update={"sensors": {}, "initial": {}}), Path(folder) / "scene.xml")
        system = mjcf.load(str(Path(folder) / "scene.xml"))
    start = pipeline.init(system, system.init_q, jnp.zeros(system.qd_size()))

    def steps(state: Any, commands: Any) -> Any:
        return jax.lax.scan(lambda s, u: (pipeline.step(system, s, u), s.q), state, commands)[1]

    return _many(steps, start, commands, over)


def _many(steps: Callable[..., Any], start: Any, commands: np.ndarray, over: Any) -> float:
    """Seconds of a batch of one start, spread as ours is."""
    batch = jax.tree.map(lambda a: jnp.broadcast_to(a, (len(commands), *jnp.shape(a))), start), jnp.asarray(commands)
    program = jax.vmap(steps)
    if over is not None:
        batch, share = sx.spread(batch), PartitionSpec(over.axis_names[0])
        program = jax.shard_map(program, mesh=over, in_specs=share, out_specs=share, check_vma=False)
    call = jax.jit(program)
    return timed(lambda: call(*batch), BUDGET).best


def _kept(env: sx.envs.Environment, periods: int) -> float:
    """Temporary memory of the gradient of one episode by its actions [bytes]."""
    state, _ = env.reset(jax.random.PRNGKey(0))

    def gain(actions: jax.Array) -> jax.Array:
        def period(state: Any, action: jax.Array) -> tuple[Any, jax.Array]:
            state, out = env.episode.step(state, action)
            return state, out.reward

        return jnp.sum(sx.envs.checkpointed_scan(period, state, actions)[1])

    found = compile_now(jax.grad(gain), jnp.zeros((periods, len(env.actions)))).temporary
    assert found is not None, "this XLA does not tell its memory"
    return found
