"""A Furuta pendulum swung up and balanced: derivatives through short windows (`envs.learn`) beside PPO of rejax.

Both train on `furuta_anywhere`, and are tried on `furuta_swing_up`: success is an episode of 10 s from hanging whose
last 3 s are all within 10° of upright, of a hundred that training has not seen, with the noise and the delay of the
task. Both count the control periods that they simulated in training. PPO is rejax' own (`pip install rejax`: its whole
training is one compiled call on the environment in its gymnax form), here one call between two trials; it gets twenty
times the periods. `learning.others`: the same schedule on other tasks, and other schedules on the same.
"""

import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import spookax as sx

from . import peer
from .chart import Spread, spreads
from .measure import OUT, ROOT, Row, row

TRAINED, TRIED = "furuta_anywhere", "furuta_swing_up"
SCHEDULE = sx.envs.ShortHorizon(iterations=400)
SEEDS, EPISODES, LAST = 5, 100, 3.0
STAGES = {"ours": 20, "ppo": 32}  # trials of a training
MORE = 20  # control periods of PPO over ours
ENOUGH = 0.95
PPO = {  # of continuous control in the usual baselines; `agent_kwargs` makes the networks those of `envs.Policy`
    "num_envs": 64,
    "num_steps": 128,
    "num_minibatches": 16,
    "num_epochs": 8,
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_eps": 0.2,
    "ent_coef": 0.0,
    "max_grad_norm": 0.5,
    "normalize_observations": True,
    "normalize_rewards": True,
    "agent_kwargs": {"activation": "tanh", "hidden_layer_sizes": (64, 64)},
}


class Case(NamedTuple):
    """A training that is not the one beside PPO."""

    trained: str
    tried: str
    schedule: sx.envs.ShortHorizon
    wide: bool = False  # in 64 bits


OTHERS = {
    "pendulum": Case("pendulum_swing_up", "pendulum_swing_up", sx.envs.ShortHorizon()),
    "cart and pole": Case("cart_pole_swing_up", "cart_pole_swing_up", SCHEDULE),
    "in 64 bits": Case(TRAINED, TRIED, SCHEDULE, wide=True),
    "saturation=0": Case(TRAINED, TRIED, dataclasses.replace(SCHEDULE, saturation=0.0)),
    "discount=0.98": Case(TRAINED, TRIED, dataclasses.replace(SCHEDULE, discount=0.98)),
    "64 episodes of 32 periods": Case(TRAINED, TRIED, dataclasses.replace(SCHEDULE, environments=64, window=32)),
}


class Stage(NamedTuple):
    """Control periods of training so far, part of the episodes that succeed then, seconds of training so far."""

    periods: int
    success: float
    seconds: float


def run(part: str = "") -> list[Row]:
    """Both methods, or one of them (`ours`, `ppo`); the chart of both where the stages of the other are kept. Or
    `others`.
    """
    jax.config.update("jax_enable_x64", False)  # as trainings are by default
    if part == "others":
        return [line for name, case in OTHERS.items() for line in _other(name, case)]
    env, trial = sx.envs.make(TRAINED), sx.envs.make(TRIED)
    methods: dict[str, Callable[[Any, Any, int], Iterator[Stage]]] = {"ours": ours}
    if peer.module("rejax"):
        methods["ppo"] = ppo
    OUT.mkdir(parents=True, exist_ok=True)
    for name in (name for name in methods if part in ("", name)):
        stages: list[list[Stage]] = []
        for seed in range(SEEDS):
            stages.append(_told(name, seed, list(methods[name](env, trial, seed))))
            _kept(name).write_text(json.dumps(stages), encoding="utf-8")
    found = {name: _read(name) for name in LABELS if _kept(name).exists()}
    if len(found) == 2:
        lines = {f"{LABELS[name]}, {len(stages)} seeds": _spread(stages) for name, stages in found.items()}
        text = spreads("Episodes swung up and held: median and range", "control periods of training", lines)
        (ROOT / "docs/figures/learning.svg").write_text(text, encoding="utf-8")
    absent: list[Row] = [] if "ppo" in methods else [{"case": "ppo", "quantity": "rejax", "unit": "not installed"}]
    return [*(line for name, stages in found.items() for line in _rows(LABELS[name], stages)), *absent]


def _kept(name: str) -> Path:
    """The file of a method's stages."""
    return OUT / f"learning_stages_{name}.json"


def _read(name: str) -> list[list[Stage]]:
    return [[Stage(*stage) for stage in stages] for stages in json.loads(_kept(name).read_text(encoding="utf-8"))]


LABELS = {"ours": "envs.learn", "ppo": "PPO (rejax)"}


