"""The Spook step: solve the rows for the new velocity, then move the poses along it.

**Source:** Marklund, Servin, Larson (2025), eqs. (2.12)-(2.19), (2.25)-(2.28), with +h(f + f_g) and body-axes
angular velocities.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from .._results import MLCP_RESULTS, STEP_RESULTS
from .._typing import Array, Float, Int
from ..complementarity import MLCP, AbstractMLCPSolver, Lemke, active_set_solve, free_rows
from ..constraints import Prepared, Rows, assemble, axes
from ..constraints.assemble import scatter
from ..math import rotation
from ..math.block_sparse import Factor
from ..math.product import matmul, matvec
from ..system import State, System
from . import saddle
from .pivoting import BlockPivoting, on_set, pivot

Solver = AbstractMLCPSolver | BlockPivoting
_FEW_ROWS = 16  # of dry friction: above, the condensed matrix costs more than a few sparse factorisations


def default_solver(system: System) -> Solver:
    """Lemke's method on the condensed matrix for a few rows of dry friction, sparse pivoting for many."""
    return Lemke() if len(system.friction_axes) <= _FEW_ROWS else BlockPivoting()


class StepInfo(eqx.Module):
    """What a step says about itself."""

    result: STEP_RESULTS
    joint_impulses: Float[Array, "nodes rows"]  # lam of joints, couplings, user rows, then zeros [N s, N m s]
    friction: Float[Array, " friction"]  # level in [-1, 1]; inside means sticking
    friction_bound: Float[Array, " friction"]  # F, largest friction impulse [N m s or N s]
    pivots: Int[Array, ""]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def solve_rows(
    system: System, solver: Solver, rows: Rows, guess: Float[Array, " friction"]
) -> tuple[Array, Array, Array, tuple[MLCP_RESULTS, Array]]:
    """`(v+, lam, x, (result, pivots))` of the rows: condense on the friction axes, solve the MLCP, expand.

    With K the saddle matrix, b the friction rows and F their bounds: v1 = K^-1(-p, -a), X = K^-1 b^T,
    N = b X F + v_creep, q = b v1, then v+ = v1 + X F x (Marklund et al. (2025), section 2.5). `BlockPivoting` never
    forms N.
    """
    return _solve(system, solver, rows, guess)[0]


def _solve(system: System, solver: Solver, rows: Rows, guess: Array):
    if isinstance(solver, BlockPivoting):
        trial, levels, result, pivots = pivot(system, solver, rows, guess)
        x = jnp.where(levels == 0, jnp.clip(trial.y, -1.0, 1.0), levels)
        return (trial.v, trial.lam, x, (result, pivots)), None, levels
    lu = saddle.factor(system, rows)
    nf = len(system.friction_axes)
    if nf == 0:
        v, lam = saddle.solve(system, lu, -rows.p[..., None], -rows.a[..., None])
        v, lam = _refine(system, lu, rows, v[..., 0], lam[..., 0], guess)
        return (v, lam, guess, (MLCP_RESULTS.successful, jnp.zeros((), dtype=int))), lu, None
    b = saddle.friction_columns(system, rows)
    p = jnp.concatenate([-rows.p[..., None], b], axis=-1)
    a = jnp.concatenate([-rows.a[..., None], jnp.zeros((*rows.a.shape, nf), dtype=rows.a.dtype)], axis=-1)
    v, lam = saddle.solve(system, lu, p, a)
    v1, X = v[..., 0], v[..., 1:] * rows.bound
    rates = b.reshape(-1, nf).T
    q = matvec(rates, v1.reshape(-1))
    N = matmul(rates, X.reshape(-1, nf)) + rows.creep * jnp.eye(nf, dtype=q.dtype)
    one = jnp.ones_like(q)
    solution = solver.solve(MLCP(N, q, -one, one), guess)
    x = solution.x
    answer = X, lam[..., 1:] * rows.bound
    v, lam = _refine(system, lu, rows, v1 + matvec(X, x), lam[..., 0] + matvec(answer[1], x), x)
    return (v, lam, x, (solution.result, solution.pivots)), lu, (rates, N, answer)


def _refine(system: System, lu: Factor, rows: Rows, v: Array, lam: Array, x: Array):
    """One step of iterative refinement: what is wrong in a gap is divided by Sigma in inverse dynamics."""
    gap = saddle.gaps(system, rows, v) + rows.sigma * lam
    dv, dlam = saddle.solve(system, lu, saddle.balance(system, rows, v, lam, x)[..., None], gap[..., None])
    return v - dv[..., 0], lam - dlam[..., 0]


