"""The covariance sweep: Kalman filter forward with parameter columns, adjoint smoother back.

The filter carries the predicted mean m, its sensitivity Y to the parameters and the covariance P of dx; the noise dw
has mean `-w` (the prior of the noise itself has mean zero) and unit covariance. P may be singular, as it is in the
directions of stiff joints: nothing inverts it. Readings and process noise may be correlated (J), so the update and
the prediction are one step:

    F = H P H' + J J' + 1,   K = (A P H' + B J') F^-1,   nu = e - H m + J w,   S = -(H Y + D)
    m+ = A m - B w + K nu,   Y+ = A Y + C + K S,   P+ = A P A' + B B' - K (A P H' + B J')'

and, with r = F^-1 (nu + S dz) - K' L+ and L = A' L+ + H' r,   dx = m + Y dz + P L,   dw = -w + B' L+ + J' r.

**Source:** de Jong (1989), Koopman (1993), Friedland (1969) for the parameter columns.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..._typing import Array, Float, Scalar
from ...math import small
from ..linearise import Linearised


class Filtered(NamedTuple):
    """What the smoother and the reduced problem read, per step."""

    m: Float[Array, "steps n"]
    Y: Float[Array, "steps n p"]
    P: Float[Array, "steps n n"]
    K: Float[Array, "steps n c"]
    nu: Float[Array, "steps c"]
    S: Float[Array, "steps c p"]
    Fi_nu: Float[Array, "steps c"]
    Fi_S: Float[Array, "steps c p"]
    log_det: Float[Array, " steps"]  # log |F|


Carry = tuple[Float[Array, "n p+1"], Float[Array, "n n"]]  # of the filter: (m, Y) in columns, and P


def covariance_filter(
    lin: Linearised, w: Float[Array, "steps m"], Y0: Float[Array, "n p"], P0: Float[Array, "n n"]
) -> Filtered:
    """Forward sweep from mean 0, sensitivity Y0 and covariance P0 of dx_0."""
    mY = jnp.concatenate([jnp.zeros((Y0.shape[0], 1), dtype=Y0.dtype), Y0], axis=1)
    return filter_on(lin, w, (mY, P0))[1]


def filter_on(lin: Linearised, w: Float[Array, "steps m"], carry: Carry) -> tuple[Carry, Filtered]:
    """Some steps of the forward sweep: what it hands on, and what it found."""
    c, p = lin.H.shape[1], carry[0].shape[1] - 1
    eye = jnp.eye(c, dtype=carry[1].dtype)
    BB = lin.B @ jnp.swapaxes(lin.B, 1, 2)
    BJ = lin.B @ jnp.swapaxes(lin.J, 1, 2)
    JJ = lin.J @ jnp.swapaxes(lin.J, 1, 2) + eye[None]
    Bw = jnp.einsum("kij,kj->ki", lin.B, w)
    Jw = jnp.einsum("kij,kj->ki", lin.J, w)

    def forward(carry, step):
        mY, P = carry  # mean in column 0, sensitivities after it
        A, C_Bw, H, D_e, BB, BJ, JJ = step
        AP = A @ P
        G = AP @ H.T + BJ
        F = H @ P @ H.T + JJ
        innovation = -(H @ mY + D_e)  # column 0: nu, after it S
        L = small.cholesky(F)
        white = small.solve_lower(L, jnp.concatenate([innovation, G.T], axis=1))
        nuS, GL = white[:, : p + 1], white[:, p + 1 :]
        K = small.solve_upper(L.T, GL).T
        Fi = small.solve_upper(L.T, nuS)
        P1 = AP @ A.T + BB - GL.T @ GL
        mY1 = A @ mY + C_Bw + K @ innovation
        log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(L)))
        return (mY1, (P1 + P1.T) / 2), (mY, P, K, innovation, Fi, log_det)

    C_Bw = jnp.concatenate([-Bw[..., None], lin.C], axis=-1)
    D_e = jnp.concatenate([-(lin.e + Jw)[..., None], lin.D], axis=-1)
    carry, (mY, P, K, nuS, Fi, log_det) = jax.lax.scan(forward, carry, (lin.A, C_Bw, lin.H, D_e, BB, BJ, JJ))
    return carry, Filtered(
        m=mY[..., 0],
        Y=mY[..., 1:],
        P=P,
        K=K,
        nu=nuS[..., 0],
        S=nuS[..., 1:],
        Fi_nu=Fi[..., 0],
        Fi_S=Fi[..., 1:],
        log_det=log_det,
    )


def reduced(f: Filtered) -> tuple[Float[Array, "p p"], Float[Array, " p"], Scalar]:
    """(N, g, q) of the problem in the parameters alone: 1/2 dz' N dz - g' dz + q."""
    N = jnp.einsum("kcp,kcq->pq", f.S, f.Fi_S)
    return N, -jnp.einsum("kcp,kc->p", f.Fi_S, f.nu), jnp.sum(f.nu * f.Fi_nu) / 2


def adjoint_smoother(
    lin: Linearised, w: Float[Array, "steps m"], f: Filtered, dz: Float[Array, " p"]
) -> tuple[Float[Array, "steps n"], Float[Array, "steps m"]]:
    """Smoothed (dx_k, new w_k) for a parameter step dz: the minimiser of the linearised cost."""
    return smooth_on(lin, w, f, dz, jnp.zeros_like(f.m[0]))[1]


def smooth_on(
    lin: Linearised, w: Float[Array, "steps m"], f: Filtered, dz: Float[Array, " p"], L: Float[Array, " n"]
) -> tuple[Float[Array, " n"], tuple[Float[Array, "steps n"], Float[Array, "steps m"]]]:
    """Some steps of the adjoint smoother, from the L after them: the L before them, and (dx_k, new w_k)."""
    white = f.Fi_nu + f.Fi_S @ dz

    def back(L, step):
        A, H, K, white = step
        r = white - K.T @ L
        return A.T @ L + H.T @ r, (L, r)

    L0, (L, r) = jax.lax.scan(back, L, (lin.A, lin.H, f.K, white), reverse=True)
    here = jnp.concatenate([L0[None], L[:-1]])
    dx = f.m + f.Y @ dz + jnp.einsum("kij,kj->ki", f.P, here)
    new_w = jnp.einsum("kji,kj->ki", lin.B, L) + jnp.einsum("kji,kj->ki", lin.J, r)
    return L0, (dx, new_w)


def feedback_gains(lin: Linearised) -> Float[Array, "steps m n"]:
    """Gains K of the best answer dw = K (plan - actual) to a departure from a planned trajectory.

    Riccati recursion of the cost to go 1/2 dx' V dx of what the sweeps minimise:
    K = (1 + J' J + B' V+ B)^-1 (B' V+ A + J' H),   V = H' H + A' V+ A - (B' V+ A + J' H)' K,   zero at the end.
    """
    n = lin.A.shape[1]
    return gains_on(lin, jnp.zeros((n, n), lin.A.dtype))[1]


def gains_on(lin: Linearised, V: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, "steps m n"]]:
    """Some steps of the gains, from the V after them: the V before them, and the gains."""
    eye = jnp.eye(lin.B.shape[2], dtype=lin.B.dtype)

    def back(V, step):
        A, B, H, J = step
        VB = V @ B
        L = small.cholesky(eye + J.T @ J + B.T @ VB)
        half = small.solve_lower(L, VB.T @ A + J.T @ H)
        V = H.T @ H + A.T @ (V @ A) - half.T @ half
        return (V + V.T) / 2, small.solve_upper(L.T, half)

    return jax.lax.scan(back, V, (lin.A, lin.B, lin.H, lin.J), reverse=True)


def smoothed_covariance(lin: Linearised, f: Filtered, cov_z: Float[Array, "p p"]) -> Float[Array, "steps n n"]:
    """Posterior covariance of dx_k, the uncertainty of the parameters included.

    With T_k = d L_k / d dz and N_k the information that the readings from k on hold about dx_k:
    P_s = P - P N P + (Y + P T) cov_z (Y + P T)'.
    """
    n, p = f.Y.shape[1:]
    after = jnp.zeros((n, n), f.P.dtype), jnp.zeros((n, p), f.P.dtype)
    return smooth_covariance_on(lin, f, cov_z, after)[1]


def smooth_covariance_on(
    lin: Linearised, f: Filtered, cov_z: Float[Array, "p p"], after: tuple[Array, Array]
) -> tuple[tuple[Array, Array], Float[Array, "steps n n"]]:
    """Some steps of the covariances, from the (N, T) after them: the (N, T) before them, and the covariances."""

    def back(carry, step):
        N, T = carry
        A, H, K, Fi_S, FiH = step
        AKH = A - K @ H
        N1 = AKH.T @ N @ AKH + H.T @ FiH
        T1 = A.T @ T + H.T @ (Fi_S - K.T @ T)
        return (N1, T1), (N1, T1)

    FiH = jax.vmap(_whiten)(lin.H, f.P, lin.J)
    before, (N, T) = jax.lax.scan(back, after, (lin.A, lin.H, f.K, f.Fi_S, FiH), reverse=True)
    side = f.Y + f.P @ T
    return before, f.P - f.P @ N @ f.P + side @ cov_z @ jnp.swapaxes(side, 1, 2)


def _whiten(H: Array, P: Array, J: Array) -> Float[Array, "c n"]:
    """F^-1 H of one step."""
    return small.solve(H @ P @ H.T + J @ J.T + jnp.eye(H.shape[0], dtype=P.dtype), H)
