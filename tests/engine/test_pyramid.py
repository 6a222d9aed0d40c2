"""Contacts with a pyramid of friction, by Lemke's method: equation (2.24), and where it is Coulomb's law."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import compiled, missing, pushed
from engine.test_contacts import AT_REST, BALL, BOX, FLOOR, MU, ball, box, run, scene

from spookax._results import STEP_RESULTS
from spookax.constraints import friction_pyramid, prepare
from spookax.scene import Scene, SceneError
from spookax.stepping import rollout, state_from_joints, step
from spookax.system import build


def on_floor(**contacts):
    return scene({"b": BOX}, {"floor": FLOOR, "b": box("b")}, **contacts)


def test_impulses_across_are_those_of_the_pyramid_nearest_to_what_would_hold(rng):
    """Seen from what is nearest, no corner of the pyramid lies on the side of what would hold; and the slope is the
    derivative."""
    y, mu = rng.normal(size=(400, 3)), rng.uniform(0.1, 1.5, size=400)
    lam, slope = compiled(friction_pyramid.answer)(y, mu)
    lam = np.asarray(lam)
    np.testing.assert_array_equal(lam[:, 0], np.maximum(y[:, 0], 0.0))
    most = mu * lam[:, 0]
    assert np.all(np.sum(np.abs(lam[:, 1:]), axis=1) <= most * (1 + 1e-14))
    for corner in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        toward = most[:, None] * np.array(corner) - lam[:, 1:]
        assert np.all(np.sum((y[:, 1:] - lam[:, 1:]) * toward, axis=1) <= 1e-14)

    def alone(y, mu):
        return friction_pyramid.answer(y[None], mu[None])[0][0]

    by_differentiation = compiled(jax.vmap(jax.jacfwd(alone)))(y, mu)
    np.testing.assert_allclose(slope, by_differentiation, atol=1e-14)


@pytest.mark.parametrize("part", [0.99, 1.01, 1.3])
def test_along_an_axis_a_box_on_a_slope_sticks_and_slides_as_coulomb_says(part):
    found, acceleration = slide(part, 0.0)
    if part < 1:
        assert np.linalg.norm(found.v[-1, 0]) < 1e-4
    else:
        np.testing.assert_allclose(found.v[-1, 0], [acceleration, 0.0, 0.0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("turned", [0.2, 0.6])
def test_askew_a_box_slides_as_a_pyramid_has_it(turned):
    """What pulls most along one axis has all of friction along it; or slips along both alike, with half of it each."""
    found, _ = slide(1.3, turned)
    angle = np.arctan(1.3 * MU)
    along, across = 9.81 * np.sin(angle) * np.array([np.cos(turned), np.sin(turned)])
    expected = np.array([along - 9.81 * MU * np.cos(angle), across])
    if expected[0] < expected[1]:
        expected = np.full(2, np.mean(expected))
    np.testing.assert_allclose(found.v[-1, 0, :2], expected, rtol=1e-5)


def slide(part, turned):
    """A box for a second on a slope of so many times its friction, and Coulomb's acceleration."""
    angle = np.arctan(MU * part)
    gravity = 9.81 * np.array([np.sin(angle) * np.cos(turned), np.sin(angle) * np.sin(turned), -np.cos(angle)])
    found = run(on_floor(friction="pyramid", gravity=tuple(gravity)), AT_REST, 200)
    assert found.failed_step == -1
    return found, 9.81 * (np.sin(angle) - MU * np.cos(angle))


TUMBLING = {"position": [0.0, 0.0, 0.25], "rotation": [0.5, 0.3, 0.2], "velocity": [0.6, 0.2, -1.0]}


def test_without_friction_lemke_finds_what_newton_finds():
    """A box that falls on its corners and bounces: its contacts and its impacts."""
    material = {"friction": 0.0, "restitution": 0.4}
    of = [on_floor(material=material, **law) for law in ({}, {"friction": "pyramid"})]
    by_newton, by_lemke = (run(one, {"b": TUMBLING}, 100) for one in of)
    assert by_newton.failed_step == by_lemke.failed_step == -1
    assert np.max(by_newton.contact_forces[:, :, 2]) > 1
    np.testing.assert_allclose(by_lemke.r, by_newton.r, atol=1e-9)
    np.testing.assert_allclose(by_lemke.w, by_newton.w, atol=1e-6)


