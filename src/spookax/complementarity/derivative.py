"""The derivative of a solution, shared by every solver."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._results import MLCP_RESULTS
from .active_set import active_set, active_set_solve
from .lemke import Lemke
from .mlcp import MLCP, AbstractMLCPSolver, Solution

DEFAULT_SOLVER = Lemke()


def solve_mlcp(
    problem: MLCP, solver: AbstractMLCPSolver = DEFAULT_SOLVER, guess: Float[Array, " n"] | None = None
) -> Solution:
    """Solve a mixed linear complementarity problem; differentiable in N, q, lower and upper.

    Works under `jit`, `vmap`, forward and reverse mode, to any order. The guess, `result`, `pivots` and
    `residual` have no derivative. The derivative is that of the active set at the solution; at a tie (a row
    on its bound with w = 0) it is the one-sided derivative with the row free. Where `result` is not
    successful it means nothing, but it is finite for finite input.

    **Arguments:**

    - `problem`: the data; batches by `jax.vmap`.
    - `solver`: how to solve it.
    - `guess`: an x to start from, for example the solution of the previous time step.
    """
    if problem.q.shape[0] == 0:
        nothing = jnp.zeros((), problem.q.dtype)
        return Solution(problem.q, problem.q, MLCP_RESULTS.successful, jnp.int32(0), nothing)
    data = jax.lax.stop_gradient(problem)
    solution = solver.solve(data, None if guess is None else jax.lax.stop_gradient(guess))
    x = _attach_derivative(solution.x, problem.N, problem.q, problem.lower, problem.upper)
    return Solution(x, problem.slack(x), solution.result, solution.pivots, solution.residual)


def free_rows(problem: MLCP, x: Float[Array, " n"]) -> Bool[Array, " n"]:
    """Free rows of a solution x, ties (to within eight times the rounding of y) included."""
    rounding = 8 * x.shape[0] * jnp.finfo(x.dtype).eps * problem.scale(x)
    return active_set(x, problem.slack(x), problem.diagonal(), problem.lower, problem.upper, tie=rounding)


@jax.custom_jvp
def _attach_derivative(x: Array, N: Array, q: Array, lower: Array, upper: Array) -> Array:
    """x, known to solve the problem, as a function of the problem."""
    return x


@_attach_derivative.defjvp
def _attach_derivative_jvp(primals, tangents):
    # w = N x + q. Write ' for a tangent. While the active set (free F, held at lower L, held at upper U)
    # stays:
    #
    #     (N x' + N' x + q')_F = 0,     x'_L = lower'_L,     x'_U = upper'_U
    #
    # or, with the rows F of N and otherwise those of the identity in one matrix K(N),
    #
    #     K x' = ( -q' - N' x  on F,   lower' on L,   upper' on U )     [A]
    #
    # The right side is linear in the tangents and the solve with K has a transpose, so reverse mode follows.
    # x on the right is this function again, so second derivatives follow.
    #
    # F, L and U are read off y = x - w / diagonal, which lies between the bounds in F, below in L and above
    # in U. Not differentiable at a tie, x_i on a bound and w_i = 0 (y_i on the bound): [A] takes the row as
    # free. Rounding moves y by about n eps `scale`; ties are recognised to within eight times that. Where N
    # is singular on F and its ties (only if the solution is not unique) [A] has large but finite solutions.
    x, N, q, lower, upper = primals
    _, N_dot, q_dot, lower_dot, upper_dot = tangents
    x = _attach_derivative(x, N, q, lower, upper)
    problem = jax.lax.stop_gradient(MLCP(N, q, lower, upper))
    at = jax.lax.stop_gradient(x)
    free = free_rows(problem, at)
    # which bound: y > upper also decides for equal bounds
    held = jnp.where(at - problem.slack(at) / problem.diagonal() > upper, upper_dot, lower_dot)
    return x, active_set_solve(N, free, jnp.where(free, -q_dot - N_dot @ x, held))
