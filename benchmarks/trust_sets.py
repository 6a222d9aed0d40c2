"""Public recordings as a beginner would hand them over: a scene with guesses, a study without an estimator section.

Masses and centres of mass that free swings cannot tell keep their nominal values. Angles are those of the joints.
Scenes that are written here name no step, but where a variant is about it.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from . import trust_driven as driven
from .measure import OUT, ROOT

FOLDER = OUT / "trust"
Recordings = list[dict[str, Any]]


class Set(NamedTuple):
    """`scene`: file; `fitted`, `other`: recordings that are fitted, and that are predicted."""

    scene: Path
    parameters: dict[str, Any]
    fitted: Recordings
    other: Recordings


def _data() -> Path:
    return Path(os.environ["SPOOKAX_DATA"])


def _written(name: str, scene: dict[str, Any]) -> Path:
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"spookax": 1, "name": name, **scene}, sort_keys=False), encoding="utf-8")
    return path


def as_joint_angles(source: str, target: str, columns: int) -> str:
    """Angles against the vertical as angles between neighbours, in a file of its own."""
    table = np.genfromtxt(_data() / source, delimiter=",", skip_header=1)
    angles = np.diff(table[:, 1 : 1 + columns], axis=1, prepend=0.0)
    names = ",".join(f"q{i + 1} [rad]" for i in range(columns))
    FOLDER.mkdir(parents=True, exist_ok=True)
    np.savetxt(
        FOLDER / target, np.column_stack([table[:, 0], angles]), "%.8g", ",", header=f"t [s],{names}", comments=""
    )
    return target


def _pendulum(arms: list[tuple[float, float, float]], lengths: list[float], sd: float, up: int, **more: Any) -> dict:
    """Arms (mass, centre of mass, moment of inertia) one at the end of the other; `up`: sign of z along an arm."""
    scene: dict[str, Any] = {"bodies": {}, "joints": {}, "sensors": {}, **more}
    for i, (mass, com, moment) in enumerate(arms, 1):
        scene["bodies"][f"arm{i}"] = {"mass": mass, "com": [0, 0, up * com], "inertia": [moment] * 3}
        scene["joints"][f"joint{i}"] = {
            "type": "hinge",
            "parent": "world" if i == 1 else f"arm{i - 1}",
            "child": f"arm{i}",
            "at": [0, 0, 0 if i == 1 else up * lengths[i - 2]],
            "axis": [0, up, 0],
            "friction": {"viscous": 2e-4, "coulomb": 1e-4},
        }
        scene["sensors"][f"encoder{i}"] = {"type": "joint_position", "joint": f"joint{i}", "sd": sd}
    return scene


def _of_pendulum(count: int, offsets: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for i in range(1, count + 1):
        found[f"bodies.arm{i}.inertia.yy"] = {}
        if i < count:
            found[f"bodies.arm{i}.com.z"] = {}
        found[f"joints.joint{i}.friction.viscous"] = {}
        found[f"joints.joint{i}.friction.coulomb"] = {}
        if offsets:
            found[f"sensors.encoder{i}.offset"] = {"start": 0.0, "prior_sd": 0.02}
    return found


def _in_air(name: str, found: Set) -> Set:
    """The same with the law `air` of `spookax choose-friction` in place of viscous friction: drag on the first joint,
    air against the other arms."""
    scene, parameters = yaml.safe_load(found.scene.read_text(encoding="utf-8")), dict(found.parameters)
    for i, (joint, arm) in enumerate(zip(scene["joints"], scene["bodies"], strict=True)):
        if i == 0:
            scene["joints"][joint]["friction"]["drag"] = 1e-5
            parameters[f"joints.{joint}.friction.drag"] = {}
            continue
        del scene["joints"][joint]["friction"]["viscous"], parameters[f"joints.{joint}.friction.viscous"]
        scene["bodies"][arm]["air"] = {"viscous": 1e-3, "drag": 1e-2}
        parameters |= {f"bodies.{arm}.air.{key}": {} for key in ("viscous", "drag")}
    return found._replace(scene=_written(name, scene), parameters=parameters)


def cut_windows(file: str, count: int, spans: list[tuple[float, float]], **more: Any) -> Recordings:
    sensors = {f"encoder{i + 1}": f"q{i + 1}" for i in range(count)}
    base = {"file": file, "time": "t", "sensors": sensors, **more}
    return [{**base, "name": f"{Path(file).stem}_{a:g}", "start": a, "stop": b} for a, b in spans]


def single(drag: bool = False, step: float | None = None) -> Set:
    """One arm: 18.3 s of a free swing; the two times 9.2 s that follow."""
    scene = _pendulum([(0.1476, 0.1478, 1.1e-4)], [], 1e-4, 1, **({} if step is None else {"step": step}))
    parameters = _of_pendulum(1, True)
    if drag:
        scene["joints"]["joint1"]["friction"]["drag"] = 1e-5
        parameters["joints.joint1.friction.drag"] = {}
    file = as_joint_angles("multiarm_pendulum/single_free.csv", "single.csv", 1)
    fitted = cut_windows(file, 1, [(0.0, 18.333)], every=10)
    other = cut_windows(file, 1, [(18.333, 27.499), (27.499, 36.665)], every=10)
    return Set(_written(f"single{'_drag' * drag}_{step}", scene), parameters, fitted, other)


def double() -> Set:
    """Two arms: six windows of 2.667 s, the twelve others predicted."""
    scene = _pendulum([(0.0938, 0.1086, 4.4e-4), (0.1376, 0.1168, 1.27e-3)], [0.1727], 1e-4, 1)
    file = as_joint_angles("multiarm_pendulum/double_free.csv", "double.csv", 2)
    windows = cut_windows(file, 2, [(round(2.667 * k, 4), round(2.667 * (k + 1), 4)) for k in range(18)], every=5)
    other = [w for k, w in enumerate(windows) if k % 3]
    return Set(_written("double", scene), _of_pendulum(2, True), windows[::3], other)


def triple() -> Set:
    """Three arms: five windows of 1.539 s, the ten others predicted."""
    arms = [(0.258, 0.16, 5e-4), (0.279, 0.203, 9.3e-4), (0.1186, 0.1837, 5.1e-4)]
    scene = _pendulum(arms, [0.1728, 0.2287], 1e-4, 1)
    file = as_joint_angles("multiarm_pendulum/triple_free.csv", "triple.csv", 3)
    windows = cut_windows(file, 3, [(round(1.539 * k, 4), round(1.539 * (k + 1), 4)) for k in range(15)], every=5)
    other = [w for k, w in enumerate(windows) if k % 3]
    return Set(_written("triple", scene), _of_pendulum(3, True), windows[::3], other)


def ibm_shaken() -> Set:
    """A chaotic double pendulum on camera, from the launch on: six times 0.5 s of one run, ten times 0.32 s of another.

    Until about 10 s the stand shakes at 12 Hz, by 0.3 mm at first, as the pivot's own mark tells, and no scene of ours
    knows of it.
    """
    scene = _pendulum([(0.2, 0.06, 3e-4), (0.05, 0.035, 3e-5)], [0.091], 1e-3, -1)
    fitted = on_camera("03", 0.0, 5.0, 6, 0.5)
    return Set(_written("ibm", scene), _of_pendulum(2, False), fitted, on_camera("07", 0.0, 3.0, 10, 0.32))


def on_camera(run: str, begin: float, apart: float, count: int, length: float) -> Recordings:
    """Windows of a run of the camera."""
    file = as_joint_angles(f"ibm_double_pendulum/run{run}.csv", f"ibm{run}.csv", 2)
    begins = [begin + apart * k for k in range(count)]
    return cut_windows(file, 2, [(at, at + length) for at in begins])


def ibm() -> Set:
    """As many and as long windows of the same runs with the stand at rest; the camera's tilt is unknown."""
    found = ibm_shaken()
    zeros = {f"sensors.encoder{i}.offset": {"start": 0.0, "prior_sd": 0.02} for i in (1, 2)}
    return found._replace(
        parameters=found.parameters | zeros,
        fitted=on_camera("03", 10.0, 4.0, 6, 0.5),
        other=on_camera("07", 12.0, 2.2, 10, 0.32),
    )


