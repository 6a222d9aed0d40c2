"""Problems for the tests, and the definition of a solution in plain numpy, independent of the package."""

import itertools
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from spookax.complementarity import MLCP, BlockPivoting, Lemke, ProjectedGaussSeidel

EXACT = Lemke()
SOLVERS = {"lemke": EXACT, "block pivoting": BlockPivoting(), "projected": ProjectedGaussSeidel(sweeps=1000)}
FILE = json.loads((Path(__file__).parents[1] / "data" / "lcp_problems.json").read_text())


def violation(N, q, lower, upper, x):
    """Largest violation of the conditions, relative to the terms of each row and to those of the data.
    Batches.

    In extended precision: x outside its bounds; w of the wrong sign at a bound; w other than 0 between.
    """
    N, q, x = (np.asarray(a, np.longdouble) for a in (N, q, x))
    w = np.einsum("...ij,...j->...i", N, x) + q
    terms = np.einsum("...ij,...j->...i", abs(N), abs(x)) + abs(q)
    held = np.where((x == lower) | (x == upper), x, 0)
    root = np.sqrt(np.einsum("...ii->...i", N))
    data = np.max((np.einsum("...ij,...j->...i", abs(N), abs(held)) + abs(q)) / root, axis=-1, keepdims=True)
    wrong = np.where((x > lower) & (w > 0), w, np.where((x < upper) & (w < 0), -w, 0))
    wrong = wrong / np.maximum(np.minimum(terms, 1e3 * data * root), np.finfo(float).tiny)
    outside = np.where((x < lower) | (x > upper), np.inf, 0)
    return np.max(np.where(np.isfinite(x), wrong + outside, np.inf), axis=-1)


def random_bounds(rng, shape):
    """Every kind: two-sided, one-sided, none, equal; bounds at zero and elsewhere."""
    lower, upper = -rng.choice([0.0, 0.5, 1.0], shape), rng.choice([0.0, 0.5, 1.0], shape)
    kind = rng.integers(0, 6, shape)
    lower = np.where((kind == 1) | (kind == 3), -np.inf, lower)
    upper = np.where((kind == 2) | (kind == 3), np.inf, upper)
    return lower, upper


def p_matrices(rng, batch, n, skew=0.3, least=0.05):
    """Random non-symmetric positive definite matrices."""
    A, S = rng.normal(size=(2, batch, n, n))
    return A @ A.transpose(0, 2, 1) / n + least * np.eye(n) + skew * (S - S.transpose(0, 2, 1)) / np.sqrt(n)


def degenerate(rng, batch, n):
    """Redundant rows, whole numbers that tie, q = 0, little regularisation, units from 1e-6 to 1e6."""
    rank = rng.integers(1, n + 1, batch)
    B = rng.integers(-2, 3, (batch, n, n)) * (np.arange(n) < rank[:, None])[:, None, :]
    repeated = rng.integers(0, n, (batch, n))
    B = np.where(rng.random((batch, 1, 1)) < 0.5, B, np.take_along_axis(B, repeated[:, :, None], axis=1))
    N = (B @ B.transpose(0, 2, 1)).astype(float)
    size = np.maximum(np.einsum("bii->bi", N), 1.0)
    N = N + 10.0 ** rng.uniform(-8, -2, (batch, 1, 1)) * size[:, :, None] * np.eye(n)
    z, slack = rng.integers(-1, 2, (2, batch, n))
    from_a_solution = -np.einsum("bij,bj->bi", N, z) + slack
    q = np.where(rng.random((batch, 1)) < 0.5, rng.integers(-2, 3, (batch, n)), from_a_solution).astype(float)
    q = np.where(rng.random((batch, n)) < 0.2, 0.0, q)
    lower, upper = random_bounds(rng, (batch, n))
    plain = rng.random((batch, 1)) < 0.4
    lower, upper = np.where(plain, 0.0, lower), np.where(plain, np.inf, upper)
    # Other units: x = D x', w = w' / (c D).
    D, c = 10.0 ** rng.uniform(-3, 3, (batch, n)), 10.0 ** rng.uniform(-6, 6, (batch, 1))
    D = np.where(rng.random((batch, 1)) < 0.5, 1.0, D)
    N = N * c[:, :, None] / (D[:, :, None] * D[:, None, :])
    return N, q * c / D, lower * D, upper * D


