"""Driven machines for `trust`: as a beginner would hand them over, without an estimator section.

Beside predictions of angles, what each of them is usually judged by: torque by inverse dynamics of the DFKI double
pendulum against least squares by equation error, and a servo in closed loop at a gain that was left out.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

import spookax as sx
from spookax.study.file.against_scene import sensor_dimensions

from .measure import OUT, ROOT, Row, row
from .servo_friction import GAINS, LAWS, law_of, left_out

GRAVITY, LINK = 9.81, 0.2  # of the DFKI double pendulum: the first link's length [m]
CUT = 8.0  # Hz, of the filter without phase
AT_REST = 0.05  # rad/s, of filtered rates: below it a joint may stick
MOVING = 0.1  # rad/s: above it it does not
FITTED = ("sines_both_b", "elbow_fast", "shoulder_slow_stickslip", "swingup_1")
LEFT_OUT = ("sines_both_c", "shoulder_small_elbow_stuck")
LAW = "Stribeck, bearing"


class Motion(NamedTuple):
    """Filtered angles, rates, accelerations and torques of both joints. (samples, 2)"""

    q: np.ndarray
    v: np.ndarray
    a: np.ndarray
    torque: np.ndarray


def double_scene() -> dict[str, Any]:
    """Two links of nominal mass; the second angle is relative to the first link."""
    joint = {"type": "hinge", "axis": [0, -1, 0], "armature": 2e-3, "friction": {"viscous": 0.01, "coulomb": 0.1}}
    inertia = [3e-3] * 3
    return {
        "bodies": {
            "link1": {"mass": 0.5, "com": [0, 0, -0.2], "inertia": inertia},
            "link2": {"mass": 0.6, "com": [0, 0, -0.25], "inertia": inertia},
        },
        "joints": {
            "shoulder": {**joint, "parent": "world", "child": "link1", "at": [0, 0, 0]},
            "elbow": {**joint, "parent": "link1", "child": "link2", "at": [0, 0, -LINK]},
        },
        "motors": {f"drive{i}": {"type": "torque", "joint": j} for i, j in ((1, "shoulder"), (2, "elbow"))},
        "sensors": {
            f"encoder{i}": {"type": "joint_position", "joint": j, "sd": 5e-4}
            for i, j in ((1, "shoulder"), (2, "elbow"))
        },
    }


DOUBLE_PARAMETERS: dict[str, Any] = {
    "bodies.link1.com.z": {},
    "bodies.link2.com.z": {},
    "bodies.link1.inertia.yy": {},
    "bodies.link2.inertia.yy": {},
    **{f"joints.{j}.{key}": {} for j in ("shoulder", "elbow") for key in ("friction.viscous", "friction.coulomb")},
    "joints.elbow.armature": {},
}


def double_recordings(names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Entries of a study."""
    base = {
        "time": "t",
        "inputs": {"drive1": "tau1", "drive2": "tau2"},
        "sensors": {"encoder1": "q1", "encoder2": "q2"},
    }
    return [{**base, "dataset": f"dfki_double_pendulum/{name}.csv"} for name in names]


def moved(file: Path) -> Motion:
    """A recording filtered without phase and differentiated, its ends cut off."""
    table = np.genfromtxt(file, delimiter=",", skip_header=1)
    h = float(np.median(np.diff(table[:, 0])))
    time = np.arange(table[0, 0], table[-1, 0], h)
    even = np.column_stack([np.interp(time, table[:, 0], table[:, k]) for k in (1, 2, 5, 6)])
    smooth = _without_phase(even, h)
    v = np.gradient(smooth[:, :2], h, axis=0)
    cut = slice(round(0.3 / h), -round(0.3 / h))
    return Motion(smooth[cut, :2], v[cut], np.gradient(v, h, axis=0)[cut], smooth[cut, 2:])


def _without_phase(y: np.ndarray, h: float) -> np.ndarray:
    """Fourth-order Butterworth magnitude in the frequency domain, the signal mirrored at its ends."""
    both = np.concatenate([2 * y[0] - y[:0:-1], y, 2 * y[-1] - y[-2::-1]])
    gain = 1 / (1 + (np.fft.rfftfreq(len(both), h) / CUT) ** 8)
    return np.fft.irfft(np.fft.rfft(both, axis=0) * gain[:, None], len(both), axis=0)[len(y) - 1 : 2 * len(y) - 1]


def regressors(motion: Motion) -> np.ndarray:
    """Torque by the numbers that it is linear in (samples, 2, 9): inertia of both links about the shoulder, product of
    masses and lengths, inertia of the second link about the elbow and with its rotor, weight of the first axis, viscous
    and dry friction of both joints.
    """
    (q1, q2), (v1, v2), (a1, a2) = motion.q.T, motion.v.T, motion.a.T
    zero, c, s = np.zeros_like(q1), np.cos(q2), np.sin(q2)
    weight = GRAVITY / LINK * np.sin(q1 + q2)
    first = [a1, c * (2 * a1 + a2) - s * v2 * (2 * v1 + v2) + weight, a2, zero, np.sin(q1), v1, zero, np.sign(v1), zero]
    second = [zero, c * a1 + s * v1**2 + weight, a1, a2, zero, zero, v2, zero, np.sign(v2)]
    return np.stack([np.stack(first, axis=-1), np.stack(second, axis=-1)], axis=1)