def ibm_camera() -> Set:
    """The same with the time of a frame unknown, for which the length of the first arm stands, and five windows of
    0.32 s of each of four runs predicted.
    """
    found = ibm()
    parameters = found.parameters | {"joints.joint2.at.z": {"prior_sd": 0.002}}
    other = [window for run in ("03", "07", "12", "18") for window in on_camera(run, 12.0, 4.0, 5, 0.32)]
    return found._replace(parameters=parameters, other=other)


def dfki_simple() -> Set:
    """A motor swings a weight up: one control law fitted, another predicted."""
    scene = _pendulum([(0.6, 0.5, 1e-3)], [], 1e-3, -1)
    scene["joints"]["joint1"] |= {"armature": 5e-3, "friction": {"viscous": 0.02, "coulomb": 0.1}}
    scene["motors"] = {"motor": {"type": "torque", "joint": "joint1"}}
    parameters = {
        "bodies.arm1.mass": {},
        "joints.joint1.armature": {},
        "joints.joint1.friction.viscous": {},
        "joints.joint1.friction.coulomb": {},
        "motors.motor.bias": {"start": 0.0, "prior_sd": 0.5},
    }
    base = {"time": "t", "inputs": {"motor": "tau"}, "sensors": {"encoder1": "q"}}
    runs = [{**base, "dataset": f"dfki_simple_pendulum/{n}_swingup.csv"} for n in ("ddp", "energy_shaping")]
    return Set(_written("dfki_simple", scene), parameters, runs[:1], runs[1:])


