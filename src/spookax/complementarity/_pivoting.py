"""Lemke's path following on a tableau, with bounded variables."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .active_set import active_set_solve
from .mlcp import MLCP

RUNNING, SOLVED, RAY, LIMIT = 0, 1, 2, 3


class Outcome(NamedTuple):
    """Where a path ended."""

    free: Bool[Array, " n"]
    at_upper: Bool[Array, " n"]
    """The bound of the rows that are not free."""
    status: Int[Array, ""]
    pivots: Int[Array, ""]


class _Path(NamedTuple):
    """A point of the path. Names of variables: x_i is i, w_i is n + i, the covering variable t is 2n."""

    T: Float[Array, "n n+1"]
    """Rate of the basic variables (rows) with the nonbasic ones (columns)."""
    rows: Int[Array, " n"]
    """Names of the basic variables."""
    columns: Int[Array, " n+1"]
    """Names of the nonbasic variables."""
    value: Float[Array, " n"]
    """Of the basic variables; their bounds follow."""
    low: Float[Array, " n"]
    high: Float[Array, " n"]
    entering: Int[Array, ""]
    """Name of the nonbasic variable that moves next, away from its bound,"""
    upwards: Bool[Array, ""]
    """and which way."""
    status: Int[Array, ""]
    pivots: Int[Array, ""]


def follow_path(
    problem: MLCP,
    covering: Float[Array, " n"],
    at_upper: Bool[Array, " n"],
    max_pivots: Int[Array, ""],
    smallest_pivot: float,
) -> Outcome:
    """Solve by Lemke's method.

    With w = N x + q + t d the point "all x on a bound" is a solution while t is large, if d_i > 0 at a lower
    and d_i < 0 at an upper bound. The path of solutions is followed from there; where t = 0 the problem is
    solved. On the path either x_i or w_i of each row is basic, except for one row, where both are nonbasic
    and one of them moves ("entering"). When a basic variable or the entering one meets a bound, its partner
    moves next. Two-sided bounds thus need no extra rows, infinite ones are never met, and rows that are free
    from both sides are basic from the start and stay so.

    **Arguments:**

    - `problem`: should be scaled to N_ii = 1.
    - `covering`: |d|. Generic numbers make ties, and with them cycles, improbable.
    - `at_upper`: for rows with two finite bounds, which one to start from. Ignored for the other rows.
    - `max_pivots`: moves from bound to bound count as well. 0: stay at the start.
    - `smallest_pivot`: smaller entries of a column count as zero, relative to its largest entry and to 1.
    """
    n = problem.q.shape[0]
    lower, upper = problem.lower, problem.upper
    at_upper = jnp.where(jnp.isinf(lower) | jnp.isinf(upper), jnp.isinf(lower), at_upper)
    free = jnp.isinf(lower) & jnp.isinf(upper)
    fixed = lower >= upper  # any w will do

    # Basic y = (x_i on free rows, w_i on the others), nonbasic the partners. K has the free rows of N and
    # otherwise those of the identity: the partners are K x + const, hence x = K^-1 (partners - const), w = N
    # x + q.
    rhs = jnp.where(free, -problem.q, jnp.where(at_upper, upper, lower))
    columns = active_set_solve(problem.N, free, jnp.append(jnp.eye(n, dtype=rhs.dtype), rhs[:, None], axis=1))
    K_inverse, x = columns[:, :n], columns[:, n]
    T = jnp.where(free[:, None], K_inverse, problem.N @ K_inverse)
    value = jnp.where(free, x, problem.slack(x))

    # In units of x and w in which all w are just feasible at t = 1. From there t moves down to 0 or until a w
    # stops it.
    d = jnp.where(free | fixed, 0.0, jnp.where(at_upper, -covering, covering))
    unit = jnp.max(jnp.where(d == 0, 0.0, -value / jnp.where(d == 0, 1.0, d)))
    unit = jnp.where(unit > 0, unit, 1.0)
    names = jnp.arange(n, dtype=jnp.int32)
    start = _Path(
        T=jnp.append(T, d[:, None], axis=1),
        rows=jnp.where(free, names, n + names),
        columns=jnp.append(jnp.where(free, n + names, names), jnp.int32(2 * n)),
        value=value / unit + d,
        low=jnp.where(free | fixed | at_upper, -jnp.inf, 0.0),
        high=jnp.where(free | fixed | ~at_upper, jnp.inf, 0.0),
        entering=jnp.int32(2 * n),
        upwards=jnp.asarray(False),
        status=jnp.where(max_pivots > 0, RUNNING, LIMIT).astype(jnp.int32),
        pivots=jnp.int32(0),
    )
    path = jax.lax.while_loop(
        lambda path: path.status == RUNNING,
        lambda path: _pivot(path, lower / unit, upper / unit, max_pivots, smallest_pivot),
        start,
    )
    free = jnp.any(path.rows[:, None] == names[None, :], axis=0)
    held_at_upper = (path.rows[:, None] == n + names[None, :]) & (path.low == -jnp.inf)[:, None]
    return Outcome(free, jnp.any(held_at_upper, axis=0), path.status, path.pivots)


def _pivot(path: _Path, lower: Array, upper: Array, max_pivots: Array, smallest_pivot: float) -> _Path:
    """Move the entering variable until something meets a bound, and exchange the two."""
    n = lower.shape[0]
    pair = path.entering % n
    enters_x, enters_t = path.entering < n, path.entering == 2 * n
    low = jnp.where(enters_x, lower[pair], jnp.where(path.upwards | enters_t, 0.0, -jnp.inf))
    high = jnp.where(enters_x, upper[pair], jnp.where(path.upwards | enters_t, jnp.inf, 0.0))
    origin = jnp.where(enters_t, 1.0, jnp.where(path.upwards, low, high))
    own = jnp.where(path.upwards, high - origin, origin - low)  # distance to its own other bound

    # Ratio test: how far until a basic variable meets a bound?
    c = jnp.argmax(path.columns == path.entering)
    column = path.T[:, c]
    rate = jnp.where(path.upwards, column, -column)
    moves = jnp.abs(rate) > smallest_pivot * jnp.maximum(1.0, jnp.max(jnp.abs(rate)))
    distance = (jnp.where(rate > 0, path.high, path.low) - path.value) / jnp.where(moves, rate, 1.0)
    distance = jnp.where(moves, jnp.maximum(distance, 0.0), jnp.inf)
    nearest = jnp.min(distance)
    # Where t has all but vanished it leaves, even if others tie with it or come first by rounding.
    reach = jnp.minimum(nearest, own)
    vanishes = path.value + rate * jnp.where(jnp.isfinite(reach), reach, 0.0) <= 1e3 * jnp.finfo(lower.dtype).eps
    t_vanishes = (path.rows == 2 * n) & moves & (rate < 0) & vanishes
    t_leaves = jnp.any(t_vanishes)
    r = jnp.argmax(jnp.where(t_leaves, t_vanishes, distance == nearest))
    crosses = ~t_leaves & (own <= nearest)  # from bound to bound, no exchange
    length = jnp.where(crosses, own, nearest)
    ray = ~jnp.isfinite(length)

    value = path.value + rate * jnp.where(ray, 0.0, length)
    in_row, in_column = jnp.arange(n) == r, jnp.arange(n + 1) == c
    new_row = jnp.where(in_column, 1.0, -path.T[r]) / column[r]
    T = jnp.where(in_column[None, :], 0.0, path.T) + column[:, None] * new_row[None, :]
    stay = crosses | ray
    leaving = jnp.where(crosses, path.entering, path.rows[r])
    met_upper = jnp.where(crosses, path.upwards, rate[r] > 0)

    exchanged = in_row & ~stay
    pivots = path.pivots + 1
    status = jnp.where(ray, RAY, jnp.where(pivots >= max_pivots, LIMIT, RUNNING))
    return _Path(
        T=jnp.where(stay, path.T, jnp.where(in_row[:, None], new_row[None, :], T)),
        rows=jnp.where(exchanged, path.entering, path.rows),
        columns=jnp.where(in_column & ~stay, leaving, path.columns),
        value=jnp.where(exchanged, jnp.where(path.upwards, origin + length, origin - length), value),
        low=jnp.where(exchanged, low, path.low),
        high=jnp.where(exchanged, high, path.high),
        entering=jnp.where(leaving < n, leaving + n, leaving - n),
        upwards=~met_upper,  # a partner moves up from lower bounds: w >= 0 belongs to x = lower
        status=jnp.where(t_leaves | (crosses & enters_t), SOLVED, status).astype(jnp.int32),
        pivots=pivots,
    )