ROD = {"mass": 1.0, "com": [0, 0, -0.25], "inertia": {"xx": 0.02, "yy": 0.02, "zz": 0.001}}


def dragged(law, compliance):
    """A slider with dry friction, and on a hinge of it a rod with a ball at its end that falls on the floor and drags;
    in the plane of an axis of the pyramid."""
    joints = {
        "rail": {"type": "prismatic", "child": "car", "axis": [1, 0, 0], "friction": {"coulomb": 0.5}},
        "pin": {"type": "hinge", "parent": "car", "child": "rod", "axis": [0, 1, 0]},
    }
    tip = {"type": "sphere", "body": "rod", "at": [0, 0, -0.5], "radius": 0.05}
    contacts = {"surfaces": {"floor": {"type": "plane", "at": [0, 0, -0.4]}, "tip": tip}, **law}
    contacts |= {"materials": {"default": {"friction": MU}}, "relative_compliance": compliance}
    of = Scene(spookax=1, step=0.005, bodies={"car": BOX, "rod": ROD}, joints=joints, contacts=contacts)
    system, params = build(of)
    state = state_from_joints(system, params, {"rail": {"rate": 1.5}, "pin": {"position": 1.0}})
    found = jax.tree.map(np.asarray, rollout(system, params, state, jnp.zeros((120, 0))))
    assert found.failed_step == -1
    return found


def test_in_the_plane_of_an_axis_both_laws_are_coulombs_beside_joints_and_their_friction():
    """What is between them is the overlap of what slides, which the cone counts otherwise: in proportion to the
    compliance."""
    apart = []
    for compliance in (1e-3, 1e-4):
        by_lemke = dragged({"friction": "pyramid"}, compliance)
        by_newton = dragged({"passes": "settled"}, compliance)
        apart.append(np.max(np.abs(by_lemke.r - by_newton.r)))
    force = by_lemke.contact_forces[:, 0]
    drags = (force[:, 2] > 1) & (np.abs(np.abs(force[:, 0]) - MU * force[:, 2]) < 1e-6 * force[:, 2])
    assert np.sum(drags) > 20
    assert np.max(np.abs(force[:, 1])) < 1e-9
    assert apart[0] < 1e-4
    assert apart[1] < 0.2 * apart[0]


@pytest.mark.parametrize("restitution", [0.0, 0.5])
def test_boxes_that_meet_anyhow_are_solved_and_gain_no_energy(restitution, rng):
    """Two without weight, turning, with friction."""
    material = {"friction": 0.8, "restitution": restitution}
    surfaces = {"a": box("a"), "b": box("b")}
    of = scene({"a": BOX, "b": BOX}, surfaces, material, (0.0, 0.0, 0.0), friction="pyramid")
    system, params = build(of)
    prepared = prepare(system, params)
    for _ in range(4):
        near = {"rotation": rng.normal(size=3), "angular_velocity": 3 * rng.normal(size=3)}
        far = {"rotation": rng.normal(size=3), "position": [0.02, 0.0, 0.35], "velocity": [0.3, 0.2, -2.0]}
        state = state_from_joints(system, params, bodies={"a": near, "b": far})
        v, w, code = map(np.asarray, _velocities(system, prepared, state))
        assert not np.any(code)
        energy = 0.5 * np.sum(v**2 + 0.0067 * w**2, axis=(1, 2))
        assert energy[-1] < 0.99 * energy[0]
        assert np.all(np.diff(energy) <= 1e-9 * energy[0])
        np.testing.assert_allclose(np.sum(v, axis=1), np.broadcast_to(np.sum(v[0], axis=0), (60, 3)), atol=1e-9)


