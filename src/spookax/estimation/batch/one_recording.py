"""What the simulator form does with one recording, block by block: follow a plan, linearise and filter, plan anew.

Trajectories go in and come out whole; what is large stays in blocks, and what is compiled is compiled for one.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._compiled import compiled, seldom_called
from ..._threads import beside
from ..._typing import AnyArray, Array, Float, Scalar
from ...math import small
from ...protocol import AbstractModel, FreeDirections, HeldNoise, Noise, Samples
from ...protocol.asked import admissible, carried, first_sd, stepped, tracking_gain
from ..linearise import (
    Directions,
    Linearised,
    Path,
    StepRows,
    before,
    carried_directions,
    chunked,
    completed,
    directions,
    residuals,
    step_rows,
)
from . import step_blocks
from .levels import relevelled
from .step_blocks import joined, joined_path, split, split_path
from .sweeps import Carry, Filtered, filter_on, gains_on, reduced, smooth_on


@seldom_called
def first_state(model: AbstractModel, z: Array, x0: Any, sd: Array) -> tuple[Any, Array, Array]:
    """The admissible state next to x0; P_0, the covariance of its free directions; Y_0, how it follows the parameters.

    `sd`: of positions; of all components: `protocol.asked.first_sd`.
    """
    n = model.tangent_size

    def placed(d: Array) -> tuple[Array, Any]:
        x = admissible(model, model.retract(x0, d[:n]), model.prepare(z + d[n:]))
        return model.local(x, x0), x

    jac, x = jax.jacfwd(placed, has_aux=True)(jnp.zeros(n + z.shape[0], dtype=z.dtype))
    T, Y0 = jac[:, :n], jac[:, n:]
    root = T * first_sd(model, x, model.prepare(z), sd)[None]
    return x, root @ root.T, Y0


@seldom_called
def _placed(model: AbstractModel, z: Array, x0: Any) -> Any:
    return admissible(model, x0, model.prepare(z))


def _free_sd(model: AbstractModel, sd: float) -> np.ndarray | None:
    free = model.offers(FreeDirections)
    return None if free is None else free.free_sd(sd)


def first_spread(
    model: AbstractModel, z: AnyArray, x0: Any, sd: float, lin: Linearised
) -> tuple[np.ndarray, np.ndarray]:
    """P_0 and Y_0 of an admissible state in the coordinates of dx, see `first_state`; `lin`: of steps from there."""
    if (free := _free_sd(model, sd)) is not None:
        return np.diag(free**2), np.zeros((len(free), len(z)))
    _, P0, Y0 = first_state(model, z, x0, np.asarray(sd))
    if lin.directions is None:
        return np.asarray(P0), np.asarray(Y0)
    read = np.asarray(lin.directions.read)[0]
    return read @ np.asarray(P0) @ read.T, read @ np.asarray(Y0)


class Plan(NamedTuple):
    """Noise and feedback that follow a planned trajectory: w_k + K_k (planned - actual)."""

    x: Any  # planned states x_0 ... x_(K-1)
    w: Float[AnyArray, "steps m"]
    gains: Sequence[Float[AnyArray, "steps m n"]]  # of every block


@compiled
def _follow(
    model: AbstractModel,
    z: Array,
    noise: Noise,
    target: Any,
    w: Array,
    gains: Array,
    u: Array,
    x: Any,
    level: Array,
) -> tuple[tuple[Any, Array], Path]:
    p = model.prepare(z)

    def body(carry, step):
        x, level = carry
        target, w, u, gain = step
        w = w + gain @ model.local(target, x)
        x1, level, result = stepped(model, x, p, u, w, noise, level)
        return (x1, level), (x1, w, level, result)

    end, (states, w, guess, result) = jax.lax.scan(body, (x, level), (target, w, u, gains))
    return end, Path(jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), x, states), w, guess, result)


def follow(
    model: AbstractModel, z: AnyArray, noise: Noise, plan: Plan, u: AnyArray | list[AnyArray], guess: AnyArray
) -> Path:
    """Simulate a plan with its feedback; whatever the plan, the result is a trajectory of the simulator.

    `u`: inputs of all steps, or of each block.
    """
    return joined_path(list(_followed(model, z, noise, plan, u, guess)))


def _followed(
    model: AbstractModel, z: AnyArray, noise: Noise, plan: Plan, u: AnyArray | list[AnyArray], guess: AnyArray
) -> Iterator[Path]:
    end = _placed(model, z, jax.tree.map(lambda a: np.asarray(a)[0], plan.x)), guess
    for block in zip(split(plan.x), split(plan.w), plan.gains, split(u), strict=True):
        end, path = _follow(model, z, noise, *block, *end)
        yield path


@seldom_called
def _stiff_gains(model: AbstractModel, z: Array, noise: Noise, x: Any) -> Float[Array, "steps m n"]:
    p = model.prepare(z)
    return chunked(lambda x: tracking_gain(model, x, p, noise), x, jax.tree.leaves(x)[0].shape[0])


def stiff_gains(model: AbstractModel, z: AnyArray, noise: Noise, x: Any) -> list[Float[AnyArray, "steps m n"]]:
    """Gains that hold a simulation to planned states at any cost: for a start, whose parameters may be far off."""
    return step_blocks.mapped(partial(_stiff_gains, model, z, noise), split(x))


@compiled
def _cost(model: AbstractModel, z: Array, noise: Noise, path: Path, samples: Samples) -> tuple[Scalar, Array]:
    e = residuals(model, z, noise, path, samples)
    return (jnp.sum(path.w**2) + jnp.sum(e**2)) / 2, e


def cost_of(model: AbstractModel, z: AnyArray, noise: Noise, path: Path, samples: Samples | list[Samples]) -> float:
    """1/2 sum |w|^2 + 1/2 sum |e|^2 of one recording."""
    return sum(float(cost) for cost, _ in _costs(model, z, noise, path, samples))


def residuals_of(
    model: AbstractModel, z: AnyArray, noise: Noise, path: Path, samples: Samples | list[Samples]
) -> Float[np.ndarray, "steps c"]:
    """`residuals` in blocks, by the program that tells the cost."""
    return np.asarray(joined([e for _, e in _costs(model, z, noise, path, samples)]))


def _costs(
    model: AbstractModel, z: AnyArray, noise: Noise, path: Path, samples: Samples | list[Samples]
) -> list[tuple[Array, Array]]:
    """Cost and residuals of every block."""
    return step_blocks.mapped(partial(_cost, model, z, noise), split_path(path), split(samples))


_directions, _step_rows, _completed = compiled(directions), compiled(step_rows), compiled(completed)


def _linearised(
    model: AbstractModel, z: AnyArray, noise: Noise, kept: float, path: Path, samples: Samples
) -> Linearised:
    # several programs: they compile side by side, and all together run faster than one
    free = None if model.offers(FreeDirections) is None else _directions(model, z, path.x)
    rows = _step_rows(model, z, noise, path, samples, free)
    return _completed(model, z, noise, path, samples, rows, np.asarray(kept), free)


def linearised(
    model: AbstractModel, z: AnyArray, noise: Noise, path: Path, samples: Samples | list[Samples], kept: float = 0.0
) -> list[Linearised]:
    """`linearise` in blocks."""
    return step_blocks.mapped(partial(_linearised, model, z, noise, kept), split_path(path), split(samples))


def follow_and_linearise(
    model: AbstractModel,
    tangent: AbstractModel,
    z: AnyArray,
    noise: Noise,
    plan: Plan,
    guess: AnyArray,
    samples: Samples | list[Samples],
    kept: float,
) -> tuple[Path, list[Linearised]]:
    """`follow`, and `linearised` for the model `tangent`; each block while the next ones are simulated."""
    one = partial(_linearised, tangent, z, noise, kept)
    with beside() as submit:
        parts, lin = [], []
        readings = split(samples)
        inputs: list[AnyArray] = [part.u for part in readings]
        for path, part in zip(_followed(model, z, noise, plan, inputs, guess), readings, strict=True):
            parts.append(path)
            lin.append(submit(partial(one, path, part)))
        return joined_path(parts), [wait() for wait in lin]


_relevelled = compiled(relevelled)


def at_levels(lin: Sequence[Linearised], process: AnyArray, sensor: AnyArray) -> list[Linearised]:
    """`relevelled` in blocks."""
    return step_blocks.mapped(lambda lin: _relevelled(lin, process, sensor), lin)


@compiled
def _filter(carry: Carry, lin: Linearised, w: Array) -> tuple[Carry, tuple[Filtered, tuple[Array, Array, Scalar]]]:
    carry, f = filter_on(lin, w, carry)
    return carry, (f, reduced(f))


def filtered(
    lin: Sequence[Linearised], w: AnyArray, Y0: AnyArray, P0: AnyArray
) -> tuple[list[Filtered], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The filter and what it leaves of the problem: (N, g, q) in all parameters."""
    start = np.column_stack([np.zeros(len(Y0)), Y0]), P0
    _, parts = step_blocks.forward(_filter, start, lin, split(w))
    f, left = zip(*parts, strict=True)
    return list(f), jax.tree.map(lambda *a: sum(map(np.asarray, a)), *left)


