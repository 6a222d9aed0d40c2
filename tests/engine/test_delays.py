"""Motors whose commands act later: a delay of whole steps is a shift, any other loses as much impulse as it lasts."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import bench, compiled, place

import spookax as sx
from spookax.stepping import rollout

H, STEPS, INERTIA = 0.005, 64, 0.2  # s, -, kg m^2 of the rotor
LATE = (0.0, 0.001, 0.0025, 0.005, 0.0163, 0.035)  # up to 7 steps


@pytest.fixture(scope="module")
def rig():
    """The bench without friction, its motors with delays of up to 7 steps."""
    free = {"friction": {}}
    system, params = bench(H, hinge=free, prismatic=free, motor={"delay": 7 * H})
    assert system.history == 8
    return system, params, place(system, params)


@functools.partial(compiled, static_argnums=0)
def run(system, params, state, controls):
    return rollout(system, params, state, controls, throw=False)


def late(params, spin, push=0.0):
    return eqx.tree_at(lambda p: p.delay, params, jnp.array([spin, push]))


def pushes(rng):
    return jnp.asarray(rng.normal(size=(STEPS, 2)))


def test_a_delay_of_whole_steps_is_a_shift_of_the_commands(rig, rng):
    system, params, state = rig
    u = pushes(rng)
    for steps in (0, 1, 5):
        shifted = u.at[:, 0].set(jnp.concatenate([jnp.zeros(steps), u[: STEPS - steps, 0]]))
        found = run(system, late(params, steps * H), state, u)
        expected = run(system, late(params, 0.0), state, shifted)
        np.testing.assert_allclose(found.rate, expected.rate, rtol=0, atol=1e-13)


def test_without_a_delay_the_kept_commands_change_nothing(rig, rng):
    """The other way to take means over kicks: from the commands that states keep, or before the steps."""
    system, params, state = rig
    free = {"friction": {}}
    plain, of_plain = bench(H, hinge=free, prismatic=free)
    assert plain.history == 0
    start, u = place(plain, of_plain), pushes(rng)
    assert start.commands is None
    found, expected = run(system, late(params, 0.0), state, u), run(plain, of_plain, start, u)
    np.testing.assert_allclose(found.position, expected.position, rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.rate, expected.rate, rtol=0, atol=1e-13)


@pytest.mark.parametrize("delay", LATE)
def test_a_constant_torque_is_late_by_the_delay(rig, delay):
    """From rest, rate = torque / inertia (t - delay) once it acts, whatever part of a step the delay is."""
    system, params, state = rig
    found = run(system, late(params, delay), state, jnp.full((STEPS, 2), 0.7))
    acts = np.asarray(found.time) > delay + H
    expected = 0.7 / INERTIA * (np.asarray(found.time) - delay)
    np.testing.assert_allclose(found.joint("hinge")[1][acts], expected[acts], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.joint("prismatic")[1], 0.35 * found.time, rtol=1e-9, atol=1e-9)


def test_its_derivative_is_that_of_central_differences(rig, rng):
    """Parabolas between half steps, smooth where two meet, as at 0.005 s."""
    system, params, state = rig
    u = pushes(rng)

    def end(delay):
        return rollout(system, late(params, delay), state, u, throw=False).position[-1, 0]

    both = compiled(lambda delay: (jax.jacfwd(end)(delay), jax.jacrev(end)(delay)))
    at = functools.partial(run, system, state=state, controls=u)
    for delay in LATE[1:-1]:
        more, less = (at(late(params, delay + step)).position[-1, 0] for step in (1e-7, -1e-7))
        numeric = (more - less) / 2e-7
        assert abs(numeric) > 1e-3
        np.testing.assert_allclose(both(delay), [numeric, numeric], rtol=5e-5)


def test_a_simulator_and_a_rollout_that_goes_on_remember_the_commands(rig, rng):
    system, params, state = rig
    u, given = pushes(rng), late(params, 0.0163, 0.001)
    whole = run(system, given, state, u)
    simulator = sx.Simulator(system, given, state)
    reading = simulator.reading
    for command in np.asarray(u):
        reading = simulator.step(command)
    np.testing.assert_allclose(reading.position, whole.position[-1], rtol=0, atol=1e-13)
    np.testing.assert_allclose(simulator.state.commands, whole.state.commands)
    half = rollout(system, given, state, u[:30])
    rest = rollout(system, given, half.state, u[30:], half_kick=False)
    np.testing.assert_allclose(rest.position[-1], whole.position[-1], rtol=0, atol=1e-13)


def test_what_cannot_be_honoured_is_an_error(rig):
    system, params, state = rig
    u = jnp.zeros((STEPS, 2))
    longer = late(params, 8 * H)
    for refused in (
        lambda: rollout(system, longer, state, u),
        lambda: sx.Simulator(system, longer, state),
        lambda: sx.Simulator(system, params, state).set_parameters(longer),
    ):
        with pytest.raises(ValueError, match=r"motors\.spin\.delay is 8 steps, but .* built for a delay of 7 steps"):
            refused()
    with pytest.raises(ValueError, match="needs `commands` of the shape \\(8, 2\\)"):
        rollout(system, params, eqx.tree_at(lambda s: s.commands, state, None), u)
    free = {"friction": {}}
    plain, of_plain = bench(H, hinge=free, prismatic=free)
    with pytest.raises(ValueError, match="built for a delay of no motor"):
        rollout(plain, late(of_plain, H), place(plain, of_plain), u)
    # under jit the number is not known, and the step fails
    assert run(system, longer, state, u).failed_step >= 0
