"""Sensors with a delay: what they read is what others read that much earlier."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import bench, compiled, place

from spookax.cli.outputs import readings
from spookax.constraints import prepare
from spookax.models import Multibody, ParameterMap, ProcessNoise
from spookax.models.parameters import Free
from spookax.stepping import rollout
from spookax.stepping.march import march

H, STEPS, FORCE, ACCELERATION = 0.005, 16, 1.2, (6.0, 0.6)  # of the rotor, of the cart


@pytest.fixture(scope="module")
def rig():
    """The bench, of which every kind of sensor reads late; the delay of the encoder alone is unknown."""
    sensors = {
        "encoder": {"type": "joint_position", "joint": "hinge"},
        "tachometer": {"type": "joint_rate", "joint": "prismatic"},
        "camera": {"type": "body_pose", "body": "rotor"},
        "marker": {"type": "point_position", "body": "cart", "at": (0.1, 0.2, 0)},
    }
    late = {name: {"delay": 0.0117, **sensor} for name, sensor in sensors.items()}
    free = {"friction": {}}
    system, params = bench(H, hinge=free, prismatic=free, sensors={**late, "now": sensors["encoder"]})
    return system, params, place(system, params)


@pytest.fixture(scope="module")
def model(rig):
    system, params, _ = rig
    delay = ParameterMap(system, (Free("sensors.encoder.delay", 0.0117, transform="identity"),))
    return Multibody(system, params, delay, ParameterMap(system, ()), ProcessNoise("joints", 1e-3), (0, 1, 2, 3, 4))


@pytest.fixture(scope="module")
def states(rig, model):
    """From rest under a constant force, at t_0 ... : along a parabola in time."""
    system, params, state = rig
    none = jnp.full((STEPS, 2), FORCE)
    run = compiled(lambda: march(system, prepare(system, params), state, none))
    found = jax.tree.map(np.asarray, run().states)
    of_bodies = jax.jit(lambda state: model.body_state(state, params.com))
    return [of_bodies(jax.tree.map(lambda a, k=k: a[k], found)) for k in range(STEPS)]


def expected(age):
    """Readings of all sensors of a motion that is as old."""
    angle, way = (a * age**2 / 2 for a in ACCELERATION)
    return np.array([angle, ACCELERATION[1] * age, *[0, 0, 0, 0, angle, 0], way + 0.1, 0.2, 0])


@pytest.fixture(scope="module")
def observe(model, states):
    """Readings at places of the channels after t_10, with a delay of the encoder."""
    return compiled(lambda d, s: model.observe(states[9], states[10], model.prepare(d[None] / 0.0117), s))


@pytest.mark.parametrize("delay", [0.0, 0.004, 0.005, 0.0117, 0.03])
def test_a_late_reading_is_that_of_an_earlier_time(observe, delay):
    """Wherever the pair of states lies: here the parabola is exact. A sensor without delay reads in its step."""
    for s in (0.0, 0.3, 2.0):
        found, time = observe(jnp.asarray(delay), jnp.full(12, s)), (10 + s) * H
        np.testing.assert_allclose(found[0], expected(time - delay)[0], rtol=1e-8)
        np.testing.assert_allclose(found[1:-1], expected(time - 0.0117)[1:], rtol=1e-8, atol=1e-9)
        if s < 1:
            ends = [expected(k * H)[0] for k in (10, 11)]
            np.testing.assert_allclose(found[-1], np.interp(s, [0, 1], ends), rtol=1e-8)


def test_every_channel_may_have_its_own_place(observe):
    """As readings lie in steps that their delays put them in: the later the place, the more delay it bears."""
    places = jnp.array([2.0, 1.0, *[3.0] * 6, *[0.5] * 3, 0.0])
    found, time = observe(jnp.asarray(0.0117), places), (10 + np.asarray(places)) * H - 0.0117
    for channel in range(11):
        np.testing.assert_allclose(found[channel], expected(time[channel])[channel], rtol=1e-8, atol=1e-9)


def test_the_derivative_with_respect_to_a_delay_is_minus_the_rate(model, states):
    def encoder(d):
        return model.observe(states[9], states[10], model.prepare(d[None] / 0.0117), jnp.ones(()))[0]

    found = compiled(lambda d: (jax.jacfwd(encoder)(d), jax.jacrev(encoder)(d), encoder(d + 1e-6), encoder(d - 1e-6)))
    for delay in (0.001, 0.0117, 0.02):
        forward, reverse, more, less = found(jnp.asarray(delay))
        rate = ACCELERATION[0] * (11 * H - delay)
        np.testing.assert_allclose([forward, reverse], [-rate, -rate], rtol=1e-8)
        np.testing.assert_allclose((more - less) / 2e-6, -rate, rtol=1e-6)


def test_a_simulation_reads_the_same(rig):
    """What `simulate` writes; before there was a motion, its start."""
    system, params, state = rig
    found = rollout(system, params, state, jnp.full((STEPS, 2), FORCE))
    time = np.asarray(found.time)
    read = np.concatenate([readings(system, params, found, sensor) for sensor in system.sensors[:-1]], axis=1)
    for t, row in zip(time, read, strict=True):
        np.testing.assert_allclose(row, expected(max(t - 0.0117, 0.0)), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(readings(system, params, found, system.sensors[-1])[:, 0], found.position[:, 0])
