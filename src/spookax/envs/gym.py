"""Environments as Gymnasium has them, one or many at once. Needs `gymnasium` (extra `envs`).

`import spookax.envs.gym` registers every task that ships: `gymnasium.make("spookax/FurutaSwingUp-v0")`.

Actions are in [-1, 1] and stand for what is between a motor's limits, as trainers expect. Everything else is as in
`spookax.envs.Environment`.
"""

import os
from typing import Any, Unpack

import jax
import numpy as np

try:
    import gymnasium
    from gymnasium import spaces
    from gymnasium.vector.utils import batch_space
except ImportError as missing:
    raise ImportError(
        "spookax.envs.gym needs gymnasium, which is not installed: `pip install spookax[envs]`"
    ) from missing

from .._results import EPISODE_RESULTS
from ..viewer import BodyPoses, view
from ..viewer.raster import Camera
from .environment import Environment, EnvState, Outcome
from .task_files import Changes, make, task_names

MODES = ["human", "rgb_array"]
_BOUNDED = ("cos(", "sin(")  # observations that stay within one


class _Spaces:
    """What single environments and batches have in common."""

    def __init__(self, environment: Environment | str | os.PathLike[str], render_mode: str | None, options: Changes):
        if isinstance(environment, Environment) and options:
            raise ValueError(f"an Environment is made already: give {', '.join(options)} to it")
        made = environment if isinstance(environment, Environment) else make(environment, **options)
        if render_mode not in (None, *MODES):
            raise ValueError(f"`render_mode` is one of {', '.join(MODES)} or None, got {render_mode!r}")
        self.env = made
        self.dtype = np.dtype(made.episode.engine.params.mass.dtype)
        largest = np.finfo(self.dtype).max
        high = np.array([1.0 if name.startswith(_BOUNDED) else largest for name in made.observation_names], self.dtype)
        one = np.ones(len(made.actions), self.dtype)
        self.observation = spaces.Box(-high, high, dtype=self.dtype.type)
        self.action = spaces.Box(-one, one, dtype=self.dtype.type)
        low, high = made.action_limits
        self._middle, self._half = (high + low) / 2, (high - low) / 2

    def asked(self, action: Any) -> np.ndarray:
        """Actions in the motors' units."""
        return (self._middle + self._half * np.asarray(action, dtype=self.dtype)).astype(self.dtype)

    def poses(self, state: EnvState, which: tuple[int, ...] = ()) -> BodyPoses:
        """Where the bodies are."""
        now = jax.tree.map(lambda a: np.asarray(a[(*which, 0)]), state.past)
        return BodyPoses.from_states(self.env.scene, now.time, now.r, now.e)


