"""The program behind `Simulator`: some steps from one flat array to the next, for one environment or many.

A program of XLA's CPU client costs, at every call, time for each array that goes in or out, for each operation at its
top and for each array inside a reduction: far more than a step. So state, parameters and what is read are one array
each, all steps are one kernel (`xla_cpu_small_call`), and short reductions are written out.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata

from .._compiled import PLAIN, Compiled, compiled
from .._platform import by_platform
from .._results import STEP_RESULTS
from .._typing import Array, Float, Int, Scalar
from ..complementarity import AbstractMLCPSolver
from ..constraints import Prepared, prepare
from ..constraints.assemble import velocity
from ..math.written_out import written_out
from ..system import Params, State, System
from .batches import PIECE
from .march import HALF_KICK_STEPS, kicked
from .rollout import joint_motion
from .spook import step

_ONE_KERNEL = {"xla_cpu_small_call": "true", "inlineable": "false"}
GOES_ON, KICKS, LEAPS = 0.0, 1.0, 2.0  # after a step; velocities at t_0, which get the half kick; at t_0 - h/2


class Carried(NamedTuple):
    """What an environment keeps from one call to the next."""

    state: State
    before: Float[Array, "bodies 6"]  # velocities a step earlier
    levels: Float[Array, " boxes"]  # of the last step, to save pivots
    command: Float[Array, " motors"]  # held over the last step
    phase: Scalar  # `GOES_ON`, `KICKS` or `LEAPS`


class Layout(NamedTuple):
    """How a tree of arrays lies in one flat array, or in each row of one."""

    form: Any
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tree: Any) -> "Layout":
        """Of a tree of one environment."""
        leaves, form = jax.tree.flatten(tree)
        return cls(form, tuple(jnp.shape(leaf) for leaf in leaves))

    def tree(self, flat: Any) -> Any:
        """The tree of a flat array; axes before its last one are those of every leaf."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes]).tolist()
        parts = (flat[..., begin:end] for begin, end in zip([0, *ends], ends, strict=False))
        lead = flat.shape[:-1]
        leaves = [part.reshape((*lead, *shape)) for part, shape in zip(parts, self.shapes, strict=True)]
        return jax.tree.unflatten(self.form, leaves)


