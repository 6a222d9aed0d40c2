"""Sensors of contact forces: weight, the forces of results, axes, derivatives, readings of a simulation; bad input."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import pytest
from engine.mechanisms import compiled

import spookax as sx
from spookax.cli.outputs import readings
from spookax.constraints import prepare
from spookax.math import rotation
from spookax.scene import Scene
from spookax.sensors import readings as read_between
from spookax.stepping import step

pytestmark = pytest.mark.quick
H = 0.005
MASS = {"box": 1.0, "ball": 0.5}
SENSORS = {
    "plate": {"surface": "floor"},
    "box": {"body": "box", "against": "floor"},
    "turned": {"surface": "box", "axes": "body"},
    "late": {"surface": "ball", "delay": 3 * H},
}


def scene(sensors=SENSORS, restitution=0.0):
    """A box that falls on an edge, tumbles and comes to rest, and a ball at rest."""
    falls = {"position": (0, 0, 0.3), "rotation": (0.3, 0.2, 0), "velocity": (1, 0, 0), "angular_velocity": (1, 2, 3)}
    bodies = {
        "box": {"mass": MASS["box"], "inertia": (0.0067,) * 3, "initial": falls},
        "ball": {"mass": MASS["ball"], "inertia": (5e-4,) * 3, "initial": {"position": (2.0, 0, 0.05)}},
    }
    surfaces = {
        "floor": {"type": "plane"},
        "box": {"type": "box", "body": "box", "size": (0.2,) * 3},
        "ball": {"type": "sphere", "body": "ball", "radius": 0.05},
    }
    contacts = {"surfaces": surfaces, "materials": {"default": {"restitution": restitution}}}
    said = {name: {"type": "contact_force", **sensor} for name, sensor in sensors.items()}
    return Scene.model_validate({"spookax": 1, "step": H, "bodies": bodies, "contacts": contacts, "sensors": said})


@functools.partial(compiled, static_argnums=0)
def steps_of(system, params, state):
    """What the sensors read within every step, and what their states keep."""
    prepared = prepare(system, params)

    def one(now, _):
        after, _ = step(system, prepared, now, jnp.zeros(0))
        return after, read_between(system, prepared, (0, 1, 2, 3), now, after, jnp.array(0.3))

    return jax.lax.scan(one, state, length=200)[1]


@pytest.fixture(scope="module")
def fallen():
    system, params, state = sx.load(scene())
    run = sx.rollout(system, params, state, np.zeros((200, 0)))
    read = {s.name: np.asarray(readings(system, params, run, s)) for s in system.sensors}
    return system, run, read


def test_at_rest_a_sensor_reads_the_weight(fallen):
    _, _, read = fallen
    np.testing.assert_allclose(read["box"][-1], [0, 0, 9.81 * MASS["box"]], atol=1e-5)
    np.testing.assert_allclose(read["plate"][-1], [0, 0, -9.81 * sum(MASS.values())], atol=1e-5)


def test_readings_are_the_forces_of_results(fallen):
    """Those of the step that begins then: in the axes of the body, between two surfaces, and late by whole steps."""
    system, run, read = fallen
    of_box, of_ball = (np.asarray(run.contact_force(system, name)) for name in ("box", "ball"))
    assert np.max(np.abs(of_box)) > 10 * 9.81, "no impact"
    np.testing.assert_allclose(read["box"][:-1], of_box, atol=1e-12)
    np.testing.assert_array_equal(read["box"][-1], read["box"][-2])
    np.testing.assert_allclose(read["plate"][:-1], np.asarray(run.contact_force(system, "floor")), atol=1e-12)
    R = np.asarray(rotation.matrix(run.e[:-1, 0]))
    np.testing.assert_allclose(np.einsum("kij,kj->ki", R, read["turned"][:-1]), of_box, atol=1e-9)
    np.testing.assert_allclose(read["late"][3:-1], of_ball[:-3], atol=1e-12)


def test_a_pair_of_states_has_the_force_of_its_step():
    """Those that estimators and environments read; the impulse of an impact with restitution is in it, too."""
    system, params, state = sx.load(scene(restitution=0.5))
    read = np.asarray(steps_of(system, params, state))
    run = sx.rollout(system, params, state, np.zeros((200, 0)), half_kick=False)
    of_box, of_ball = (np.asarray(run.contact_force(system, name)) for name in ("box", "ball"))
    assert np.max(of_box[:, 2]) > 20 * 9.81, "no impact"
    np.testing.assert_allclose(read[:, 3:6], of_box, atol=1e-9)
    np.testing.assert_allclose(read[:, :3], -of_box - of_ball, atol=1e-9)


def test_derivatives_of_readings_are_those_of_differences():
    """Of a box that slides, by its mass, its friction and its speed: readings of several steps in a row."""
    system, params, state = sx.load(scene())

    def read(x):
        own = eqx.tree_at(
            lambda p: (p.mass, p.material_friction), params, (params.mass * x[0], params.material_friction * x[1])
        )
        first = eqx.tree_at(
            lambda s: (s.r, s.e, s.v, s.w),
            state,
            (
                state.r.at[0].set(jnp.array([0, 0, 0.1 - 3e-7])),
                state.e.at[0].set(jnp.array([1.0, 0, 0, 0])),
                state.v.at[0].set(jnp.array([1.0, 0.5, 0]) * x[2]),
                jnp.zeros_like(state.w),
            ),
        )
        prepared = prepare(system, own)

        def one(now, _):
            after, _ = step(system, prepared, now, jnp.zeros(0))
            return after, read_between(system, prepared, (0, 1, 2), now, after, jnp.ones(()))

        return jax.lax.scan(one, first, length=10)[1][4:].reshape(6, 3, 3)

    at, d = jnp.array([1.0, 1.0, 1.0]), 1e-4  # shorter, and what ends the iterations is seen
    found = np.asarray(compiled(jax.jacfwd(read))(at))
    beside = at[None] + d * jnp.concatenate([jnp.eye(3), -jnp.eye(3)])
    both = np.asarray(compiled(lambda many: jax.lax.map(read, many))(beside))
    for i, differences in enumerate((both[:3] - both[3:]) / (2 * d)):
        np.testing.assert_allclose(found[..., i], differences, rtol=1e-5, atol=1e-4)
    weight = np.mean(found[:, 1, 2, 0])  # by the mass, over steps in which a box that slides rocks
    np.testing.assert_allclose(weight, 9.81 * MASS["box"], rtol=1e-3)
    assert np.min(np.abs(found[:, 1, 0, 1])) > 1, "friction does not tell"


@pytest.mark.parametrize(
    ("sensor", "message"),
    [
        ({}, "one of `surface` and `body`"),
        ({"surface": "floor", "body": "box"}, "one of `surface` and `body`"),
        ({"surface": "flor"}, "there is no surface 'flor'"),
        ({"body": "bax"}, "there is no body 'bax'"),
        ({"surface": "box", "against": "wall"}, "there is no surface 'wall'"),
        ({"surface": "box", "against": "box"}, "does not touch"),
    ],
)
def test_what_cannot_be_read_is_refused(sensor, message):
    with pytest.raises(pydantic.ValidationError, match=message):
        scene({"foot": sensor})


def test_without_contacts_nothing_is_felt():
    body = {"mass": 1, "inertia": (1, 1, 1)}
    sensors = {"foot": {"type": "contact_force", "body": "b"}}
    with pytest.raises(pydantic.ValidationError, match="nothing may touch body 'b'"):
        Scene.model_validate({"spookax": 1, "step": H, "bodies": {"b": body}, "sensors": sensors})