def _shipped(study: str) -> tuple[Path, dict[str, Any]]:
    path = ROOT / study
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    for recording in content["recordings"]:
        if "file" in recording:
            recording["file"] = str(path.parent / recording["file"])
    return path.parent / content["scene"], content


def emps() -> Set:
    """A positioning axis: every sample of the record, which is predicted from its start."""
    scene, content = _shipped("studies/emps.yaml")
    recordings = [{k: v for k, v in r.items() if k != "every"} for r in content["recordings"]]
    return Set(scene, content["parameters"], recordings, recordings)


def dfki_double() -> Set:
    """Two motors: four records with sines, stick-slip and a swing-up; two others predicted."""
    fitted, other = (driven.double_recordings(names) for names in (driven.FITTED, driven.LEFT_OUT))
    return Set(_written("dfki_double", driven.double_scene()), driven.DOUBLE_PARAMETERS, fitted, other)


def furuta_odrive() -> Set:
    """A rotary pendulum with cogging: four records, the fifth predicted."""
    scene, content = _shipped("studies/furuta_odrive.yaml")
    other = [r for r in content["recordings"] if "sin_4V" in r["dataset"]]
    return Set(scene, content["parameters"], [r for r in content["recordings"] if r not in other], other)


def furuta_ringdown() -> Set:
    """Its pendulum alone, swinging to rest: the record is predicted from its start."""
    scene, content = _shipped("studies/furuta_ringdown.yaml")
    return Set(scene, content["parameters"], content["recordings"], content["recordings"])


def demo() -> Set:
    """The demo's recording; its test recording predicted."""
    scene, content = _shipped("demo/furuta_study.yaml")
    (train,) = content["recordings"]
    test = {**train, "name": "test", "file": str(ROOT / "demo/test.csv")}
    return Set(scene, content["parameters"], [train], [test])


SETS: dict[str, Callable[[], Set]] = {
    "single": single,
    "single_drag": lambda: single(drag=True),
    "double": double,
    "double_air": lambda: _in_air("double_air", double()),
    "triple": triple,
    "triple_air": lambda: _in_air("triple_air", triple()),
    "ibm": ibm,
    "ibm_air": lambda: _in_air("ibm_air", ibm()),
    "ibm_shaken": ibm_shaken,
    "ibm_camera": ibm_camera,
    "ibm_camera_air": lambda: _in_air("ibm_camera_air", ibm_camera()),
    "dfki_simple": dfki_simple,
    "dfki_double": dfki_double,
    "furuta_odrive": furuta_odrive,
    "furuta_ringdown": furuta_ringdown,
    "emps": emps,
    "demo": demo,
}


def _read(every: int, found: Set) -> Set:
    """The same with every n-th sample, and a step of 2.5 ms."""
    scene = yaml.safe_load(found.scene.read_text(encoding="utf-8")) | {"step": 0.0025}
    content = {key: value for key, value in scene.items() if key not in ("spookax", "name")}
    fitted, other = ([{**r, "every": every} for r in part] for part in (found.fitted, found.other))
    written = _written(f"{found.scene.stem}_every_{every}", content)
    return found._replace(scene=written, fitted=fitted, other=other)


# one at a time, by name: `trust.double_every_10`
MORE_SETS: dict[str, Callable[[], Set]] = {
    f"{of}_every_{every}": functools.partial(lambda every, make: _read(every, make()), every, make)
    for of, make in (("double", double), ("triple", triple))
    for every in (1, 5, 10)
} | {
    f"single{'_drag' * drag}_step_{1000 * step:g}ms": functools.partial(single, drag, step)
    for drag in (False, True)
    for step in (0.005, 0.001)
}
