"""Jacobians of every joint and every axis against central differences of box-plus."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import AXES, JOINT_TYPES, compiled, pairs, placed_pairs

from spookax.constraints import axes, frames, prepare
from spookax.constraints.assemble import joint_rows
from spookax.math import rotation
from spookax.scene.joint_types import COORDINATES, generic
from spookax.system import State

SYSTEM, PARAMS = pairs()
POSES = 20
STEP = 1e-5  # of the differences: truncation 1e-10, rounding 1e-11, relative to gaps of the size of one


@functools.partial(compiled, static_argnums=0)
@functools.partial(jax.vmap, in_axes=(None, None, 0, 0, 0))
def read(system, params, r, e, d):
    """Gaps, axis coordinates, joint Jacobians and rate rows at poses moved by a tangent step d (bodies, 6)."""
    geometry = prepare(system, params).geometry
    kin = frames.kinematics(system, r + d[:, :3], jax.vmap(rotation.plus)(e, d[:, 3:]), geometry)
    gaps, jacobians = joint_rows(system, kin)
    b_A, b_B = axes.rate_rows(system, kin)
    coordinates = axes.coordinates(system, kin, jnp.zeros(len(system.axes)))
    return gaps, coordinates, jacobians, (b_A, b_B)


@pytest.fixture(scope="module")
def differences():
    """By centred differences along all tangent directions: d(gap) and d(coordinate), and the analytic rows.

    Gaps at random poses of all bodies. Coordinates at poses that keep the joints, where the free coordinate is one.
    """
    rng = np.random.default_rng(1)
    nb = SYSTEM.num_bodies
    r, e = rng.normal(size=(POSES, nb, 3)), rng.normal(size=(POSES, nb, 4))
    e /= np.linalg.norm(e, axis=-1, keepdims=True)
    kept = [assembled(rng) for _ in range(POSES)]
    r = np.concatenate([r, np.stack([s.r for s in kept])])
    e = np.concatenate([e, np.stack([s.e for s in kept])])
    _, values, jacobians, b = read(SYSTEM, PARAMS, r, e, np.zeros((2 * POSES, nb, 6)))
    gaps, coordinates = [], []
    for direction in np.eye(6):
        change = []
        for sign in (1, -1):
            # one body of every pair at a time: the pairs do not touch each other
            for first in (0, 1):
                d = np.zeros((2 * POSES, nb, 6))
                d[:, first::2] = sign * STEP * direction
                change.append(read(SYSTEM, PARAMS, r, e, d)[:2])
        (ahead_a, ahead_b, back_a, back_b) = change
        gaps.append([(x[0] - y[0]) / (2 * STEP) for x, y in ((ahead_a, back_a), (ahead_b, back_b))])
        coordinates.append([(x[1] - y[1]) / (2 * STEP) for x, y in ((ahead_a, back_a), (ahead_b, back_b))])
    return jacobians, b, values, gaps, coordinates


def assembled(rng) -> State:
    """Random joint coordinates and poses of the free bodies."""
    joints = {axis.name: rng.uniform(-1, 1) * (1 if axis.kind == "cardan" else 2) for axis in SYSTEM.axes}
    joints["line"] = abs(joints["line"]) + 0.5
    joints["ball"] = [joints.pop(f"ball.{name}") for name in ("rx", "ry", "rz")]
    bodies = {f"{kind}_a": {"position": rng.normal(size=3), "rotation": rng.normal(size=3)} for kind in JOINT_TYPES}
    return placed_pairs(SYSTEM, PARAMS, joints, bodies)


@pytest.mark.parametrize("kind", JOINT_TYPES)
def test_joint_jacobian(kind, differences):
    jacobians, _, _, gaps, _ = differences
    j = SYSTEM.joint_index(kind)
    edges = {0: SYSTEM.edges.index((j, SYSTEM.joints[j].parent)), 1: SYSTEM.edges.index((j, SYSTEM.joints[j].child))}
    for side, edge in edges.items():
        numeric = np.stack([np.asarray(gaps[k][side][:, j]) for k in range(6)], axis=-1)
        binding = SYSTEM.holonomic[j]  # what rolls does not slip, too, and that is the derivative of nothing
        np.testing.assert_allclose(jacobians[:, edge, binding], numeric[:, binding], rtol=0, atol=1e-8)


SPINS = [axis.name for axis in SYSTEM.axes if axis.kind == "spin"]


@pytest.mark.parametrize("name", [name for name in AXES if name not in SPINS])
def test_rate_row(name, differences):
    _, b, _, _, coordinates = differences
    i = SYSTEM.axis_of(name)
    for side in (0, 1):
        numeric = np.stack([np.asarray(coordinates[k][side][:, i]) for k in range(6)], axis=-1)
        np.testing.assert_allclose(b[side][POSES:, i], numeric[POSES:], rtol=0, atol=1e-8)


def test_the_rates_of_a_ball_are_those_of_its_rotation_along_it(differences):
    """theta . rates = d/dt |theta|^2 / 2: what a spring k theta takes is what it stores."""
    _, b, values, _, coordinates = differences
    index = [SYSTEM.axis_of(name) for name in SPINS]
    theta = np.asarray(values)[POSES:, index]
    for side in (0, 1):
        numeric = np.stack([np.asarray(coordinates[k][side])[:, index] for k in range(6)], axis=-1)
        told = np.einsum("pa,pad->pd", theta, np.asarray(b[side])[POSES:, index])
        np.testing.assert_allclose(told, np.einsum("pa,pad->pd", theta, numeric[POSES:]), rtol=0, atol=1e-8)


def test_every_generic_joint_has_six_rows_and_axes():
    """Whatever is locked; and its name says which are free."""
    for locked in itertools.chain.from_iterable(itertools.combinations(COORDINATES, n) for n in range(7)):
        kind = generic(locked)
        assert len(kind.lengths) == len(locked)
        assert {axis.name for axis in kind.axes} == set(COORDINATES) - set(locked)
        assert all(row < len(locked) and kind.lengths[row] for axis in kind.axes for row in axis.bearing)
