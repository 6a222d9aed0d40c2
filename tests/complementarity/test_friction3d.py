"""Contacts with friction as complementarity problems: with pyramids and boxes, beside the exact circular cone.

The problems and their solutions are data (`friction3d_problems.json`, its values from the Siconos test data): impulses
r and velocities u = W r + q of contacts (normal, tangent, tangent), of which each slides against its motion.

A pyramid of m directions holds at most mu r_n along each; what slides is pushed along the direction that opposes it
best, at most half an angle between directions, pi / m, off. That turns the tangential part of the force, mu / sqrt(1 +
mu^2) of it all, by as much: its relative error is at most pi / m * mu / sqrt(1 + mu^2), to first order, and falls with
m. A box of two bounds mu r_n holds up to sqrt(2) times too much and is up to 45 degrees off.
"""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spookax._results import MLCP_RESULTS
from spookax.complementarity import MLCP, Lemke

PROBLEMS = {
    problem["name"]: problem
    for problem in json.loads((Path(__file__).parents[1] / "data" / "friction3d_problems.json").read_text())["problems"]
}
DIRECTIONS = (4, 32)
solve = jax.jit(Lemke().solve)


def pyramid(problem: dict[str, Any], m: int) -> np.ndarray:
    """Impulses with the pyramid of m directions (Stewart and Trinkle 1996): unknown of every contact are r_n, the parts
    beta along the directions, and the sliding speed.
    """
    W, q = np.array(problem["W"]), np.array(problem["q"])
    angle, size = 2 * np.pi * np.arange(m) / m, m + 2
    T, extra = np.zeros((len(q), size * problem["nc"])), np.zeros((size * problem["nc"],) * 2)
    for c, mu in enumerate(problem["mu"]):
        normal, beta, speed = size * c, slice(size * c + 1, size * c + 1 + m), size * c + 1 + m
        T[3 * c, normal] = 1.0
        T[3 * c + 1 : 3 * c + 3, beta] = np.cos(angle), np.sin(angle)
        extra[beta, speed], extra[speed, beta], extra[speed, normal] = 1.0, -1.0, mu
    n = T.shape[1]
    found = solve(MLCP(jnp.asarray(T.T @ W @ T + extra), jnp.asarray(T.T @ q), jnp.zeros(n), jnp.full(n, jnp.inf)))
    assert found.result == MLCP_RESULTS.successful
    return T @ np.asarray(found.x)


def box(problem: dict[str, Any]) -> np.ndarray:
    """Impulses with tangential bounds of mu times the normal impulse, repeated until that settles."""
    W, q = jnp.array(problem["W"]), jnp.array(problem["q"])
    level, r = np.zeros(problem["nc"]), np.full(len(q), np.inf)
    for _ in range(200):
        upper = np.stack([np.full_like(level, np.inf), level, level], axis=1).reshape(-1)
        lower = np.stack([np.zeros_like(level), -level, -level], axis=1).reshape(-1)
        found, before = solve(MLCP(W, q, jnp.asarray(lower), jnp.asarray(upper))), r
        assert found.result == MLCP_RESULTS.successful
        r = np.asarray(found.x)
        level = np.array(problem["mu"]) * r[::3]
        if np.abs(r - before).max() <= 1e-13 * np.abs(r).max():
            return r
    raise AssertionError("the normal impulses do not settle")


def laws(problem: dict[str, Any], r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tangential impulse over mu r_n, and angle between it and what opposes the sliding, of every contact."""
    u = (np.array(problem["W"]) @ r + np.array(problem["q"])).reshape(-1, 3)
    r, mu = r.reshape(-1, 3), np.array(problem["mu"])
    size, speed = np.linalg.norm(r[:, 1:], axis=1), np.linalg.norm(u[:, 1:], axis=1)
    assert np.all(np.abs(u[:, 0]) <= 1e-9 * speed), "contacts that carry something stay closed"
    cos = -np.sum(r[:, 1:] * u[:, 1:], axis=1) / (size * speed)
    return size / (mu * r[:, 0]), np.arccos(np.clip(cos, -1.0, 1.0))


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_pyramid_is_off_by_half_an_angle_between_its_directions(name):
    problem = PROBLEMS[name]
    exact, mu = np.array(problem["r_exact_cone"]), max(problem["mu"])
    np.testing.assert_allclose(laws(problem, exact)[0], 1.0, rtol=1e-9)  # every contact slides,
    np.testing.assert_allclose(laws(problem, exact)[1], 0.0, atol=1e-6)  # against its motion
    errors = []
    for m in DIRECTIONS:
        r = pyramid(problem, m)
        size, angle = laws(problem, r)
        assert np.all((size >= np.cos(np.pi / m) - 1e-9) & (size <= 1 + 1e-9))
        assert np.all(angle <= np.pi / m + 1e-9)
        errors.append(np.linalg.norm(r - exact) / np.linalg.norm(exact))
        assert errors[-1] <= np.pi / m * mu / np.sqrt(1 + mu**2)
    assert errors[-1] < errors[0] / 4


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_box_holds_too_much_and_pushes_askew(name):
    problem = PROBLEMS[name]
    exact, mu = np.array(problem["r_exact_cone"]), max(problem["mu"])
    r = box(problem)
    size, angle = laws(problem, r)
    assert np.all((size >= 1 - 1e-9) & (size <= np.sqrt(2) + 1e-9))
    assert np.all(angle <= np.pi / 4 + 1e-9)
    assert np.linalg.norm(r - exact) / np.linalg.norm(exact) <= np.pi / 4 * mu / np.sqrt(1 + mu**2)
