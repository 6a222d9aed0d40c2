"""Simulation one step at a time, for programs that look at every step: interactive use, controllers, learning."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._results import STEP_RESULTS
from .._typing import Array, Float
from ..complementarity import AbstractMLCPSolver
from ..system import Params, State, System
from .delay import check_delays
from .single import KICKS, LEAPS, Layout, program


class Reading(NamedTuple):
    """What is read of a simulator at one time, as numpy arrays; with many environments each has a leading axis.

    The rate is what is known at that time: the velocity of the last step, carried half a step on. That is what
    `rollout` gives at its last time; at those before it has the mean with the velocity of the step after.
    """

    time: Any  # [s]
    position: Float[np.ndarray, " axes"]  # unwrapped joint coordinates [rad or m]
    rate: Float[np.ndarray, " axes"]  # [rad/s or m/s]


class Simulator:
    """A mechanism, or many at once, stepped from Python: it keeps the state, and a call costs little beyond its steps.

    Steps are those of `rollout` with the same commands. It is compiled when it is made, once for each system and number
    of environments; other parameters and states compile nothing.

    **Arguments:**

    - `params`: one mechanism for all environments, or a leading axis in every array.
    - `state`: with velocities at t_0 (`load`, `state_from_joints`), or the `state` of a trajectory or simulator and
      `half_kick=False`. With a leading axis in every array: so many environments.
    - `throw`: raise if a step fails; otherwise `result` tells.

    **Raises:** `ValueError` for leading axes that differ, for delays longer than the system was built for.
    """

    def __init__(
        self,
        system: System,
        params: Params,
        state: State,
        *,
        half_kick: bool = True,
        solver: AbstractMLCPSolver | None = None,
        throw: bool = True,
    ):
        check_delays(system, params)
        self._system, self._throw = system, throw
        self._size = _leading(state, state.time, "state")
        self._own = _leading(params, params.step, "params") is not None
        self._given = jax.tree.map(_kind, (params, state))
        if self._own and _leading(params, params.step, "params") != self._size:
            raise ValueError(
                f"`Simulator`: parameters of {jnp.shape(params.step)[0]} mechanisms and states of "
                f"{'one environment' if self._size is None else f'{self._size} environments'}; give as many of both"
            )
        of_one = jax.tree.map(jnp.zeros_like, (_first(params) if self._own else params, state))
        of_one = of_one[0], _first(state) if self._size is not None else state
        self._program = program(system, solver, self._size, self._own, Layout.of(of_one), np.dtype(state.r.dtype))
        self._call, self._once = self._program.steps, jnp.int32(1)
        self._dtype = np.dtype(state.r.dtype)
        rows = () if self._size is None else (self._size,)
        self._shape = (*rows, len(system.motors))
        self._none = np.zeros(self._shape, self._dtype)
        self._numbers = self._program.numbers(params)
        self.reset(state, half_kick=half_kick)

    def reset(self, state: State | None = None, *, half_kick: bool = True, which: Any = None) -> Reading:
        """Go to a state, or back to the last one that was given.

        **Arguments:** `which`: with many environments those that are meant (a mask), the others go on.

        **Raises:** `ValueError` for arrays of other shapes or floats than those at first.
        """
        if state is not None:
            self._same(1, state, "state")
            self._start = state, half_kick
        state, half_kick = self._start
        phase = np.full(self._shape[:-1], KICKS if half_kick else LEAPS, self._dtype)
        carried = self._program.begin(state, phase)
        if which is not None:
            mask = np.asarray(which)
            if self._size is None or mask.shape != (self._size,) or mask.dtype != bool:
                raise ValueError(
                    f"`which` is a mask of environments, True or False for each of {self._size or 'many'}; "
                    f"got {mask.dtype} of shape {mask.shape}"
                )
            carried = jnp.asarray(np.where(mask[:, None], carried, self._carried))
        self._carried = carried
        return self._run(jnp.int32(0), self._none)

    def step(self, control: Any = None, *, repeat: int = 1) -> Reading:
        """One step of length `params.step`, or several, under commands that are held; what is read after the last.

        **Arguments:** `control`: of shape (motors,), with many environments (environments, motors). [the motors' units]
        All zero if left out.

        A step that fails is not taken: the state is that before it.

        **Raises:** `ValueError` for a control of another shape; `RuntimeError` for a step that fails, if `throw`.
        """
        values = self._none if control is None else np.asarray(control, self._dtype)
        if values.shape != self._shape:
            names = ", ".join(motor.name for motor in self._system.motors) or "none"
            raise ValueError(f"`control` must have the shape {self._shape} (motors: {names}), got {values.shape}")
        reading = self._run(self._once if repeat == 1 else jnp.int32(repeat), values)
        if self._throw and np.any(self._read[..., 1]):
            raise RuntimeError(self._failure(values))
        return reading

    def set_parameters(self, params: Params) -> None:
        """Go on with other parameters, of the form of those at first. Where bodies or joints have other places, `reset`
        to a state that fits them, or the joints pull the mechanism together.
        """
        self._same(0, params, "parameters")
        check_delays(self._system, params)
        self._numbers = self._program.numbers(params)

    @property
    def reading(self) -> Reading:
        """The last reading."""
        read, axes = self._read, len(self._system.axes)
        time = float(read[0]) if self._size is None else read[:, 0]
        return Reading(time, read[..., 2 : 2 + axes], read[..., 2 + axes :])

    @property
    def time(self) -> Any:
        """[s]"""
        return self.reading.time

    @property
    def position(self) -> Float[np.ndarray, " axes"]:
        """Unwrapped joint coordinates [rad or m], in the order of `system.axis_names()`."""
        return self.reading.position

    @property
    def rate(self) -> Float[np.ndarray, " axes"]:
        """[rad/s or m/s], as in `Reading`."""
        return self.reading.rate

    @property
    def state(self) -> State:
        """The engine's state: after a step with velocities half a step before `time` (`half_kick=False`), after a reset
        as it was given.
        """
        carried = self._program.layout.tree(np.array(self._carried))
        return jax.tree.map(jnp.asarray, carried.state)

    @property
    def result(self) -> STEP_RESULTS:
        """Why the first step of the last call that failed did, `successful` if none; an entry for each environment."""
        codes = self._read[..., 1].astype(np.int32)
        return jax.tree.map(lambda _: codes, STEP_RESULTS.successful)

    def _run(self, count: Array, control: np.ndarray) -> Reading:
        self._carried, read = self._call(self._numbers, self._carried, count, control)
        self._read = np.asarray(read)
        return self.reading

    def _failure(self, control: np.ndarray) -> str:
        failed = np.flatnonzero(self._read[..., 1])
        here = "" if self._size is None else f" of environment {failed[0]}"
        more = f" ({failed.size} of {self._size} environments failed)" if failed.size > 1 else ""
        time = float(self._read[..., 0].flat[failed[0]])
        wrong = [
            motor.name
            for motor, value in zip(self._system.motors, np.atleast_2d(control)[failed[0]], strict=True)
            if not np.isfinite(value)
        ]
        if wrong:
            return f"The step{here} at {time:g} s failed{more}: the command of `{wrong[0]}` is not a finite number."
        codes = self._read[..., 1].astype(np.int32).reshape(-1)
        first = jax.tree.map(lambda _: codes[failed[0]], STEP_RESULTS.successful)
        return f"The step{here} at {time:g} s failed{more}: {STEP_RESULTS[first]}"

    def _same(self, which: int, tree: Any, name: str) -> None:
        expected, found = self._given[which], jax.tree.map(_kind, tree)
        if found != expected:
            raise ValueError(f"`Simulator`: these {name} have other shapes or floats than those it was made with")


def _kind(leaf: Any) -> str:
    return f"{jnp.result_type(leaf)}{jnp.shape(leaf)}"


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], tree)


def _leading(tree: Any, scalar: Any, name: str) -> int | None:
    """How many environments a tree is of, none without a leading axis; `scalar`: a leaf that is one number of each."""
    if jnp.ndim(scalar) == 0:
        return None
    counts = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(tree)}
    if len(counts) != 1 or counts == {(0,)}:
        found = ", ".join(str(shape[0]) if shape else "none" for shape in sorted(counts))
        raise ValueError(
            f"`Simulator`: every array of `{name}` needs the same leading axis, one entry at least; got {found}"
        )
    return jnp.shape(scalar)[0]
