"""Long chains: sparse pivoting gives what Lemke's method gives, with its derivatives, and a state is assembled."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import compiled, place

from benchmarks.chain import chain
from spookax._results import STEP_RESULTS
from spookax.complementarity import BlockPivoting, Lemke
from spookax.stepping import rollout
from spookax.system import build

LINKS, COUNT = 12, 120


def hanging(links):
    """The benchmark's chain with dry friction that grows towards the root [N m]."""
    system, params = build(chain(links, coulomb=1.0, link=1 / links))
    return system, eqx.tree_at(lambda p: p.coulomb, params, 0.02 * (1 - jnp.arange(links) / links) ** 2)


SYSTEM, PARAMS = hanging(LINKS)
START = {f"j{i}": {"position": 0.3 * (-1) ** i, "rate": 1.0} for i in range(LINKS)}


@functools.partial(compiled, static_argnums=0)
def run(solver, params, state):
    return rollout(SYSTEM, params, state, jnp.zeros((COUNT, 0)), solver=solver, throw=False)


@pytest.fixture(scope="module")
def both():
    state = place(SYSTEM, PARAMS, START)
    return [run(solver, PARAMS, state) for solver in (Lemke(), BlockPivoting())]


def test_pivoting_and_lemke_agree(both):
    """Velocities and levels, through changes from slip to stick and back."""
    lemke, pivoting = both
    assert all(trajectory.result == STEP_RESULTS.successful for trajectory in both)
    np.testing.assert_allclose(pivoting.rate, lemke.rate, rtol=0, atol=1e-7 * np.abs(lemke.rate).max())
    np.testing.assert_allclose(pivoting.friction, lemke.friction, rtol=0, atol=1e-4)
    held = np.abs(np.asarray(lemke.friction)) < 1 - 1e-6
    assert np.any(held[1:] & ~held[:-1]), "rows are caught"
    assert np.any(held[:-1] & ~held[1:]), "rows are let go"
    assert np.mean(pivoting.pivots) < 4, "the last set is nearly always right"


@pytest.mark.slow
def test_pivoting_has_the_derivatives_of_lemke():
    """Final rates in the friction levels and masses; forward mode of both, and reverse mode of one row."""
    state = place(SYSTEM, PARAMS, START)

    def last(solver, x):
        changed = eqx.tree_at(lambda p: (p.coulomb, p.mass), PARAMS, (PARAMS.coulomb * x[0], PARAMS.mass * x[1]))
        return rollout(SYSTEM, changed, state, jnp.zeros((40, 0)), solver=solver, throw=False).rate[-2]

    x = jnp.ones(2)
    lemke, pivoting = (compiled(jax.jacfwd(functools.partial(last, s)))(x) for s in (Lemke(), BlockPivoting()))
    size = np.abs(lemke).max()
    assert size > 0.1
    np.testing.assert_allclose(pivoting, lemke, rtol=0, atol=1e-6 * size)
    row = compiled(jax.grad(lambda x: last(BlockPivoting(), x)[3]))(x)
    np.testing.assert_allclose(row, pivoting[3], rtol=0, atol=1e-8 * size)


def test_too_few_pivots_are_said():
    """A limit that is reached ends with a status, not with a wrong answer that looks right."""
    trajectory = run(BlockPivoting(max_pivots=1), PARAMS, place(SYSTEM, PARAMS, START))
    assert trajectory.result != STEP_RESULTS.successful


def test_a_long_chain_is_placed():
    """100 links: every one stands where the angles before it say."""
    system, params = build(chain(100, link=0.01))
    state = place(system, params, {f"j{i}": 0.02 for i in range(100)})
    turn, tip = np.eye(3), np.zeros(3)
    for i in range(100):
        c, s = np.cos(0.02), np.sin(0.02)
        about = np.array([[1, 0, 0], [0, c, -s], [0, s, c]] if i % 2 else [[c, 0, s], [0, 1, 0], [-s, 0, c]])
        turn = turn @ about
        middle, tip = tip + turn @ (0, 0, -0.005), tip + turn @ (0, 0, -0.01)
        np.testing.assert_allclose(state.r[i], middle, rtol=0, atol=1e-12)
