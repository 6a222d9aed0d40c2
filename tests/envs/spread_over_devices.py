"""What batches do on several devices over what they do on one: differences as JSON. Run by `test_spread.py`."""

import json
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import spookax as sx

from . import rigs

SIZE = 8


def main() -> None:
    env = rigs.environment()
    keys = jax.random.split(jax.random.PRNGKey(0), SIZE)
    policy = sx.envs.Policy(env, key=jax.random.PRNGKey(1))

    def stepped(keys):
        states, observation = env.reset_many(keys)
        return observation, env.step_many(states, jnp.ones((SIZE, 1)))[1]

    system, params, state = sx.load(env.scene)
    starts = jax.tree.map(lambda a: jnp.broadcast_to(a, (SIZE, *a.shape)), state)
    controls = jnp.asarray(np.random.default_rng(0).normal(size=(SIZE, 20, 1)))
    schedule = sx.envs.ShortHorizon(iterations=2, environments=SIZE, window=4, value_rounds=1)

    def learned(**options):
        return [told[1:] for told in sx.envs.learn(env, schedule, key=keys[0], **options).history]

    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "training"
        sx.envs.learn(env, schedule, key=keys[0], devices=jax.devices(), keep=kept, report=_stop)
        resumed = learned(devices=jax.devices(), keep=kept)  # from its file, spread again
        one = learned()
        pairs = {
            "steps": (stepped(keys), stepped(sx.spread(keys))),
            "play": (sx.envs.play(env, policy, keys, 10), sx.envs.play(env, policy, sx.spread(keys), 10)),
            "rollouts": tuple(sx.rollouts(system, params, *of((starts, controls))) for of in (lambda x: x, sx.spread)),
            "learn": (one, learned(devices=jax.devices())),
            "resumed": (one[1:], resumed),
        }
    lie = {len(leaf.devices()) for leaf in jax.tree.leaves(pairs["play"][1]) if isinstance(leaf, jax.Array)}
    try:
        sx.spread(keys[:-1])
        refused = ""
    except ValueError as error:
        refused = str(error)
    print(json.dumps({"devices": sorted(lie), "refused": refused, **{k: _apart(*v) for k, v in pairs.items()}}))


def _stop(told: sx.envs.LearningReport) -> None:
    raise KeyboardInterrupt


def _apart(one, other) -> float:
    """Largest difference of two trees."""
    both = jax.tree.leaves(one), jax.tree.leaves(other)
    return max(
        float(np.max(np.abs(np.asarray(a, float) - np.asarray(b, float)), initial=0.0))
        for a, b in zip(*both, strict=True)
    )


if __name__ == "__main__":
    main()