@functools.partial(solve_rows.defjvp, symbolic_zeros=True)
def _solve_rows_jvp(system, solver, primals, tangents):
    # At the solution z = (v+, lam, x) the rows say R(rows, z) = 0 on free friction rows, x = +-1 on the others.
    # With K, b, X, N as above and ' for a tangent at fixed z:
    #     (dv, dlam) = K^-1 (-balance', -gap') + X F dx,   dx_free from (N dx)_free = -(b y + slack')_free
    # where y is the first part of dv. One factorisation serves every tangent, and JAX transposes the rule.
    # On the set of `BlockPivoting` dx_free = -(b dv + slack') / v_creep is part of the matrix instead.
    rows, guess = primals
    rows_dot, _ = tangents
    out, lu, friction = _solve(system, solver, rows, guess)
    v, lam, x, status = out

    # only what the tangent touches is differentiated: a velocity moves no Jacobian, a motor gain no matrix
    touched = jax.tree.map(lambda t: not isinstance(t, SymbolicZero), rows_dot, is_leaf=_is_zero)
    moving, still = eqx.partition(rows, touched)

    def residual(moving: Rows):
        rows = eqx.combine(moving, still)
        slack = saddle.friction_rates(system, rows, v) + rows.creep * x if system.friction_axes else jnp.zeros(0)
        return saddle.balance(system, rows, v, lam, x), saddle.gaps(system, rows, v) + rows.sigma * lam, slack

    moving_dot = eqx.filter(rows_dot, touched, is_leaf=_is_zero)
    _, (balance, gap, slack) = jax.jvp(residual, (moving,), (moving_dot,))
    if lu is None:
        levels: Array = friction  # pyright: ignore[reportAssignmentType]
        _, lu = on_set(system, rows, levels)
        held = jnp.where(levels == 0, slack / rows.creep, 0.0)
        balance = balance + scatter(system, rows.b_A, rows.b_B, saddle.spread(system, rows.bound * held))
        y, lam_dot = saddle.solve(system, lu, -balance[..., None], -gap[..., None])
        v_dot = y[..., 0]
        x_dot = jnp.where(levels == 0, -saddle.friction_rates(system, rows, v_dot) / rows.creep - held, 0.0)
        return out, (v_dot, lam_dot[..., 0], x_dot, jax.tree.map(_zero_tangent, status))
    y, lam_dot = saddle.solve(system, lu, -balance[..., None], -gap[..., None])
    v_dot, lam_dot = y[..., 0], lam_dot[..., 0]
    x_dot = jnp.zeros_like(x)
    if friction is not None:
        rates, N, (X, X_lam) = friction
        one = jnp.ones_like(x)
        q = -matvec(N, x) + saddle.friction_rates(system, rows, v) + rows.creep * x
        free = free_rows(MLCP(N, q, -one, one), x)
        rhs = jnp.where(free, -(matvec(rates, v_dot.reshape(-1)) + slack), 0.0)
        x_dot = active_set_solve(N, free, rhs)
        v_dot = v_dot + matvec(X, x_dot)
        lam_dot = lam_dot + matvec(X_lam, x_dot)
    zero_status = jax.tree.map(_zero_tangent, status)
    return out, (v_dot, lam_dot, x_dot, zero_status)


def _is_zero(tangent: object) -> bool:
    return isinstance(tangent, SymbolicZero)


def _zero_tangent(value: Array):
    return jnp.zeros(jnp.shape(value), dtype=jax.dtypes.float0)


def advance(system: System, prepared: Prepared, state: State, rows: Rows, v: Float[Array, "bodies 6"]) -> State:
    """Poses moved along the new velocities by h; the angles' turns are followed by their rates."""
    h = prepared.params.step
    e = rotation.normalise(rotation.multiply(state.e, rotation.exp(h * v[:, 3:])))
    near = jax.lax.stop_gradient(rows.position + h * axes.rates(system, rows.b_A, rows.b_B, v))
    return State(state.r + h * v[:, :3], e, v[:, :3], v[:, 3:], near, state.time + h)


def step(
    system: System,
    prepared: Prepared,
    state: State,
    command: Float[Array, " motors"],
    impulse: Float[Array, "bodies 6"] | None = None,
    *,
    solver: Solver | None = None,
    guess: Float[Array, " friction"] | None = None,
) -> tuple[State, StepInfo]:
    """One step of length h.

    **Arguments:**

    - `prepared`: `spookax.prepare(system, params)`.
    - `command`: motor commands, mean over the kick at t_k (from t_k - h/2 to t_k + h/2). [the motor's unit]
    - `impulse`: extra impulse on every body: world force and body-axes torque times h. [N s, N m s]
    - `solver`: of the friction rows; `default_solver(system)` if none is given.
    - `guess`: friction levels of the last step, to save pivots.

    **Returns:** the next state and a `StepInfo`; its `result` says whether the complementarity problem was solved
    and whether the velocity is finite. Nothing is raised.
    """
    nb, nf = system.num_bodies, len(system.friction_axes)
    if impulse is None:
        impulse = jnp.zeros((nb, 6), dtype=state.r.dtype)
    if guess is None:
        guess = jnp.zeros(nf, dtype=state.r.dtype)
    rows = assemble(system, prepared, state, command, impulse)
    v, lam, x, (mlcp_result, pivots) = solve_rows(
        system, solver or default_solver(system), rows, jax.lax.stop_gradient(guess)
    )
    finite = jnp.all(jnp.isfinite(v))
    result = STEP_RESULTS.where(finite, STEP_RESULTS.promote(mlcp_result), STEP_RESULTS.nonfinite_velocity)
    return advance(system, prepared, state, rows, v), StepInfo(result, lam, x, rows.bound, pivots)
