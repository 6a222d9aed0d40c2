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
from .._typing import Array, Bool, Float, Int
from ..complementarity import MLCP, AbstractMLCPSolver, BlockPivoting, Lemke, Replay, active_set_solve, free_rows
from ..constraints import Prepared, Rows, assemble, axes, boxes, contact_rows
from ..constraints.assemble import velocity
from ..math import rotation
from ..math.blocks import take
from ..math.product import matmul, matvec
from ..math.rare import where_needed
from ..system import State, System
from . import contact, contact_impacts, contact_pyramid, discs, following, impacts, saddle
from .delay import delayed, remembered
from .felt import having_felt
from .pivoting import on_set, pivot, repeated
from .settle import Solved, settle

_FEW_ROWS = 12  # with bounds: above, the condensed matrix costs more than a few sparse factorisations


def default_solver(system: System) -> AbstractMLCPSolver:
    """Lemke's method on the condensed matrix for a few rows with bounds, sparse pivoting for many."""
    return Lemke() if len(system.boxes) <= _FEW_ROWS else BlockPivoting()


class StepInfo(eqx.Module):
    """What a step says about itself."""

    result: STEP_RESULTS
    joint_impulses: Float[Array, "nodes rows"]  # lam of joints, couplings, user rows, then zeros [N s, N m s]
    levels: Float[Array, " boxes"]  # x of the rows with bounds, in the order of `System.boxes`
    box_impulses: Float[Array, " boxes"]  # F x of these rows along their lines [N m s or N s]
    pivots: Int[Array, ""]
    contact_impulses: Float[
        Array, "points 3"
    ]  # with those of impacts, on the body of the first surface, world axes [N s]
    contact_pairs: Int[Array, " slots"]  # pairs in slots, as in `System.contacts`, -1 where none is


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def solve_rows(
    system: System, solver: AbstractMLCPSolver, rows: Rows, guess: Float[Array, " boxes"]
) -> tuple[Array, Array, Array, tuple[MLCP_RESULTS, Array]]:
    """`(v+, lam, x, (result, pivots))` of the rows: condense on the rows with bounds, solve the MLCP, expand.

    With K the saddle matrix, b the lines of these rows, r, s, c their rate, slack and offset: v1 = K^-1(-p, -a),
    X = K^-1 b^T, N = r b X F + s, q = r b v1 + c, then v+ = v1 + X F x (Marklund et al. (2025), section 2.5).
    `BlockPivoting` never forms N, nor does `Replay` where that is the default. Levels that follow
    other impulses are found by Newton's method (`settle`).
    """
    found = _solve(system, solver, rows, guess)
    return found.v, found.lam, found.x, (found.result, found.pivots)


def _solve(system: System, solver: AbstractMLCPSolver, rows: Rows, guess: Array) -> Solved:
    if rows.contacts is not None or system.discs:
        return _solve_contacts(system, rows, guess)
    if not system.boxes:
        lu = saddle.factor(system, rows)
        v, lam = saddle.refined_solve(system, lu, rows)
        nothing = MLCP_RESULTS.successful, jnp.zeros((), dtype=int)
        return Solved(v, lam, guess, *nothing, jnp.zeros(0, dtype=bool), (lu, guess, guess, (guess, guess)))
    if isinstance(solver, BlockPivoting):
        return _solve_sparse(system, solver, rows, guess)
    if isinstance(solver, Replay) and isinstance(default_solver(system), BlockPivoting):
        return _solve_again(system, rows, guess)
    return _solve_condensed(system, solver, rows, guess)


def _solve_contacts(system: System, rows: Rows, guess: Array) -> Solved:
    solve = contact_pyramid.lemke if system.contacts.pyramid else contact.newton

    def attempt(force: Array, _: Array) -> Solved:
        found = solve(system, following.fixed(rows, force))
        return Solved(found.v, found.lam, found.x, found.result, found.iterations, found.free)

    return settle(system, rows, attempt, guess)


