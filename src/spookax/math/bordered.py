"""Bordered banded least squares by square-root elimination: states d_0 .. d_n in time order, and a border.

The unknowns are n + 1 state blocks d_k of size b, tied by rows that reach at most two blocks ahead, and a
border dchi of size p (parameters), which every row may read. The cost is the sum of squares

    sum_k |T_k [d_k; d_k+1; d_k+2] + B_k dchi + r_k|^2    "triples", k = 0 .. n-2  (dynamics in positions)
  + sum_k |P_k [d_k; d_k+1]        + D_k dchi + e_k|^2    "pairs",   k = 0 .. n-1  (sensors)
  +       |A [d_0; d_1]            + C dchi   + a|^2      "initial"
  + sum_k |damping_k * d_k|^2  +  |L dchi + l|^2          damping, and prior of the border.

One pass forward in time (`eliminate`) leaves a small problem in dchi alone; one pass backward gives the
states of any dchi (`back_substitute`) or their covariances (`covariance`). The work is linear in n.

The normal equations, which square the condition number, are never formed. Every reduction is one kernel: rows
are absorbed into an upper triangle by Householder reflections, a column at a time (`_absorb`). Nothing calls
LAPACK: in batches inside scans it can block the thread pool of a small machine.

Source: square-root information filter and smoother, G. J. Bierman, Factorization Methods for Discrete
Sequential Estimation (1977). Exchange of rows and sign of the reflections: M. J. D. Powell, J. K. Reid, On
applying Householder transformations to linear least squares problems (1969); A. J. Cox, N. J. Higham,
Stability of Householder QR factorization for weighted least squares problems (1998). As coded, columns keep
their order.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax

from .._typing import Array, Float, Scalar
from .small import solve_upper


class BorderedRows(eqx.Module):
    """Whitened rows `sum_i states[:, i] d_{k+i} + border dchi + residual`; all zeros where one is missing.

    Whitened: divided by the standard deviation of the noise, so without a unit.
    """

    states: Float[Array, "*k m s b"]
    border: Float[Array, "*k m p"]
    residual: Float[Array, "*k m"]


class BorderedProblem(eqx.Module):
    """The rows of the cost at the top of this module. n >= 1; p and the numbers of rows may be 0.

    - `triples`: n - 1 sets of rows on (d_k, d_k+1, d_k+2), states `(n-1, m1, 3, b)`.
    - `pairs`: n sets of rows on (d_k, d_k+1), states `(n, m2, 2, b)`.
    - `initial`: rows on (d_0, d_1), states `(m0, 2, b)`.
    - `damping`: factors (not their squares) of the rows `damping[k, i] * d_k[i]`; zero for none.
    - `prior_border`, `prior_residual`: rows `L dchi + l` on the border alone.
    """

    triples: BorderedRows
    pairs: BorderedRows
    initial: BorderedRows
    damping: Float[Array, "n_1 b"]
    prior_border: Float[Array, "q p"]
    prior_residual: Float[Array, " q"]


class BorderedFactor(eqx.Module):
    """Result of `eliminate`.

    The best states follow from later ones and the border, with zeros for the blocks beyond d_n:
    `d_k = -(ahead[k] [d_k+1; d_k+2] + along[k] dchi + offset[k])`. They leave the sum of squares

        cost(dchi) = unexplained + |border_triangle dchi + border_residual|^2.
    """

    pivot: Float[Array, "n_1 b b"]  # R_k, upper triangular; Cov(d_k | later states, border) = R_k^-1 R_k^-T
    ahead: Float[Array, "n_1 b 2*b"]
    along: Float[Array, "n_1 b p"]
    offset: Float[Array, "n_1 b"]
    border_triangle: Float[Array, "p p"]  # R_p, upper triangular; singular where the rows say nothing
    border_residual: Float[Array, " p"]  # y_p
    unexplained: Scalar  # sum of squares that no choice of the unknowns reduces

    @property
    def pivots(self) -> Float[Array, "n_1 b"]:
        """Size of the pivot of each state unknown: zero, next to its rows, where no row determines it.

        An exact zero makes states and covariances infinite or NaN: damp, or add the row that is missing.
        """
        return jnp.abs(jnp.diagonal(self.pivot, axis1=1, axis2=2))

    @property
    def logdet(self) -> Scalar:
        """sum log|diag R| over the states: half the log-determinant of H_xx, the Hessian of half the cost."""
        return jnp.sum(jnp.log(self.pivots))


class Covariance(NamedTuple):
    """Blocks of the covariance of the states."""

    blocks: Float[Array, "n_1 b b"]  # Cov(d_k, d_k)
    pairs: Float[Array, "n b b"]  # Cov(d_k, d_k+1)


def eliminate(problem: BorderedProblem) -> BorderedFactor:
    """Eliminate d_0 .. d_n in time order, in one scan.

    **Arguments:** `problem`; all arrays of one float type (float64 for identification).

    **Returns:** the `BorderedFactor`, with errors of about eps * cond (normal equations: eps * cond^2) that do not
    grow with the ratio of the weights of the rows.

    **Raises:** `ValueError` when the shapes do not belong together.
    """
    b, p = _sizes(problem)

    def forward(triangle, rows):
        # Triangle on (d_k, d_k+1 | border) -> the same one step later, pivot rows of d_k, rows on the border.
        triples, pairs, damping = rows
        triangle, rest = _absorb(_append_block(triangle, damping), jnp.concatenate([triples, pairs]))
        return triangle[b:, b:], (triangle[:b], rest[:, 3 * b :])

    first = _append_block(jnp.zeros((0, p + 1), problem.damping.dtype), problem.damping[0])
    first, rest_first = _absorb(_append_block(first, problem.damping[1]), _matrix(problem.initial))
    pairs = _matrix(problem.pairs)
    steps = (_matrix(problem.triples), _insert_zeros(pairs[:-1], 2 * b, b), problem.damping[2:])
    last, (pivot_rows, rest) = lax.scan(forward, first, steps)
    last, rest_last = _absorb(last, pairs[-1])

    # Rows of the last two blocks, filled up with zeros for the blocks beyond d_n.
    row_n1 = _insert_zeros(last[:b], 2 * b, b)
    row_n = _insert_zeros(last[b:, b:], b, 2 * b)
    pivot_rows = jnp.concatenate([pivot_rows, row_n1[None], row_n[None]])
    solved = lax.map(lambda rows: solve_upper(rows[:, :b], rows[:, b:]), pivot_rows)

    prior = jnp.concatenate([problem.prior_border, problem.prior_residual[:, None]], axis=1)
    rest = [rest_first[:, 2 * b :], rest.reshape(-1, p + 1), rest_last[:, 2 * b :], prior]
    border, _ = _absorb(jnp.zeros((p + 1, p + 1), prior.dtype), jnp.concatenate(rest))
    return BorderedFactor(
        pivot=pivot_rows[:, :, :b],
        ahead=solved[:, :, : 2 * b],
        along=solved[:, :, 2 * b : 2 * b + p],
        offset=solved[:, :, 2 * b + p],
        border_triangle=border[:p, :p],
        border_residual=border[:p, p],
        unexplained=border[p, p] ** 2,
    )


def reduced(factor: BorderedFactor) -> tuple[Float[Array, "p p"], Float[Array, " p"]]:
    """`(S, s)`, S = R_p^T R_p and s = R_p^T y_p: cost(dchi) = dchi^T S dchi + 2 s^T dchi + constant.

    For a quadratic program in dchi: minimise 1/2 dchi^T S dchi + s^T dchi within bounds.
    """
    triangle = factor.border_triangle
    return triangle.T @ triangle, triangle.T @ factor.border_residual


def free_border(factor: BorderedFactor) -> Float[Array, " p"]:
    """The dchi of least cost when no bound is active, from the triangle itself (not from `reduced`)."""
    return -solve_upper(factor.border_triangle, factor.border_residual)


def border_covariance(factor: BorderedFactor) -> Float[Array, "p p"]:
    """Covariance (R_p^T R_p)^-1 of dchi when no bound is active and nothing is damped."""
    triangle = factor.border_triangle
    inverse = solve_upper(triangle, jnp.eye(triangle.shape[0], dtype=triangle.dtype))
    return inverse @ inverse.T


def back_substitute(factor: BorderedFactor, dchi: Float[Array, " p"]) -> Float[Array, "n_1 b"]:
    """States of least cost for a given border, in one scan backward in time."""
    offset = factor.offset + factor.along @ dchi
    return -_backward(factor, offset[:, :, None])[:, :, 0]


def sensitivity(factor: BorderedFactor) -> Float[Array, "n_1 b p"]:
    """Derivative of the states of least cost with respect to the border, -H_xx^-1 H_xp."""
    return -_backward(factor, factor.along)


def covariance(factor: BorderedFactor, cov_chi: Float[Array, "p p"] | None = None) -> Covariance:
    """Covariance blocks of the states, when rows are whitened by the noise they carry and nothing is damped.

    **Arguments:** `cov_chi`, covariance of the border: `border_covariance`, or that of the entries off their
    bounds with zeros elsewhere. `None`: the border is known exactly.

    **Returns:** diagonal and neighbour blocks of P = H_xx^-1 + Z Cov(chi) Z^T, Z = `sensitivity(factor)`.
    H_xx^-1 comes from d_k = -ahead_k [d_k+1; d_k+2] + R_k^-1 (unit noise), read backward in time: a sum of
    positive semi-definite terms.
    """
    b = factor.offset.shape[1]

    def backward(later, step):
        # Covariance of (d_k+1, d_k+2) -> that of (d_k, d_k+1).
        pivot, ahead = step
        cross = -ahead @ later
        noise = solve_upper(pivot, jnp.eye(b, dtype=pivot.dtype))
        block = noise @ noise.T - cross @ ahead.T
        pair = cross[:, :b]
        return jnp.block([[block, pair], [pair.T, later[:b, :b]]]), (block, pair)

    beyond = jnp.zeros((2 * b, 2 * b), factor.offset.dtype)
    _, (blocks, pairs) = lax.scan(backward, beyond, (factor.pivot, factor.ahead), reverse=True)
    pairs = pairs[:-1]
    if cov_chi is not None:
        z = sensitivity(factor)
        z_cov = z @ cov_chi
        blocks = blocks + jnp.einsum("kip,kjp->kij", z_cov, z)
        pairs = pairs + jnp.einsum("kip,kjp->kij", z_cov[:-1], z[1:])
    return Covariance(blocks, pairs)


def _backward(factor: BorderedFactor, columns: Float[Array, "n_1 b c"]) -> Float[Array, "n_1 b c"]:
    """x_k = columns_k - ahead_k [x_k+1; x_k+2], zero beyond k = n."""
    b = columns.shape[1]

    def backward(later, step):
        ahead, column = step
        x = column - ahead @ later
        return jnp.concatenate([x, later[:b]]), x

    beyond = jnp.zeros((2 * b, columns.shape[2]), columns.dtype)
    return lax.scan(backward, beyond, (factor.ahead, columns), reverse=True)[1]


def _absorb(
    triangle: Float[Array, "c w"], rows: Float[Array, "m w"]
) -> tuple[Float[Array, "c w"], Float[Array, "m w"]]:
    """Rotate `rows` into the upper triangle until nothing is left of them in the first c columns.

    Let x be column j of (row j of the triangle, stacked on the rows), and i its largest entry. The reflection
    I - tau v v^T, v = x + sign(x_i) |x| e_i, empties column j but for row i, which becomes row j of the
    triangle; the old row j takes its place. Without this exchange a row of weight 1 that meets one of weight
    w loses log10(w) digits. (Rounding errors remain in the emptied columns: ignore these columns.)
    """

    def column(rows, step):
        t, j = step
        z = jnp.concatenate([t[None], rows])
        x = lax.dynamic_index_in_dim(z, j, axis=1, keepdims=False)
        i = jnp.argmax(jnp.abs(x))
        x_i, length = x[i], jnp.sqrt(x @ x)
        v = x.at[i].add(jnp.where(x_i < 0, -length, length))
        tau = 1 / jnp.where(length > 0, length * (length + jnp.abs(x_i)), 1)
        z = z - jnp.outer(v, tau * (v @ z))
        return z.at[i].set(z[0])[1:], z[i]

    rows, triangle = lax.scan(column, rows, (triangle, jnp.arange(triangle.shape[0])))
    return jnp.triu(triangle), rows


def _append_block(triangle: Float[Array, "c w"], damping: Float[Array, " b"]) -> Float[Array, "c+b w+b"]:
    """The triangle with one more block of unknowns, before its border columns: known by its damping alone."""
    c, b = triangle.shape[0], damping.size
    above = _insert_zeros(triangle, c, b)
    below = jnp.zeros((b, above.shape[1]), above.dtype).at[:, c : c + b].set(jnp.diag(damping))
    return jnp.concatenate([above, below])


def _insert_zeros(matrix: Float[Array, "*k m w"], at: int, count: int) -> Float[Array, "*k m w_more"]:
    """The matrix with `count` columns of zeros before column `at`."""
    zeros = jnp.zeros((*matrix.shape[:-1], count), matrix.dtype)
    return jnp.concatenate([matrix[..., :at], zeros, matrix[..., at:]], axis=-1)


def _matrix(rows: BorderedRows) -> Float[Array, "*k m w"]:
    """Rows as one matrix [states | border | residual]."""
    *k, m, s, b = rows.states.shape
    states = rows.states.reshape(*k, m, s * b)
    return jnp.concatenate([states, rows.border, rows.residual[..., None]], axis=-1)


def _sizes(problem: BorderedProblem) -> tuple[int, int]:
    """b and p; raises `ValueError` for arrays that do not belong together."""
    blocks, b = problem.damping.shape
    rows_prior, p = problem.prior_border.shape
    if blocks < 2:
        raise ValueError(f"damping: a problem needs at least two state blocks, got {blocks}")
    if problem.prior_residual.shape != (rows_prior,):
        raise ValueError(f"prior: {rows_prior} rows, residual of shape {problem.prior_residual.shape}")
    named = [
        ("triples", problem.triples, (blocks - 2,), 3),
        ("pairs", problem.pairs, (blocks - 1,), 2),
        ("initial", problem.initial, (), 2),
    ]
    for name, rows, steps, s in named:
        m = rows.residual.shape[-1]
        got = (rows.states.shape, rows.border.shape, rows.residual.shape)
        expected = ((*steps, m, s, b), (*steps, m, p), (*steps, m))
        if got != expected:
            raise ValueError(
                f"{name}: states, border and residual have shapes {got}, but {blocks} blocks of {b} unknowns "
                f"(damping) and a border of {p} (prior) need {expected}"
            )
    return b, p
