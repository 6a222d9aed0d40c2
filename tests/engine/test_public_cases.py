"""Derivatives that users of other engines reported to be NaN, zero or refused, by the number of the public thread.

Each is a mechanism of the kind that is described there, and the derivative that was asked for: in both modes, against
central differences, to 1e-6 of its norm.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import DOWN, compiled, mechanism, pendulum, place

import spookax as sx
from spookax.math import rotation
from spookax.mjcf import import_mjcf
from spookax.stepping import rollout, state_from_joints
from spookax.system import locate

pytestmark = pytest.mark.timeout(600)  # derivatives of a rollout in both modes take long to compile

CUBE = {"mass": 1.0, "inertia": (1 / 600,) * 3}  # edges of 0.1 m


def derivative(f, x, step=1e-6):
    """Of an array by a vector: forward mode, after it was found again in reverse mode and by differences."""
    x = jnp.asarray(x, dtype=float)
    forward, reverse = compiled(jax.jacfwd(f))(x), compiled(jax.jacrev(f))(x)
    offsets = step * np.eye(len(x))
    value = compiled(f)  # for one point after another: for many at once it takes twice as long to compile
    ends = np.array([value(point) for point in jnp.concatenate([x[None] + offsets, x[None] - offsets])])
    differences = np.moveaxis(np.asarray(ends[: len(x)] - ends[len(x) :]) / (2 * step), 0, -1)
    scale = np.linalg.norm(differences)
    assert np.isfinite(scale)
    for found in (forward, reverse):
        np.testing.assert_allclose(found, differences, rtol=0, atol=1e-6 * scale)
    return np.asarray(forward)


def test_friction_loss_of_a_pendulum_has_a_derivative(tmp_path):
    """mujoco#1344: by `frictionloss` it was always zero, by everything else it was not."""
    file = tmp_path / "disk.xml"
    file.write_text("""
      <mujoco>
        <option timestep="0.01"/>
        <worldbody>
          <body>
            <joint name="axle" type="hinge" axis="0 1 0" frictionloss="0.02" damping="0.002" armature="0.001"/>
            <geom type="cylinder" size="0.05 0.01" pos="0 0 -0.08" euler="90 0 0" mass="0.2"/>
          </body>
        </worldbody>
      </mujoco>""")
    system, params, _ = sx.load(import_mjcf(file).scene)
    numbers = [locate(system, f"joints.axle.{path}") for path in ("friction.coulomb", "friction.viscous", "armature")]

    def angle(x):
        changed = params
        for number, value, factor in zip(numbers, (0.02, 0.002, 0.001), x, strict=True):
            changed = number.set(changed, value * factor)
        state = state_from_joints(system, changed, {"axle": {"position": 2.0, "rate": 0.0}})
        return rollout(system, changed, state, jnp.zeros((150, 0)), throw=False).position[-1, 0]

    slope = derivative(angle, np.ones(3))
    assert np.all(np.abs(slope) > 0.1)


def test_a_pendulum_at_rest_has_derivatives():
    """mujoco#1349 and the first of mujoco#1377: hanging, without any contact, it was NaN."""
    system, params = pendulum()

    def after(x):
        state = state_from_joints(system, params, {"pivot": {"position": x[0], "rate": x[1]}})
        trajectory = rollout(system, params, state, jnp.zeros((100, 0)), throw=False)
        return jnp.stack([trajectory.position[-1, 0], trajectory.rate[-1, 0]])

    slope = derivative(after, [0.0, 0.0])
    omega = np.sqrt(9.81 * 0.5 / (0.1 + 0.25))  # rad/s; the closed form, to second order in the step of 5 ms
    c, s = np.cos(omega * 0.5), np.sin(omega * 0.5)
    np.testing.assert_allclose(slope, [[c, s / omega], [-omega * s, c]], rtol=0, atol=1e-3 * omega)


