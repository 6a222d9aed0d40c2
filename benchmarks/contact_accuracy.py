"""Bodies that touch, beside what is known of their motion: slopes, rolling, impacts, a stack, Painleve's rod.

The tasks of SimBenchmark (a box pushed on balls, balls that bounce) are here with shapes; what is published of them for
other engines is in the column `published`. The same with joints for guides: `tests/accuracy`.
"""

import functools
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax.constraints import prepare
from spookax.stepping.march import march

from .measure import Row

G, MU, STEP = 9.81, 0.5, 0.005
FLOOR = {"type": "plane"}


def run(part: str = "") -> list[Row]:
    """Rows of all cases, or of the one that `part` names."""
    return [{"case": name, **line} for name, case in CASES.items() if part in ("", name) for line in case()]


def _row(quantity: str, found: float, exact: float, unit: str, published: str = "") -> Row:
    off = 100 * (float(found) / exact - 1) if exact else None
    line = {"quantity": quantity, "found": float(found), "exact": float(exact), "unit": unit, "off [%]": off}
    return line | {"published": published}


def _scene(bodies: dict[str, Any], surfaces: dict[str, Any], step: float = STEP, **contacts: Any) -> Any:
    materials = {"default": {"friction": MU, **contacts.pop("material", {})}}
    touching = {"surfaces": surfaces, "materials": materials, **contacts}
    return sx.load(sx.Scene(spookax=1, step=step, bodies=bodies, contacts=touching))  # pyright: ignore


def _body(at: Any, mass: float = 1.0, moment: Any = (0.0067,) * 3, **start: Any) -> dict[str, Any]:
    return {"mass": mass, "inertia": moment, "initial": {"position": at, **start}}


def _ball(body: str) -> dict[str, Any]:
    return {"type": "sphere", "body": body, "radius": 0.1}


def _rollout(loaded: Any, steps: int, **more: Any) -> sx.Trajectory:
    system, params, state = loaded
    return jax.tree.map(np.asarray, sx.rollout(system, params, state, jnp.zeros((steps, 0)), **more))


@functools.partial(jax.jit, static_argnums=(0, 3))
def _states(system: sx.System, params: sx.Params, state: sx.State, steps: int) -> sx.State:
    """With velocities half a step before the poses."""
    return march(system, prepare(system, params), state, jnp.zeros((steps, 0))).states


def slope() -> Iterator[Row]:
    """A box on slopes around that at which it slides, turned against the axes of the world."""
    box = {"type": "box", "body": "b", "size": (0.2,) * 3}
    system, params, state = _scene({"b": _body((0, 0, 0.1))}, {"floor": FLOOR, "b": box})
    for part in (0.99, 1.01, 1.3):
        for turned in np.radians([0, 11, 30, 45]):
            angle, down = np.arctan(MU * part), np.array([np.cos(turned), np.sin(turned), 0])
            gravity = G * (np.sin(angle) * down - np.array([0, 0, np.cos(angle)]))
            tilted = eqx.tree_at(lambda p: p.gravity, params, jnp.asarray(gravity))
            v = _rollout((system, tilted, state), 201).v[200, 0]
            exact = max(0.0, G * (np.sin(angle) - MU * np.cos(angle)))
            case = f"tan = {part} mu, turned by {np.degrees(turned):.0f} degrees: "
            yield _row(case + "speed after 1 s", float(v @ down), exact, "m/s")
            yield _row(case + "aside", float(np.linalg.norm(v - (v @ down) * down)), 0.0, "m/s")


def rolling() -> Iterator[Row]:
    """A ball that slips until it rolls, and a cylinder that rolls down a slope."""
    h, speed = 0.001, 2.0
    ball = _body((0, 0, 0.1), moment=(0.004,) * 3, velocity=(speed, 0, 0))
    found = _rollout(_scene({"b": ball}, {"floor": FLOOR, "b": _ball("b")}, h), 250)
    slips = found.v[:, 0, 0] - 0.1 * found.w[:, 0, 1] > 1e-3
    yield _row("a ball rolls after", h * float(np.sum(slips)), 2 * speed / (7 * MU * G), "s")
    yield _row("with a speed of", float(found.v[-1, 0, 0]), 5 / 7 * speed, "m/s")
    angle = 0.3
    disc = _body((0, 0, 0.1), moment=(0.003, 0.003, 0.005), rotation=(np.pi / 2, 0, 0))
    shape = {"type": "cylinder", "body": "b", "radius": 0.1, "length": 0.02}
    system, params, state = _scene({"b": disc}, {"floor": FLOOR, "b": shape})
    params = eqx.tree_at(lambda p: p.gravity, params, G * jnp.array([np.sin(angle), 0, -np.cos(angle)]))
    found = _rollout((system, params, state), 201)
    yield _row("a disc down a slope: speed after 1 s", float(found.v[200, 0, 0]), 2 / 3 * G * np.sin(angle), "m/s")


def impacts() -> Iterator[Row]:
    """Newton's cradle, and a ball that bounces."""
    names = "abcde"
    bodies = {n: _body((0.2 * i, 0, 0)) for i, n in enumerate(names)}
    bodies["a"] = _body((-0.012, 0, 0), velocity=(1.0, 0, 0))
    material = {"friction": 0.0, "restitution": 1.0}
    system, params, state = _scene(bodies, {n: _ball(n) for n in names}, pairs=[*pairwise(names)], material=material)
    weightless = eqx.tree_at(lambda p: p.gravity, params, jnp.zeros(3))
    v = _rollout((system, weightless, state), 20).v[-1, :, 0]
    for n, found, exact in zip(names, v, (0, 0, 0, 0, 1), strict=True):
        yield _row(f"cradle: speed of ball {n}", found, exact, "m/s")
    loaded = _scene({"b": _body((0, 0, 1.1))}, {"floor": FLOOR, "b": _ball("b")}, material={"restitution": 0.8})
    z = _rollout(loaded, 600).r[:, 0, 2] - 0.1
    tops = z[1:-1][(z[1:-1] > z[:-2]) & (z[1:-1] >= z[2:])]
    for i, top in enumerate(tops[:3], 1):
        yield _row(f"height of bounce {i}", top, 0.8 ** (2 * i), "m")


