"""A scene as a member of the estimators' protocol: what it does in a step is what `rollout` does."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import compiled, place

from benchmarks.chain import chain
from spookax._results import STEP_RESULTS
from spookax.complementarity import BlockPivoting, Lemke
from spookax.constraints import prepare
from spookax.estimation.batch import step_blocks
from spookax.estimation.batch.one_recording import Plan, follow
from spookax.models import Multibody, ParameterMap, ProcessNoise
from spookax.protocol import Noise
from spookax.scene import Scene
from spookax.stepping.march import march
from spookax.stepping.spook import default_solver
from spookax.system import build

STEPS = 40
NOISE = Noise(jnp.ones(()), jnp.ones(1))
CHAINS = {4: Lemke, 16: BlockPivoting}  # rows with bounds: below and above where the default solver changes


def model_of(links: int) -> Multibody:
    """A chain that hangs, with dry friction that grows towards its root; the last joint sticks."""
    sensors = {"angle": {"type": "joint_position", "joint": "j0", "sd": 1e-3}}
    hanging = chain(links, coulomb=1.0, link=1 / links).model_dump(exclude_unset=True) | {"sensors": sensors}
    system, params = build(Scene.model_validate(hanging))
    friction = np.append(0.02 * (1 - np.arange(links - 1) / links) ** 2, 0.5)
    params = eqx.tree_at(lambda p: p.coulomb, params, jax.device_put(friction))
    none = ParameterMap(system, ())
    return Multibody(system, params, none, none, ProcessNoise("joints", 1e-3), (0,))


@pytest.fixture(scope="module", params=list(CHAINS))
def swing(request):
    """The model and its first state."""
    model = model_of(request.param)
    start = {f"j{i}": {"position": 0.3 * (-1) ** i, "rate": 1.0} for i in range(request.param)}
    placed = place(model.system, model.params, start)
    return model, jax.jit(lambda state: model.body_state(state, model.params.com))(placed)


def followed(model: Multibody, x0, u):
    """The estimators' own trajectory, without noise and feedback."""
    x = jax.tree.map(lambda a: np.broadcast_to(a, (STEPS, *a.shape)), x0)
    m, n = model.noise_size, model.tangent_size
    plan = Plan(x, np.zeros((STEPS, m)), [np.zeros((end - begin, m, n)) for begin, end in step_blocks.spans(STEPS)])
    return follow(model, np.zeros(0), NOISE, plan, u, model.first_guess())


def test_the_estimators_step_as_rollout_does(swing):
    model, x0 = swing
    assert type(default_solver(model.system)) is CHAINS[len(model.system.boxes)]
    none = jnp.zeros((STEPS, 0))
    path = followed(model, x0, none)
    first = model.engine_state(jax.tree.map(lambda a: jnp.asarray(a[0]), path.x), model.params.com)
    run = compiled(lambda state: march(model.system, prepare(model.system, model.params), state, none, half_kick=False))
    found = run(first)
    assert found.result == STEP_RESULTS.successful
    assert np.all(path.result == STEP_RESULTS.successful)
    stuck = np.abs(np.asarray(found.info.levels)) < 1 - 1e-6
    assert stuck.any()
    assert not stuck.all()
    np.testing.assert_allclose(path.guess, found.info.levels, rtol=0, atol=1e-9)
    ends = jax.jit(jax.vmap(lambda x: model.engine_state(x, model.params.com)))(
        jax.tree.map(lambda a: np.asarray(a)[1:], path.x)
    )
    np.testing.assert_allclose(ends.r, found.states.r, rtol=0, atol=1e-12)
    np.testing.assert_allclose(ends.w, found.states.w, rtol=0, atol=1e-10 * np.abs(found.states.w).max())


@pytest.mark.slow
def test_a_replay_is_the_step_with_its_derivative(swing):
    """Reverse mode of both, away from ties: no level is at a bound by chance."""
    model, x0 = swing
    path = followed(model, x0, jnp.zeros((STEPS, 0)))
    k = STEPS // 2
    x, guess = jax.tree.map(lambda a: jnp.asarray(a[k]), path.x), path.guess[k]
    assert np.abs(np.abs(guess[np.abs(guess) < 1]) - 1).min(initial=1.0) > 1e-3
    direction = jnp.asarray(np.random.default_rng(0).normal(size=model.tangent_size))

    def along(start, w, *, again: bool):
        p = model.prepare(jnp.zeros(0))
        begin, u = model.retract(x, start), jnp.zeros(0)
        if again:
            x1 = model.replay(begin, p, u, w, NOISE, guess)
        else:
            x1, _ = model.step(begin, p, u, w, NOISE, path.guess[k - 1])
        return direction @ model.local(x1, x)

    zero = jnp.zeros(model.tangent_size), jnp.zeros(model.noise_size)
    step, replay = (
        compiled(jax.value_and_grad(lambda *a, b=b: along(*a, again=b), (0, 1)))(*zero) for b in (False, True)
    )
    for one, other in zip(jax.tree.leaves(step), jax.tree.leaves(replay), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-7 * np.abs(one).max())