def numbers_of(scene: sx.Scene) -> np.ndarray:
    """What a scene says about the factors of `regressors`."""
    one, two = (scene.bodies[name] for name in ("link1", "link2"))
    joints = [scene.joints[name] for name in ("shoulder", "elbow")]
    (m1, c1, J1), (m2, c2, J2) = ((b.mass, abs(b.com[2]), b.inertia.yy) for b in (one, two))
    second, rotors = J2 + m2 * c2**2, [joint.armature for joint in joints]
    whole = J1 + m1 * c1**2 + m2 * LINK**2 + second + rotors[0]
    friction = [joint.friction for joint in joints]
    weight = (m1 * c1 + m2 * LINK) * GRAVITY
    dry = [f.viscous for f in friction] + [f.coulomb for f in friction]
    return np.array([whole, m2 * LINK * c2, second, second + rotors[1], weight, *dry], dtype=float)


def missed(motion: Motion, numbers: np.ndarray, at_rest: float = 0.0) -> np.ndarray:
    """Torque less that by inverse dynamics (samples, 2). Below the rate `at_rest` dry friction is what it has to be, up
    to its level; else it has the sign of the rate, which of a joint that sticks is the sign of the noise.
    """
    Y = regressors(motion)
    moving = motion.torque - Y[..., :-2] @ numbers[:-2]
    level = np.abs(numbers[-2:])
    sticks = np.abs(motion.v) < at_rest
    return np.where(sticks, moving - np.clip(moving, -level, level), motion.torque - Y @ numbers)


def double(data: Path, estimate: sx.Estimate) -> list[Row]:
    """Error of the torque in the recordings that were left out, beside least squares on those that were fitted: with
    the sign of a noisy rate as the direction of friction, with friction as a set where a joint is at rest, and only
    where both joints move.
    """
    folder = data / "dfki_double_pendulum"
    fitted, other = ([moved(folder / f"{name}.csv") for name in names] for names in (FITTED, LEFT_OUT))
    Y, y = (np.concatenate(part) for part in ([regressors(m) for m in fitted], [m.torque for m in fitted]))
    least, *_ = np.linalg.lstsq(Y.reshape(-1, Y.shape[-1]), y.ravel(), rcond=None)
    assert estimate.scene is not None, estimate.message
    found = numbers_of(estimate.scene)
    rows = []
    moving = [np.all(np.abs(m.v) > MOVING, axis=1) for m in other]
    everywhere = [np.full(len(m.v), True) for m in other]
    for case, at_rest, where in (
        ("torque left out", 0.0, everywhere),
        ("torque left out, friction a set at rest", AT_REST, everywhere),
        ("torque left out, where both joints move", 0.0, moving),
    ):
        limit, error = (
            _rms([missed(m, numbers, at_rest)[there] for m, there in zip(other, where, strict=True)])
            for numbers in (least, found)
        )
        rows.append(row("dfki_double", f"{case}, least squares by equation error", limit, "N m"))
        rows.append(row("dfki_double", f"{case}, identified", error, "N m", over=limit, to="least squares"))
    rows.append(row("dfki_double", "torque left out, its RMS", _rms([m.torque for m in other]), "N m"))
    ratio = float(np.mean(found[:5] / least[:5]))
    rows.append(row("dfki_double", "inertial numbers over those of least squares, mean", ratio, ""))
    return rows


def _rms(parts: list[np.ndarray]) -> float:
    return float(np.sqrt(np.mean(np.concatenate(parts) ** 2)))


def servo() -> list[Row]:
    """Mean absolute error of a servo's angle in closed loop, every gain left out in turn, with a law of friction."""
    text = yaml.safe_load((ROOT / "studies/servo_xl330.yaml").read_text(encoding="utf-8"))
    del text["estimator"]
    text["scene"] = str(ROOT / "scenes/servo_xl330.yaml")
    path = OUT / "trust" / "servo_study.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(text), encoding="utf-8")
    first = sx.load_study(path)
    scene = sx.read_scene(first.scene_path)
    read = sx.read_recordings(first, sensor_dimensions(scene))
    assert LAW in LAWS
    study, scene = law_of(first, scene, LAW)
    rows, errors = [], []
    for gain in GAINS:
        found, _, in_loop = left_out(study, scene, read, gain)
        errors += in_loop.values()
        said = f"({found.status}, {found.content['trust']['grade']})"
        rows.append(
            row(
                f"servo without {gain}",
                f"closed loop, mean absolute error {said}",
                float(np.mean(list(in_loop.values()))),
                "rad",
            )
        )
        print(rows[-1], flush=True)
    return [*rows, row("servo", "closed loop, all nine", float(np.mean(errors)), "rad", over=0.045, to="limit 0.045")]
