"""What acts along an axis acts along every axis of every type of joint: motor, rotor, spring, viscous and dry friction.

Each joint holds a ball-like body of its own; the axes of a joint are driven in turn, so that closed forms hold.
"""

import numpy as np
import pytest
from engine.mechanisms import FREE, NAMES, PITCH, U, driven, inertia, mechanism, moved, place, rack, simulate, turns


@pytest.mark.parametrize("rotor", [0.0, pytest.param(0.3, marks=pytest.mark.slow)])
def test_a_motor_accelerates_body_and_rotor(rotor):
    """u / (J + J_r) from the first instant on, for a quarter of a second (a screw's slide has a rotor too)."""
    system, params = rack(along={"armature": rotor})
    for names in turns():
        found, trajectory = moved(system, params, names)
        for name, (_, rate) in found.items():
            felt = rotor * (1 + (PITCH / (2 * np.pi)) ** 2) if name == "screw" else rotor
            expected = U / (inertia(system, name) + felt) * trajectory.time
            np.testing.assert_allclose(rate[:50], expected[:50], rtol=1e-4, atol=1e-9, err_msg=name)


def test_viscous_friction_sets_the_speed():
    """u / c in the end, with the time constant T = J / c, to second order in h / T."""
    viscous, steps = 3.0, (0.004, 0.002)
    found = [rack(h, along={"friction": {"viscous": viscous}}) for h in steps]
    for names in turns():
        runs = [moved(system, params, names) for system, params in found]
        for name in names:
            c = viscous * (1 + (PITCH / (2 * np.pi)) ** 2) if name == "screw" else viscous
            T, errors = inertia(found[0][0], name) / c, []
            for of_axis, trajectory in runs:
                time, rate = trajectory.time[1:-1], of_axis[name][1][1:-1]
                errors.append(np.abs(rate - U / c * (1 - np.exp(-time / T)))[time < 4].max())
            assert errors[0] < 0.3 * U / c * (steps[0] / T) ** 2, name
            assert errors[0] / errors[1] == pytest.approx(4, rel=0.15), name


@pytest.mark.slow
def test_a_spring_swings_with_its_period():
    """2 pi sqrt(J / k), lengthened by the warp of the implicit midpoint rule, tan(W / 2) = h omega / 2."""
    h, k = 0.005, 8.0
    system, params = rack(h, along={"spring": {"stiffness": k}})
    for names in turns():
        found, trajectory = moved(system, params, names, driven([]), 0.1)
        for name, (x, _) in found.items():
            stiffness = k * (1 + (PITCH / (2 * np.pi)) ** 2) if name == "screw" else k
            omega = np.sqrt(stiffness / inertia(system, name))
            down = np.flatnonzero((x[:-1] > 0) & (x[1:] <= 0))
            at = trajectory.time[down] + h * x[down] / (x[down] - x[down + 1])
            assert np.mean(np.diff(at)) == pytest.approx(np.pi * h / np.arctan(h * omega / 2), rel=1e-4), name


@pytest.mark.parametrize("load", [0.0, 0.5, 0.99])
def test_dry_friction_holds_up_to_its_level(load):
    """And lets no axis creep faster than v_creep, whichever is driven."""
    system, params = rack(along={"friction": {"coulomb": U}})
    for names in turns():
        _, trajectory = moved(system, params, names, driven(names, load * U))
        assert np.abs(trajectory.rate[1:]).max() <= 1e-6 * (1 + 1e-6)


def test_dry_friction_lets_go_above_its_level():
    """At 1.2 of the level an axis accelerates with what is left, while the others of its joint are held."""
    system, params = rack(along={"friction": {"coulomb": U}})
    for names in turns():
        load = 1.2 * (1 + PITCH / (2 * np.pi)) if "screw" in names else 1.2
        command = [load * U if name == "screw" and name in names else 1.2 * U * (name in names) for name in NAMES]
        found, trajectory = moved(system, params, names, command)
        for name, (_, rate) in found.items():
            left = 0.2 * U * (1 + PITCH / (2 * np.pi)) if name == "screw" else 0.2 * U
            expected = left / inertia(system, name) * trajectory.time
            np.testing.assert_allclose(rate[1:50], expected[1:50], rtol=1e-4, atol=2e-6, err_msg=name)
        still = [i for i, name in enumerate(NAMES) if name not in (*names, "screw.slide", "screw")]
        assert np.abs(trajectory.rate[1:50, still]).max() <= 1e-6 * (1 + 1e-6)


def test_positions_and_rates_are_those_given():
    """Beyond a turn, too: every axis reads what the state was made from."""
    rng = np.random.default_rng(3)
    system, params = rack()
    given = {}
    for name in FREE:
        reach = 9.0 if system.axes[system.axis_of(name)].kind in ("turn", "first", "second") else 1.0
        given[name] = {"position": float(rng.uniform(-reach, reach)), "rate": float(rng.normal())}
    trajectory = simulate(system, params, place(system, params, given))
    for name, value in given.items():
        position, rate = trajectory.joint(name)
        assert position[0] == pytest.approx(value["position"], abs=1e-9), name
        assert rate[0] == pytest.approx(value["rate"], rel=1e-3), name
    slide, screw = trajectory.joint("screw.slide"), trajectory.joint("screw")
    np.testing.assert_allclose(slide[0], PITCH / (2 * np.pi) * screw[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("rotor", [0.0, 1.5])
def test_a_rotor_is_not_thrown_outwards(rotor):
    """A bead on a rod that turns at w: (m + J_r) x'' = m w^2 x, because the drive's rotor does not go round with it."""
    w, m, x_0 = 3.0, 2.0, 0.1
    errors = []
    for h in (0.002, 0.001):
        system, params = mechanism(
            h,
            (0, 0, 0),
            bodies={
                "rod": {"mass": 1.0, "inertia": (1e6, 1e6, 1e6)},
                "bead": {"mass": m, "inertia": (1e-3, 1e-3, 1e-3)},
            },
            joints={
                "shaft": {"type": "hinge", "child": "rod"},
                "along": {
                    "type": "prismatic",
                    "parent": "rod",
                    "child": "bead",
                    "axis": (1, 0, 0),
                    "armature": rotor,
                },
            },
        )
        trajectory = simulate(system, params, place(system, params, {"shaft": {"rate": w}, "along": x_0}))
        end = round(0.8 / h)
        expected = x_0 * np.cosh(w * np.sqrt(m / (m + rotor)) * trajectory.time[:end])
        errors.append(np.abs(trajectory.joint("along")[0][:end] - expected).max() / expected[-1])
    assert errors[0] < 4e-3
    assert errors[0] / errors[1] > (1.9 if rotor else 3.7)
