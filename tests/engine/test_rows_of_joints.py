"""Compliance and relaxation of single rows of a joint."""

import jax.numpy as jnp
import numpy as np
import pytest

import spookax as sx
from spookax.scene import Scene
from spookax.scene.joint_types import KINDS, generic
from spookax.system.params import locate, paths

# one joint per type with what its rows hold, in order, as the table in docs/scene.md tells them
ROWS = {
    "hinge": ("x", "y", "z", "ry", "rx"),
    "prismatic": ("rx", "ry", "rz", "x", "y"),
    "ball": ("x", "y", "z"),
    "fixed": ("x", "y", "z", "rx", "ry", "rz"),
    "cylindrical": ("x", "y", "ry", "rx"),
    "universal": ("x", "y", "z", "ry"),
    "planar": ("z", "ry", "rx"),
    "inline": ("x", "y"),
    "distance": ("length",),
    "line": (),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_called_by_what_they_hold(name):
    assert KINDS[name].rows == ROWS[name]


@pytest.mark.parametrize("free", [(), ("x",), ("rx",), ("ry",), ("rz",), ("rx", "ry"), ("y", "rz", "rx")])
def test_rows_of_a_generic_joint_are_those_it_locks(free):
    """Of two free turns, too: the row that keeps their axes at right angles is called by the third coordinate."""
    locked = [c for c in ("x", "y", "z", "rx", "ry", "rz") if c not in free]
    assert sorted(generic(locked).rows) == sorted(locked)


def hung(**joint) -> Scene:
    """A mass on a fixed joint at the origin, gravity in every direction."""
    body = {"mass": 2.0, "inertia": [0.1, 0.1, 0.1]}
    return Scene.model_validate(
        {
            "spookax": 1,
            "step": 0.01,
            "gravity": [-3.0, -4.0, -5.0],
            "bodies": {"load": body},
            "joints": {"mount": {"type": "fixed", "child": "load", **joint}},
        }
    )


def sag(scene: Scene) -> np.ndarray:
    """Where the load comes to rest [m]."""
    system, params = sx.build(scene)
    state = sx.state_from_joints(system, params, {})
    return np.asarray(sx.rollout(system, params, state, jnp.zeros((400, 0))).r[-1, 0])


def test_a_static_load_opens_each_row_by_its_own_compliance():
    """g = eps F with eps = rho w h^2 (1 + 4 tau/h) / 4, w = 1/m for the points of this joint."""
    found = sag(hung(rows={"x": {"relative_compliance": 1e-3}, "z": {"relaxation_steps": 4.0}}))
    h, m, force = 0.01, 2.0, 2.0 * np.array([-3.0, -4.0, -5.0])
    rho, tau = np.array([1e-3, 1e-6, 1e-6]), np.array([2.0, 2.0, 4.0])
    np.testing.assert_allclose(found, rho / m * h**2 * (1 + 4 * tau) / 4 * force, rtol=1e-6)


def test_rows_go_before_the_joint_and_the_joint_before_the_scene():
    scene = hung(relative_compliance=1e-4, rows={"y": {"relative_compliance": 1e-2}})
    _, params = sx.build(scene)
    np.testing.assert_array_equal(params.relative_compliance, [[1e-4, 1e-2, 1e-4, 1e-4, 1e-4, 1e-4]])
    np.testing.assert_array_equal(params.relaxation, [[2.0] * 6])


def test_every_row_is_a_parameter():
    system, params = sx.build(hung())
    place = locate(system, "joints.mount.rows.rx.relative_compliance")
    changed = place.set(params, jnp.asarray(3e-3))
    assert float(place.get(changed)) == 3e-3
    np.testing.assert_array_equal(changed.relative_compliance[0], [1e-6, 1e-6, 1e-6, 3e-3, 1e-6, 1e-6])
    whole = locate(system, "joints.mount.relative_compliance").set(params, jnp.asarray(1e-5))
    np.testing.assert_array_equal(whole.relative_compliance, np.full((1, 6), 1e-5))
    assert len([path for path in paths(system) if ".rows." in path]) == 6


def test_a_row_that_a_joint_has_not_is_refused():
    with pytest.raises(ValueError, match="fixed joint has no such row"):
        hung(rows={"length": {"relaxation_steps": 1.0}})
