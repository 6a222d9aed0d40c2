"""Generic joints against those with a name, and what acts on ball joints."""

import numpy as np
import pytest
from engine.mechanisms import DOWN, compiled, mechanism, place, simulate

from spookax.math import rotation
from spookax.system import locate

ALONG = {"friction": {"viscous": 0.2, "coulomb": 0.1}, "spring": {"stiffness": 6.0, "rest": 0.2}, "armature": 0.02}
U, N = (0.6, 0.8, 0.0), (0.0, 0.0, 1.0)
ACROSS = (-0.8, 0.6, 0.0)  # N x U
# joint with a name, its keys; locked coordinates of the generic joint; names of the axes; its `axis` and `x_axis`
NAMED = {
    "hinge": ({}, "x y z rx ry", {"": "rz"}, N, U),
    "prismatic": ({}, "x y rx ry rz", {"": "z"}, N, U),
    "cylindrical": ({}, "x y rx ry", {"slide": "z", "turn": "rz"}, N, U),
    "planar": ({"x_axis": U}, "z rx ry", {"x": "x", "y": "y", "turn": "rz"}, N, U),
    "universal": ({"x_axis": U}, "x y z rz", {"first": "rx", "second": "ry"}, ACROSS, N),
    "fixed": ({}, "x y z rx ry rz", {}, N, U),
    "ball": ({}, "x y z", {}, N, U),
    "inline": ({}, "x y", {"": "z"}, N, U),
}


def test_a_generic_joint_moves_as_the_one_with_a_name():
    """Side by side under gravity, with friction, a spring and a rotor along the axes of both."""
    bodies, joints, starts = {}, {}, {}
    body = {"mass": 1.3, "com": (0.1, 0.05, -0.2), "inertia": (0.02, 0.03, 0.04)}
    for name, (keys, locked, axes, n, u) in NAMED.items():
        at = {"at": (0.1, 0.2, 0.3), "child_at": (0.02, 0.0, 0.1), "rotation": (0.3, -0.2, 0.4)}
        bodies |= {f"{name}_named": body, f"{name}_generic": body}
        own = ALONG if "" in axes else {}
        own = own | ({"axes": {axis: ALONG for axis in axes if axis}} if any(axes) else {})
        own |= {"axis": N} if name not in ("ball", "fixed") else {}
        joints[name] = {"type": name, "child": f"{name}_named", **at, **keys, **own}
        generic = {"type": "generic", "child": f"{name}_generic", **at, "axis": n, "x_axis": u}
        joints[f"{name}2"] = generic | {"locked": locked.split(), "axes": dict.fromkeys(axes.values(), ALONG)}
        for k, (mine, theirs) in enumerate(axes.items()):
            start = {"position": 0.3 - 0.1 * k, "rate": 1.0 + k}
            starts |= {f"{name}.{mine}".strip("."): start, f"{name}2.{theirs}": start}
    system, params = mechanism(0.005, DOWN, bodies=bodies, joints=joints)
    trajectory = simulate(system, params, place(system, params, starts))
    for i, name in enumerate(NAMED):
        named, generic = trajectory.r[:, 2 * i], trajectory.r[:, 2 * i + 1]
        # a direction that is held in another frame is held with another rounding, which a swing over the top magnifies
        np.testing.assert_allclose(generic, named, rtol=0, atol=1e-6, err_msg=name)
        for mine, theirs in NAMED[name][2].items():
            path = f"{name}.{mine}".strip(".")
            for a, b in zip(trajectory.joint(f"{name}2.{theirs}"), trajectory.joint(path), strict=True):
                np.testing.assert_allclose(a[:-1], b[:-1], rtol=0, atol=1e-5, err_msg=path)


J = 0.2


def ball(**friction):
    return mechanism(
        0.002,
        (0, 0, 0),
        bodies={"head": {"mass": 1.0, "inertia": (J, J, J)}},
        joints={"neck": {"type": "ball", "child": "head", "friction": friction}},
    )


def test_viscous_friction_of_a_ball_is_the_same_in_every_direction():
    """A spherical body slows down as exp(-c t / J) about any axis and wherever it has turned to."""
    system, params = ball(viscous=0.3)
    w = np.array([2.0, -3.0, 1.0])
    trajectory = simulate(system, params, place(system, params, {"neck": {"position": (0.5, 1.0, -2.0), "rate": w}}))
    t = trajectory.time[1:-1]
    expected = w * np.exp(-0.3 / J * t)[:, None]
    np.testing.assert_allclose(trajectory.rate[1:-1], expected, rtol=0, atol=2e-5)


def test_dry_friction_of_a_ball_brakes_and_holds():
    """About one axis at f / J until it stands; there it stays."""
    system, params = ball(coulomb=0.1)
    trajectory = simulate(system, params, place(system, params, {"neck.rz": {"position": 0.4, "rate": 1.0}}))
    t, rate = trajectory.time, trajectory.joint("neck.rz")[1]
    moving = t < 1.9
    np.testing.assert_allclose(rate[moving][1:], 1.0 - 0.1 / J * t[moving][1:], rtol=0, atol=1e-9)
    assert np.abs(trajectory.rate[t > 2.1]).max() < 1e-6


def test_a_spring_on_a_ball_keeps_its_energy():
    """k |theta|^2 / 2 and the kinetic energy of a body that tumbles to and fro, through large angles."""
    k, inertia = 4.0, np.array([0.1, 0.2, 0.25])
    system, params = mechanism(
        0.002,
        (0, 0, 0),
        bodies={"head": {"mass": 1.0, "inertia": tuple(inertia.tolist())}},
        joints={"neck": {"type": "ball", "child": "head", "spring": {"stiffness": k}}},
    )
    trajectory = simulate(system, params, place(system, params, {"neck": {"rate": (5.0, -4.0, 6.0)}}))
    kinetic = 0.5 * np.sum(inertia * trajectory.rate**2, axis=1)
    energy = (kinetic + 0.5 * k * np.sum(trajectory.position**2, axis=1))[1:-1]
    assert np.linalg.norm(trajectory.position, axis=1).max() > 1.2
    assert np.ptp(energy) < 1e-3 * energy[0]


def test_the_friction_of_a_ball_is_one_number():
    system, params = ball(viscous=0.3, coulomb=0.1)
    viscous = locate(system, "joints.neck.friction.viscous")
    changed = viscous.set(params, 0.5)
    assert float(viscous.get(changed)) == 0.5
    np.testing.assert_array_equal(changed.viscous, 0.5)
    np.testing.assert_array_equal(changed.coulomb, 0.1)


def test_a_ball_starts_as_a_whole_or_by_its_directions():
    system, params = ball()
    whole = place(system, params, {"neck": {"position": (0.3, -0.2, 0.5), "rate": (1.0, 2.0, 3.0)}})
    parts = {
        f"neck.r{c}": {"position": p, "rate": w} for c, p, w in zip("xyz", (0.3, -0.2, 0.5), (1, 2, 3), strict=True)
    }
    by_parts = place(system, params, parts)
    np.testing.assert_allclose(by_parts.e, whole.e, rtol=0, atol=1e-15)
    np.testing.assert_allclose(by_parts.w, whole.w, rtol=0, atol=1e-15)
    assert compiled(rotation.log)(whole.e[0]) == pytest.approx((0.3, -0.2, 0.5), abs=1e-12)
