"""Draw the moving picture of the environments' page: `python scripts/animation.py` writes `docs/figures/swing_up.webp`.

A policy is learned as the page says, and swings the Furuta pendulum of the rig up from hanging: 5 s, in real time.
"""

from pathlib import Path

import gymnasium
import jax
import numpy as np
from PIL import Image

import spookax as sx
import spookax.envs.gym  # registers the tasks

OUT = Path(__file__).parents[1] / "docs/figures/swing_up.webp"
SECONDS, EVERY = 5.0, 4  # length of the picture, control periods between two frames


def main() -> None:
    """Learn, play one episode, and write its frames. Takes a minute."""
    trained, trial = sx.envs.make("furuta_anywhere"), sx.envs.make("furuta_swing_up")
    policy = sx.envs.learn(trained, sx.envs.ShortHorizon(iterations=400), key=jax.random.PRNGKey(0)).policy
    shown = gymnasium.make("spookax/FurutaSwingUp-v0", render_mode="rgb_array")
    observation, _ = shown.reset(seed=0)
    low, high = trial.action_limits
    frames = []
    for k in range(round(SECONDS / trial.control_period)):
        if k % EVERY == 0:
            frames.append(Image.fromarray(np.asarray(shown.render())).resize((360, 270), Image.Resampling.LANCZOS))
        asked = 2 * (np.asarray(policy(observation)) - low) / (high - low) - 1  # in [-1, 1] there
        observation, *_ = shown.step(asked.astype(np.float32))
    each = round(1000 * EVERY * trial.control_period)  # [ms]
    frames[0].save(OUT, save_all=True, append_images=frames[1:], duration=each, loop=0, quality=60, method=6)
    print(f"{OUT}: {len(frames)} frames, {OUT.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