@pytest.mark.slow
def test_a_finger_that_pushes_a_box_against_a_stair_differentiates_in_reverse():
    """The second of mujoco#1377: refused in reverse mode, by the controls of every step."""
    system, params = mechanism(
        0.01,
        DOWN,
        bodies={"finger": CUBE, "box": CUBE},
        joints={
            "arm": {"type": "prismatic", "child": "finger", "axis": (1, 0, 0), "friction": {"viscous": 5.0}},
            "ground": {
                "type": "prismatic",
                "child": "box",
                "axis": (1, 0, 0),
                "friction": {"bearing": 0.4},
                "limits": {"upper": 0.5},
            },
            "touch": {
                "type": "line",
                "parent": "finger",
                "child": "box",
                "axis": (1, 0, 0),
                "limits": {"lower": 0.1},
            },
        },
        motors={"push": {"type": "torque", "joint": "arm"}},
    )
    controls = np.where(np.arange(60) < 30, 12.0, 2.0)[:, None]  # N: the box slides off, then the finger catches up

    def places(pushes):
        start = {"arm": {"position": 0.0, "rate": 0.0}, "ground": {"position": 0.2, "rate": 0.0}}
        state = state_from_joints(system, params, start)
        trajectory = rollout(system, params, state, jnp.asarray(controls).at[::10, 0].set(pushes), throw=False)
        return trajectory.position[:, system.axis_of("ground")]

    path = np.asarray(compiled(places)(jnp.asarray(controls[::10, 0])))
    assert path[10] == pytest.approx(0.2, abs=1e-4)  # not yet touched
    assert path[30] > 0.25
    slope = derivative(lambda x: places(x)[jnp.array([20, 35, 60])], controls[::10, 0])
    assert np.all(np.abs(slope[1, :3]) > 1e-4), "pushes before it is reached and while it is pushed move it"