class GymEnv(gymnasium.Env):
    """One environment.

    **Arguments:**

    - `environment`: an `Environment`, a task file, or the name of a task that ships.
    - `render_mode`: `rgb_array` draws a frame without a display; `human` shows every episode in the browser when it is
      over, as the viewer does.
    - `options`: see `task_files.Changes`.

    `info` has `success`, and `cause` where an episode failed.
    """

    metadata = {"render_modes": MODES, "render_fps": 50}  # noqa: RUF012 (Gymnasium's own name and form)

    def __init__(
        self,
        environment: Environment | str | os.PathLike[str],
        render_mode: str | None = None,
        **options: Unpack[Changes],
    ):
        self._of = _Spaces(environment, render_mode, options)
        self.environment, self.render_mode = self._of.env, render_mode
        self.metadata = {"render_modes": MODES, "render_fps": 1 / self.environment.control_period}
        self.observation_space, self.action_space = self._of.observation, self._of.action
        self._state: EnvState | None = None
        self._camera: Camera | None = None
        self._shown: list[BodyPoses] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode; the same seed begins the same one, and those after it."""
        super().reset(seed=seed)
        self._show()
        key = jax.random.PRNGKey(int(self.np_random.integers(2**31)))
        self._state, observation = self.environment.reset(key)
        self._note()
        return np.asarray(observation), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One control period under an action in [-1, 1]."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call `reset` before `step`")
        self._state, out = self.environment.step(self._state, self._of.asked(action))
        self._note()
        info: dict[str, Any] = {"success": bool(out.success)}
        if out.cause != EPISODE_RESULTS.successful:
            info["cause"] = EPISODE_RESULTS[out.cause]
        return np.asarray(out.observation), float(out.reward), bool(out.terminated), bool(out.truncated), info

    def render(self) -> np.ndarray | None:
        """A frame (height, width, 3) in the mode `rgb_array`; else nothing, for the browser shows whole episodes."""
        if self.render_mode != "rgb_array":
            return None
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call `reset` before `render`")
        self._camera = self._camera or Camera(self.environment.scene)
        return self._camera.picture(self._of.poses(self._state))

    def close(self) -> None:
        """Show the episode under way, in the mode `human`."""
        self._show()

    def _note(self) -> None:
        if self.render_mode == "human" and self._state is not None:
            self._shown.append(self._of.poses(self._state))

    def _show(self) -> None:
        if len(self._shown) > 1:
            time = np.arange(len(self._shown)) * self.environment.control_period
            p, e = (np.concatenate([getattr(poses, name) for poses in self._shown]) for name in ("p_WB", "e_WB"))
            view(self.environment.scene, BodyPoses(time, p, e, self._shown[0].names), open_browser=True)
        self._shown = []


class GymVectorEnv(gymnasium.vector.VectorEnv):
    """Many environments in one compiled call.

    Where an episode ends the next step begins another one and passes over the action, as Gymnasium's own vector
    environments do (`AutoresetMode.NEXT_STEP`).

    **Arguments:** as `GymEnv`, and `num_envs`.
    """

    metadata = {  # noqa: RUF012 (Gymnasium's own name and form)
        "autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP,
        "render_modes": ["rgb_array"],
        "render_fps": 50,
    }

    def __init__(
        self,
        environment: Environment | str | os.PathLike[str],
        num_envs: int = 1,
        render_mode: str | None = None,
        **options: Unpack[Changes],
    ):
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"`render_mode` of many environments is rgb_array or None, got {render_mode!r}")
        self._of = _Spaces(environment, render_mode, options)
        self.environment, self.num_envs, self.render_mode = self._of.env, num_envs, render_mode
        self.metadata = {**self.metadata, "render_fps": 1 / self.environment.control_period}
        self.single_observation_space, self.single_action_space = self._of.observation, self._of.action
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._state: EnvState | None = None
        self._cameras: Camera | None = None
        self._over = np.zeros(num_envs, dtype=bool)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode in every environment."""
        super().reset(seed=seed)
        self._over = np.zeros(self.num_envs, dtype=bool)
        self._state, observation = self.environment.reset_many(self._keys())
        return np.array(observation), {}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One control period in every environment, or the start of its next episode."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call `reset` before `step`")
        again = self._over
        moved, out = self.environment.step_many(self._state, self._of.asked(actions))
        observation = np.array(out.observation)
        if again.any():
            begun, first = self.environment.reset_many(self._keys())
            moved = jax.tree.map(lambda a, b: np.where(_rows(again, a), b, a), moved, begun)
            observation[again] = np.asarray(first)[again]
        self._state = jax.tree.map(jax.numpy.asarray, moved)
        reward, terminated, truncated = (
            np.where(again, 0, np.asarray(x)).astype(x.dtype) for x in (out.reward, out.terminated, out.truncated)
        )
        self._over = terminated | truncated
        return observation, reward, terminated, truncated, self._info(out, again)

    def render(self) -> tuple[np.ndarray, ...] | None:
        """A frame of every environment, in the mode `rgb_array`."""
        if self.render_mode is None or self._state is None:
            return None
        self._cameras = self._cameras or Camera(self.environment.scene)
        return tuple(self._cameras.picture(self._of.poses(self._state, (i,))) for i in range(self.num_envs))

    def _keys(self) -> jax.Array:
        return jax.random.split(jax.random.PRNGKey(int(self.np_random.integers(2**31))), self.num_envs)

    def _info(self, out: Outcome, again: np.ndarray) -> dict[str, Any]:
        success = np.asarray(out.success) & ~again
        return {"success": success, "_success": ~again}


def _rows(mask: np.ndarray, like: Any) -> np.ndarray:
    return mask.reshape(-1, *[1] * (np.ndim(like) - 1))


def gym_id(name: str) -> str:
    """The registered id of a task that ships: `spookax/FurutaSwingUp-v0` of `furuta_swing_up`."""
    return f"spookax/{''.join(part.capitalize() for part in name.split('_'))}-v0"


for _name in task_names():
    if gym_id(_name) not in gymnasium.registry:
        gymnasium.register(
            gym_id(_name),
            entry_point="spookax.envs.gym:GymEnv",
            vector_entry_point="spookax.envs.gym:GymVectorEnv",
            kwargs={"environment": _name},
        )