@compiled
def _replan(
    L: Array, model: AbstractModel, x: Any, w: Array, lin: Linearised, f: Filtered, dz: Array, alpha: Array
) -> tuple[Array, tuple[Any, Array]]:
    L, (dx, new_w) = smooth_on(lin, w, f, dz, L)
    if lin.directions is not None:
        dx = jnp.einsum("kij,kj->ki", lin.directions.along, dx)
    return L, (jax.vmap(model.retract)(x, alpha * dx), w + alpha * (new_w - w))


def replan(
    model: AbstractModel,
    path: Path,
    lin: Sequence[Linearised],
    f: Sequence[Filtered],
    gains: Sequence[AnyArray],
    dz: AnyArray,
    alpha: float,
) -> Plan:
    """The plan of the adjoint smoother for a step dz, a fraction alpha of the way."""

    def one(L: Array, *block: Any):
        return _replan(L, model, *block, dz, np.asarray(alpha))

    still = np.zeros(lin[0].A.shape[1])
    _, parts = step_blocks.backward(one, still, split(before(path.x)), split(path.w), lin, f)
    return Plan(*joined(parts), gains)


def nudged(model: AbstractModel, path: Path, lin: Sequence[Linearised], f: Sequence[Filtered], dz: AnyArray) -> Path:
    """The best trajectory for parameters moved by a tiny dz, to first order."""

    def still(a: Array) -> np.ndarray:
        return np.zeros(a.shape)

    alone = [g._replace(m=still(g.m), Fi_nu=still(g.Fi_nu)) for g in f]
    moved = replan(model, path._replace(w=np.zeros_like(path.w)), lin, alone, (), dz, 1.0)
    x = jax.tree.map(lambda moved, old: np.concatenate([moved, np.asarray(old)[-1:]]), moved.x, path.x)
    return path._replace(x=x, w=np.asarray(path.w) + moved.w)