@pytest.mark.slow
def test_every_step_of_a_box_that_leaves_the_ground_has_its_jacobian():
    """mujoco#1517: the Jacobian of a step by state and control, NaN where the ground is left.

    At rest on the ground, lifted by a motor, in flight, landing again.
    """
    soft = {"lower": 0.0, "relative_compliance": 0.1}  # the weight presses it in by 9 µm
    system, params = mechanism(
        0.002,
        DOWN,
        bodies={"box": CUBE},
        joints={"ground": {"type": "generic", "child": "box", "axes": {"z": {"limits": soft}}}},
        motors={"lift": {"type": "torque", "joint": "ground.z"}},
    )
    names = system.axis_names()
    n, u = len(names), np.zeros((200, 1))
    u[50:80] = 15.0

    def after(x):
        """Positions and rates after a step, from those before it and the control."""
        start = {name: {"position": x[i], "rate": x[n + i]} for i, name in enumerate(names)}
        state = state_from_joints(system, params, start)
        trajectory = rollout(system, params, state, x[2 * n :][None], throw=False)
        return jnp.concatenate([trajectory.position[-1], trajectory.rate[-1]])

    rest = {"ground.x": {"position": 0.1, "rate": 0.2}, "ground.rz": {"position": 0.3, "rate": 0.1}}
    path = compiled(lambda: rollout(system, params, state_from_joints(system, params, rest), jnp.asarray(u)))()
    z = np.asarray(path.position)[:, names.index("ground.z")]
    assert -2e-5 < z[40] < -5e-6
    assert z.max() > 0.01
    assert -2e-5 < z[-1] < -5e-6
    x = jnp.concatenate([path.position[:-1], path.rate[:-1], u], axis=1)[40:]
    forward, reverse = (compiled(jax.vmap(mode(after)))(x) for mode in (jax.jacfwd, jax.jacrev))
    units = np.repeat([params.step, 1.0, 1 / params.step], [n, n, 1])  # m, m/s, N: all derivatives are about one
    run, offsets = compiled(jax.vmap(jax.vmap(after))), 1e-6 * np.diag(units)
    ends = run(x[:, None] + offsets[None]) - run(x[:, None] - offsets[None])
    differences = np.moveaxis(np.asarray(ends) / 2e-6, 1, -1)
    for found in (forward, reverse):
        error = (np.asarray(found) * units - differences) / units[: 2 * n, None]
        np.testing.assert_allclose(error, 0.0, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_an_impulse_that_sends_one_ball_against_another_has_its_gradient():
    """mujoco#2237: the cost of where the second ends, NaN by the force that pushes the first."""
    radius, steps = 0.05, 100
    system, params = mechanism(
        0.005,
        (0, 0, 0),
        bodies={"first": CUBE, "second": CUBE},
        joints={
            "table_1": {"type": "planar", "child": "first", "axis": (0, 0, 1)},
            "table_2": {"type": "planar", "child": "second", "axis": (0, 0, 1)},
            "touch": {
                "type": "line",
                "parent": "first",
                "child": "second",
                "axis": (1, 0, 0),
                "limits": {"lower": 2 * radius, "restitution": 0.7},
            },
        },
    )
    state = place(system, params, {"table_1.x": 0.0, "table_2.x": 0.3, "table_2.y": 0.03})

    def second(force):
        wrenches = jnp.zeros((steps, 2, 6)).at[0, 0, :2].set(force)
        return rollout(system, params, state, jnp.zeros((steps, 0)), wrenches=wrenches, throw=False).r[-1, 1, :2]

    def cost_of(force):
        end = second(force)
        return end[0] ** 2 + end[1] + 1e-5 * jnp.sum(force**2)

    push = jnp.array([400.0, 5.0])  # N for one step: 2 m/s
    assert float(compiled(second)(push)[0]) > 0.5, "it is hit, off its centre"
    cost = derivative(cost_of, push)
    assert np.all(np.abs(cost) > 1e-4)


@pytest.mark.slow
def test_the_speed_after_a_ball_has_hit_a_box_has_its_derivatives():
    """mujoco#2841: NaN by the speed before. Here by the restitution, too."""
    system, params = mechanism(
        0.001,
        DOWN,
        bodies={"box": {"mass": 50.0, "inertia": (1.0, 1.0, 1.0)}, "ball": CUBE},
        joints={
            "ground": {"type": "prismatic", "child": "box", "limits": {"lower": 0.0}},
            "top": {
                "type": "generic",
                "parent": "box",
                "child": "ball",
                "axes": {"z": {"limits": {"lower": 0.3, "restitution": 0.8}}},
            },
        },
    )
    restitution = locate(system, "joints.top.axes.z.limits.restitution")

    def speeds(x):
        changed = restitution.set(params, x[1])
        start = {"top.z": {"position": 0.5, "rate": x[0]}}
        trajectory = rollout(
            system, changed, state_from_joints(system, changed, start), jnp.zeros((150, 0)), throw=False
        )
        return trajectory.v[-1, :, 2]

    box, ball = derivative(speeds, [-2.0, 0.8])
    before = -np.sqrt(2.0**2 + 2 * 9.81 * 0.2)
    assert ball[0] == pytest.approx(-0.8, abs=0.03)
    assert ball[1] == pytest.approx(-before, rel=2 * 9.81 * 0.001 / 2.8)  # it is seen up to a step late
    assert np.all(np.abs(box) < 0.05), "the box stands on the ground"


@pytest.mark.slow
def test_a_leg_of_five_bars_moves_and_differentiates():
    """brax#392: chains that close could not be said at all. Two motors at the hip, a foot where both shanks meet."""
    upper, lower, hip = 0.2, 0.3, 0.1

    def bar(length):
        return {"mass": length, "com": (0, 0, -length / 2), "inertia": (length**3 / 12, length**3 / 12, 1e-4)}

    def turn(parent, child, at, **keys):
        return {"type": "hinge", "parent": parent, "child": child, "at": at, "axis": (0, 1, 0), **keys}

    rub = {"friction": {"coulomb": 0.02, "viscous": 0.01}}
    system, params = mechanism(
        0.005,
        DOWN,
        bodies={"thigh_1": bar(upper), "shank_1": bar(lower), "thigh_2": bar(upper), "shank_2": bar(lower)},
        joints={
            "hip_1": turn("world", "thigh_1", (-hip / 2, 0, 0), **rub),
            "hip_2": turn("world", "thigh_2", (hip / 2, 0, 0), **rub),
            "knee_1": turn("thigh_1", "shank_1", (0, 0, -upper)),
            "knee_2": turn("thigh_2", "shank_2", (0, 0, -upper)),
            "foot": turn("shank_1", "shank_2", (0, 0, -lower), child_at=(0, 0, -lower)),
        },
        motors={f"drive_{i}": {"type": "torque", "joint": f"hip_{i}"} for i in (1, 2)},
    )
    mass = locate(system, "bodies.shank_1.mass")
    steps = 60

    def foot(x):
        """Path of both shanks' ends: x holds two torques, the hips' angles at the start and a mass."""
        changed = mass.set(params, x[4])
        start = {"hip_1": x[2], "hip_2": x[3]}
        state = state_from_joints(system, changed, start)
        controls = jnp.broadcast_to(x[:2], (steps, 2))
        trajectory = rollout(system, changed, state, controls, throw=False)
        return trajectory.r[:, 1::2] - lower / 2 * rotation.matrix(trajectory.e[:, 1::2])[..., 2]

    x = [0.5, -0.3, 0.6, -0.6, lower]
    ends = np.asarray(compiled(foot)(jnp.asarray(x)))
    assert np.abs(ends[:, 0] - ends[:, 1]).max() < 1e-3, "the loop stays closed"
    assert np.abs(ends[-1, 0] - ends[0, 0]).max() > 0.01
    slope = derivative(lambda x: foot(x)[-1, 0, jnp.array([0, 2])], x)
    assert np.all(np.abs(slope).max(axis=0) > 1e-3)