def _other(name: str, case: Case) -> list[Row]:
    jax.config.update("jax_enable_x64", case.wide)
    env, trial = sx.envs.make(case.trained), sx.envs.make(case.tried)
    trainings = [_told(name, seed, list(ours(env, trial, seed, case.schedule))) for seed in range(SEEDS)]
    return _rows(name, trainings)


def ours(
    env: sx.envs.Environment, trial: sx.envs.Environment, seed: int, schedule: sx.envs.ShortHorizon = SCHEDULE
) -> Iterator[Stage]:
    """Stages of a training by `envs.learn`, which is interrupted for every trial and goes on from its file."""
    each, seconds = schedule.iterations // STAGES["ours"], 0.0
    with tempfile.TemporaryDirectory() as folder:

        def report(told: sx.envs.LearningReport) -> None:
            if told.iteration % each == 0:
                raise KeyboardInterrupt

        for _ in range(STAGES["ours"]):
            began = time.perf_counter()
            learned = sx.envs.learn(
                env, schedule, key=jax.random.PRNGKey(seed), keep=Path(folder) / "training", report=report
            )
            seconds += time.perf_counter() - began
            yield Stage(learned.history[-1].periods, success(trial, learned.policy), seconds)


def ppo(env: sx.envs.Environment, trial: sx.envs.Environment, seed: int) -> Iterator[Stage]:
    """Stages of a training by rejax' PPO."""
    rejax, form = peer.module("rejax"), sx.envs.GymnaxForm(env)
    each = PPO["num_envs"] * PPO["num_steps"]
    total = MORE * SCHEDULE.iterations * SCHEDULE.environments * SCHEDULE.window
    rounds = max(1, round(total / STAGES["ppo"] / each))
    algorithm = rejax.PPO.create(env=form, **PPO)
    state, seconds = algorithm.init_state(jax.random.PRNGKey(seed)), 0.0
    some = jax.jit(lambda a, s: jax.lax.fori_loop(0, rounds, lambda _, s: a.train_iteration(s), s))
    for _ in range(STAGES["ppo"]):
        began = time.perf_counter()
        state = jax.block_until_ready(some(algorithm, state))
        seconds += time.perf_counter() - began
        yield Stage(int(state.global_step), success(trial, _mean_action(algorithm, state, env)), seconds)


def success(env: sx.envs.Environment, policy: Callable[[Any], Any]) -> float:
    """Part of the episodes that end upright."""
    played = sx.envs.play(env, policy, jax.random.split(jax.random.PRNGKey(1000), EPISODES))
    return float(np.mean(sx.envs.steady_success(played, round(LAST / env.control_period))))


def _mean_action(algorithm: Any, state: Any, env: sx.envs.Environment) -> Any:
    """The policy without its noise, in the motors' units: a tree of arrays that can be called."""
    low, high = env.action_limits

    def act(given: tuple[Any, Any], observation: Any) -> Any:
        weights, scale = given
        seen = algorithm.normalize_obs(scale, observation)[None]
        action = algorithm.actor.apply(weights, seen, method="_action_dist").mode()[0]
        return (high + low) / 2 + (high - low) / 2 * jnp.clip(action, -1, 1)

    return jax.tree_util.Partial(act, (state.actor_ts.params, state.obs_rms_state))


def _told(name: str, seed: int, stages: list[Stage]) -> list[Stage]:
    print(name, seed, *(f"{s.periods}: {s.success:.2f} ({s.seconds:.0f} s)" for s in stages), flush=True)
    return stages


def _spread(trainings: list[list[Stage]]) -> Spread:
    periods = np.array([stage.periods for stage in trainings[0]], dtype=float)
    found = np.array([[stage.success for stage in stages] for stages in trainings])
    return Spread(periods, np.median(found, axis=0), found.min(axis=0), found.max(axis=0))


def _rows(label: str, trainings: list[list[Stage]]) -> list[Row]:
    last = [stages[-1] for stages in trainings]
    needed = [next((s.periods for s in stages if s.success >= ENOUGH), np.inf) for stages in trainings]
    return [
        row(label, f"seeds of {len(last)} that succeed in {ENOUGH:.0%}", sum(s.success >= ENOUGH for s in last), ""),
        row(label, "success at the end: median", float(np.median([s.success for s in last])), ""),
        row(label, "success at the end: least", min(s.success for s in last), ""),
        row(label, "control periods to the first such trial: median", float(np.median(needed)), ""),
        row(label, "control periods to the end", last[0].periods, ""),
        row(label, "wall time, with compilation: median", float(np.median([s.seconds for s in last])), "s"),
    ]