def as_problem(*arrays) -> MLCP:
    N, q, lower, upper = (jnp.asarray(a) for a in arrays)
    return MLCP(N, q, lower, upper)


def by_enumeration(N, q, lower, upper):
    """Solutions of a batch with P-matrices: try every one of the 3^n active sets, keep the best."""
    batch, n = q.shape
    best, least = np.zeros((batch, n)), np.full(batch, np.inf)
    for held in itertools.product((0, 1, 2), repeat=n):  # free, lower, upper
        held = np.array(held)
        bound = np.where(held == 1, lower, upper)
        possible = np.isfinite(np.where(held == 0, 0.0, bound)).all(axis=1)
        bound = np.where(np.isfinite(bound), bound, 0.0)
        K = np.where((held == 0)[None, :, None], N, np.eye(n))
        x = np.linalg.solve(K, np.where(held == 0, -q, bound)[..., None])[..., 0]
        x = np.where(held == 0, x, bound)
        outside = np.max(np.maximum(lower - x, x - upper), axis=1)
        error = np.where(possible & (outside < 1e-12), violation(N, q, lower, upper, np.clip(x, lower, upper)), np.inf)
        best, least = np.where((error < least)[:, None], x, best), np.minimum(error, least)
    assert least.max() < 1e-10
    return best


def coupled_friction(rng, batch, contacts=4, directions=4, friction=0.5):
    """A cube on a plane: normal, tangents and slip row of each corner. Redundant; zeros on the diagonal."""
    corners = np.array([[x, y, -0.5] for x in (-0.5, 0.5) for y in (-0.5, 0.5)])[:contacts]
    angle = 2 * np.pi * np.arange(directions) / directions
    tangents = np.stack([np.cos(angle), np.sin(angle), np.zeros(directions)], axis=1)
    pairs = [(r, np.array([0, 0, 1.0])) for r in corners] + [(r, d) for r in corners for d in tangents]
    B = np.array([np.concatenate([d, np.cross(r, d)]) for r, d in pairs])  # gap and slip rates with (v, w)
    A = B @ np.diag([1, 1, 1, 6, 6, 6]) @ B.T
    E = np.kron(np.eye(contacts), np.ones((directions, 1)))
    n, t = contacts, contacts * directions
    M = np.zeros((2 * n + t, 2 * n + t))
    M[: n + t, : n + t] = A + 1e-6 * np.diag(np.diag(A))
    M[n : n + t, n + t :], M[n + t :, :n], M[n + t :, n : n + t] = E, friction * np.eye(n), -E.T
    v = rng.normal(size=(batch, 6)) * [1, 1, 0.1, 0.1, 0.1, 0.3] - [0, 0, 0.3, 0, 0, 0]
    q = np.concatenate([v @ B.T, np.zeros((batch, n))], axis=1)
    return np.broadcast_to(M, (batch, *M.shape)), q, np.zeros_like(q), np.full_like(q, np.inf)


def lcp(M, q):
    """N, q, lower, upper of the one problem w = M z + q, 0 <= w, z, as a batch."""
    q = np.array([q], float)
    return np.array([M], float), q, np.zeros_like(q), np.full_like(q, np.inf)


def padded(N, q, lower, upper, rows):
    """The same with rows w_i = x_i + 1, x_i >= 0 appended, whose x is 0."""
    batch, n = q.shape
    larger = np.tile(np.eye(rows), (batch, 1, 1))
    larger[:, :n, :n] = N
    filled = [np.full((batch, rows), value) for value in (1.0, 0.0, np.inf)]
    for array, given in zip(filled, (q, lower, upper), strict=True):
        array[:, :n] = given
    return larger, *filled