def _solve_sparse(system: System, solver: BlockPivoting, rows: Rows, guess: Array) -> Solved:
    begun = saddle.begin(system, rows)

    def attempt(force: Array, guess: Array) -> Solved:
        fixed = following.fixed(rows, force)
        trial, free, result, pivots = pivot(system, solver, fixed, begun, guess)
        return Solved(trial.v, trial.lam, trial.y, result, pivots, free)

    return settle(system, rows, attempt, guess)


def _solve_again(system: System, rows: Rows, guess: Array) -> Solved:
    found = MLCP_RESULTS.successful, jnp.zeros((), dtype=int)

    def attempt(force: Array, _: Array) -> Solved:
        trial, free, lu = repeated(system, following.fixed(rows, force), guess)
        return Solved(trial.v, trial.lam, trial.y, *found, free, on_set=None if system.following else lu)

    return settle(system, rows, attempt, guess)


def _solve_condensed(system: System, solver: AbstractMLCPSolver, rows: Rows, guess: Array) -> Solved:
    box, count = rows.box, len(system.boxes)
    lu = saddle.factor(system, rows)
    b = saddle.box_columns(system, rows)
    p = jnp.concatenate([-rows.p[..., None], b], axis=-1)
    a = jnp.concatenate([-rows.a[..., None], jnp.zeros((*rows.a.shape, count), dtype=rows.a.dtype)], axis=-1)
    v, lam = saddle.solve(system, lu, p, a)
    v1, lam1 = v[..., 0], lam[..., 0]
    rates = box.rate[:, None] * saddle.box_columns(system, rows, ahead=True).reshape(-1, count).T
    q = matvec(rates, v1.reshape(-1)) + box.offset
    unscaled = matmul(rates, v[..., 1:].reshape(-1, count))

    def scaled(force: Array) -> tuple[Array, tuple[Array, Array]]:
        N = unscaled * force[None] + box.slack[:, None] * jnp.eye(count, dtype=q.dtype)
        return N, (v[..., 1:] * force[None, None], lam[..., 1:] * force[None, None])

    def attempt(force: Array, guess: Array) -> Solved:
        N, (X, X_lam) = scaled(force)
        found = solver.solve(MLCP(N, q, box.lower, box.upper), guess)
        parts = v1 + matvec(X, found.x), lam1 + matvec(X_lam, found.x)
        later = jnp.zeros(count, dtype=bool)  # which rows are free is found by who needs it
        return Solved(*parts, found.x, found.result, found.pivots, later)

    found = settle(system, rows, attempt, guess)
    N, X = scaled(following.forces(system, rows, found.lam, found.x))
    v_new, lam_new = saddle.corrected(system, lu, rows, found.v, found.lam, found.x)
    return found._replace(v=v_new, lam=lam_new, condensed=(lu, rates, N, X))


