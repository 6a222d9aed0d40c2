"""What is alike is evaluated as one batch: it says what each would alone, and a program does not grow with it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import compiled

from benchmarks.equations import equations
from spookax.constraints import (
    AbstractBounded,
    AbstractHolonomic,
    AbstractNonholonomic,
    AbstractUnilateral,
    assemble,
    prepare,
)
from spookax.scene import Scene
from spookax.sensors import readings
from spookax.stepping import state_from_joints
from spookax.system import build

pytestmark = [pytest.mark.quick, pytest.mark.timeout(300)]


def apart(poses):
    d = poses[1].point(jnp.array([0.1, 0.0, 0.0])) - poses[0].point(jnp.zeros(3))
    return jnp.sqrt(d @ d)


@dataclasses.dataclass(frozen=True)
class Rod(AbstractHolonomic):
    name: str
    bodies: tuple[str, ...]
    num_rows: int = 1

    def defaults(self):
        return {"length": 0.5 + 0.1 * len(self.bodies)}

    def gap(self, poses, values):
        return (apart(poses) - values["length"])[None]


@dataclasses.dataclass(frozen=True)
class Rope(AbstractUnilateral):
    name: str
    bodies: tuple[str, ...]
    num_rows: int = 1

    def defaults(self):
        return {"length": 1.4}

    def gap(self, poses, values):
        return (values["length"] - apart(poses))[None]


@dataclasses.dataclass(frozen=True)
class Gear(AbstractNonholonomic):
    name: str
    bodies: tuple[str, ...]
    axis: int = 5
    num_rows: int = 1

    def defaults(self):
        return {"ratio": 3.0, "offset": 0.2}

    def speed(self, poses, velocities, values):
        return (velocities[0][self.axis] - values["ratio"] * velocities[1][self.axis])[None]

    def target(self, time, values):
        return (values["offset"] * time)[None]


@dataclasses.dataclass(frozen=True)
class Brake(AbstractBounded):
    name: str
    bodies: tuple[str, ...]
    follows: tuple[str, ...] = ()
    num_rows: int = 2

    def defaults(self):
        return {"most": 0.3}

    def speed(self, poses, velocities, values):
        return velocities[1][4:] - velocities[0][4:]

    def limits(self, values):
        return -values["most"] * jnp.ones(2), values["most"] * jnp.ones(2)

    def factors(self, values):
        return values["most"] * jnp.ones((2, len(self.follows)))


ROWS = (
    Rope("t0", ("a", "c")),
    Gear("g0", ("a", "b")),
    Rod("r0", ("a", "b")),
    Brake("k0", ("a", "b"), ("rows.t0",)),
    Gear("g1", ("b", "c"), axis=3),
    Rope("t1", ("b", "d")),
    Gear("g2", ("c", "d")),
    Brake("k1", ("d", "c"), ("rows.t1",)),
    Rod("r1", ("d", "b")),
)


def scene_and_state(rng):
    """Four bodies where the rods hold them, in motion."""
    bodies = {
        name: {
            "mass": 1.0 + i,
            "inertia": (0.1, 0.2, 0.25),
            "com": (0.0, 0.1, 0.05 * i),
            "initial": {"position": rng.normal(size=3).tolist(), "rotation": rng.normal(size=3).tolist()},
        }
        for i, name in enumerate("abcd")
    }
    scene = Scene.model_validate({"spookax": 1, "step": 0.01, "bodies": bodies})
    system, params = build(scene, ROWS)
    given = {name: {k: jnp.asarray(v) for k, v in body["initial"].items()} for name, body in bodies.items()}
    state = state_from_joints(system, params, {}, given)
    v, w = rng.normal(size=(2, 4, 3))
    return scene, dataclasses.replace(state, v=jnp.asarray(v), w=jnp.asarray(w))


def rows_of_a_step(rows, scene, state, rng):
    system, params = build(scene, rows)
    numbers = params.row_numbers * jnp.asarray(rng.uniform(0.8, 1.2, params.row_numbers.shape))  # no two alike
    params = dataclasses.replace(params, row_numbers=numbers)

    def found(params, state):
        return assemble(system, prepare(system, params), state, jnp.zeros(0), jnp.zeros((4, 6)))

    return compiled(found)(params, state)


def test_rows_in_a_batch_are_those_one_by_one():
    """Rows of a class of their own have no one to share a batch with."""
    alone = tuple(
        type(f"{type(row).__name__}{i}", (type(row),), {})(**vars(row))  # the same, of another class
        for i, row in enumerate(ROWS)
    )
    here = scene_and_state(np.random.default_rng(1))
    together, one_by_one = (rows_of_a_step(rows, *here, np.random.default_rng(2)) for rows in (ROWS, alone))
    assert np.count_nonzero(np.asarray(together.G)) > 20
    assert np.count_nonzero(np.asarray(together.b_own)) > 20
    for mine, other in zip(jax.tree.leaves(together), jax.tree.leaves(one_by_one), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-13, atol=1e-13)


def chain(links, joint=None, **more):
    joints = {
        f"j{i}": {
            "type": "hinge",
            "parent": f"b{i - 1}" if i else "world",
            "child": f"b{i}",
            "axis": (0, 1, 0),
            "at": (0, 0, -0.3),
            **(joint or {}),
        }
        for i in range(links)
    }
    bodies = {f"b{i}": {"mass": 1.0, "inertia": (0.1, 0.1, 0.1), "com": (0, 0, -0.1)} for i in range(links)}
    return Scene.model_validate({"spookax": 1, "step": 0.01, "bodies": bodies, "joints": joints, **more})


def neighbours(links, kind):
    return tuple(kind(f"r{i}", (f"b{i}", f"b{i + 1}")) for i in range(links - 1))


def torque(links):
    return {f"m{i}": {"type": "torque", "joint": f"j{i}"} for i in range(links)}


def couplings(links):
    return {f"c{i}": {"driver": f"j{i - 1}", "driven": f"j{i}", "ratio": 0.5} for i in range(1, links)}


LEARNED = {"layers": [3], "speed": 2.0, "force": 0.3, "sees": ["load", "angle"]}
SCENES = {
    "alone": lambda n: (chain(n), ()),
    "motors": lambda n: (
        chain(n, motors={f"m{i}": {"type": "dc", "joint": f"j{i}", "gain": 1.0, "back_emf": 0.1} for i in range(n)}),
        (),
    ),
    "networks": lambda n: (chain(n, {"friction": {"learned": LEARNED}}, motors=torque(n)), ()),
    "couplings": lambda n: (chain(n, couplings=couplings(n)), ()),
    **{kind.__name__: lambda n, kind=kind: (chain(n), neighbours(n, kind)) for kind in (Rod, Rope, Gear, Brake)},
}


@functools.cache
def state_of(links):
    """Shapes: of what acts in a chain its state says nothing."""
    system, params = build(chain(links))
    return jax.eval_shape(lambda p: state_from_joints(system, p), params)


@pytest.mark.parametrize("what", SCENES)
def test_rows_of_a_step_take_as_many_equations_for_more_of_the_same(what):
    def count(links):
        system, params = build(*SCENES[what](links))
        state = state_of(links)
        engine = jax.eval_shape(lambda p: prepare(system, p), params)
        command, impulse = jnp.zeros(len(system.motors)), jnp.zeros((links, 6))
        traced = jax.make_jaxpr(lambda p, s: assemble(system, p, s, command, impulse))(engine, state)
        return sum(1 for _ in equations(traced.jaxpr))

    assert count(9) == count(5)


SENSORS = {
    "joint_position": lambda i: {"joint": f"j{i}", "cyclic_error": [{"order": 2 + i, "cos": 0.1, "sin": 0.0}]},
    "joint_rate": lambda i: {"joint": f"j{i}"},
    "body_pose": lambda i: {"body": f"b{i}"},
    "point_position": lambda i: {"body": f"b{i}", "at": (0, 0, 0.1 * i)},
}


@pytest.mark.parametrize("delay", [0.0, 0.015])
def test_sensors_read_alike_together_and_alone(delay, rng):
    """Of all types, in turns, some of them late."""

    def sensors(links):
        return {
            f"{kind}{i}": {"type": kind, "sd": 1e-3, "delay": delay * (i % 2), **SENSORS[kind](i)}
            for i in range(links)
            for kind in SENSORS
        }

    def parts(links):
        system, params = build(chain(links, sensors=sensors(links)))
        return system, params, jax.eval_shape(lambda p: prepare(system, p), params)

    def count(links):
        system, _, engine = parts(links)
        state = state_of(links)
        every = tuple(range(len(system.sensors)))
        traced = jax.make_jaxpr(lambda e, x, s: readings(system, e, every, x, x, s))(engine, state, jnp.asarray(0.3))
        return sum(1 for _ in equations(traced.jaxpr))

    assert count(8) == count(4)

    system, params, _ = parts(3)
    starts = [{f"j{i}": {"position": jnp.asarray(x), "rate": jnp.asarray(x)} for i, x in enumerate(rng.normal(size=3))}]
    now = state_from_joints(*build(chain(3)), starts[0])  # of which sensors are no part
    order = rng.permutation(len(system.sensors)).tolist()

    @compiled
    def both(params, now, s):
        engine, after = prepare(system, params), now.moved(params.step)
        alone = [readings(system, engine, (i,), now, after, s) for i in order]
        return readings(system, engine, tuple(order), now, after, s), jnp.concatenate(alone)

    np.testing.assert_allclose(*both(params, now, 0.3), rtol=1e-13, atol=1e-14)