@compiled
def _gains(V: Array, lin: Linearised) -> tuple[Array, Array]:
    V, K = gains_on(lin, V)
    return V, K if lin.directions is None else K @ lin.directions.read


def gains_of(lin: Sequence[Linearised]) -> list[Float[Array, "steps m n"]]:
    """`feedback_gains` in blocks, of departures as tangents."""
    n = lin[0].A.shape[1]
    return step_blocks.backward(_gains, np.zeros((n, n)), lin)[1]


@compiled
def _noise_cost(model: AbstractModel, z: Array, x: Any, w: Array, z_now: Array) -> Scalar:
    p, p_now = model.prepare(z), model.prepare(z_now)
    held = model.offers(HeldNoise)
    assert held is not None

    def same(args: tuple[Any, Array]) -> Array:
        return held.same_noise(args[0], p, args[1], p_now)

    return jnp.sum(chunked(same, (x, w), w.shape[0]) ** 2) / 2


def noise_cost(model: AbstractModel, z: AnyArray, path: Path, z_now: AnyArray) -> float:
    """1/2 sum |w|^2 of the noise that would have had the effect under z that the path's has under z_now."""

    def one(x: Any, w: Array) -> Scalar:
        return _noise_cost(model, z, x, w, z_now)

    return sum(map(float, step_blocks.mapped(one, split(before(path.x)), split(path.w))))


