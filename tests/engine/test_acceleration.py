"""Accelerations: the limit of the step, and textbook equations by another road."""

import re
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spookax as sx
from spookax.constraints import prepare
from spookax.models import JointMotion, Multibody, ParameterMap, ProcessNoise
from spookax.models.double_pendulum import drift
from spookax.protocol import ModelError
from spookax.stepping.acceleration import accelerations
from spookax.stepping.start import assembly_error

PENDULUM = "tests/engine/point_pendulums.yaml"


def motion(scene, kind="joints"):
    system, params, _ = sx.load(scene)
    none, sensors = ParameterMap(system, ()), tuple(range(len(system.sensors)))
    return JointMotion(Multibody(system, params, none, none, ProcessNoise(kind, 1.0), sensors))


def test_a_scene_has_the_drift_of_the_textbook(rng):
    model = motion(PENDULUM)

    @jax.jit
    def rate(x):
        p = model.prepare(jnp.zeros(0))
        return model.drift(x, p, jnp.zeros(0)), model.read(x, p)

    for x in rng.normal(size=(3, 4)):
        found, read = rate(jnp.asarray(x))
        absolute = np.array([x[0], x[2], x[0] + x[1], x[2] + x[3]])
        wanted = drift(jnp.asarray(absolute), None, SimpleNamespace(l1=0.6, l2=0.9, M=0.4 / 0.7))
        # the scene's points have some inertia, 1e-8 of that of their rods
        np.testing.assert_allclose(found, [x[2], x[3], wanted[1], wanted[3] - wanted[1]], atol=1e-5)
        np.testing.assert_allclose(read, x[:2], atol=1e-12)


def test_the_step_comes_to_the_equations_with_second_order():
    scene = sx.read_scene(PENDULUM)
    far = []
    x, h = jnp.array([0.5, 0.0, -0.4, 0.0]), 5e-4
    p = SimpleNamespace(l1=0.6, l2=0.9, M=0.4 / 0.7)

    def exact(x, _):
        k1 = drift(x, None, p)
        k2 = drift(x + h / 2 * k1, None, p)
        k3 = drift(x + h / 2 * k2, None, p)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + drift(x + h * k3, None, p)), None

    end = jax.jit(lambda x: jax.lax.scan(exact, x, length=1600)[0])(x)
    for steps in (80, 160):
        system, params, state = sx.load(scene.model_copy(update={"step": 0.8 / steps}))
        got = sx.rollout(system, params, state, jnp.zeros((steps, 0))).position[-1]
        far.append(np.max(np.abs(got - np.array([end[0], end[2] - end[0]]))))
    assert 1.7 < np.log2(far[0] / far[1]) < 2.3


SERVO = """
spookax: 1
name: servo
step: 0.01
bodies: {mass: {mass: 3.0, inertia: [0.01, 0.01, 0.01]}}
joints: {slide: {type: prismatic, child: mass, axis: [1, 0, 0], friction: {viscous: 0.7}}}
motors: {hold: {type: position, joint: slide, stiffness: 1200.0, damping: 4.0}}
sensors: {place: {type: joint_position, joint: slide}}
"""


def test_a_servo_has_the_drift_of_its_law_at_any_step(tmp_path):
    (tmp_path / "servo.yaml").write_text(SERVO, encoding="utf-8")
    model = motion(tmp_path / "servo.yaml")
    drift_of = jax.jit(lambda x, u: model.drift(x, model.prepare(jnp.zeros(0)), u))
    found = drift_of(jnp.array([0.1, 2.0]), jnp.array([0.3]))
    np.testing.assert_allclose(found, [2.0, (1200.0 * (0.3 - 0.1) - 4.7 * 2.0) / 3.0], rtol=1e-12)


def test_dry_friction_and_noise_on_bodies_have_no_drift():
    with pytest.raises(ModelError, match=r"dry friction.*viscous"):
        motion("scenes/pendulum.yaml")
    with pytest.raises(ModelError, match="kind: joints"):
        motion(PENDULUM, "bodies")
    of = motion(PENDULUM).of
    with pytest.raises(ModelError, match="it has no sensors"):
        JointMotion(Multibody(of.system, of.params, of.shared, of.own, of.noise, ()))
    system, params, state = sx.load("scenes/pendulum.yaml")
    with pytest.raises(ValueError, match="dry friction"):
        accelerations(system, prepare(system, params), state, jnp.zeros(0), jnp.zeros(1))


def test_accelerations_keep_a_closed_loop_closed_to_third_order(tmp_path):
    smooth = tmp_path / "smooth.yaml"
    smooth.write_text(re.sub(r"friction: {[^}]*}", "friction: {}", Path("scenes/four_bar.yaml").read_text()))
    system, params = sx.build(sx.read_scene(smooth))
    state = sx.state_from_joints(system, params, {"drive": {"position": -1.5, "rate": 2.0}})

    @jax.jit
    def off(dt):
        motors, axes = jnp.zeros(len(system.motors)), jnp.zeros(len(system.axes))
        a, _ = accelerations(system, prepare(system, params), state, motors, axes)
        half = eqx.tree_at(lambda s: (s.v, s.w), state, (state.v + dt / 2 * a[:, :3], state.w + dt / 2 * a[:, 3:]))
        return assembly_error(system, params, half.moved(dt))

    far = [float(off(dt)) for dt in (2e-2, 1e-2)]
    assert 2.7 < np.log2(far[0] / far[1]) < 3.3
