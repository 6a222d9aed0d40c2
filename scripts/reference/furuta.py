"""Furuta pendulum in two joint coordinates, with exact dry friction. Nothing here imports `spookax`.

**Conventions.** The base frame is the frame in which the scene is written. Two bodies, two hinges, all
angles unwrapped:

- φ (arm): hinge about the base's z axis, at the origin. The arm's frame is Rz(φ). Its centre of mass lies
  on the axis.
- α (pendulum): hinge about the *arm's* x axis (radial), at (L, 0, 0) in the arm's frame. The pendulum's
  frame is Rz(φ) Rx(α), its centre of mass at (0, 0, -l) in it; α = 0 hangs.

So a scene with hinges of axes z and x, `at: [L, 0, 0]` and `com: [0, 0, -l]` is the same machine with the
same signs.

**Equations.** The centre of mass is p = Rz(φ) (L, l sin α, -l cos α), the pendulum's angular velocity in
its own axes (α', φ' sin α, φ' cos α). With the moments of inertia Jx (swing), Jy (transverse), Jz (axial)
about its centre of mass the kinetic energy is ½ q'ᵀ M q' with q = (φ, α) and

    M11 = J_arm + m L² + (m l² + Jy) sin²α + Jz cos²α,   M12 = m L l cos α,   M22 = m l² + Jx

and Lagrange's equations read, with ∂ the derivative with respect to α,

    M11 φ'' + M12 α'' + ∂M11 α' φ' + ∂M12 α'² = m g·∂p/∂φ + K u - k (φ - φ_rest) - d1 φ' + f1 + w1
    M12 φ'' + M22 α'' - ½ ∂M11 φ'²            = m g·∂p/∂α                        - d2 α' + f2 + w2

The base is tilted by Ry(tilt_y) Rx(tilt_x) (about the world's x, then about the world's y), so gravity in
base axes is g = Rx(tilt_x)ᵀ Ry(tilt_y)ᵀ (0, 0, -9.81). K u is the motor's torque, w torque noise.

**Dry friction** is set-valued: f_i = -F_i sign(q_i') in motion and any |f_i| <= F_i at rest. A joint is
at rest when its rate is exactly 0. At the start of every step the joints at rest are sorted into stuck,
starting forward and starting backward by trying all (at most nine) cases; the acceleration problem is a
strictly convex box problem, so exactly one case fits but for ties. The mode is then held and the smooth
equations are integrated by the classical Runge-Kutta method of order 4. A rate that changes sign within
the step is an event: the step is cut at the zero of the rate (of the parabola through both ends and the
first slope: off by O(step³)), the rate becomes exactly 0, and the rest of the step starts from a new
case. A stuck joint that would break loose within a step does so at its end, which makes its rate late by
O(step²).
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

Real = float | jax.Array


class Furuta(NamedTuple):
    """Constants of the machine, in SI units. Any field may be an array under `jax.vmap`."""

    arm_inertia: Real  # J_arm about the base's z axis, rotor included [kg m²]
    arm_length: Real  # L, from the arm's axis to the pendulum's hinge [m]
    mass: Real  # m of the pendulum [kg]
    com: Real  # l, from the hinge to the pendulum's centre of mass [m]
    swing_inertia: Real  # Jx, about the hinge's direction [kg m²]
    transverse_inertia: Real  # Jy, across hinge and rod [kg m²]
    axial_inertia: Real = 0.0  # Jz, along the rod [kg m²]
    arm_viscous: Real = 0.0  # d1 [N m s/rad]
    pendulum_viscous: Real = 0.0  # d2 [N m s/rad]
    arm_coulomb: Real = 0.0  # F1 [N m]
    pendulum_coulomb: Real = 0.0  # F2 [N m]
    gain: Real = 1.0  # K [N m per unit of input]
    tilt_x: Real = 0.0  # [rad]
    tilt_y: Real = 0.0  # [rad]
    stiffness: Real = 0.0  # k of the arm's cable [N m/rad]
    rest: Real = 0.0  # φ_rest of the cable [rad]
    gravity: Real = 9.81  # [m/s²]


SCENE_PATHS = {
    "bodies.arm.inertia.zz": "arm_inertia",
    "bodies.pendulum.inertia.xx": "swing_inertia",
    "bodies.pendulum.inertia.yy": "transverse_inertia",
    "joints.shoulder.friction.viscous": "arm_viscous",
    "joints.elbow.friction.viscous": "pendulum_viscous",
    "joints.shoulder.friction.coulomb": "arm_coulomb",
    "joints.elbow.friction.coulomb": "pendulum_coulomb",
    "motors.drive.gain": "gain",
    "tilt.x": "tilt_x",
    "tilt.y": "tilt_y",
    "joints.shoulder.spring.stiffness": "stiffness",
    "joints.shoulder.spring.rest": "rest",
}
"""Path in `demo/furuta.yaml` of each unknown constant."""


def mass_matrix(p: Furuta, alpha):
    """M11, M12, M22 at the pendulum angle `alpha`. [kg m²]"""
    s, c = jnp.sin(alpha), jnp.cos(alpha)
    tip = p.mass * p.com**2
    pendulum = (tip + p.transverse_inertia) * s**2 + p.axial_inertia * c**2
    m11 = p.arm_inertia + p.mass * p.arm_length**2 + pendulum
    return m11, p.mass * p.arm_length * p.com * c, tip + p.swing_inertia


def gravity_in_base(p: Furuta):
    """g in base axes, Rx(tilt_x)ᵀ Ry(tilt_y)ᵀ (0, 0, -gravity). [m/s²]"""
    sx, cx, sy, cy = jnp.sin(p.tilt_x), jnp.cos(p.tilt_x), jnp.sin(p.tilt_y), jnp.cos(p.tilt_y)
    return p.gravity * sy, -p.gravity * sx * cy, -p.gravity * cx * cy


def centre_of_mass(p: Furuta, phi, alpha):
    """Centre of mass of the pendulum in base axes. [m]"""
    s, c, sf, cf = jnp.sin(alpha), jnp.cos(alpha), jnp.sin(phi), jnp.cos(phi)
    across = p.com * s
    return p.arm_length * cf - across * sf, p.arm_length * sf + across * cf, -p.com * c


def energy(p: Furuta, q, v):
    """Kinetic energy, gravity's potential and the cable's. [J]"""
    m11, m12, m22 = mass_matrix(p, q[..., 1])
    x, y, z = centre_of_mass(p, q[..., 0], q[..., 1])
    gx, gy, gz = gravity_in_base(p)
    kinetic = 0.5 * (m11 * v[..., 0] ** 2 + m22 * v[..., 1] ** 2) + m12 * v[..., 0] * v[..., 1]
    return kinetic - p.mass * (gx * x + gy * y + gz * z) + 0.5 * p.stiffness * (q[..., 0] - p.rest) ** 2


def smooth_torques(p: Furuta, q, v, torque):
    """Everything on the right of M q'' = b but dry friction, inertial terms included. [N m]"""
    (phi, alpha), (dphi, dalpha) = q, v
    s, c, sf, cf = jnp.sin(alpha), jnp.cos(alpha), jnp.sin(phi), jnp.cos(phi)
    d_m11 = 2 * (p.mass * p.com**2 + p.transverse_inertia - p.axial_inertia) * s * c
    d_m12 = -p.mass * p.arm_length * p.com * s
    gx, gy, gz = gravity_in_base(p)
    x, y, _ = centre_of_mass(p, phi, alpha)
    b1 = p.mass * (gy * x - gx * y) - d_m11 * dalpha * dphi - d_m12 * dalpha**2
    b2 = p.mass * p.com * (c * (gy * cf - gx * sf) + s * gz) + 0.5 * d_m11 * dphi**2
    return (
        b1 - p.stiffness * (phi - p.rest) - p.arm_viscous * dphi + torque[0],
        b2 - p.pendulum_viscous * dalpha + torque[1],
    )


def acceleration(p: Furuta, q, v, torque, mode):
    """φ'', α'' with the friction mode of each joint given: 0 stuck, +1 or -1 sliding that way."""
    m11, m12, m22 = mass_matrix(p, q[1])
    b1, b2 = smooth_torques(p, q, v, torque)
    n1, n2 = b1 - mode[0] * p.arm_coulomb, b2 - mode[1] * p.pendulum_coulomb
    free1, free2 = mode[0] != 0, mode[1] != 0
    coupling = jnp.where(free1 & free2, m12, jnp.zeros_like(m12))
    det = m11 * m22 - coupling**2
    a1, a2 = (m22 * n1 - coupling * n2) / det, (m11 * n2 - coupling * n1) / det
    return jnp.where(free1, a1, jnp.zeros_like(a1)), jnp.where(free2, a2, jnp.zeros_like(a2))


def friction_mode(p: Furuta, q, v, torque):
    """The one case of stuck (0) and sliding (+1, -1) that fits; the best fit, stuck first, at a tie."""
    m11, m12, m22 = mass_matrix(p, q[1])
    b1, b2 = smooth_torques(p, q, v, torque)
    infinite = jnp.full_like(m11, jnp.inf)
    best = (infinite, jnp.zeros_like(m11), jnp.zeros_like(m11))
    for s1 in (0.0, 1.0, -1.0):
        for s2 in (0.0, 1.0, -1.0):
            n1, n2 = b1 - s1 * p.arm_coulomb, b2 - s2 * p.pendulum_coulomb
            coupling = m12 if s1 and s2 else jnp.zeros_like(m12)
            det = m11 * m22 - coupling**2
            a1 = (m22 * n1 - coupling * n2) / det if s1 else jnp.zeros_like(n1)
            a2 = (m11 * n2 - coupling * n1) / det if s2 else jnp.zeros_like(n2)
            # at rest: |b - M a| <= F when stuck, acceleration in the direction of sliding otherwise [rad/s²]
            stuck1 = (jnp.abs(m11 * a1 + m12 * a2 - b1) - p.arm_coulomb) / m11
            stuck2 = (jnp.abs(m12 * a1 + m22 * a2 - b2) - p.pendulum_coulomb) / m22
            rest1 = jnp.maximum(-s1 * a1 if s1 else stuck1, 0.0)
            rest2 = jnp.maximum(-s2 * a2 if s2 else stuck2, 0.0)
            misfit1 = jnp.where(v[0] == 0, rest1, jnp.where(jnp.sign(v[0]) == s1, 0.0, infinite))
            misfit2 = jnp.where(v[1] == 0, rest2, jnp.where(jnp.sign(v[1]) == s2, 0.0, infinite))
            misfit = jnp.maximum(misfit1, misfit2)
            better = misfit < best[0]
            best = (
                jnp.where(better, misfit, best[0]),
                jnp.where(better, s1, best[1]),
                jnp.where(better, s2, best[2]),
            )
    return best[1], best[2]


def _runge_kutta(p: Furuta, q, v, torque, mode, h):
    def move(x, rate, dt):
        return x[0] + dt * rate[0], x[1] + dt * rate[1]

    a1 = acceleration(p, q, v, torque, mode)
    v2 = move(v, a1, h / 2)
    a2 = acceleration(p, move(q, v, h / 2), v2, torque, mode)
    v3 = move(v, a2, h / 2)
    a3 = acceleration(p, move(q, v2, h / 2), v3, torque, mode)
    v4 = move(v, a3, h)
    a4 = acceleration(p, move(q, v3, h), v4, torque, mode)

    def mean(k1, k2, k3, k4):
        return tuple((a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True))

    return move(q, mean(v, v2, v3, v4), h), move(v, mean(a1, a2, a3, a4), h)


def _zero(v0, slope, v1):
    """Zero in (0, 1] of the parabola with value `v0` and slope `slope` at 0 and value `v1` at 1."""
    root = jnp.sqrt(jnp.maximum(slope**2 - 4 * (v1 - v0 - slope) * v0, 0.0))
    return -2 * v0 / (slope - jnp.sign(v0) * root)


_MOST_EVENTS = 6  # in one step; later ones are passed over


def _interval(p: Furuta, q, v, torque, h, steps):
    """Integrate over `steps` steps of size `h` with constant torque.

    The loop takes one trial a turn. A trial that passes the zero of a rate is thrown away and repeated with
    the length that lands on it; `landing` marks the joints whose rate is then set to 0, `rest` is what is
    left of the step.
    """

    def body(carry):
        q, v, left, rest, trial, landing, events = carry
        mode = friction_mode(p, q, v, torque)
        q1, v1 = _runge_kutta(p, q, v, torque, mode, trial)
        # leaving rest in the wrong direction happens only at a tie: stay at rest
        tie = [(v[i] == 0) & (v1[i] * mode[i] < 0) for i in range(2)]
        crossing = [~landing[i] & (v[i] != 0) & (v1[i] * v[i] < 0) for i in range(2)]
        begin = acceleration(p, q, v, torque, mode)
        fraction = [jnp.where(crossing[i], _zero(v[i], begin[i] * trial, v1[i]), jnp.inf) for i in range(2)]
        first = jnp.minimum(*fraction)
        repeat = (first <= 1) & ~(landing[0] | landing[1]) & (events < _MOST_EVENTS)
        v1 = tuple(jnp.where(landing[i] | tie[i], jnp.zeros_like(v1[i]), v1[i]) for i in range(2))

        remaining = jnp.where(repeat, rest, rest - trial)
        done = ~repeat & (remaining <= 0)
        next_rest = jnp.where(done, h, remaining)
        return (
            tuple(jnp.where(repeat, old, new) for old, new in zip(q, q1, strict=True)),
            tuple(jnp.where(repeat, old, new) for old, new in zip(v, v1, strict=True)),
            left - done.astype(left.dtype),
            next_rest,
            jnp.where(repeat, first * trial, next_rest),
            tuple(repeat & (fraction[i] == first) for i in range(2)),
            jnp.where(done, 0, events + repeat.astype(events.dtype)),
        )

    no = jnp.zeros_like(h, dtype=bool)
    zero = jnp.zeros_like(h, dtype=int)
    q, v, *_ = jax.lax.while_loop(lambda c: c[2] > 0, body, (q, v, zero + steps, h, h, (no, no), zero))
    return q, v


@partial(jax.jit, static_argnames="steps")
def _simulate(p: Furuta, u, start, noise, sample_time, steps: int):
    h = sample_time / noise.shape[1] / steps

    def hold(state, torque):
        q, v = _interval(p, state[:2], state[2:], torque, h, steps)
        return (*q, *v), None

    def sample(state, held):
        motor, disturbance = held
        nxt, _ = jax.lax.scan(hold, state, (disturbance[:, 0] + p.gain * motor, disturbance[:, 1]))
        return nxt, jnp.stack(state)

    _, states = jax.lax.scan(sample, tuple(start), (u, noise))
    return states[:, :2], states[:, 2:]


def simulate(
    p: Furuta,
    u: ArrayLike,
    *,
    start: ArrayLike | Sequence[float] = (0.0, 0.0, 0.0, 0.0),
    sample_time: float = 5e-3,
    step: float = 1e-5,
    torque_noise: ArrayLike | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Angles and rates (φ, α) at the sample times.

    **Arguments:**

    - `u`: input of the motor, shape `(n,)`; `u[k]` acts from t_k to t_k+1.
    - `start`: φ, α [rad] and their rates [rad/s] at t_0. A rate of exactly 0 is a joint at rest.
    - `sample_time`: t_k+1 - t_k. [s]
    - `step`: largest integration step. [s]
    - `torque_noise`: extra torque at both joints, shape `(n, k, 2)`: k equal intervals to a sample. [N m]

    **Returns:** angles `(n, 2)` [rad] and rates `(n, 2)` [rad/s] at t_0 .. t_n-1. Works under `jax.vmap`.

    **Raises:** `RuntimeError` unless JAX runs in double precision.
    """
    if not jax.config.read("jax_enable_x64"):
        raise RuntimeError("float64 is needed: call jax.config.update('jax_enable_x64', True) first")
    u = jnp.asarray(u, float)
    noise = jnp.zeros((u.shape[0], 1, 2)) if torque_noise is None else jnp.asarray(torque_noise, float)
    steps = int(np.ceil(round(sample_time / noise.shape[1] / step, 6)))
    constants = Furuta(*(jnp.asarray(value, float) for value in p))
    return _simulate(constants, u, jnp.asarray(start, float), noise, jnp.asarray(sample_time, float), steps)
