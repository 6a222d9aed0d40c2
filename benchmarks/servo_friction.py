"""Friction in the gear of a real servo: formulas and a network, each gain of its loop predicted from the other two."""

import json

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax.scene import Scene
from spookax.study.file.against_scene import sensor_dimensions
from spookax.study.file.study import Study
from spookax.study.identifying.predict import predict_open_loop
from spookax.study.recordings.recording import Recording

from .measure import OUT, ROOT, Row, row

STUDY = ROOT / "studies/servo_xl330.yaml"
PLACE = "joints.shaft.friction"
GAINS = ("kp100", "kp400", "kp800")
DUTY_PER_RAD = 0.0028776  # of the goal minus the angle, per unit of kp: the firmware's
STRIBECK = {"excess": 0.01, "speed": 0.5}
LAWS = {  # friction of the scene beside the viscous one, and its unknown numbers
    "Coulomb": ({"coulomb": 0.03}, ("coulomb",)),
    "Stribeck": ({"coulomb": 0.03, "stribeck": STRIBECK}, ("coulomb", "stribeck.excess", "stribeck.speed")),
    "Stribeck, bearing": (
        {"coulomb": 0.02, "stribeck": STRIBECK, "bearing": 2e-3},
        ("coulomb", "stribeck.excess", "stribeck.speed", "bearing"),
    ),
    "network of speed": ({"learned": {"force": 0.05}}, ("learned.weights",)),
    "of speed, angle": ({"learned": {"force": 0.05, "sees": ["angle"]}}, ("learned.weights",)),
    "of speed, load, angle": ({"learned": {"force": 0.05, "sees": ["load", "angle"]}}, ("learned.weights",)),
}


def law_of(study: Study, scene: Scene, name: str) -> tuple[Study, Scene]:
    """The study and its scene with another law of friction."""
    friction, unknown = LAWS[name]
    shaft = scene.joints["shaft"]
    data = scene.plain()
    data["joints"]["shaft"]["friction"] = {"viscous": shaft.friction.viscous, **friction}
    plain = study.model_dump(exclude_unset=True)
    kept = {path: spec for path, spec in plain["parameters"].items() if "learned" not in path}
    plain["parameters"] = kept | {f"{PLACE}.{key}": {} for key in unknown}
    return Study.model_validate(plain), Scene.model_validate(data)


def run() -> list[Row]:
    """Errors of the angle of the three recordings at the gain left out.

    In closed loop: the servo's own law, from the goal. Open loop: from the recorded duty.
    """
    first = sx.load_study(STUDY)
    read = sx.read_recordings(first, sensor_dimensions(sx.read_scene(first.scene_path)))
    rows: list[Row] = []
    numbers: dict[str, dict] = {}
    closed: dict[str, list[float]] = {}
    for name in LAWS:
        study, scene = law_of(first, sx.read_scene(first.scene_path), name)
        for gain in GAINS:
            found, open_loop, in_loop = left_out(study, scene, read, gain)
            closed.setdefault(name, []).extend(in_loop.values())
            errors = {"open loop": open_loop, "closed loop": in_loop}
            numbers[f"{name}, {gain}"] = {"status": found.status, "errors": errors, **found.to_json()}
            case = f"{name}: without {gain}"
            rows.append(row(case, "closed loop, mean absolute error", float(np.mean(list(in_loop.values()))), "rad"))
            rows.append(
                row(case, "open loop, RMS error", float(np.sqrt(np.mean(np.square(list(open_loop.values()))))), "rad")
            )
            rows.append(row(case, "cost of the rest", found.content["cost"], ""))
            print(*rows[-3:], found.status, sep="\n", flush=True)
    best = min(np.mean(closed[name]) for name in ("Coulomb", "Stribeck", "Stribeck, bearing"))
    said = {"over": float(best), "to": "the best formula"}
    rows += [row(name, "closed loop, all nine", float(np.mean(e)), "rad", **said) for name, e in closed.items()]
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "servo_friction_estimates.json").write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    return rows


def left_out(
    study: Study, scene: Scene, read: list[Recording], gain: str
) -> tuple[sx.Estimate, dict[str, float], dict[str, float]]:
    """The estimate from the recordings at the other gains; of those at this one the RMS error open loop and the mean
    absolute error in closed loop [rad].
    """
    pairs = list(zip(study.recordings, read, strict=True))
    rest = [(spec, recording) for spec, recording in pairs if gain not in spec.name]
    known = study.model_copy(update={"recordings": [spec for spec, _ in rest]})
    found = sx.identify(known, recordings=[recording for _, recording in rest], scene=scene)
    assert found.scene is not None, found.message
    open_loop, in_loop = {}, {}
    for spec, recording in pairs:
        if gain in spec.name:
            open_loop[spec.name] = predict_open_loop(known, found, recording, spec, scene=scene)["encoder"]["rms"]
            in_loop[spec.name] = closed_loop(found.scene, recording, float(gain.removeprefix("kp")))
    return found, open_loop, in_loop


def closed_loop(scene: Scene, recording: Recording, kp: float) -> float:
    """Mean absolute error of the angle, simulated from rest where it was first read, the goal as input. [rad]"""
    data = scene.plain()
    gain = data["motors"]["servo"]["gain"]
    data["motors"]["servo"] = {
        "type": "position",
        "joint": "shaft",
        "stiffness": gain * kp * DUTY_PER_RAD,
        "damping": 0.0,
        "max_force": gain,
    }
    system, params = sx.build(Scene.model_validate(data))
    goal = np.genfromtxt(recording.path, delimiter=",", skip_header=1, usecols=(3,))
    h, time = scene.step, recording.time - recording.time[0]
    steps = int(np.ceil(time[-1] / h)) + 1
    # held from sample to sample, as the servo does
    command = goal[np.searchsorted(time, h * np.arange(steps), side="right") - 1]
    offset = data["sensors"]["encoder"]["offset"]
    read = recording.sensors["encoder"][:, 0] - offset
    state = sx.state_from_joints(system, params, {"shaft": {"position": read[0]}})
    run = eqx.filter_jit(sx.rollout)(system, params, state, jnp.asarray(command - offset)[:, None], throw=False)
    angle = np.interp(time, np.asarray(run.time), np.asarray(run.position[:, 0]))
    return float(np.mean(np.abs(angle - read)))