@functools.partial(solve_rows.defjvp, symbolic_zeros=True)
def _solve_rows_jvp(system, solver, primals, tangents):
    # At the solution z = (v+, lam, x) the rows say R(rows, z) = 0 on free rows with bounds, x = bound on the others:
    # there x' is that of the bound, which is zero but where `backward` is differentiated.
    # With K, b, X, N as above and ' for a tangent at fixed z:
    #     (dv, dlam) = K^-1 (-balance', -gap') + X F dx,   dx_free from (N dx)_free = -(r b y + slack')_free
    # where y is the first part of dv, and slack' has N x' of the bounds in it. One factorisation serves every tangent,
    # and JAX transposes the rule.
    # Without N dx_free = -(r b dv + slack') / s is part of the matrix, and so is what levels follow:
    #     d(F x) = F dx + x growth (z / |z|) . dz, and of a disc also F (dx/dF) of both rows growth (z / |z|) . dz
    rows, guess = primals
    rows_dot, _ = tangents
    found = _solve(system, solver, rows, guess)
    v, lam, x = found.v, found.lam, found.x
    status = found.result, found.pivots

    # only what the tangent touches is differentiated: a velocity moves no Jacobian, a motor gain no matrix
    touched = jax.tree.map(lambda t: not isinstance(t, SymbolicZero), rows_dot, is_leaf=_is_zero)
    moving, still = eqx.partition(rows, touched)

    def residual(moving: Rows):
        rows = eqx.combine(moving, still)
        slack = saddle.box_rates(system, rows, v) + rows.box.slack * x
        gap = saddle.gaps(system, rows, v) + rows.sigma * lam
        answer = discs.near(system, rows, following.forces(system, rows, lam, x), v).x if system.discs else x
        return saddle.balance(system, rows, v, lam, x), gap, slack, answer

    moving_dot = eqx.filter(rows_dot, touched, is_leaf=_is_zero)
    _, (balance, gap, slack, answer) = jax.jvp(residual, (moving,), (moving_dot,))
    box = rows.box
    free = found.free
    if found.condensed is not None and system.boxes:
        _, _, N, _ = found.condensed
        q = saddle.box_rates(system, rows, v) + box.slack * x - matvec(N, x)
        free = free_rows(MLCP(N, q, box.lower, box.upper), x)

    moved = _bounds_moved(rows, rows_dot, free, x)
    if found.condensed is None or system.following:
        settled = following.fixed(rows, following.forces(system, rows, lam, x))
        shape = discs.shapes(system, settled, settled.box.force, v) if system.discs and system.following else None
        slope = following.slopes(system, rows, lam, x, shape)
        bent = discs.near(system, settled, settled.box.force, v).slope
        lu = found.on_set
        if lu is None:
            known = on_set(system, settled, free, x, bent)
            lu = saddle.factor_near(system, known, slope, contact.touching(system, rows, v))
        held = jnp.where(free, slack / box.slack, 0.0 if moved is None else -moved)
        held = jnp.where(discs.of_discs(system), -answer, held)
        more = settled.box.force * held
        if slope is not None and following.follows_bounded(system):
            more = more + following.grown(system, slope, settled.box.force, held)
        balance = balance + saddle.push(system, rows, saddle.spread(system, more))
        y, lam_dot = saddle.solve(system, lu, -balance[..., None], -gap[..., None])
        v_dot, lam_dot = y[..., 0], lam_dot[..., 0]
        rates = saddle.box_rates(system, rows, v_dot) - box.offset
        moving_x = free | discs.of_discs(system)
        x_dot = jnp.where(moving_x, discs.along(system, bent, -rates / box.slack), 0.0) - held
        if shape is not None:
            changes = following.changes(system, rows, (lam, x), (lam_dot, x_dot))
            x_dot = x_dot + discs.reshaped(system, shape, changes)
    else:
        lu, rates, N, (X, X_lam) = found.condensed
        y, lam_dot = saddle.solve(system, lu, -balance[..., None], -gap[..., None])
        v_dot, lam_dot, x_dot = y[..., 0], lam_dot[..., 0], jnp.zeros_like(x)
        if system.boxes:
            left = matvec(rates, v_dot.reshape(-1)) + slack
            left = left if moved is None else left + matvec(N, moved)
            x_dot = active_set_solve(N, free, jnp.where(free, -left, 0.0))
            x_dot = x_dot if moved is None else x_dot + moved
            v_dot = v_dot + matvec(X, x_dot)
            lam_dot = lam_dot + matvec(X_lam, x_dot)
    return (v, lam, x, status), (v_dot, lam_dot, x_dot, jax.tree.map(_zero_tangent, status))


def _bounds_moved(rows: Rows, rows_dot: Rows, free: Bool[Array, " boxes"], x: Array) -> Array | None:
    """Tangent of x on the rows that are on a bound; None where no bound moves."""
    box, box_dot = rows.box, rows_dot.box
    out = None
    for bound, dot, other in ((box.lower, box_dot.lower, box.upper), (box.upper, box_dot.upper, box.lower)):
        if not _is_zero(dot):
            here = ~free & (jnp.abs(x - bound) <= jnp.abs(x - other))
            moved = jnp.where(here, dot, 0.0)
            out = moved if out is None else out + moved
    return out


def _is_zero(tangent: object) -> bool:
    return isinstance(tangent, SymbolicZero)


def _zero_tangent(value: Array):
    return jnp.zeros(jnp.shape(value), dtype=jax.dtypes.float0)


