"""An estimate as a study would write it, made up."""

from typing import Any

import numpy as np

PATHS = {
    "bodies.arm.inertia.zz": ("kg m^2", 2.0e-3, 3.1247e-3, 4.1e-5, 1e-6, 1.0),
    "bodies.pendulum.inertia.xx": ("kg m^2", 1.0e-4, 1.5e-4, 2.2e-6, 1e-6, 1.0),
    "joints.shoulder.friction.viscous": ("N m s/rad", 1.0e-4, 2.0e-4, 5.0e-6, 0.0, 1.0),
    "joints.shoulder.friction.coulomb": ("N m", 1.0e-3, 0.0, 4.0e-5, 0.0, 1.0),
    "joints.elbow.friction.viscous": ("N m s/rad", 1.0e-5, 1.4e-5, 9.0e-6, 0.0, 1.0),
    "motors.drive.gain": ("N m/V", 0.02, 0.0411, 3.0e-4, 1e-4, 1.0),
    "tilt.x": ("rad", 0.0, 0.0123, 2.0e-4, None, None),
}


def estimate() -> dict[str, Any]:
    n = len(PATHS)
    correlation = 0.3 ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    correlation[0, 5] = correlation[5, 0] = 0.982
    parameters = {
        path: {
            "value": value,
            "sd": sd,
            "unit": unit,
            "start": start,
            "lower": lower,
            "upper": upper,
            "transform": "log",
            "prior_sd": None,
        }
        for path, (unit, start, value, sd, lower, upper) in PATHS.items()
    }
    return {
        "spookax": "0.1.0",
        "created": "2025-01-02T03:04:05+00:00",
        "status": "converged",
        "message": "The relative change of the cost fell below 1e-06 in iteration 9.",
        "study": "furuta",
        "parameters": parameters,
        "correlation": {"paths": list(PATHS), "matrix": correlation.tolist()},
        "runs": {"train": _run("furuta_train.csv", 1.0), "second & third": _run("furuta_<late>.csv", 2.0)},
        "noise": {
            "process_density": 1.2e-5,
            "process_unit": "N m sqrt(s)",
            "kind": "joints",
            "sensors": {"arm_encoder": 1.1e-3, "tip": [2.0e-3, 2.0e-3, 3.0e-3]},
        },
        "form": "simulator",
        "step": 0.002,
        "convergence": [
            {
                "iteration": i,
                "cost": -1.2e4 + 9e4 * 0.2**i,
                "step": 0.5**i,
                "damping": 10.0 ** (2 - i),
                "seconds": 1.3,
            }
            for i in range(10)
        ],
        "checks": {
            "gauge": [
                {
                    "paths": ["bodies.arm.inertia.zz", "motors.drive.gain"],
                    "message": "Only the ratio of bodies.arm.inertia.zz and motors.drive.gain is seen.",
                }
            ],
            "half_step": {
                "bodies.arm.inertia.zz": {"value": 3.3e-3, "shift_in_sd": 4.2},
                "tilt.x": {"value": 0.01231, "shift_in_sd": 0.05},
            },
        },
        "versions": {
            "python": "3.11.9",
            "jax": "0.7.0",
            "jaxlib": "0.7.0",
            "numpy": "2.1.0",
            "spookax": "0.1.0",
        },
        "hashes": {"furuta_train.csv": "ab" * 32, "furuta.yaml": "cd" * 32},
    }


def _run(file: str, scale: float) -> dict[str, Any]:
    signal = {"unit": "rad", "rms": 1.0e-3 * scale, "rms_open_loop": 2.0e-2, "nrmse_open_loop": 0.04}
    return {
        "file": file,
        "sha256": "ab" * 32,
        "samples": 10_000,
        "duration": 20.0,
        "initial": {"shoulder": {"position": 0.1, "position_sd": 1e-3, "rate": -0.2, "rate_sd": 2e-2}},
        "offsets": {"arm_encoder": {"value": 0.05, "sd": 1e-3}},
        "signals": {"arm_encoder": signal, "tip": signal | {"unit": "m, m, m"}},
    }


def states() -> dict[str, np.ndarray]:
    """Two runs: an encoder sampled at 500 Hz with a gap and a spike, and a marker at a twentieth of that."""
    rng = np.random.default_rng(0)
    held: dict[str, np.ndarray] = {}
    for run, speed in (("train", 1.0), ("second & third", 2.3)):
        time = np.arange(10_000) / 500
        angle = np.sin(speed * time) * np.exp(-time / 15) + 0.2 * np.sin(5.1 * time)
        measured = angle + 1e-3 * rng.standard_normal(time.size)
        measured[3000:3600] = np.nan
        measured[7001] += 0.7
        point = np.stack([np.cos(angle), np.sin(angle), 0.1 * np.cos(time)], axis=-1)
        seen = np.full_like(point, np.nan)
        seen[::20] = point[::20] + 2e-3 * rng.standard_normal(point[::20].shape)
        drift = 0.01 * (1 - np.cos(0.4 * time))
        values = {
            "measured/arm_encoder": measured[:, None],
            "estimated/arm_encoder": angle[:, None],
            "open_loop/arm_encoder": (angle + drift)[:, None],
            "innovation/arm_encoder": (measured - angle)[:, None] / 1.1e-3,
            "measured/tip": seen,
            "estimated/tip": point,
            "open_loop/tip": point + drift[:, None],
            "innovation/tip": (seen - point) / 2e-3,
        }
        held |= {f"{run}/{key}": value for key, value in values.items()} | {f"{run}/time": time}
    return held