@functools.partial(compiled, static_argnums=0)
def _velocities(system, prepared, state):
    """Those of sixty steps, and how the steps ended."""

    def once(state, _):
        after, info = step(system, prepared, state, jnp.zeros(0))
        return after, (after.v, after.w, *jax.tree.leaves(info.result))

    return jax.lax.scan(once, state, length=60)[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        {"position": [0.0, 0.0, 0.0999], "velocity": [1.0, 0.3, 0.0]},
        {"position": [0, 0, 0.139], "rotation": [0.805, 0.1, 0], "velocity": [1.0, 0.3, -1.0]},
    ],
    ids=["sliding", "landing"],
)
def test_derivatives_are_those_of_differences(start):
    """Velocity, friction and mass, forward and in reverse, over three steps."""
    system, params = build(on_floor(friction="pyramid"))
    state = state_from_joints(system, params, bodies={"b": start})

    def after(x, state):
        moved = state.r + x[None, :3], state.v + x[None, 3:6], state.w + x[None, 6:9]
        turned = eqx.tree_at(lambda s: (s.r, s.v, s.w), state, moved)
        p = eqx.tree_at(lambda p: (p.material_friction, p.mass), params, (MU + x[9:10], 1.0 + x[10:11]))
        turned = pushed(system, prepare(system, p), turned, 3)
        return jnp.concatenate([turned.r[0], turned.v[0], turned.w[0]])

    zero = jnp.zeros(11)
    value, forward, reverse = (compiled(f) for f in (after, jax.jacfwd(after), jax.jacrev(after)))
    eps = 1e-6
    sides = [value(zero.at[i].set(eps), state) - value(zero.at[i].set(-eps), state) for i in range(11)]
    differences = np.stack(sides, axis=1) / (2 * eps)
    scale = np.maximum(1.0, np.max(np.abs(differences), axis=0))
    by_forward = forward(zero, state)
    assert np.max(np.abs(by_forward - differences) / scale) < 1e-6
    np.testing.assert_allclose(reverse(zero, state), by_forward, atol=1e-8)


def test_inverse_dynamics_of_a_step_is_zero():
    system, params = build(on_floor(friction="pyramid"))
    state = state_from_joints(system, params, bodies={"b": {"position": [0, 0, 0.0999], "velocity": [1, 0.3, 0]}})
    np.testing.assert_allclose(missing(system, params, state), 0.0, atol=1e-9)


def test_a_problem_that_lemke_cannot_solve_has_its_status():
    system, params = build(on_floor(friction="pyramid"))
    params = eqx.tree_at(lambda p: p.material_friction, params, jnp.array([jnp.nan]))
    state = state_from_joints(system, params, bodies=AT_REST)
    found = rollout(system, params, state, jnp.zeros((65, 0)), throw=False)  # the program of `slide`
    assert found.failed_step == 0
    assert found.result == STEP_RESULTS.nonfinite_input


HEAP = {f"b{i}": BOX for i in range(3)}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"passes": 5}, "passes: means nothing beside"),
        ({"slots": 3}, "slots: means nothing beside"),
        ({"materials": {"default": {"rolling_friction": 0.01}}}, "rolling_friction: a pyramid"),
    ],
)
def test_what_a_pyramid_has_not_is_refused(change, said):
    contacts = {"surfaces": {"floor": FLOOR, "b": ball("b")}, "friction": "pyramid", **change}
    with pytest.raises(ValueError, match=said):
        Scene(spookax=1, bodies={"b": BALL}, contacts=contacts)


def test_many_contacts_are_refused():
    surfaces = {"floor": FLOOR, **{name: box(name) for name in HEAP}}
    with pytest.raises(SceneError, match=r"contacts.friction.*touch at 51 places; Lemke's method is for 32"):
        build(scene(HEAP, surfaces, friction="pyramid"))


def test_a_disc_beside_a_pyramid_is_refused():
    rough = {"friction": {"coulomb": 1.0}}
    joint = {"type": "planar", "child": "b", "axis": [0, 0, 1], "axes": {"x": rough, "y": rough}}
    surfaces = {"wall": {"type": "plane", "rotation": [0, 1.57, 0]}, "b": ball("b")}
    contacts = {"surfaces": surfaces, "friction": "pyramid", "pairs": [("wall", "b")]}
    with pytest.raises(SceneError, match=r"contacts.friction.*is a disc"):
        build(Scene(spookax=1, bodies={"b": BALL}, joints={"p": joint}, contacts=contacts))
