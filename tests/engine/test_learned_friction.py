"""Friction of a joint by a network: the levels it says, that it only takes energy, that it differentiates."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import DOWN, NAMES, U, bench, driven, furuta, mechanism, place, rack, simulate
from engine.test_hard_cases import gradient_matches, slope_and_values

from spookax.constraints import boxes
from spookax.models import NeuralFriction
from spookax.scene import network_weights
from spookax.stepping import rollout, state_from_joints
from spookax.system import locate

SIZES = (1, 5, 4, 1)
LEARNED = {"layers": SIZES[1:-1], "speed": 2.0, "force": 0.3}


def still(sizes=SIZES) -> list[float]:
    """A network that says 0 at any speed: friction is force times log 2."""
    return [0.0] * network_weights.count(sizes)


def both_frictions(make, level):
    """A mechanism with friction of one level, dry and by a network that says nothing."""
    learned = {"layers": [3], "force": level / np.log(2), "weights": still((1, 3, 1))}
    return make({"coulomb": level}), make({"learned": learned})


def test_a_network_that_says_nothing_is_dry_friction():
    """Two roads to one motion, driven above the level and below."""
    two = both_frictions(lambda f: bench(hinge={"friction": f}, prismatic={"friction": f}), 0.2)
    for load in (0.18, 0.8):
        runs = [simulate(s, p, place(s, p, {}), load) for s, p in two]
        np.testing.assert_allclose(runs[1].position, runs[0].position, rtol=1e-9, atol=1e-12)
        assert (np.abs(runs[0].rate[-1]).min() > 1) == (load == 0.8)


@pytest.mark.slow
def test_it_acts_along_every_axis_of_every_joint():
    """The same on all of them, those of a ball joint, which share a network, too."""
    two = both_frictions(lambda f: rack(along={"friction": f}), 0.5 * U)
    runs = [simulate(s, p, place(s, p, {}), driven(NAMES, 2 * U)) for s, p in two]
    np.testing.assert_allclose(runs[1].position[:400], runs[0].position[:400], rtol=1e-9, atol=1e-12)
    assert np.abs(runs[0].rate[-1]).min() > 0.1


def written_out(weights, inputs) -> float:
    """Friction over `force`."""
    y = np.array(inputs)
    for i, layer in enumerate(weights):
        y = layer[:, :-1] @ y + layer[:, -1]
        y = np.tanh(y) if i < len(weights) - 1 else y
    return float(np.log1p(np.exp(y[0])))


def test_levels_are_the_network_written_out(rng):
    sees = {"hinge": ["load", "angle"], "prismatic": ["load"]}
    sizes = {"hinge": (4, 3, 1), "prismatic": (2, 3, 1)}
    friction = {name: {"learned": {"sees": sees[name], "layers": [3], "speed": 2.0, "force": 0.3}} for name in sees}
    system, params = bench(**{name: {"friction": friction[name] | {"coulomb": 0.7}} for name in sees})
    drawn = {name: network_weights.draw(size, rng) for name, size in sizes.items()}
    for name, weights in drawn.items():
        for i, weight in enumerate(weights):
            path = f"joints.{name}.friction.learned.weights.{i}"
            params = locate(system, path).set(params, jnp.asarray(weight))
    command, rate, position = jnp.array([0.6, -0.9]), jnp.array([-1.5, 0.4]), jnp.array([0.8, 3.0])
    found = boxes.dry_friction(system, params, command, rate, position)
    hinge = [drawn["hinge"][:15].reshape(3, 5), drawn["hinge"][15:].reshape(1, 4)]
    slide = [drawn["prismatic"][:9].reshape(3, 3), drawn["prismatic"][9:].reshape(1, 4)]
    expected = [
        0.7 + 0.3 * written_out(hinge, [0.75, 2.0, np.cos(0.8), np.sin(0.8)]),
        0.7 + 0.3 * written_out(slide, [0.2, 3.0]),
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_weights_left_out_are_those_that_the_model_draws():
    """A network learnt as `models.NeuralFriction` can be put into a joint: the same numbers in the same order."""
    system, params = bench(hinge={"friction": {"learned": LEARNED}})
    law = NeuralFriction(SIZES)
    z = law.draw(np.random.default_rng(0))
    np.testing.assert_array_equal(params.weights, z)
    rate = jnp.array([1.2, 0.0])
    level = boxes.dry_friction(system, params, jnp.zeros(2), rate, jnp.zeros(2))[0]
    said = float(law.level(law.prepare(jnp.asarray(z)), jnp.asarray(1.2 / 2.0)))
    assert float(level) == pytest.approx(0.3 * np.log1p(np.exp(said)), rel=1e-14)


def test_it_only_takes_energy_and_is_odd(rng):
    """A rotary pendulum without gravity, any weights: its energy falls, and its mirror image is its motion."""
    friction = {"learned": LEARNED | {"force": 2e-2}}
    system, params = furuta(0.002, shoulder=friction, elbow=friction, gravity=(0, 0, 0))
    weights = np.concatenate([network_weights.draw(SIZES, rng) for _ in range(2)])
    params = eqx.tree_at(lambda p: p.weights, params, jnp.asarray(weights))
    runs = []
    for side in (1, -1):
        start = {"shoulder": {"rate": 3.0 * side}, "elbow": {"rate": -8.0 * side}}
        runs.append(simulate(system, params, place(system, params, start)))
    np.testing.assert_allclose(runs[1].position, -runs[0].position, rtol=1e-9, atol=1e-10)
    moved = np.sum(np.asarray(params.mass)[:, None] * runs[0].v ** 2, axis=(1, 2)) / 2
    turned = np.einsum("nbi,bi,nbi->n", runs[0].w, np.asarray(params.inertia)[:, :3], runs[0].w) / 2
    energy = (moved + turned)[1:-1]
    assert np.max(np.diff(energy)) < 1e-4 * energy[0]
    assert energy[-1] < 1e-6 * energy[0], "it comes to rest"


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.2, 3.0])
def test_gradients(load):
    """By every weight, both scales, start and load of a turning and a sliding axis; at rest, sticking and driven."""
    learned = LEARNED | {"sees": ["load", "angle"]}
    system, params = bench(
        hinge={"friction": {"learned": learned}},
        prismatic={"friction": {"learned": LEARNED | {"sees": ["load"]}, "viscous": 0.2}},
    )
    scales = [locate(system, f"joints.hinge.friction.learned.{key}") for key in ("speed", "force")]
    count = len(params.weights)

    def loss(x):
        changed = eqx.tree_at(lambda p: p.weights, params, x[:count])
        for scale, value in zip(scales, x[count : count + 2], strict=True):
            changed = scale.set(changed, value)
        q, v, u = x[count + 2 :].reshape(3, 2)
        start = {"hinge": {"position": q[0], "rate": v[0]}, "prismatic": {"position": q[1], "rate": v[1]}}
        state = state_from_joints(system, changed, start)
        end = rollout(system, changed, state, jnp.broadcast_to(u, (60, 2)), throw=False)
        return jnp.array([1.0, 0.7]) @ end.position[-1] + jnp.array([0.3, 0.5]) @ end.rate[-1]

    rates = [0.0, 0.0] if load == 0.2 else [0.7, -0.4]
    x = np.concatenate([np.asarray(params.weights), [2.0, 0.3], [0.5, 0.1], rates, [load, 1.1 * load]])
    gradient = gradient_matches(*slope_and_values(loss), x)
    assert np.linalg.norm(gradient[:count]) > 1e-3 or load == 0.2, "the weights say where it ends unless it sticks"


def test_it_stays_where_it_is_while_friction_holds():
    """A pendulum at the side, held by a network that says more than gravity asks for; it lets go below."""
    held = {"friction": {"learned": {"layers": [2], "force": 6.0 / np.log(2), "weights": still((1, 2, 1))}}}
    for factor, moves in ((1.0, False), (0.8, True)):
        system, params = mechanism(
            0.005,
            DOWN,
            bodies={"bob": {"mass": 1.0, "com": (0, 0, -0.5), "inertia": (0.1,) * 3}},
            joints={"pivot": {"type": "hinge", "child": "bob", "axis": (0, 1, 0)} | held},
        )
        params = eqx.tree_at(lambda p: p.learned_force, params, factor * params.learned_force)
        run = simulate(system, params, place(system, params, {"pivot": {"position": np.pi / 2}}))
        assert (np.abs(run.position - np.pi / 2).max() > 0.1) == moves
