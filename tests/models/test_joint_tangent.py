"""Derivatives along the joints beside those in all directions of all bodies: one problem, two roads to its numbers."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spookax as sx
from spookax.estimation.batch import one_recording
from spookax.estimation.batch.one_recording import Plan, filtered, first_spread, first_state, follow, linearised
from spookax.estimation.linearise import Linearised
from spookax.models import Free, Multibody, ParameterMap, ProcessNoise, joint_tangent
from spookax.protocol import FreeDirections, Noise, Samples
from spookax.scene import Scene

pytestmark = pytest.mark.quick
STEPS = 64


class InAllDirections(Multibody):
    def offers(self, capability):
        return None if capability is FreeDirections else super().offers(capability)


def body(**more):
    return {"mass": 1.0, "com": [0.02, 0.05, -0.1], "inertia": [0.02, 0.03, 0.015], **more}


def hinge(child, parent="world", at=(0, 0.1, -0.3), axis=(0, 1, 0), **more):
    return {"type": "hinge", "parent": parent, "child": child, "at": list(at), "axis": list(axis), **more}


SLIDE_ON_ARM = {
    "a": hinge("arm", axis=(0.1, 1, 0.2), friction={"coulomb": 0.3, "viscous": 0.05}),
    "b": {"type": "prismatic", "parent": "arm", "child": "slide", "at": [0, 0.1, -0.2], "axis": [1, 0.3, 0]},
}
MECHANISMS = {  # joints, start, and the free axes among all
    "slide on an arm, universal, ball": (
        SLIDE_ON_ARM
        | {
            "c": {"type": "universal", "parent": "slide", "child": "cross", "axis": [0, 0, 1], "x_axis": [1, 0, 0]},
            "d": {"type": "ball", "parent": "cross", "child": "bob", "at": [0.2, 0.1, 0]},
        },
        {"a": {"position": 0.5, "rate": 2.0}, "b": {"position": 0.1, "rate": 1.0}, "c.second": {"rate": -2.0}},
        7,
    ),
    "table, spinning rod": (
        {
            "plane": {"type": "planar", "child": "table", "axis": [0, 0, 1]},
            "rod": {"type": "cylindrical", "parent": "table", "child": "rod", "axis": [1, 0.2, 0]},
        },
        {"plane.turn": {"rate": 3.0}, "plane.x": {"rate": 1.0}, "rod.turn": {"rate": -2.0}, "rod.slide": {"rate": 0.5}},
        5,
    ),
    "four hinges": (
        {
            "j0": hinge("l0"),
            "j1": hinge("l1", "l0", axis=(1, 0, 0)),
            "j2": hinge("l2", "l1", axis=(0, 0.3, 1), friction={"elements": [{"stiffness": 2.0, "reach": 0.02}]}),
            "j3": hinge("l3", "l2", axis=(1, 1, 0)),
        },
        {"j0": {"rate": 2.0}, "j1": {"position": 0.4, "rate": -2.0}, "j3": {"rate": 3.0}},
        4,
    ),
}


*OTHERS, NAME = MECHANISMS


def built(joints, h):
    bodies = {joint["child"]: body() for joint in joints.values()}
    first, last = next(iter(joints.values()))["child"], list(joints.values())[-1]["child"]
    sensors = {
        "end": {"type": "point_position", "body": last, "at": [0.1, 0, 0.1], "sd": 1e-3},
        "near": {"type": "point_position", "body": first, "at": [0.1, 0.2, 0.1], "sd": 1e-3},
    }
    scene = {"spookax": 1, "step": h, "bodies": bodies, "joints": joints, "sensors": sensors}
    return sx.build(Scene.model_validate(scene))


def begun(kind, system, params, start):
    """Model, parameters, and the state at which the joints stand as they should."""
    keys = {"mass": 1.0, "com.x": 0.02, "com.z": -0.1}
    free = tuple(Free(f"bodies.{b}.{key}", a, transform="identity") for b in system.bodies for key, a in keys.items())
    shared, none = ParameterMap(system, free), ParameterMap(system, ())
    model = kind(system, params, shared, none, ProcessNoise("joints", 1e-3), tuple(range(len(system.sensors))))
    x0 = model.body_state(sx.state_from_joints(system, params, start), params.com)
    return model, shared.start(), x0


def problem(kind, system, params, start):
    """Model, parameters, noise, a trajectory that noise drives, and readings of it."""
    model, z, x0 = begun(kind, system, params, start)
    noise, rng = Noise(np.ones(()), np.full(model.num_channels, 1e-3)), np.random.default_rng(0)
    x = jax.tree.map(lambda a: np.broadcast_to(np.asarray(a), (STEPS, *a.shape)), x0)
    gains = [np.zeros((STEPS, model.noise_size, model.tangent_size))]
    plan = Plan(x, rng.normal(size=(STEPS, model.noise_size)), gains)
    path = follow(model, z, noise, plan, np.zeros((STEPS, 0)), np.asarray(model.first_guess()))
    count = model.num_channels
    seen = jax.jit(jax.vmap(lambda x, x1: model.observe(x, x1, model.prepare(jnp.asarray(z)), jnp.ones(()))))
    y = np.asarray(seen(*(jax.tree.map(lambda a, cut=cut: a[cut], path.x) for cut in (slice(-1), slice(1, None)))))
    y = (y + 1e-3 * rng.normal(size=y.shape))[:, None]
    samples = Samples(np.zeros((STEPS, 0)), y, np.ones((STEPS, 1)), np.ones((STEPS, 1, count)))
    return model, z, noise, path, samples


def solved(kind, h, joints, start):
    """The reduced problem of all parameters, and the size of its states."""
    model, z, noise, path, samples = problem(kind, *built(joints, h), start)
    lin = linearised(model, z, noise, path, samples, 1.0)
    first = jax.tree.map(lambda a: np.asarray(a)[0], path.x)
    P0, Y0 = map(np.asarray, first_state(model, z, first, np.asarray(0.3))[1:])
    if (free := lin[0].directions) is not None:
        read = np.asarray(free.read)[0]
        P0, Y0 = read @ P0 @ read.T, read @ Y0
    return filtered(lin, path.w, Y0, P0)[1], lin[0].A.shape[1]


@functools.cache
def pair(name, h):
    joints, start, _ = MECHANISMS[name]
    return [solved(kind, h, joints, start) for kind in (Multibody, InAllDirections)]


def apart(name, h):
    """How far information and slope along the joints are from those in all directions, in standard deviations."""
    ((N, g, _), _), ((N_all, g_all, _), _) = pair(name, h)
    sd = np.sqrt(np.maximum(np.diag(N_all), 1e-6))  # nothing tells the height of the table's centre of mass
    return np.abs(N - N_all) / np.outer(sd, sd), np.abs(g - g_all) / sd


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_the_reduced_problem_is_the_same_along_the_joints(name):
    """What a parameter is known to, and where it should go; what is left out vanishes with the step."""
    ((_, _, q), r), ((_, _, q_all), n) = pair(name, 2e-3)
    count, elements = MECHANISMS[name][2], int(name == "four hinges")
    assert (r, n) == (2 * count + elements, 12 * len(MECHANISMS[name][0]) + elements)
    off, pull = apart(name, 2e-3)
    assert max(off.max(), pull.max()) < 1.5e-2
    masses = np.ix_(*[range(0, len(pull), 3)] * 2)
    assert max(off[masses].max(), pull[::3].max()) < 5e-3
    longer, pulled = apart(name, 4e-3)
    assert max(off.max(), pull.max()) < 0.7 * max(longer.max(), pulled.max())
    np.testing.assert_allclose(q, q_all, rtol=1e-4)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in OTHERS] + [NAME])
def test_directions_and_rows_belong_together_and_a_step_leads_along_them(name):
    """Rows times directions is one; what a step makes of a direction is one again, but for second order in the step."""
    joints, start, _ = MECHANISMS[name]
    off = []
    for h in (4e-3, 2e-3):
        model, z, noise, path, samples = problem(InAllDirections, *built(joints, h), start)
        lin = linearised(model, z, noise, path, samples)[0]
        along, read = map(np.asarray, one_recording._directions(along_joints(model), z, path.x))
        np.testing.assert_allclose(
            read @ along, np.broadcast_to(np.eye(read.shape[1]), (STEPS + 1, *[read.shape[1]] * 2)), rtol=0, atol=1e-4
        )
        moved = np.asarray(lin.A) @ along[:-1]
        rest = moved - along[1:] @ (read[1:] @ moved)
        half = round(0.1 / h)  # the same time on both
        off.append(np.abs(rest[half]).max() / np.abs(moved[half]).max())
    assert off[0] < 2e-3
    assert off[1] < 0.35 * off[0]


def only_directions(model, z, x0):
    """Of a linearisation what the spread of the first state asks for."""
    x = jax.tree.map(lambda a: np.asarray(a)[None], x0)
    return Linearised(*[np.zeros(0)] * 7, one_recording._directions(model, z, x))


def along_joints(model):
    return Multibody(model.system, model.params, model.shared, model.own, model.noise, model.sensors)


def test_first_states_are_spanned():
    """P_0 of all bodies is P_0 along the joints, but for what velocities along chords are not those along tangents."""
    joints, start, _ = MECHANISMS["four hinges"]
    model, z, x0 = begun(Multibody, *built(joints, 1e-3), start)
    lin = only_directions(model, z, x0)
    small, _ = first_spread(model, z, x0, 0.3, lin)
    _, whole, _ = first_state(model, z, x0, np.asarray(0.3))
    assert lin.directions is not None
    along = np.asarray(lin.directions.along)[0]
    np.testing.assert_allclose(along @ small @ along.T, whole, rtol=0, atol=5e-3 * np.abs(whole).max())


def test_a_tree_starts_anywhere_along_its_joints():
    """Positions by sd and rates by ten times as much, whatever the parameters are; loops are closed first."""
    joints, start, count = MECHANISMS["table, spinning rod"]
    model, z, x0 = begun(Multibody, *built(joints, 2e-3), start)
    P0, Y0 = first_spread(model, z, x0, 0.3, only_directions(model, z, x0))
    np.testing.assert_array_equal(P0, np.diag(np.repeat([0.3, 3.0], count) ** 2))
    assert Y0.shape == (2 * count, len(z))
    assert not Y0.any()


def offers(joints, unknown=(), noise="joints"):
    bodies = {joint["child"]: body() for joint in joints.values()}
    scene = {"spookax": 1, "bodies": bodies, "joints": joints}
    system, params = sx.build(Scene.model_validate(scene))
    shared = ParameterMap(system, tuple(Free(path, start, transform="identity") for path, start in unknown))
    model = Multibody(system, params, shared, ParameterMap(system, ()), ProcessNoise(noise, 1.0), ())
    return model.offers(FreeDirections) is not None


def test_where_states_leave_the_joints_all_directions_count():
    one = {"a": hinge("arm")}
    assert offers(one)
    assert offers(one, [("bodies.arm.com.x", 0.0), ("joints.a.friction.viscous", 0.1)])
    assert not offers(one, [("joints.a.at.x", 0.0)]), "the joint moves with an unknown"
    assert not offers(one, noise="bodies"), "noise on bodies acts on what joints hold"
    assert not offers({"a": hinge("arm", relative_compliance=1e-2)}), "the joint gives way"
    assert not offers({"a": {"type": "inline", "child": "arm"}}), "it turns without coordinates"
    assert not offers({"a": hinge("arm"), "b": {"type": "line", "parent": "arm", "child": "bob"}})
    free = {"bodies": {"arm": body(), "base": body()}, "joints": {"a": hinge("arm", "base")}}
    assert not joint_tangent.free_axes(sx.build(Scene.model_validate({"spookax": 1, **free}))[0])


def test_what_closes_a_loop_has_no_directions_of_its_own():
    system, params = sx.build(sx.read_scene(Path(__file__).parents[2] / "scenes" / "four_bar.yaml"))
    none = ParameterMap(system, ())
    model = Multibody(system, params, none, none, ProcessNoise("joints", 1.0), ())
    assert model.free_sd(1.0) is None, "its first state has to close the loop"
    assert len(system.axes) > len(joint_tangent.free_axes(system)) == system.num_bodies
