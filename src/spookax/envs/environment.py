"""Environments: a scene and a task as pure functions of a state, which run under jit, vmap, scan and grad."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from .._compiled import compiled, jit, on_device
from .._results import EPISODE_RESULTS, STEP_RESULTS
from .._typing import AnyArray, Array, Bool, Float, Int, Scalar
from ..constraints import Prepared, prepare
from ..loading import load, start_of_bodies
from ..scene import Scene, read_scene
from ..stepping import state_from_joints, step
from ..stepping.batches import in_pieces, spread_of
from ..study.identifying.estimate import Estimate
from ..system import Params, State, System
from .actuation import Actuation, actuation, steps_of
from .moment import Moment
from .observation import AbstractObservation, Sensors, Sight, states_kept
from .randomisation import AbstractRandomisation, Posterior
from .task import AbstractTask

# 32-bit floats: the least compliance of joints, and the least creep of a joint that friction holds
_SOFT = {"relative_compliance": 1e-4, "v_creep": 1e-3}


class EnvState(eqx.Module):
    """An episode under way."""

    key: Array
    past: State  # of the engine after the last steps, the latest first
    guess: Float[Array, " boxes"]  # levels of the last step, to save pivots
    told: Float[Array, " motors"]  # commands of the last step
    earlier: Float[Array, "kept actions"]  # actions, the latest first
    seen: Array  # what the observation remembers
    memory: Float[Array, " memory"]  # what the task remembers
    count: Int[Array, ""]  # control periods since the start
    over: Bool[Array, ""]
    cause: EPISODE_RESULTS  # why the episode failed, `successful` if it did not
    own: Prepared | None  # the mechanism of this episode, where each has its own


class Outcome(NamedTuple):
    """What a control period brought."""

    observation: Float[Array, " numbers"]
    reward: Scalar
    terminated: Bool[Array, ""]  # by the task or by a failure, which `cause` names
    truncated: Bool[Array, ""]  # by the time limit
    success: Bool[Array, ""]  # whether the mechanism is where it ought to be
    cause: EPISODE_RESULTS


class Episode(eqx.Module):
    """What an environment does, as a tree of arrays: numbers in it may change, be batched and differentiated."""

    system: System = eqx.field(static=True)
    held: int = eqx.field(static=True)  # states of the past that are kept
    task: AbstractTask
    observation: AbstractObservation
    actuation: Actuation
    randomisation: AbstractRandomisation | None
    engine: Prepared
    initial: dict[str, dict[str, Array]]
    placed: dict[str, dict[str, Array]]  # free bodies
    sd: Float[AnyArray, " channels"]  # of the sensors' noise
    limit: Int[AnyArray, ""]  # control periods of an episode

    @property
    def max_steps_in_episode(self) -> Int[AnyArray, ""]:
        """`limit`, under the name by which gymnax' trainers ask for it."""
        return self.limit

    def reset(self, key: Array) -> tuple[EnvState, Float[Array, " numbers"]]:
        """See `Environment.reset`."""
        key, for_task, for_params, for_noise = jax.random.split(_raw(key), 4)
        own = None
        if self.randomisation is not None:
            own = prepare(self.system, self.randomisation.draw(self.system, self.engine.params, for_params))
        engine = self.engine if own is None else own
        start = self.task.start(for_task)
        joints = {name: dict(given) for name, given in self.initial.items()}
        for name, given in start.joints.items():
            at = joints.setdefault(name, {"position": jnp.zeros(()), "rate": jnp.zeros(())})
            middle = given.get("position", np.nan)
            at["position"] = jnp.where(jnp.isnan(middle), at["position"], middle) + given.get("offset", 0.0)
            at["rate"] = at["rate"] + given.get("rate", 0.0)
        bodies = {name: dict(given) for name, given in self.placed.items()}
        for name, shift in start.shifted.items():
            at = bodies.setdefault(name, {"position": jnp.zeros(3, shift.dtype)})
            at["position"] = at["position"] + shift
        first = state_from_joints(self.system, engine.params, joints, bodies)
        past = jax.tree.map(lambda a: jnp.broadcast_to(a, (self.held, *a.shape)), first)
        zero = first.time
        moment = Moment.of(self.system, engine, first, first, zero, start.memory)
        sight = Sight(moment, past, jnp.asarray(self.sd, zero.dtype), for_noise, self._period(engine))
        observation, seen = self.observation.look(sight, None)
        state = EnvState(
            key=key,
            past=past,
            guess=jnp.zeros(len(self.system.boxes), zero.dtype),
            told=jnp.zeros(len(self.system.motors), zero.dtype),
            earlier=self.actuation.first(),
            seen=seen,
            memory=start.memory,
            count=jnp.zeros((), jnp.int32),
            over=jnp.zeros((), bool),
            cause=EPISODE_RESULTS.successful,  # pyright: ignore[reportArgumentType]
            own=own,
        )
        return state, self._with_tells(observation, moment)

    def step(self, state: EnvState, action: Float[AnyArray, " actions"]) -> tuple[EnvState, Outcome]:
        """See `Environment.step`."""
        engine, h = (self.engine if state.own is None else state.own), self.engine.params.step
        finite = jnp.all(jnp.isfinite(action))
        action = jnp.where(finite, action, 0.0).astype(h.dtype)
        commands, earlier = self.actuation.commands(self.system, state.earlier, action, self._period(engine))
        now = self._moment(state, engine)
        wrong = EPISODE_RESULTS.where(finite, EPISODE_RESULTS.successful, EPISODE_RESULTS.nonfinite_action)  # pyright: ignore[reportArgumentType]
        cause = EPISODE_RESULTS.where(state.over, state.cause, wrong)
        stands = state.over | ~finite

        def one(carry: tuple[Any, ...], given: tuple[Array, Array]) -> tuple[tuple[Any, ...], None]:
            past, guess, told, cause, stands = carry
            first, command = given
            before = jax.tree.map(lambda a: a[0], past)
            acting = command
            if not self.system.history:  # the kick at t_k takes the mean of the commands on both of its sides
                acting = jnp.where(first, command, (told + command) / 2)
            after, info = step(self.system, engine, before, acting, guess=guess)
            fails = (info.result != STEP_RESULTS.successful) & ~stands
            cause = EPISODE_RESULTS.where(fails, EPISODE_RESULTS.promote(info.result), cause)
            stands = stands | fails
            ahead = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b[:-1]]), after, past)
            taken, kept = (ahead, info.levels, command), (past, guess, told)
            return (*jax.tree.map(lambda a, b: jnp.where(stands, b, a), taken, kept), cause, stands), None

        begins = (state.count == 0) & (jnp.arange(self.actuation.substeps) == 0)
        carry = state.past, state.guess, state.told, cause, stands
        (past, guess, told, cause, stands), _ = jax.lax.scan(one, carry, (begins, commands))
        key, for_noise = jax.random.split(state.key)
        count = state.count + jnp.where(state.over, 0, 1)
        moved = EnvState(key, past, guess, told, earlier, state.seen, state.memory, count, state.over, cause, state.own)
        after = self._moment(moved, engine)
        sight = Sight(after, past, jnp.asarray(self.sd, h.dtype), for_noise, self._period(engine))
        observation, seen = self.observation.look(sight, state.seen)
        terminated = self.task.ends(after) | (cause != EPISODE_RESULTS.successful)
        truncated = ~terminated & (moved.count >= self.limit)
        reward = jnp.where(state.over, 0.0, self.task.reward(now, earlier[0], after))
        moved = eqx.tree_at(lambda s: (s.seen, s.over), moved, (seen, terminated | truncated))
        told_too = self._with_tells(observation, after)
        return moved, Outcome(told_too, reward, terminated, truncated, self.task.succeeds(after), cause)

    def step_or_reset(self, state: EnvState, action: Float[Array, " actions"]) -> tuple[EnvState, Outcome, Array]:
        """See `Environment.step_or_reset`."""
        state, outcome = self.step(state, action)
        again, first = self.reset(state.key)
        done = outcome.terminated | outcome.truncated
        state, observation = jax.tree.map(lambda a, b: jnp.where(done, a, b), (again, first), (state, outcome[0]))
        return state, outcome._replace(observation=observation), outcome.observation

    def moment(self, state: EnvState) -> Moment:
        """What the task sees in a state."""
        return self._moment(state, self.engine if state.own is None else state.own)

    def _period(self, engine: Prepared) -> Array:
        return self.actuation.substeps * engine.params.step

    def _moment(self, state: EnvState, engine: Prepared) -> Moment:
        before, now = (jax.tree.map(lambda a, k=k: a[k], state.past) for k in (1, 0))
        period = self._period(engine)
        return Moment.of(self.system, engine, before, now, state.count.astype(period.dtype) * period, state.memory)

    def _with_tells(self, observation: Array, moment: Moment) -> Array:
        tells = list(self.task.tells(moment).values())
        return jnp.concatenate([observation, jnp.stack(tells)]) if tells else observation