def packed(tree: Any) -> Array:
    """A tree of one environment as a flat array."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


class Program(NamedTuple):
    """Compiled functions between flat arrays, rows of one with many environments.

    `steps(numbers, carried, count, control)` gives what is carried on, in place of what was, and what is read: time,
    cause of failure, positions, rates. `begin(state, phase)` gives what is carried first, `numbers(params)` everything
    that depends on parameters alone. `layout`: of `Carried`.
    """

    steps: Callable[..., Sequence[Array]]
    begin: Callable[[State, Any], Array]
    numbers: Callable[[Params], Array]
    layout: Layout


@functools.lru_cache(maxsize=16)
def program(
    system: System, solver: AbstractMLCPSolver | None, size: int | None, own: bool, given: Layout, dtype: np.dtype
) -> Program:
    """The program of one environment (`size` is none) or of so many, which share parameters or have their `own`.

    `given`: parameters and state of one environment; `dtype`: of all numbers.
    """
    like = jax.tree.unflatten(given.form, [jnp.zeros(shape, dtype) for shape in given.shapes])
    layout = Layout.of(jax.eval_shape(functools.partial(begin, system), like[1], 0.0))
    prepared = Layout.of(jax.eval_shape(functools.partial(prepare, system), like[0]))

    def one(numbers: Array, carried: Array, count: Array, control: Array) -> tuple[Array, Array]:
        after, read = advanced(system, solver, prepared.tree(numbers), layout.tree(carried), count, control)
        return packed(after), read

    def first(state: State, phase: Array) -> Array:
        return packed(begin(system, state, phase))

    def numbers_of(params: Params) -> Array:
        return packed(prepare(system, params))

    def together(*arguments: Array) -> tuple[Array, Array]:
        pieces, at_once = (_many(jax.jit(one), size or 1, own, most) for most in (PIECE, size or 1))
        return by_platform(*arguments, cpu=_in_one_kernel(pieces), default=at_once)

    rows = () if size is None else (size,)
    of_all = rows if own else ()

    def zeros(*shape: int) -> np.ndarray:
        return np.zeros(shape, dtype)

    numbers = zeros(*of_all, sum(map(math.prod, prepared.shapes)))
    arguments = (
        numbers,
        zeros(*rows, sum(map(math.prod, layout.shapes))),
        np.zeros((), np.int32),
        zeros(*rows, len(system.motors)),
    )
    steps = Compiled(together if size else _in_one_kernel(written_out(one)), PLAIN, donated=(1,))
    return Program(
        steps.executable(*arguments),
        compiled(jax.vmap(first) if size else first),
        compiled(jax.vmap(numbers_of) if own else numbers_of),
        layout,
    )


def _in_one_kernel(run: Callable[..., Any]) -> Callable[..., Any]:
    """On a CPU all operations in one function of machine code, instead of one each that the run time of XLA calls."""
    inner = jax.jit(run)

    def called(*args: Array) -> Any:
        with set_xla_metadata(**_ONE_KERNEL):
            return inner(*args)

    return called


def _many(one: Callable[..., Any], size: int, own: bool, most: int) -> Callable[..., Any]:
    """Environments in pieces of at most so many, the last one filled up from the first."""
    together = jax.vmap(one, in_axes=(0 if own else None, 0, None, 0))
    piece = min(size, most)
    filled = np.arange(-(-size // piece) * piece) % size

    def cut(rows: Array) -> Array:
        return rows[filled].reshape(filled.size // piece, piece, rows.shape[-1])

    def run(numbers: Array, carried: Array, count: Array, control: Array) -> tuple[Array, Array]:
        def a_piece(rows: tuple[Array, ...]) -> tuple[Array, Array]:
            carried, control, *theirs = rows
            return together(theirs[0] if own else numbers, carried, count, control)

        pieces = jax.lax.map(a_piece, tuple(map(cut, (carried, control, *([numbers] if own else [])))))
        after, read = (rows.reshape(-1, rows.shape[-1])[:size] for rows in pieces)
        return after, read

    return run


def begin(system: System, state: State, phase: Any) -> Carried:
    """What an environment carries before its first step."""
    dtype = state.r.dtype
    levels, command = (jnp.zeros(len(rows), dtype=dtype) for rows in (system.boxes, system.motors))
    return Carried(state, velocity(state), levels, command, jnp.asarray(phase, dtype=dtype))


def advanced(
    system: System,
    solver: AbstractMLCPSolver | None,
    prepared: Prepared,
    carried: Carried,
    count: Int[Array, ""],
    control: Float[Array, " motors"],
) -> tuple[Carried, Array]:
    """So many steps under a command that is held, the half kick before the first of all, and what is read then.

    A step that fails is not taken. The cause that is read is that of the first.
    """
    kicks = carried.phase == KICKS
    start = jnp.where((count > 0) & jnp.any(kicks), -HALF_KICK_STEPS, 0)

    def go_on(loop: tuple[Array, Carried, Array]) -> Array:
        return loop[0] < count

    def body(loop: tuple[Array, Carried, Array]) -> tuple[Array, Carried, Array]:
        k, now, cause = loop
        moves = k >= 0
        begins, command = now.phase == KICKS, control
        if not system.history:
            command = jnp.where(now.phase == GOES_ON, (now.command + control) / 2, control)
        after, info = step(
            system, prepared, now.state, command, solver=solver, guess=now.levels, bounce=moves, first=begins
        )
        fails = moves & (info.result != STEP_RESULTS.successful)
        (code,) = jax.tree.leaves(info.result)
        cause = jnp.where((cause == 0) & fails, code, cause)
        taken = Carried(after, velocity(now.state), info.levels, control, jnp.full_like(now.phase, GOES_ON))
        back = now._replace(state=kicked(carried.state, now.state, after), levels=info.levels)
        return k + 1, _where(moves & ~fails, taken, _where(~moves & kicks, back, now)), cause

    loop = start.astype(count.dtype), carried, jnp.zeros((), dtype=jnp.int32)
    _, last, cause = jax.lax.while_loop(go_on, body, loop)
    last = _where(last.phase == KICKS, carried, last)  # no step was taken
    state = last.state
    v = velocity(state)
    v = v + (v - last.before) / 2
    position, rate = joint_motion(system, prepared, state.r, state.e, v[:, :3], v[:, 3:], state.near)
    head = jnp.stack([state.time, cause.astype(v.dtype)])
    return last, jnp.concatenate([head, position, rate])


def _where(which: Array, a: Any, b: Any) -> Any:
    return jax.tree.map(functools.partial(jnp.where, which), a, b)
