"""Contacts: friction on slopes, rolling, stacks, impacts, derivatives, and what is refused."""

import functools
import itertools
import os
import subprocess
import sys
import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import compiled, missing, pushed

from spookax import load
from spookax.constraints import prepare
from spookax.scene import Scene, SceneError
from spookax.stepping import rollout, state_from_joints, step
from spookax.system import build

BOX = {"mass": 1.0, "inertia": {"xx": 0.0067, "yy": 0.0067, "zz": 0.0067}}
BALL = {"mass": 1.0, "inertia": {"xx": 0.004, "yy": 0.004, "zz": 0.004}}
FLOOR = {"type": "plane"}
MU = 0.5


def scene(bodies, surfaces, material=None, gravity=(0.0, 0.0, -9.81), step=0.005, **contacts):
    materials = {"default": {"friction": MU, **(material or {})}}
    contacts = {"surfaces": surfaces, "materials": materials, **contacts}
    return Scene(spookax=1, step=step, gravity=gravity, bodies=bodies, contacts=contacts)


def box(body, size=0.2):
    return {"type": "box", "body": body, "size": [size] * 3}


def ball(body):
    return {"type": "sphere", "body": body, "radius": 0.1}


ON_FLOOR = scene({"b": BOX}, {"floor": FLOOR, "b": box("b")})
ROLLING = scene({"b": BALL}, {"floor": FLOOR, "b": ball("b")}, step=0.002)


def run(of, bodies, steps):
    system, params = build(of)
    found = rollout(system, params, state_from_joints(system, params, bodies=bodies), jnp.zeros((steps, 0)))
    return jax.tree.map(np.asarray, found)


@pytest.mark.parametrize("part", [0.99, 1.01, 1.3])
def test_a_box_on_a_slope_sticks_and_slides_as_coulomb_says(part):
    """Down a slope that is turned against the axes of the world; from below tan = mu on it creeps."""
    angle, turned = np.arctan(MU * part), 0.3
    down = np.array([np.cos(turned), np.sin(turned)])
    gravity = 9.81 * np.array([*(np.sin(angle) * down), -np.cos(angle)])
    found = run(scene({"b": BOX}, {"floor": FLOOR, "b": box("b")}, gravity=tuple(gravity)), AT_REST, 200)
    acceleration = 9.81 * (np.sin(angle) - MU * np.cos(angle))
    if part < 1:
        assert np.linalg.norm(found.v[-1, 0]) < 1e-4
    else:
        np.testing.assert_allclose(found.v[-1, 0, :2], acceleration * down, rtol=5e-3)
    assert abs(found.r[-1, 0, 2] - 0.1) < 1e-4


AT_REST = {"b": {"position": [0.0, 0.0, 0.1]}}


def test_slip_that_settles_is_coulombs_law():
    """A box that slides at 2 m/s neither lifts nor sinks, and is slowed by mu g; with slip of the step before it sinks
    in by what it is slowed in a step."""
    start, heights = {"b": {"position": [0, 0, 0.1 - 2.2e-7], "velocity": [2.0, 0.0, 0.0]}}, {}
    for passes in (1, "settled"):
        found = run(scene({"b": BOX}, {"floor": FLOOR, "b": box("b")}, passes=passes), start, 60)
        heights[passes] = found.r[10:, 0, 2] - 0.1
        v = np.diff(found.r[:, 0, 0]) / 0.005
    np.testing.assert_allclose(np.diff(v)[10:], -MU * 9.81 * 0.005, rtol=1e-6)
    assert np.max(np.abs(heights["settled"])) < 2e-6
    assert np.max(np.abs(heights[1])) > 2e-5


def test_a_ball_slips_until_it_rolls():
    """It rolls after 2 v / (7 mu g), at 5/7 of its speed, and the contact carries its weight."""
    found = run(ROLLING, {"b": {"position": [0.0, 0.0, 0.1], "velocity": [2.0, 0.0, 0.0]}}, 150)
    slip = found.v[:, 0, 0] - 0.1 * found.w[:, 0, 1]
    rolls = found.time[np.argmax(np.abs(slip) < 1e-3)]
    assert abs(rolls - 2 * 2.0 / (7 * MU * 9.81)) <= 2 * 0.002
    np.testing.assert_allclose(found.v[-1, 0, 0], 5 / 7 * 2.0, rtol=1e-6)
    np.testing.assert_allclose(found.contact_forces[-1, 0], [0.0, 0.0, 9.81], atol=1e-3)


