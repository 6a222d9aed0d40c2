"""The reference integrator against mechanics in space, exact solutions and stored motions."""

import math

import furuta
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from furuta import Furuta, simulate
from make_demo import TRUTH, training_input


def random_machine(rng):
    positive = {name: rng.uniform(0.2, 2.0) for name in Furuta._fields[:-1]}
    return Furuta(**positive | {"tilt_x": 0.3, "tilt_y": -0.2, "arm_coulomb": 0.0, "pendulum_coulomb": 0.0})


def turn(axis, angle):
    i, j = (axis + 1) % 3, (axis + 2) % 3
    s, c = jnp.sin(angle), jnp.cos(angle)
    return jnp.eye(3).at[i, i].set(c).at[j, j].set(c).at[i, j].set(-s).at[j, i].set(s)


def spatial_acceleration(p, q, v, torque):
    """Lagrange's equations by differentiation, from positions and orientations in world axes."""

    def poses(q):
        base = turn(1, p.tilt_y) @ turn(0, p.tilt_x)
        arm = base @ turn(2, q[0])
        pendulum = arm @ turn(0, q[1])
        com = arm @ jnp.array([p.arm_length, 0, 0]) + pendulum @ jnp.array([0, 0, -p.com])
        return arm, pendulum, com

    def lagrangian(q, v):
        (arm, pendulum, com), (arm_dot, pendulum_dot, com_dot) = jax.jvp(poses, (q,), (v,))

        def spin(R, R_dot):
            W = R.T @ R_dot
            return jnp.array([W[2, 1], W[0, 2], W[1, 0]])

        w_arm, w = spin(arm, arm_dot), spin(pendulum, pendulum_dot)
        inertia = jnp.array([p.swing_inertia, p.transverse_inertia, p.axial_inertia])
        kinetic = p.mass * com_dot @ com_dot + w @ (inertia * w) + p.arm_inertia * w_arm[2] ** 2
        cable = p.stiffness * (q[0] - p.rest) ** 2
        return 0.5 * (kinetic - cable) - p.mass * p.gravity * com[2]

    momentum = jax.grad(lagrangian, 1)
    M = jax.jacfwd(momentum, 1)(q, v)
    moved = jax.jvp(lambda q: momentum(q, v), (q,), (v,))[1]
    damping = jnp.array([p.arm_viscous, p.pendulum_viscous]) * v
    return jnp.linalg.solve(M, jax.grad(lagrangian)(q, v) - moved - damping + torque)


def test_equations_are_those_of_two_bodies_in_space(rng):
    in_space, of_furuta = jax.jit(spatial_acceleration), jax.jit(furuta.acceleration)
    for _ in range(10):
        p = random_machine(rng)
        q, v, torque = rng.uniform(-3, 3, (3, 2))
        sliding = (jnp.ones(()), jnp.ones(()))
        found = of_furuta(p, tuple(q), tuple(v), tuple(torque), sliding)
        np.testing.assert_allclose(jnp.stack(found), in_space(p, q, v, torque), rtol=1e-10)


def test_energy_is_kept_without_friction():
    p = TRUTH._replace(arm_viscous=0.0, pendulum_viscous=0.0, arm_coulomb=0.0, pendulum_coulomb=0.0)
    angles, rates = simulate(p, np.zeros(2001), start=(0.0, 2.5, 0.0, 0.0), step=1e-4)
    energy = np.asarray(furuta.energy(p, angles, rates))
    assert np.ptp(np.asarray(angles), axis=0).min() > 2.0
    assert np.ptp(energy) < 1e-9 * p.mass * p.gravity * p.com


def test_energy_never_grows_with_friction():
    angles, rates = simulate(TRUTH, np.zeros(1001), start=(2.0, 1.0, 3.0, -4.0), step=1e-4)
    gain = np.diff(np.asarray(furuta.energy(TRUTH, angles, rates)))
    assert gain.max() < 1e-15
    assert gain.min() < -1e-6


def test_spring_against_dry_friction_stops_where_it_must():
    """m x'' + k x + F sign(x') = 0 from x0: half swings of π √(m/k) about ∓F/k, until |k x| <= F."""
    p = Furuta(
        arm_inertia=0.75,
        arm_length=0.0,
        mass=1.0,
        com=0.1,
        swing_inertia=0.1,
        transverse_inertia=0.1,
        axial_inertia=0.25,
        stiffness=100.0,
        arm_coulomb=7.0,
        pendulum_coulomb=1.0,
    )
    angles, rates = simulate(p, np.zeros(501), start=(1.0, 0.0, 0.0, 0.0), step=1e-4)
    stop = 7 * math.pi / 10
    moving = np.asarray(rates[:, 0]) != 0
    assert moving[1 : int(stop / 5e-3) + 1].all()
    assert not moving[int(stop / 5e-3) + 1 :].any()
    np.testing.assert_allclose(angles[-1, 0], -(1 - 7 * 2 * 0.07), atol=1e-9)