def painleve() -> Iterator[Row]:
    """A thin rod that is pushed into the floor at 50 to 75 degrees, mu = 1.5: the steps that end early and the largest
    rise of its energy."""
    half, radius, inertia = 0.5, 0.01, 1 / 12
    rod = {"type": "capsule", "body": "b", "radius": radius, "length": 2 * half}
    body = _body((0, 0, 1), moment=(inertia, inertia, 1e-3))
    system, params, state = _scene({"b": body}, {"floor": FLOOR, "b": rod}, 0.001, material={"friction": 1.5})
    for degrees in (50, 55, 65, 72, 75):
        for speed in (-1.0, 1.0):
            angle = np.radians(degrees)
            start = {"position": (0, 0, half * np.sin(angle) + radius), "rotation": (0, np.pi / 2 - angle, 0)}
            state = sx.state_from_joints(system, params, bodies={"b": {**start, "velocity": (speed, 0, 0)}})
            found = _rollout((system, params, state), 300, throw=False)
            energy = np.sum(found.v[:, 0] ** 2, axis=1) / 2 + inertia * np.sum(found.w[:, 0, :2] ** 2, axis=1) / 2
            energy = energy + G * found.r[:, 0, 2]
            case = f"{degrees} degrees, {speed:+.0f} m/s: "
            yield _row(case + "first step that fails", int(found.failed_step), -1, "")
            yield _row(case + "rise of energy", float(np.max(energy) - energy[0]), 0.0, "J")


def stack() -> Iterator[Row]:
    """Ten boxes of the scene that ships, for 10 s."""
    r = _rollout(sx.load("scenes/contacts/stack.yaml"), 2000).r
    moved = np.abs(r[-1] - r[0])
    yield _row("ten boxes after 10 s: lower by", 1e3 * float(np.max(moved[:, 2])), 0.0, "mm")
    yield _row("aside by", 1e3 * float(np.max(moved[:, :2])), 0.0, "mm")


def pushed_box() -> Iterator[Row]:
    """SimBenchmark's rolling test: a box of 10 kg is pushed askew and rolls on four balls of 1 kg, which are so far
    apart that it does not tip."""
    force, box, ball, steps = 20.0 * np.array([np.cos(0.6), np.sin(0.6)]), 10.0, 1.0, 400
    corners = {f"ball{i}": (3.0 * x, 3.0 * y) for i, (x, y) in enumerate([(1, 1), (1, -1), (-1, 1), (-1, -1)])}
    bodies = {n: _body((*at, 0.1), ball, (0.4 * ball * 0.01,) * 3) for n, at in corners.items()}
    bodies["box"] = _body((0, 0, 0.3), box, (1.0,) * 3)
    surfaces = {n: _ball(n) for n in corners}
    surfaces |= {"floor": FLOOR, "box": {"type": "box", "body": "box", "size": (12.0, 12.0, 0.2)}}
    pairs = [(n, other) for n in corners for other in ("floor", "box")]
    loaded = _scene(bodies, surfaces, pairs=pairs)
    push = jnp.zeros((steps, 5, 6)).at[:, 4, :2].set(force)
    r = _rollout(loaded, steps, wrenches=push).r[-1]
    way = force / (box + 4 * ball * 7 / 20) * (STEP * steps) ** 2 / 2
    other = "ODE, DART: 3.14 off, not in the direction of the push"
    yield _row(
        "a box pushed on balls: along the push", float(r[4, :2] @ force / 20), float(np.linalg.norm(way)), "m", other
    )
    aside = np.linalg.norm(r[4, :2] - (r[4, :2] @ force) * force / 400)
    yield _row("aside", float(aside), 0.0, "m", other)


def bouncing() -> Iterator[Row]:
    """SimBenchmark's bouncing test: mean squared error of the energy of 49 balls of 10 kg from 5 m, over 20 s. `exact`
    is what velocities half a step before the poses make of it."""
    height, mass, balls = 5.0, 10.0, 49
    published = {0.01: "ODE 1.88e4, DART 7.38e6", 0.004: "ODE 2.98e3, DART 1.19e6", 0.001: "ODE 185, DART 7.23e4"}
    for h, others in published.items():
        ball = _body((0, 0, height + 0.1), mass)
        surfaces = {"floor": FLOOR, "b": _ball("b")}
        system, params, state = _scene({"b": ball}, surfaces, h, material={"restitution": 1.0})
        states = _states(system, params, state, round(20 / h))
        z, v = np.asarray(states.r)[:, 0, 2] - 0.1, np.asarray(states.v)[:, 0, 2]
        error = balls * mass * (G * (z - height) + v**2 / 2)
        floor = (balls * mass * G * h / 2) ** 2 * 2 * G * height / 3
        yield _row(f"energy of bouncing balls, step {1e3 * h:g} ms", float(np.mean(error**2)), floor, "J^2", others)


CASES = {
    "slope": slope,
    "rolling": rolling,
    "impacts": impacts,
    "painleve": painleve,
    "stack": stack,
    "pushed_box": pushed_box,
    "bouncing": bouncing,
}