def test_a_stack_stands():
    names = ("lower", "middle", "upper")
    of = scene(dict.fromkeys(names, BOX), {"floor": FLOOR, **{n: box(n) for n in names}})
    start = {
        n: {"position": [0.01 * i, 0.0, 0.1 + 0.2 * i], "rotation": [0.0, 0.0, 0.2 * i]} for i, n in enumerate(names)
    }
    found = run(of, start, 300)
    moved = found.r[-1] - found.r[0]
    assert np.max(np.abs(moved)) < 1e-3
    # the floor carries all three
    np.testing.assert_allclose(np.sum(found.contact_forces[-1, :24], axis=0), [0, 0, 3 * 9.81], atol=1e-3)


def test_a_ball_bounces_as_high_as_its_restitution_says():
    of = scene({"b": BALL}, {"floor": FLOOR, "b": ball("b")}, {"restitution": 0.8}, step=0.002)
    found = run(of, {"b": {"position": [0.0, 0.0, 1.1]}}, 900)
    z = found.r[:, 0, 2] - 0.1
    tops = z[1:-1][(z[1:-1] > z[:-2]) & (z[1:-1] >= z[2:])]
    np.testing.assert_allclose(tops[:2], [0.64, 0.64**2], rtol=1e-3)


@pytest.mark.slow
def test_a_bounce_has_the_derivatives_of_its_time():
    """Height after the impact, by where it fell from, restitution and height of the floor: with saltation."""
    h, steps = 0.002, 400
    of = scene({"b": BALL}, {"floor": FLOOR, "b": ball("b")}, {"restitution": 0.8}, step=h)
    system, params = build(of)
    rest = state_from_joints(system, params, bodies={"b": {"position": [0.0, 0.0, 1.1]}})

    @jax.jit
    @jax.value_and_grad
    def height(x):
        start = eqx.tree_at(lambda s: s.r, rest, rest.r.at[0, 2].set(x[0]))
        values = jnp.full_like(params.material_restitution, x[1]), params.surface_at.at[0, 2].set(x[2])
        p = eqx.tree_at(lambda p: (p.material_restitution, p.surface_at), params, values)
        return rollout(system, p, start, jnp.zeros((steps, 0))).r[-1, 0, 2]

    def exact(x):
        falls = jnp.sqrt(2 * (x[0] - 0.1 - x[2]) / 9.81)
        left = steps * h - falls
        return 0.1 + x[2] + x[1] * 9.81 * falls * left - 9.81 * left**2 / 2

    # the path within a step is straight: its time is off by g h^2 / (8 v), and that changes by 2 (1 + e) g h / v
    x, speed = jnp.array([1.1, 0.8, 0.0]), np.sqrt(2 * 9.81)
    value, slope = height(x)
    np.testing.assert_allclose(value, exact(x), atol=9.81 * h**2)
    np.testing.assert_allclose(slope, jax.grad(exact)(x), atol=2 * 1.8 * 9.81 * h / speed)


def test_a_shock_runs_through_a_row_of_balls():
    names = "abcde"
    of = scene(
        dict.fromkeys(names, BALL),
        {n: ball(n) for n in names},
        {"friction": 0.0, "restitution": 1.0},
        gravity=(0.0, 0.0, 0.0),
        pairs=[*itertools.pairwise(names)],
    )
    start = {n: {"position": [0.2 * i, 0.0, 0.0]} for i, n in enumerate(names)}
    start["a"] = {"position": [-0.012, 0.0, 0.0], "velocity": [1.0, 0.0, 0.0]}
    found = run(of, start, 20)
    np.testing.assert_allclose(found.v[-1, :, 0], [0, 0, 0, 0, 1], atol=2e-3)


