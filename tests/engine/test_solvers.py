"""The step by every solver: a chain with dry friction, a stop and a motor with a largest force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import DOWN, compiled, mechanism, place

from spookax._results import STEP_RESULTS
from spookax.complementarity import BlockPivoting, Lemke, ProjectedGaussSeidel
from spookax.constraints import prepare
from spookax.stepping import half_kick_back, step
from spookax.system import BoxKind

COUNT = 250
LINK = {"mass": 0.5, "com": (0, 0, -0.1), "inertia": (0.002, 0.002, 0.0005)}
HINGE = {"type": "hinge", "axis": (0, 1, 0)}
DRY = {"friction": {"coulomb": 0.05}}
STOPS = {"limits": {"lower": -0.2, "upper": 0.2}}
SYSTEM, PARAMS = mechanism(  # a kind of row for each joint: two on one axis are the same row to sweeps, but for slack
    0.004,
    DOWN,
    bodies=dict.fromkeys("abcd", LINK),
    joints={
        "root": {**HINGE, **DRY, "child": "a"},
        "driven": {**HINGE, "parent": "a", "child": "b", "at": (0, 0, -0.2)},
        "dry": {**HINGE, **DRY, "parent": "b", "child": "c", "at": (0, 0, -0.2)},
        "tip": {**HINGE, **STOPS, "parent": "c", "child": "d", "at": (0, 0, -0.2)},
    },
    motors={"drive": {"type": "velocity", "joint": "driven", "damping": 0.5, "max_force": 0.6}},
)
TIGHT = ProjectedGaussSeidel(sweeps=3000, tolerance=1e-11)


@pytest.fixture(scope="module")
def steps():
    """Velocities, levels and results of every step of one motion, by each solver from the same state."""
    solvers = Lemke(), BlockPivoting(), TIGHT

    @compiled
    def run(state):
        prepared = prepare(SYSTEM, PARAMS)

        def body(carry, k):
            now, guess = carry
            command = jnp.where(k % 100 < 50, 6.0, -6.0)[None]
            found = [step(SYSTEM, prepared, now, command, solver=solver, guess=guess) for solver in solvers]
            after, info = found[0]
            return (after, info.levels), [(jnp.concatenate([s.v, s.w], axis=-1), i.levels, i.result) for s, i in found]

        start = half_kick_back(SYSTEM, prepared, state, jnp.zeros(1))
        return jax.lax.scan(body, (start, jnp.zeros(len(SYSTEM.boxes))), jnp.arange(COUNT))[1]

    start = {"root": {"position": 0.5}, "dry": {"rate": 3.0}}
    return dict(zip(("lemke", "pivoting", "projected"), run(place(SYSTEM, PARAMS, start)), strict=True))


def test_every_kind_of_row_changes(steps):
    _, levels, result = steps["lemke"]
    assert np.all(result == STEP_RESULTS.successful)
    for kind, lower, upper in (("friction", -1, 1), ("lower", 0, np.inf), ("upper", -np.inf, 0), ("motor", -1, 1)):
        x = np.asarray(levels)[:, SYSTEM.boxes_of(BoxKind(kind))]
        free = (x > lower) & (x < upper)
        assert 0 < np.mean(free) < 1, kind


@pytest.mark.parametrize("name", ["pivoting", "projected"])
def test_every_solver_gives_the_same_step(name, steps):
    *found, result = steps[name]
    assert np.all(result == STEP_RESULTS.successful)
    for value, expected in zip(found, steps["lemke"][:2], strict=True):
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-8 * np.abs(expected).max())


@pytest.mark.slow
def test_too_few_sweeps_are_said():
    solver = ProjectedGaussSeidel(sweeps=1, tolerance=1e-9)
    result = compiled(lambda s: step(SYSTEM, prepare(SYSTEM, PARAMS), s, jnp.ones(1), solver=solver)[1].result)
    assert result(place(SYSTEM, PARAMS, {"dry": {"rate": 3.0}})) == STEP_RESULTS.residual_check_failed