class Environment:
    """A scene and a task, as functions of a state.

    **Arguments:**

    - `scene`: a scene file, or a scene that was read from one.
    - `task`: an `AbstractTask`, such as `Configuration` or `Point`.
    - `actions`: motor -> its limits [the motor's unit], (low, high) or one number for both. In this order they are
      an agent's actions; motors that are not named are told zero.
    - `observation`: what an agent is told; the scene's sensors with their noise and delay if left out.
    - `control_period`: how long an action is held [s], a multiple of the scene's step; one step if left out.
    - `time_limit`: of an episode [s].
    - `action_rates`: motor -> largest change of its action per second.
    - `action_delay`: how much later an action acts [s], a multiple of the step, besides the motors' own `delay`.
    - `randomise`: an `Estimate`, or an `AbstractRandomisation`: every episode draws a mechanism of its own. An estimate
      also gives the standard deviations of the sensors' noise.

    Numbers are 32-bit unless `spookax.enable_x64` was called. In 32 bits joints are at least 1e-4 as compliant as
    they are mobile, and stuck joints may creep by 1e-3 rad/s or m/s: less is lost in rounding.

    **Raises:** `ValueError` for names that the scene does not have and for times that do not fit; `SceneError`.
    """

    def __init__(
        self,
        scene: str | os.PathLike[str] | Scene,
        task: AbstractTask,
        *,
        actions: Mapping[str, float | tuple[float, float]],
        observation: AbstractObservation | None = None,
        control_period: float | None = None,
        time_limit: float = 10.0,
        action_rates: Mapping[str, float] | None = None,
        action_delay: float = 0.0,
        randomise: AbstractRandomisation | Estimate | None = None,
    ):
        scene = scene if isinstance(scene, Scene) else read_scene(scene)
        self.scene = _softened(scene) if np.dtype(jnp.result_type(float)).itemsize == 4 else scene
        system, params, _ = load(self.scene)
        period = scene.step if control_period is None else control_period
        self.actions = tuple(actions)
        drives = actuation(system, actions, action_rates or {}, scene.step, period, action_delay)
        task.check(system)
        observation = observation or Sensors()
        names = observation.names(system)
        if isinstance(randomise, Estimate):
            randomise = Posterior(randomise)
        sd = {name: [sensor.sd] * system.sensors[i].size for i, (name, sensor) in enumerate(scene.sensors.items())}
        if randomise is not None:
            randomise.check(system)
            sd |= {name: list(found) for name, found in randomise.sensor_sd().items() if name in sd}
        ages = np.array([sensor.delay for sensor in scene.sensors.values()])
        initial = {
            name: {"position": on_device(start.position), "rate": on_device(start.rate)}
            for name, start in scene.initial.items()
        }
        limit = steps_of("time_limit", time_limit, drives.substeps * scene.step)
        self.episode = Episode(
            system=system,
            held=states_kept(system, ages, scene.step, randomise is not None),
            task=task,
            observation=observation,
            actuation=drives,
            randomisation=randomise,
            engine=_prepared(system, params),
            initial=initial,
            placed=start_of_bodies(self.scene),
            sd=np.array([x for level in sd.values() for x in level], dtype=float),
            limit=np.asarray(limit, dtype=np.int32),
        )
        state, _ = jax.eval_shape(self.episode.reset, jax.random.PRNGKey(0))
        tells: list[str] = []  # in their own order, which a result of JAX would not keep
        jax.eval_shape(lambda s: tells.extend(task.tells(self.episode.moment(s))), state)
        self.observation_names = (*names, *tells)

    @property
    def observation_size(self) -> int:
        """Numbers of an observation, `observation_names` says which."""
        return len(self.observation_names)

    @property
    def action_limits(self) -> tuple[Float[np.ndarray, " actions"], Float[np.ndarray, " actions"]]:
        """Lowest and highest actions [the motors' units]."""
        return np.asarray(self.episode.actuation.low), np.asarray(self.episode.actuation.high)

    @property
    def control_period(self) -> float:
        """How long an action is held [s]."""
        return self.episode.actuation.substeps * float(self.episode.engine.params.step)

    def reset(self, key: Array) -> tuple[EnvState, Float[Array, " numbers"]]:
        """Begin an episode. The same key begins the same one.

        A start has its velocities half a step earlier, where the engine keeps them: episodes do not begin by the half
        kick of `rollout`.
        """
        return _reset(self.episode, _raw(key))

    def step(self, state: EnvState, action: Float[AnyArray, " actions"]) -> tuple[EnvState, Outcome]:
        """One control period under an action [the motors' units], which counts as the nearest that its limits allow.

        A step that fails is not taken and ends the episode with its `cause`; so does an action that is not finite. An
        episode that is over stands still, without reward.

        **Raises:** `ValueError` for an action of another shape.
        """
        return _step(self.episode, state, self._checked(action))

    def step_or_reset(self, state: EnvState, action: Float[Array, " actions"]) -> tuple[EnvState, Outcome, Array]:
        """`step`; where it ends the episode the next one begins, and the observation is its first. Also the observation
        that the period ended with.
        """
        return _step_or_reset(self.episode, state, self._checked(action))

    def reset_many(self, keys: Array) -> tuple[EnvState, Float[Array, "batch numbers"]]:
        """`reset` of many environments, one for each key: on the devices over which `spread` laid these."""
        return _reset_many(self.episode, jax.vmap(_raw)(keys) if _typed(keys) else keys, spread_of(keys))

    def step_many(
        self, states: EnvState, actions: Float[AnyArray, "batch actions"], *, again: bool = False
    ) -> tuple[EnvState, Outcome]:
        """`step` of many environments; `again`: begin the next episode where one ends, as `step_or_reset`.

        On a CPU some at a time, as many as the caches of a core hold; elsewhere all at once. Where the states lie on
        several devices (`spread`), each steps its own.

        **Raises:** `ValueError` for actions of another shape.
        """
        actions = self._checked(actions, states.count.shape[0])
        return _step_many(self.episode, states, actions, again, spread_of(states))

    def _checked(self, action: Any, *lead: int) -> Array:
        action, expected = jnp.asarray(action), (*lead, len(self.actions))
        if action.shape != expected:
            names = ", ".join(self.actions)
            raise ValueError(f"an action must have the shape {expected} (motors: {names}), got {action.shape}")
        return action