def test_two_bodies_that_collide_keep_their_momentum():
    of = scene({"a": BOX, "b": BALL}, {"a": box("a"), "b": ball("b")}, gravity=(0.0, 0.0, 0.0))
    start = {"b": {"position": [0.03, 0.05, 0.25], "velocity": [0.1, 0.0, -1.0], "angular_velocity": [3.0, 0.0, 0.0]}}
    found = run(of, start, 60)
    momentum = np.sum(found.v, axis=1)
    assert np.ptp(found.v[:, 0, 2]) > 0.1  # they did
    np.testing.assert_allclose(momentum, np.broadcast_to(momentum[0], momentum.shape), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("restitution", [0.0, 0.5, 1.0])
def test_no_impact_of_boxes_gains_energy(restitution):
    """Fifty that meet anyhow, turning, with friction: none has more energy after than before. Without restitution no
    step gains any; with it the overlap in which a step finds them is led back, which takes a little and may give it.
    """
    sides = dict.fromkeys("ab", BOX)
    of = scene(sides, {n: box(n) for n in sides}, {"restitution": restitution}, gravity=(0.0, 0.0, 0.0))
    system, params = build(of)
    rng, count = np.random.default_rng(0), 50

    def one(rotation, velocity, spin):
        prepared = prepare(system, params)
        far = {"position": jnp.array([0.0, 0.0, 0.45]), "rotation": rotation[0], "velocity": velocity}
        near = {"rotation": rotation[1], "angular_velocity": spin[1]}
        start = state_from_joints(system, params, bodies={"a": near, "b": {**far, "angular_velocity": spin[0]}})

        def once(state, _):
            after, _ = step(system, prepared, state, jnp.zeros(0))
            return after, (after.v, after.w)

        return jax.lax.scan(once, start, length=60)[1]

    toward = np.array([0.0, 0.0, -1.5]) + 0.2 * rng.normal(size=(count, 3))
    given = rng.normal(size=(count, 2, 3)), toward, rng.normal(size=(count, 2, 3))
    v, w = map(np.asarray, jax.jit(jax.vmap(one))(*map(jnp.asarray, given)))
    energy = 0.5 * np.sum(v**2 + 0.0067 * w**2, axis=(2, 3))
    assert np.all(energy <= (1 + 1e-6) * energy[:, :1])
    if restitution == 0:
        assert np.all(np.diff(energy, axis=1) <= 1e-6 * energy[:, :1])
    assert np.mean(np.ptp(v[:, :, 0, 2], axis=1) > 0.05) > 0.9  # they meet
    momentum = np.sum(v, axis=2)
    np.testing.assert_allclose(momentum, np.broadcast_to(momentum[:, :1], momentum.shape), atol=1e-9)


MOTIONS = {
    "sliding": ("box", {"position": [0.0, 0.0, 0.0999], "velocity": [1.0, 0.3, 0.0]}),
    "rolling": (
        "ball",
        {"position": [0, 0, 0.0999], "velocity": [1.0, 0.3, 0], "angular_velocity": [-3.0, 10.0, 0.2]},
    ),
    "landing": ("box", {"position": [0, 0, 0.139], "rotation": [0.805, 0.1, 0], "velocity": [1.0, 0.3, -1.0]}),
}


@functools.cache
def three_steps(shape):
    """Where a body is after them, from a state and what is added to it, and its derivatives in both modes."""
    system, params = build({"box": ON_FLOOR, "ball": ROLLING}[shape])

    def after(x, state):
        moved = state.r + x[None, :3], state.v + x[None, 3:6], state.w + x[None, 6:9]
        turned = eqx.tree_at(lambda s: (s.r, s.v, s.w), state, moved)
        p = eqx.tree_at(lambda p: (p.material_friction, p.mass), params, (MU + x[9:10], 1.0 + x[10:11]))
        turned = pushed(system, prepare(system, p), turned, 3)
        return jnp.concatenate([turned.r[0], turned.v[0], turned.w[0]])

    return system, params, *(compiled(f) for f in (after, jax.jacfwd(after), jax.jacrev(after)))


@pytest.mark.slow
@pytest.mark.parametrize("name", MOTIONS)
def test_derivatives_are_those_of_differences(name):
    """Pose, velocity, friction and mass, forward and in reverse, over three steps."""
    shape, start = MOTIONS[name]
    system, params, after, by_forward, by_reverse = three_steps(shape)
    state = state_from_joints(system, params, bodies={"b": start})
    zero = jnp.zeros(11)
    forward, reverse = by_forward(zero, state), by_reverse(zero, state)
    eps = 1e-6
    sides = [after(zero.at[i].set(eps), state) - after(zero.at[i].set(-eps), state) for i in range(11)]
    differences = np.stack(sides, axis=1) / (2 * eps)
    scale = np.maximum(1.0, np.max(np.abs(differences), axis=0))
    assert np.max(np.abs(forward - differences) / scale) < 1e-6
    np.testing.assert_allclose(reverse, forward, atol=1e-8)


def test_in_32_bits_a_box_lands_and_bounces_too(tmp_path):
    code = """
        import jax.numpy as jnp
        from spookax import build, rollout, state_from_joints
        from spookax.scene import Scene
        box = {"mass": 1.0, "inertia": {"xx": 0.0067, "yy": 0.0067, "zz": 0.0067}}
        surfaces = {"floor": {"type": "plane"}, "b": {"type": "box", "body": "b", "size": [0.2, 0.2, 0.2]}}
        contacts = {"surfaces": surfaces, "materials": {"default": {"restitution": 0.4}}}
        system, params = build(Scene(spookax=1, bodies={"b": box}, contacts=contacts))
        start = state_from_joints(system, params, bodies={"b": {"position": [0, 0, 0.3], "rotation": [0.5, 0.3, 0.1]}})
        found = rollout(system, params, start, jnp.zeros((400, 0)))
        print(found.r.dtype, abs(float(found.r[-1, 0, 2]) - 0.1) < 1e-4)
    """
    environment = os.environ | {"JAX_ENABLE_X64": "0", "SPOOKAX_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "float32 True\n"


def test_inverse_dynamics_of_a_step_is_zero():
    """With one pass; several leave what the last has changed, see there."""
    system, params = build(scene({"b": BOX}, {"floor": FLOOR, "b": box("b")}, passes=1))
    state = state_from_joints(system, params, bodies={"b": MOTIONS["sliding"][1]})
    assert np.max(np.abs(missing(system, params, state))) < 1e-9


def test_nothing_holds_a_frictionless_ball_sideways():
    """At rest, too, where its slip is zero: a step passes a speed on as it is."""
    start = {**BALL, "initial": {"position": (0, 0, 0.1)}}
    system, params, state = load(scene({"b": start}, {"floor": FLOOR, "b": ball("b")}, {"friction": 0.0}))

    def after(v):
        return step(system, prepare(system, params), eqx.tree_at(lambda s: s.v, state, v[None]), jnp.zeros(0))[0].v[0]

    pushed = compiled(lambda v: jax.jvp(after, (v,), (jnp.array([1.0, 0.5, 0.0]),))[1])(jnp.zeros(3))
    np.testing.assert_allclose(pushed, [1.0, 0.5, 0.0], atol=1e-12)


@pytest.mark.parametrize("change", ["body: cubes", "material: ice", "size: [0.2, 0.2, -0.2]"])
def test_what_does_not_exist_is_named(change, tmp_path):
    key = change.partition(":")[0]
    line = {"body": "body: cube", "material": "material: default", "size": "size: [0.2, 0.2, 0.2]"}
    surface = ", ".join({**line, key: change}.values())
    path = tmp_path / "scene.yaml"
    path.write_text(TEXT.replace("SURFACE", surface))
    with pytest.raises(SceneError, match=f"contacts.surfaces.cube.{key}"):
        load(path)


def test_bodies_that_start_inside_each_other_are_named(tmp_path):
    path = tmp_path / "scene.yaml"
    path.write_text(TEXT.replace("SURFACE", "body: cube, size: [0.2, 0.2, 0.2]"))
    with pytest.raises(SceneError, match=r"contacts.surfaces.cube: starts 0.1 m inside `floor`"):
        load(path)


TEXT = """spookax: 1
bodies:
  cube: {mass: 1, inertia: [0.0067, 0.0067, 0.0067]}
contacts:
  surfaces:
    floor: {type: plane}
    cube: {type: box, SURFACE}
"""