def advance(system: System, prepared: Prepared, state: State, rows: Rows, v: Float[Array, "bodies 6"]) -> State:
    """Poses moved along the new velocities by h, elements stretched along; the turns of angles follow their rates."""
    h = prepared.params.step
    e = rotation.normalise(rotation.multiply(state.e, rotation.exp(h * v[:, 3:])))
    rate = axes.rates(system, rows.b_A, rows.b_B, v)
    near = jax.lax.stop_gradient(rows.position + h * rate)
    deflection = boxes.stretched(system, prepared.params, state.deflection, rate)
    return State(state.r + h * v[:, :3], e, v[:, :3], v[:, 3:], near, state.time + h, deflection, state.commands)


def step_rows(
    system: System,
    prepared: Prepared,
    state: State,
    command: Float[Array, " motors"],
    impulse: Float[Array, "bodies 6"],
    bounce: Bool[Array, ""] | bool = True,
    first: Bool[Array, ""] | bool = False,
) -> tuple[Rows, State, Float[Array, "points 3"], MLCP_RESULTS]:
    """The rows of a step, the state that it starts from, the impulses of impacts at the places of its contacts [N s],
    and how these were solved. The state is that after the impacts on stops and of contacts, which change velocities,
    and poses by what those of contacts have changed since (`contact_impacts`).

    A stop that was hit lets the new rate be no slower off it than the impact left it: a bounce keeps its energy.
    Impacts are solved by the default solver, whatever solves the step: a replayed step has to find them, too.
    `bounce`: whether there may be any; `first`: see `step`.
    """
    if system.history:
        command = delayed(system, prepared.params, state, command, first)
    v, solved = velocity(state), MLCP_RESULTS.successful
    given = jnp.zeros((system.contacts.num_points, 3), dtype=v.dtype)
    if not system.bounces and not system.contacts.bounces:
        return assemble(system, prepared, state, command, impulse), state, given, solved
    still = eqx.tree_at(lambda s: (s.v, s.w), state, (jnp.zeros_like(state.v), jnp.zeros_like(state.w)))
    still = assemble(system, prepared, still, command, jnp.zeros_like(v))
    guess, solver = jnp.zeros(len(system.boxes), dtype=v.dtype), default_solver(system)

    def solve(rows: Rows) -> tuple[Array, MLCP_RESULTS]:
        after, _, _, (result, _) = solve_rows(system, solver, rows, guess)
        return after, result

    hit = jnp.zeros(len(system.boxes), dtype=bool)
    if system.bounces:
        hits = impacts.rows(system, prepared, state, still)
        hit = hits.hit & bounce
        v, solved = where_needed(jnp.any(hit), lambda: solve(hits.rows), lambda: (v, solved))
    if system.contacts.bounces:
        v, moved, given, solved = contact_impacts.rebound(system, prepared, still, v, bounce, solved, solve)
        e = rotation.normalise(rotation.multiply(state.e, rotation.exp(moved[:, 3:])))
        state = eqx.tree_at(lambda s: (s.r, s.e), state, (state.r + moved[:, :3], e))
    state = _moving(state, v)
    rows = assemble(system, prepared, state, command, impulse)
    if system.contacts.bounces:
        rows = contact_impacts.after(system, prepared, rows, v)
        given = contact.at_places_of(system, rows, still, given)
    rate = take(saddle.line_rates(system, rows, v), system.box_lines) if system.boxes else guess
    return eqx.tree_at(lambda r: r.box.offset, rows, jnp.where(hit, -rate, rows.box.offset)), state, given, solved


def _moving(state: State, v: Float[Array, "bodies 6"]) -> State:
    return eqx.tree_at(lambda s: (s.v, s.w), state, (v[:, :3], v[:, 3:]))


