"""Recordings with one fault each: is it the first suspicion? And how often is it suspected where nothing is wrong?

A pendulum on a motor, and a cart with a pendulum that a motor drives. Their friction is viscous and dry, noise is that
of the sensors. Half of the draws of every fault is of either mechanism.
"""

import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import yaml

import spookax as sx

from .measure import OUT, Row, row

FOLDER = OUT / "faulty_recordings"
H, STEPS, MORE = 5e-3, 1024, 32  # steps; more of them than samples, for clocks that run fast
SLOW = 8  # steps of the truth in one of a study whose steps are too long, in recordings so many times as long
DRAWS = int(os.environ.get("SPOOKAX_DRAWS", "10"))
Channels = dict[str, np.ndarray]


def _pendulum() -> dict[str, Any]:
    return {
        "bodies": {"bob": {"mass": 1.0, "com": [0, 0, -0.3], "inertia": [0.02, 1, 1]}},
        "joints": {
            "pin": {"type": "hinge", "child": "bob", "axis": [1, 0, 0], "friction": {"viscous": 0.05, "coulomb": 0.05}}
        },
        "motors": {"drive": {"type": "torque", "joint": "pin", "gain": 0.5}},
        "sensors": {"angle": {"type": "joint_position", "joint": "pin", "sd": 1e-3}},
    }


def _cart() -> dict[str, Any]:
    return {
        "bodies": {
            "cart": {"mass": 1.0, "inertia": [0.01, 0.01, 0.01]},
            "bob": {"mass": 0.3, "com": [0, 0, -0.25], "inertia": [0.004, 0.004, 0.001]},
        },
        "joints": {
            "rail": {
                "type": "prismatic",
                "child": "cart",
                "axis": [0, 1, 0],
                "friction": {"viscous": 1.0, "coulomb": 0.4},
            },
            "pin": {
                "type": "hinge",
                "parent": "cart",
                "child": "bob",
                "axis": [1, 0, 0],
                "friction": {"viscous": 0.003},
            },
        },
        "motors": {"drive": {"type": "torque", "joint": "rail", "gain": 2.0}},
        "sensors": {
            "place": {"type": "joint_position", "joint": "rail", "sd": 5e-4},
            "angle": {"type": "joint_position", "joint": "pin", "sd": 1e-3},
        },
    }


UNKNOWN = {
    "pendulum": [
        "bodies.bob.inertia.xx",
        "joints.pin.friction.viscous",
        "joints.pin.friction.coulomb",
        "motors.drive.gain",
    ],
    "cart": [
        "joints.rail.friction.viscous",
        "joints.rail.friction.coulomb",
        "joints.pin.friction.viscous",
        "bodies.bob.inertia.xx",
        "motors.drive.gain",
    ],
}
SCENES = {"pendulum": _pendulum, "cart": _cart}
FIRST_JOINT = {"pendulum": "pin", "cart": "rail"}