def _softened(scene: Scene) -> Scene:
    """The scene with the least regularisation that 32-bit floats can tell from none."""
    given = scene.regularisation
    least = {key: max(getattr(given, key), least) for key, least in _SOFT.items()}
    return scene.model_copy(update={"regularisation": given.model_copy(update=least)})


def _typed(key: Array) -> bool:
    return jnp.issubdtype(key.dtype, jax.dtypes.prng_key)


def _raw(key: Array) -> Array:
    """The numbers of a key of either kind."""
    return jax.random.key_data(key) if _typed(key) else key


@compiled
def _prepared(system: System, params: Params) -> Prepared:
    return prepare(system, params)


@compiled
def _reset(episode: Episode, key: Array) -> tuple[EnvState, Array]:
    return episode.reset(key)


@jit
def _step(episode: Episode, state: EnvState, action: Array) -> tuple[EnvState, Outcome]:
    return episode.step(state, action)


@jit
def _step_or_reset(episode: Episode, state: EnvState, action: Array) -> tuple[EnvState, Outcome, Array]:
    return episode.step_or_reset(state, action)


@compiled
def _reset_many(episode: Episode, keys: Array, over: Mesh | None) -> tuple[EnvState, Array]:
    return in_pieces(episode.reset, (keys,), over)


@jit
def _step_many(
    episode: Episode, states: EnvState, actions: Array, again: bool, over: Mesh | None
) -> tuple[EnvState, Outcome]:
    def one(state: EnvState, action: Array) -> tuple[EnvState, Outcome]:
        return episode.step_or_reset(state, action)[:2] if again else episode.step(state, action)

    return in_pieces(one, (states, actions), over)