def _solve_passes(
    system: System, solver: AbstractMLCPSolver, rows: Rows, guess: Array, h: Array
) -> tuple[Rows, tuple[Array, Array, Array, tuple[MLCP_RESULTS, Array]]]:
    """`solve_rows`, again where the solution slips otherwise than the rows of its contacts say; with the last rows."""
    passes = system.contacts.passes
    if rows.contacts is None or passes == 1:
        return rows, solve_rows(system, solver, rows, guess)

    def solve(carry):
        touch, (v, _, _, (_, before)), _, first = carry
        touch = jax.tree.map(lambda a, b: jnp.where(first, a, b), touch, contact_rows.from_velocity(system, touch, v))
        again = eqx.tree_at(lambda r: r.contacts, rows, touch)
        v, lam, x, (result, k) = solve_rows(system, solver, again, guess)
        more = contact.slips_otherwise(system, touch, v, h) & (result == MLCP_RESULTS.successful)
        return touch, (v, lam, x, (result, before + k)), more, jnp.array(False)

    def once(carry, _):
        return where_needed(carry[2], solve, lambda same: same, carry), None

    status = MLCP_RESULTS.successful, jnp.zeros((), dtype=int)
    nothing = jnp.zeros_like(rows.p), jnp.zeros_like(rows.a), guess, status
    start = rows.contacts, nothing, jnp.array(True), jnp.array(True)
    (touch, found, more, _), _ = jax.lax.scan(once, start, length=passes)
    if system.contacts.settled:
        v, lam, x, (result, k) = found
        found = v, lam, x, (MLCP_RESULTS.where(more, MLCP_RESULTS.contact_slip, result), k)
    return eqx.tree_at(lambda r: r.contacts, rows, touch), found


def step(
    system: System,
    prepared: Prepared,
    state: State,
    command: Float[Array, " motors"],
    impulse: Float[Array, "bodies 6"] | None = None,
    *,
    solver: AbstractMLCPSolver | None = None,
    guess: Float[Array, " boxes"] | None = None,
    bounce: Bool[Array, ""] | bool = True,
    first: Bool[Array, ""] | bool = False,
) -> tuple[State, StepInfo]:
    """One step of length h.

    **Arguments:**

    - `prepared`: `spookax.prepare(system, params)`.
    - `command`: motor commands, mean over the kick at t_k (from t_k - h/2 to t_k + h/2). [the motor's unit] Where a
      motor has a delay, those of all held from t_k to t_k + h: the kick takes its mean from them and `state.commands`.
    - `impulse`: extra impulse on every body: world force and body-axes torque times h. [N s, N m s]
    - `solver`: of the rows with bounds; `default_solver(system)` if none is given.
    - `guess`: `StepInfo.levels` of the last step, to save pivots.
    - `bounce`: without it a stop that is hit has no restitution in this step.
    - `first`: the first from velocities at t_0, whose kick begins there; only where a motor has a delay.

    **Returns:** the next state and a `StepInfo`; its `result` says whether the complementarity problem was solved
    and whether the velocity is finite. Nothing is raised.
    """
    if impulse is None:
        impulse = jnp.zeros((system.num_bodies, 6), dtype=state.r.dtype)
    if guess is None:
        guess = jnp.zeros(len(system.boxes), dtype=state.r.dtype)
    rows, begun, given, impact_result = step_rows(system, prepared, state, command, impulse, bounce, first)
    solver, guess = solver or default_solver(system), jax.lax.stop_gradient(guess)
    rows, (v, lam, x, (mlcp_result, pivots)) = _solve_passes(system, solver, rows, guess, prepared.params.step)
    mlcp_result = MLCP_RESULTS.where(impact_result == MLCP_RESULTS.successful, mlcp_result, impact_result)
    slots = contact.slots(rows)
    if slots is not None:
        mlcp_result = MLCP_RESULTS.where(slots.overflow, MLCP_RESULTS.contact_slots, mlcp_result)
    finite = jnp.all(jnp.isfinite(v))
    result = STEP_RESULTS.where(finite, STEP_RESULTS.promote(mlcp_result), STEP_RESULTS.nonfinite_velocity)
    after = remembered(system, state, advance(system, prepared, begun, rows, v), command)
    touch = contact.world_impulses(system, rows, v) + given
    pairs = jnp.zeros(0, dtype=int) if slots is None else slots.pair
    after = having_felt(system, after, state.e, touch / prepared.params.step, pairs)
    return after, StepInfo(result, lam, x, following.forces(system, rows, lam, x) * x, pivots, touch, pairs)
