"""Inertia of the tossed cube from motion alone: its flights before it hits, by `spookax identify` from the shell.

What turns freely tells its inertia up to a factor, which a prior of a tenth holds. So the answer is moments and
products over the mean moment, and from these the principal moments and axes, all with what the estimate's covariance
makes of them. Where two principal moments are no farther apart than twice the standard deviation of their difference,
the data say nothing of the axes between them. Gravity and the centre of mass (against the middle of the markers) are
unknown, too.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import yaml
from scipy.spatial.transform import Rotation

from spookax import Estimate, load_estimate

from .contacts import GRAVITY, HALF, MASS, MOMENT, RATE, Toss, tosses
from .cube_study import COLUMNS
from .measure import Row

CLEAR = 0.004  # of the lowest corner above the board in a flight [m]
LENGTHS = (22, 18, 14)  # samples that are taken of a flight: few lengths, few programs
BODY = "bodies.cube"
SIX = ("xx", "yy", "zz", "xy", "xz", "yz")
PLACES = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
CORNERS = HALF * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])


def flight(toss: Toss) -> int:
    """Samples of a toss before it comes near the board, as one of `LENGTHS`; 0 where there are fewer."""
    turned = Rotation.from_quat(toss.quaternion, scalar_first=True).as_matrix() @ CORNERS.T
    low = toss.position[:, 2] + np.min(turned[:, 2], axis=1)
    free = int(np.argmax(np.append(low <= CLEAR, True)))
    return next((length for length in LENGTHS if length <= free), 0)


def write(folder: Path, flights: list[tuple[Toss, int]]) -> Path:
    """The scene, the study and a recording of every flight; returns the study file."""
    header = ",".join(["t [s]", *(f"{c} [{'m' if i < 3 else 'rad'}]" for i, c in enumerate(COLUMNS))])
    for toss, length in flights:
        turn = Rotation.from_quat(toss.quaternion[:length], scalar_first=True).as_rotvec()
        table = np.column_stack([np.arange(length) / RATE, toss.position[:length], turn])
        np.savetxt(folder / f"toss{toss.number}.csv", table, delimiter=",", header=header, comments="")
    scene = {
        "spookax": 1,
        "step": 1 / RATE,
        "gravity": [0, 0, -GRAVITY],
        "bodies": {"cube": {"mass": MASS, "inertia": [MOMENT] * 3}},
        "sensors": {"pose": {"type": "body_pose", "body": "cube", "sd": 1e-3}},
    }
    (folder / "scene.yaml").write_text(yaml.safe_dump(scene), encoding="utf-8")
    study = {
        "spookax": 1,
        "scene": "scene.yaml",
        "defaults": {"time": "t", "sensors": {"pose": list(COLUMNS)}},
        "recordings": [{"file": f"toss{toss.number}.csv"} for toss, _ in flights],
        "parameters": {
            f"{BODY}.inertia": {"prior_sd": 0.1},
            "gravity.z": {},
            **{f"{BODY}.com.{axis}": {} for axis in "xyz"},
        },
        "estimator": {
            "process_noise": {"kind": "bodies", "density": 1e-4, "estimate": False},
            "sensor_noise": {"estimate": True},
            "restarts": 0,
        },
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False), encoding="utf-8")
    return folder / "study.yaml"


def run() -> list[Row]:
    """Moments and products over the mean moment, principal moments and axes, the centre of mass, gravity."""
    flights = [(toss, length) for toss in tosses() if (length := flight(toss))]
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        study = write(folder, flights)
        command = [sys.executable, "-m", "spookax", "identify", str(study), "--out", str(folder / "out"), "--quiet"]
        subprocess.run(command, check=False, env=os.environ)  # its status is in the estimate
        return list(rows(load_estimate(folder / "out")))


def rows(estimate: Estimate) -> Iterator[Row]:
    """What an estimate says."""
    paths = [f"{BODY}.inertia.{key}" for key in SIX]
    found, covariance = np.array([estimate.value(path) for path in paths]), _covariance(estimate, paths)
    off, between = _principal(found), list(combinations(range(3), 2))
    _, turn = np.linalg.eigh(_matrix(found))

    def product(i: int, j: int) -> Callable[[np.ndarray], float]:
        """The product of inertia about two of the axes that were found."""
        return lambda six: float(turn[:, i] @ _matrix(six) @ turn[:, j] / _mean(six))

    for n, key in enumerate(SIX):
        yield _row(
            f"{key} / mean", found[n] / _mean(found), _sd(lambda six, n=n: six[n] / _mean(six), found, covariance)
        )
    for i in range(3):
        yield _row(f"principal moment {i + 1} / mean", off[i], _sd(product(i, i), found, covariance))
    for i, j in between:
        apart = off[j] - off[i]
        sd = _sd(lambda six, i=i, j=j: product(j, j)(six) - product(i, i)(six), found, covariance)
        angle = np.degrees(_sd(product(i, j), found, covariance) / apart)
        about = f"{angle:.2g}" if apart > 2 * sd else "any"
        axis = " ".join(f"{x:.2f}" for x in turn[:, 3 - i - j])
        yield _row(f"difference of {i + 1} and {j + 1}", apart, sd) | {
            "axes turn about": axis,
            "by sd [degrees]": about,
        }
    for path in ("gravity.z", *(f"{BODY}.com.{axis}" for axis in "xyz")):
        number = estimate.parameters[path]
        yield _row(path, number["value"], number["sd"])


def _row(what: str, value: float, sd: float) -> Row:
    return {
        "what": what,
        "value": float(value),
        "sd": sd,
        "interval": f"{value - 1.96 * sd:.4f} to {value + 1.96 * sd:.4f}",
    }


def _covariance(estimate: Estimate, paths: list[str]) -> np.ndarray:
    told = estimate.content["correlation"]
    at = [told["paths"].index(path) for path in paths]
    sd = np.array([estimate.parameters[path]["sd"] for path in paths])
    return np.array(told["matrix"])[np.ix_(at, at)] * np.outer(sd, sd)


def _matrix(six: np.ndarray) -> np.ndarray:
    full = np.zeros((3, 3))
    for (i, j), value in zip(PLACES, six, strict=True):
        full[i, j] = full[j, i] = value
    return full


def _mean(six: np.ndarray) -> float:
    return float(np.mean(six[:3]))


def _principal(six: np.ndarray) -> np.ndarray:
    return np.linalg.eigvalsh(_matrix(six)) / _mean(six)


def _sd(of: Callable[[np.ndarray], float], at: np.ndarray, covariance: np.ndarray) -> float:
    """Standard deviation of a function of the six numbers, by its derivatives."""
    size = 1e-6 * _mean(at)
    slope = np.array([(of(at + step) - of(at - step)) / (2 * size) for step in size * np.eye(6)])
    return float(np.sqrt(slope @ covariance @ slope))