@compiled
def _log_density(B: Array) -> Scalar:
    if B.shape[1] == B.shape[2]:  # one noise for every velocity: B' B would square its condition
        return jnp.sum(jax.vmap(small.log_abs_det)(B))
    factors = jax.vmap(lambda B: small.cholesky(B.T @ B))(B)
    return jnp.sum(jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)))


def log_density(lin: Sequence[Linearised]) -> float:
    """Sum log|B| of the velocities: minus the log-density of the states that unit noise leads to, but for constants."""
    return sum(map(float, step_blocks.mapped(_log_density, [part.B[:, part.B.shape[1] // 2 :] for part in lin])))


def _empty(*shape: int) -> Any:
    """Of this form, without memory of its own."""
    return np.broadcast_to(0.0, shape)


def preparations(
    model: AbstractModel, z: AnyArray, noise: Noise, path: Path, samples: Samples, kept: float
) -> tuple[list[Callable[[], None]], Linearised, Filtered]:
    """Calls that compile what an iteration will call, the longest first, none waiting for another; and arrays of the
    form that its linear problem has. Of `path` and `samples` only the form is read, and that states are possible.
    """
    path, samples = split_path(path)[0], split(samples)[0]
    (steps, m), n, p, c = path.w.shape, model.tangent_size, z.shape[0], samples.y[0].size
    half, tangents, free = carried(model), n, model.offers(FreeDirections)
    along = None
    if free is not None:
        n = sum(free.free_size)
        along = Directions(_empty(steps + 1, tangents, n), _empty(steps + 1, n, tangents))
    shapes = ((n, n), (n, m), (n, p), (c, n), (c, m), (c, p), (c,))
    lin = Linearised(*(_empty(steps, *shape) for shape in shapes))
    lin = lin._replace(directions=None if along is None else before(along))
    shapes = ((n,), (n, p), (n, n), (n, c), (c,), (c, p), (c,), (c, p), ())
    f = Filtered(*(_empty(steps, *shape) for shape in shapes))
    rates, pushes = n - carried_directions(model), tangents - half
    A, B, C = (_empty(steps, rates, columns) for columns in (tangents, m, p))
    push = _empty(steps, rates, pushes) if model.offers(HeldNoise) is not None else None
    x, x0 = before(path.x), jax.tree.map(lambda a: a[0], path.x)
    calls = [
        partial(_step_rows.prepare, model, z, noise, path, samples, along),
        partial(_completed.prepare, model, z, noise, path, samples, StepRows(A, B, C, push), np.asarray(kept), along),
        partial(_placed.prepare, model, z, x0),
        partial(_noise_cost.prepare, model, z, x, path.w, z),
        partial(_filter.prepare, (np.zeros((n, p + 1)), np.eye(n)), lin, path.w),
        partial(_replan.prepare, np.zeros(n), model, x, path.w, lin, f, z, np.asarray(1.0)),
        partial(_gains.prepare, np.zeros((n, n)), lin),
        partial(_cost.prepare, model, z, noise, path, samples),
    ]
    if not kept:
        del calls[3]
    if _free_sd(model, 1.0) is None:
        calls.append(partial(first_state.prepare, model, z, x0, np.asarray(1.0)))
    if along is not None:
        calls.append(partial(_directions.prepare, model, z, path.x))
    return calls, lin, f