def _input(rng: np.random.Generator) -> np.ndarray:
    """A chirp and steps, both at random. [V]"""
    t = H * np.arange(STEPS + MORE)
    steps = np.repeat(rng.uniform(-1.5, 1.5, t.size // 64 + 1), 64)[: t.size]
    f = rng.uniform(0.4, 0.8)
    return steps + rng.uniform(1.0, 2.0) * np.sin(2 * np.pi * (f + 0.12 * t) * t + rng.uniform(0, 6))


_SIMULATORS: dict[str, Any] = {}


def _simulated(name: str, scene: dict[str, Any], u: np.ndarray, rng: np.random.Generator) -> Channels:
    system, params = sx.build(
        sx.Scene.model_validate({"spookax": 1, "step": H, "regularisation": {"v_creep": 1e-3}, **scene})
    )
    key = f"{name} {'drag' if 'drag' in str(scene) else ''}{'stribeck' if 'stribeck' in str(scene) else ''}"
    if key not in _SIMULATORS:
        _SIMULATORS[key] = jax.jit(lambda p, s, u: sx.rollout(system, p, s, u[:, None]))
    pin = {"position": rng.uniform(-0.8, 0.8), "rate": rng.uniform(-1, 1)}
    state = sx.state_from_joints(system, params, {"pin": pin})
    path = _SIMULATORS[key](params, state, jnp.asarray(u))
    return {n: np.asarray(path.joint(s["joint"])[0])[: u.size] for n, s in scene["sensors"].items()}


def draw(name: str, fault: str, seed: int) -> np.ndarray:
    """A recording of the mechanism with a fault: time, input, sensors in columns."""
    rng = np.random.default_rng([seed, *map(ord, fault[:4] + name[:2])])
    t, u, truth = H * np.arange(STEPS + MORE), _input(rng), SCENES[name]()
    sign = rng.choice([-1.0, 1.0])
    friction = truth["joints"][FIRST_JOINT[name]]["friction"]
    if fault == "friction":
        level = friction["coulomb"]
        if seed % 4 < 2:
            friction["stribeck"] = {"excess": 1.5 * level, "speed": 0.3 if name == "pendulum" else 0.1}
        else:
            friction["drag"] = 0.05 if name == "pendulum" else 5.0
    acted = u
    if fault == "step":  # a slow logger, which holds the input; one draw after the other
        acted = u = np.repeat(np.concatenate([u, *(_input(rng) for _ in range(SLOW - 1))])[: SLOW * STEPS : SLOW], SLOW)
        t = H * np.arange(u.size)
    if fault == "delay":
        late = int(rng.integers(3, 10) * sign)
        acted = u[np.clip(np.arange(u.size) - late, 0, None).clip(max=u.size - 1)]
    y = _simulated(name, truth, acted, rng)
    if fault == "clock":
        fast = sign * rng.uniform(0.003, 0.01)
        y = {n: np.interp(t * (1 + fast), t, v) for n, v in y.items()}
    if fault == "step":
        t, u, y = t[::SLOW], u[::SLOW], {n: v[::SLOW] for n, v in y.items()}
    t, u = t[:STEPS], u[:STEPS]
    y = {n: v[:STEPS] + truth["sensors"][n]["sd"] * rng.standard_normal(STEPS) for n, v in y.items()}
    which = list(y)[int(rng.integers(len(y)))]
    keep = np.ones(STEPS, dtype=bool)
    if fault == "sign":
        if name == "pendulum" or rng.uniform() < 0.4:
            u = -u
        else:
            y[which] = -y[which]
    elif fault == "unit":
        if name == "pendulum" or rng.uniform() < 0.4:
            u = u / 1000 if sign > 0 else u * 1000
        elif which == "angle":
            y[which] = np.deg2rad(y[which])
        else:
            y[which] = y[which] / 1000 if sign > 0 else y[which] * 1000
    elif fault == "gaps":
        for begin in rng.integers(50, STEPS - 100, 4):
            keep[begin : begin + int(rng.integers(15, 50))] = False
    elif fault == "outliers":
        at = rng.choice(np.arange(5, STEPS - 5), int(rng.integers(4, 20)), replace=False)
        y[which][at] += rng.choice([-1, 1], at.size) * rng.uniform(0.05, 0.5, at.size)
    elif fault == "drift":
        spread = float(np.std(y[which]))
        y[which] = y[which] + sign * rng.uniform(0.05, 0.2) * spread * t / t[-1]
    elif fault == "saturation":
        low, high = np.quantile(y[which], [0.06, 0.94])
        y[which] = np.clip(y[which], low, high)
    return np.column_stack([t, u, *y.values()])[keep]


FAULTS = ["sign", "delay", "unit", "gaps", "outliers", "clock", "drift", "friction", "saturation", "step"]


def identified(name: str, fault: str, seed: int) -> sx.Estimate:
    """The identification of a draw from starts that are 30 % off."""
    scene, table = SCENES[name](), draw(name, fault, seed)
    FOLDER.mkdir(parents=True, exist_ok=True)
    header = ",".join(["t [s]", "u [V]", *(f"{n} [{'m' if n == 'place' else 'rad'}]" for n in scene["sensors"])])
    np.savetxt(FOLDER / "run.csv", table, "%.9g", ",", header=header, comments="")
    text = {"spookax": 1, "step": H, **scene}
    (FOLDER / f"{name}.yaml").write_text(yaml.safe_dump(text))
    parameters = {}
    for i, path in enumerate(UNKNOWN[name]):
        value = float(sx.scene.get_number(sx.Scene.model_validate(text), path))
        parameters[path] = {"start": value * (1.3 if i % 2 else 0.75)}
    study = {
        "spookax": 1,
        "scene": f"{name}.yaml",
        "recordings": [
            {
                "name": "run",
                "file": "run.csv",
                "time": "t",
                "inputs": {"drive": "u"},
                "sensors": {n: n for n in scene["sensors"]},
            }
        ],
        "parameters": parameters,
    }
    if fault == "step":
        study["estimator"] = {"step": SLOW * H}
    (FOLDER / f"{name}_study.yaml").write_text(yaml.safe_dump(study))
    return sx.identify(sx.load_study(FOLDER / f"{name}_study.yaml"))


def run(part: str | None = None) -> list[Row]:
    """Of every fault, or one of them and the clean draws: named first, and named where nothing is wrong."""
    rows: list[Row] = []
    named: dict[str, list[list[str]]] = {}
    for fault in [part] if part else ["clean", *FAULTS]:
        named[fault] = []
        for seed in range(DRAWS):
            name = ["pendulum", "cart"][seed % 2]
            began = time.perf_counter()
            found = identified(name, fault, seed)
            seconds = time.perf_counter() - began
            told = found.content["diagnosis"]["suspects"]
            named[fault].append([s["kind"] for s in told])
            kinds = "; ".join(f"{s['kind']} {s['where']} {s['gain']:.3g}" for s in told)
            print(f"{fault:10} {name:9} {seconds:5.1f} s {found.status:14} {kinds}", flush=True)
    for fault in FAULTS:
        if fault in named:
            first = sum(kinds[:1] == [fault] for kinds in named[fault])
            rows.append(row(fault, f"first suspicion, of {DRAWS}", first, "draws"))
        if "clean" in named:
            rows.append(
                row(fault, f"named in clean draws, of {DRAWS}", sum(fault in k for k in named["clean"]), "draws")
            )
    return rows