@pytest.mark.parametrize(("level", "moves"), [(0.99, False), (1.01, True)])
def test_arm_breaks_loose_above_its_friction(level, moves):
    u = np.full(21, level * TRUTH.arm_coulomb / TRUTH.gain)
    p = TRUTH._replace(stiffness=0.0, tilt_x=0.0, tilt_y=0.0)
    angles, rates = simulate(p, u, step=1e-4)
    assert bool(np.any(np.asarray(angles[:, 0]) != 0)) == moves
    assert bool(np.any(np.asarray(rates[:, 0]) != 0)) == moves


def test_friction_mode_fits_the_set_valued_law(rng):
    """From rest: stuck joints carry at most F, others start against -F in their own direction."""

    @jax.jit
    def of(p, q, v, torque):
        mode = furuta.friction_mode(p, q, v, torque)
        found = furuta.acceleration(p, q, v, torque, mode), furuta.mass_matrix(p, q[1])
        return mode, *found, furuta.smooth_torques(p, q, v, torque)

    seen = set()
    for _ in range(200):
        p = random_machine(rng)._replace(arm_coulomb=1.0, pendulum_coulomb=1.0)
        q, v = tuple(rng.uniform(-3, 3, 2)), (jnp.zeros(()), jnp.zeros(()))
        torque = tuple(rng.uniform(-6, 6, 2))
        mode, a, (m11, m12, m22), smooth = of(p, q, v, torque)
        a = np.array(a)
        friction = np.array([[m11, m12], [m12, m22]]) @ a - np.array(smooth)
        sign = np.array(mode)
        np.testing.assert_array_less(np.abs(friction), 1 + 1e-9)
        np.testing.assert_array_equal(a[sign == 0], 0)
        assert (a * sign >= 0).all()
        np.testing.assert_allclose(friction[sign != 0], -sign[sign != 0], atol=1e-9)
        seen.add(tuple(sign))
    assert len(seen) == 9


def test_motor_and_noise_are_held_and_add_up(rng):
    """A free rotor keeps the impulse: K u over samples plus noise over its intervals."""
    p = Furuta(2.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, gain=3.0, gravity=0.0)
    u, noise = rng.normal(size=5), rng.normal(size=(5, 4, 2))
    _, rates = simulate(p, u, sample_time=0.1, step=1e-3, torque_noise=noise)
    arm = np.cumsum(0.1 * (3 * u + noise[..., 0].mean(axis=1))) / 2
    pendulum = np.cumsum(0.1 * noise[..., 1].mean(axis=1))
    np.testing.assert_allclose(rates[1:, 0], arm[:-1], atol=1e-13)
    np.testing.assert_allclose(rates[1:, 1], pendulum[:-1], atol=1e-13)


def test_halving_the_step_changes_nothing_that_matters():
    u = training_input()
    fine, coarse, rough = (np.asarray(simulate(TRUTH, u, step=step)[0]) for step in (5e-5, 1e-4, 1e-3))
    assert np.abs(coarse - fine).max() < 1e-7
    assert 1e-7 < np.abs(rough - fine).max() < 1e-5


def test_a_batch_is_many_at_once():
    u = training_input()[:20]
    one = simulate(TRUTH, u, step=1e-3)[0]
    many = jax.vmap(lambda gain: simulate(TRUTH._replace(gain=gain), u, step=1e-3)[0])(jnp.full(3, 0.02))
    np.testing.assert_allclose(many, np.broadcast_to(one, many.shape), atol=1e-14)


def test_single_precision_is_refused():
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(RuntimeError, match="float64"):
            simulate(TRUTH, np.zeros(2))
    finally:
        jax.config.update("jax_enable_x64", True)


def stored(data_dir, name):
    table = np.genfromtxt(data_dir / "reference_mechanisms" / f"{name}.csv", delimiter=",", names=True)
    return len(table), table


def test_stored_free_motion(data_dir):
    n, table = stored(data_dir, "furuta_free")
    inertia = 0.024 * 0.129**2 / 12
    p = Furuta(0.00023, 0.085, 0.024, 0.129 / 2, inertia, inertia)
    angles, rates = simulate(p, np.zeros(n), start=(0.0, 2.5, 0.0, 0.0), step=1e-4)
    for found, columns in ((angles, ("phi", "alpha")), (rates, ("phidot", "alphadot"))):
        np.testing.assert_allclose(found, np.stack([table[c] for c in columns], axis=1), atol=1e-7)


def test_stored_pendulum_with_dry_friction(data_dir):
    n, table = stored(data_dir, "friction_pendulum")
    p = Furuta(1.0, 0.0, 1.0, 0.5, 1 / 3 - 0.25, 0.0, pendulum_coulomb=0.5)
    angles, rates = simulate(p, np.zeros(n), start=(0.0, 1.0, 0.0, 0.0), step=1e-4)
    np.testing.assert_allclose(angles[:, 1], table["theta"], atol=1e-10)
    np.testing.assert_allclose(rates[:, 1], table["omega"], atol=1e-9)
