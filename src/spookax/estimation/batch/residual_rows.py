"""Rows of the residual form: poses as unknowns, velocities from neighbours, noise from inverse dynamics.

State block j of a recording is the pose q_{j-1}, j = 0 ... K + 1: with q_-1 the velocity of x_0 is a difference of
poses like every other. The noises and readings of step k read q_k-1, q_k, q_k+1 (`triples` of `math.bordered`).
The border is (own parameters of the recording, shared parameters), so that the own ones are eliminated first.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._compiled import jit
from ..._typing import Array, Float, Scalar
from ...math import bordered, small
from ...math.bordered import BorderedRows
from ...protocol import AbstractResidualModel, Noise, Samples
from ...protocol.asked import admissible, tracking_gain
from ..linearise import Path, after, all_successful, before, chunked, residuals, whitened

_ON_JOINTS = 1e-9  # sd of x_0 off its joints, relative to that of its free directions


class ResidualPoint(NamedTuple):
    """A path with everything that its rows say there."""

    path: Path
    impulse: Float[Array, "steps r"]  # of the stiff rows
    e: Float[Array, "steps c"]  # whitened readings minus predictions


class ResidualLinear(NamedTuple):
    """Rows of a recording about a point."""

    rows: bordered.BorderedProblem  # `damping` holds the metric of the masses
    poses: Any  # q_-1 ... q_K
    impulse: BorderedRows  # of the stiff rows: Jacobian and value


@jit
def read_back(model: AbstractResidualModel, z: Array, noise: Noise, x: Any, samples: Samples) -> ResidualPoint:
    """States x_0 ... x_K with the noise, guesses and impulses that explain them."""
    p = model.prepare(z)
    found = jax.vmap(lambda x, x1, u: model.transition(x, x1, p, u, noise))(before(x), after(x), samples.u)
    path = Path(x, found.w, found.guess, all_successful(found.w.shape[0]))
    return ResidualPoint(path, found.impulse, residuals(model, z, noise, path, samples))


@jit
def linear_rows(
    model: AbstractResidualModel,
    z: Float[Array, " p"],
    noise: Noise,
    point: ResidualPoint,
    samples: Samples,
    own_weight: Float[Array, " own"],
    sd: float,
) -> ResidualLinear:
    """Whitened rows of one recording about a point.

    **Arguments:** `z`: shared, then own parameters; `own_weight`: 1/sd of the prior of the latter, mean zero; `sd`:
    of the free directions of x_0 about where it is (positions; 10 sd for velocities), as in the simulator form.

    `triples` hold the noises of a step, then its readings; `initial` x_0, then its joints.
    """
    half, m, c = model.tangent_size // 2, model.noise_size, point.e.shape[1]
    steps, p, p_own = point.e.shape[0], z.shape[0], own_weight.shape[0]
    p0, first = model.prepare(z), _at(point.path.x, 0)
    poses = _with_first(model.earlier(first, p0), point.path.x)

    def split(J: Array, blocks: int, residual: Array) -> BorderedRows:
        states, shared, own = jnp.split(J, (blocks * half, blocks * half + p - p_own), axis=-1)
        states = states.reshape(*J.shape[:-1], blocks, half)
        return BorderedRows(states, jnp.concatenate([own, shared], axis=-1), residual)

    def one(args):
        q0, q1, q2, u, y, s, weight = args

        def rows(d: Array) -> Array:
            p = model.prepare(z + d[3 * half :])
            q = [_moved(model, x, d[i * half : (i + 1) * half]) for i, x in enumerate((q0, q1, q2))]
            x, x1 = model.joined(q[0], q[1], p), model.joined(q[1], q[2], p)
            t = model.transition(x, x1, p, u, noise)
            predicted = jax.vmap(lambda s: model.observe(x, x1, p, s))(s)
            return jnp.concatenate([t.w, whitened(model, noise, predicted, y, weight), t.impulse])

        return jax.jacfwd(rows)(jnp.zeros(3 * half + p, dtype=z.dtype))

    data = (*(_part(poses, i, steps + i) for i in range(3)), samples.u, samples.y, samples.s, samples.weight)
    J = chunked(one, data, steps)
    triples = split(J[:, : m + c], 3, jnp.concatenate([point.path.w, point.e], axis=1))
    impulse = split(J[:, m + c :], 3, point.impulse)
    scale = jnp.concatenate([jnp.full(half, sd), jnp.full(half, 10 * sd)])

    def initial(d: Array) -> tuple[Array, Array]:
        p = model.prepare(z + d[2 * half :])
        x = model.joined(_moved(model, _at(poses, 0), d[:half]), _moved(model, _at(poses, 1), d[half : 2 * half]), p)
        off = model.local(x, admissible(model, x, p)) / (_ON_JOINTS * scale)
        return jnp.concatenate([model.local(x, first) / scale, off]), off

    J, off = jax.jacfwd(initial, has_aux=True)(jnp.zeros(2 * half + p, dtype=z.dtype))
    blocks = (steps + 1, 0)
    metric = jnp.linalg.norm(tracking_gain(model, first, p0, noise)[:, :half], axis=0)
    rows = bordered.BorderedProblem(
        triples=triples,
        pairs=BorderedRows(jnp.zeros((*blocks, 2, half)), jnp.zeros((*blocks, p)), jnp.zeros(blocks)),
        initial=split(J, 2, jnp.concatenate([jnp.zeros_like(scale), off])),
        damping=jnp.broadcast_to(metric, (steps + 2, half)),
        prior_border=jnp.eye(p_own, p) * own_weight[:, None],
        prior_residual=own_weight * z[p - p_own :],
    )
    return ResidualLinear(rows, poses, impulse)


@jit
def eliminate(rows: bordered.BorderedProblem, damping: Scalar) -> bordered.BorderedFactor:
    """The rows reduced to the border, under so much damping in the metric of the masses."""
    return bordered.eliminate(eqx.tree_at(lambda q: q.damping, rows, jnp.sqrt(damping) * rows.damping))


substitute = jit(bordered.back_substitute)
sensitivity = jit(bordered.sensitivity)


def split_border(
    factor: bordered.BorderedFactor, shared: int
) -> tuple[Float[Array, "own s"], Float[Array, "shared s"]]:
    """(T, R), s = shared + 1: own parameters of least cost are -T [dz; 1], and what is left is |R [dz; 1]|^2."""
    rows = jnp.concatenate([factor.border_triangle, factor.border_residual[:, None]], axis=1)
    own = rows.shape[0] - shared
    return small.solve_upper(rows[:own, :own], rows[:own, own:]), rows[own:, own:]


@jit
def displaced(
    model: AbstractResidualModel,
    z: Float[Array, " p"],
    dz: Float[Array, " p"],
    d: Float[Array, "blocks half"],
    noise: Noise,
    linear: ResidualLinear,
    samples: Samples,
) -> ResidualPoint:
    """The path with its poses moved by d and its parameters by dz, restored to the stiff rows.

    The rows are to answer the impulses that the linear model foresees; what the plan then needs in impulses on the
    bodies is kept, and each transition, forward in time, goes where these lead.
    """
    p, shared = model.prepare(z + dz), z.shape[0] - linear.rows.prior_border.shape[0]
    plan = jax.vmap(lambda x, d: _moved(model, x, d))(linear.poses, d)
    three = jnp.stack([d[:-2], d[1:-1], d[2:]], axis=1)
    border = jnp.concatenate([dz[shared:], dz[:shared]])
    foreseen = linear.impulse.residual + linear.impulse.border @ border
    foreseen = foreseen + jnp.einsum("krsb,ksb->kr", linear.impulse.states, three)

    def body(x, step):
        target, u, impulse = step
        x1, t = model.restore(x, target, p, u, noise, impulse)
        return x1, (x1, t)

    x0 = admissible(model, model.joined(_at(plan, 0), _at(plan, 1), p), p)
    _, (x, t) = jax.lax.scan(body, x0, (_part(plan, 2, None), samples.u, foreseen))
    path = Path(_with_first(x0, x), t.w, t.guess, all_successful(t.w.shape[0]))
    return ResidualPoint(path, t.impulse, residuals(model, z + dz, noise, path, samples))


@jit
def log_determinants(rows: bordered.BorderedProblem, noises: int) -> tuple[Scalar, Scalar, Scalar]:
    """Half the log-determinants of the Hessian in the poses, of all rows and of all but the readings; and
    sum log|det dw_k / dq_k+1|, the normaliser of the density of the poses.

    The difference of the first two is 1/2 sum log|F_k| of the simulator form, up to the prior of x_0.
    """

    def bare(part: BorderedRows, count: int | None = None) -> BorderedRows:
        return BorderedRows(part.states[..., :count, :, :], part.border[..., :count, :0], part.residual[..., :count])

    def half_log_det(triples: BorderedRows) -> Scalar:
        none = jnp.zeros_like(rows.damping), jnp.zeros((0, 0)), jnp.zeros(0)
        return bordered.eliminate(bordered.BorderedProblem(triples, bare(rows.pairs), bare(rows.initial), *none)).logdet

    E = rows.triples.states[:, :noises, 2, :]
    density = jnp.sum(jax.vmap(small.log_abs_det)(E))
    return half_log_det(bare(rows.triples)), half_log_det(bare(rows.triples, noises)), density


def _moved(model: AbstractResidualModel, x: Any, d: Float[Array, " half"]) -> Any:
    """Pose box-plus d; the velocity stays."""
    return model.retract(x, jnp.concatenate([d, jnp.zeros_like(d)]))


def _at(x: Any, k: int) -> Any:
    return jax.tree.map(lambda a: a[k], x)


def _part(x: Any, start: int, stop: int | None) -> Any:
    return jax.tree.map(lambda a: a[start:stop], x)


def _with_first(first: Any, x: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, x)
