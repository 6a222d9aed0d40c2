"""The demo: identify the shipped Furuta pendulum and compare with the truth. Run by `make demo`.

The recordings come from another engine (`scripts/reference/`). The identification sees `train.csv` only; how
well the identified scene predicts is measured on `test.csv`. The exit status is 0 if every parameter lies
within three of its standard deviations of the truth, and frictions, gain and pendulum inertias within 5 %.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

import spookax as sx
from spookax.cli.estimates import estimated_motion
from spookax.cli.signs import by_iteration, signs
from spookax.study.file.against_scene import sensor_dimensions
from spookax.study.identifying.predict import predict_open_loop
from spookax.study.recordings.recording import read_recording

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "demo"
OUT = ROOT / "build/demo"
WITHIN_SD = 3.0
WITHIN = 0.05  # of the truth
TIGHT = (
    "joints.shoulder.friction.",
    "joints.elbow.friction.",
    "motors.drive.gain",
    "bodies.pendulum.inertia.",
)
FIT = 0.3  # of the test recording, for its initial state and offsets [s]


@contextmanager
def compile_times() -> Iterator[list[tuple[float, float]]]:
    """Begin and end of everything that JAX traces and compiles inside [s]."""
    spans: list[tuple[float, float]] = []

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event.startswith("/jax/core/compile/"):
            spans.append((time.time() - duration_secs, time.time()))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield spans
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def union(spans: list[tuple[float, float]]) -> float:
    """Length of time that spans cover, overlaps once [s]."""
    covered, until = 0.0, 0.0
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return covered


def found_values(estimate: sx.Estimate) -> dict[str, Mapping[str, Any]]:
    """Parameters of the scene, and the encoders' offsets that belong to the recording, by path."""
    found: dict[str, Mapping[str, Any]] = dict(estimate.parameters)
    (run,) = estimate.to_json()["runs"].values()
    for sensor, offset in run["offsets"].items():
        found[f"sensors.{sensor}.offset"] = {"start": 0.0, "unit": "rad", **offset}
    return found


def compare(found: Mapping[str, Mapping[str, Any]], truth: Mapping[str, float]) -> bool:
    """Print the table; whether every parameter is where it should be."""
    print(f"{'parameter':34} {'truth':>11} {'start':>11} {'estimate':>11} {'sd':>9} {'error':>8}  {'unit':11}")
    good = set(found) == set(truth)
    for path, true in truth.items():
        if path not in found:
            print(f"{path:34} {true:11.4e}   not identified")
            continue
        value, sd = found[path]["value"], found[path]["sd"]
        error = (value - true) / sd if sd > 0 else float("inf")
        fails = [f"more than {WITHIN_SD:g} sd off"] if not abs(error) <= WITHIN_SD else []
        if path.startswith(TIGHT) and not abs(value - true) <= WITHIN * abs(true):
            fails.append(f"{100 * (value / true - 1):+.1f} % off")
        good = good and not fails
        print(
            f"{path:34} {true:11.4e} {found[path]['start']:11.4e} {value:11.4e} {sd:9.1e} {error:+5.2f} sd  "
            f"{found[path]['unit']:11}{', '.join(fails)}".rstrip()
        )
    return good


def predict(estimate: sx.Estimate, study: Any) -> None:
    """Print the error of the open-loop prediction of the recording that the identification has not seen."""
    changes = {"name": "test", "file": "test.csv", "start": None, "stop": None}
    spec = study.recordings[0].model_copy(update=changes)
    assert estimate.scene is not None
    recording = read_recording(DEMO / "test.csv", spec, sensor_dimensions(estimate.scene))
    errors = predict_open_loop(study, estimate, recording, spec, fit_seconds=FIT)
    duration = recording.time[-1] - recording.time[0]
    print(f"\nOpen-loop prediction of demo/test.csv, {duration:.0f} s with another input.")
    print(f"Only its first {FIT} s are used, for the initial state.")
    for sensor, error in errors.items():
        print(f"  {sensor:14} RMS error {error['rms']:.2e} rad, {100 * error['nrmse']:.2f} % of the signal")


def main() -> int:
    """Run the demo; the exit status."""
    began = time.time()
    sx.enable_x64()
    study = sx.load_study(DEMO / "furuta_study.yaml")
    truth = json.loads((DEMO / "truth.json").read_text(encoding="utf-8"))["parameters"]
    print("Identifying demo/furuta_study.yaml; the first time most of it is compiling.", flush=True)
    with compile_times() as spans, signs("planning the first trajectories") as told:
        started = time.time()
        estimate = sx.identify(study, report=by_iteration(told))
        total = time.time() - started
    content = estimate.to_json()
    print(f"{estimate.status} after {content['convergence'][-1]['iteration']} iterations. {estimate.message}\n")
    good = compare(found_values(estimate), truth)
    noise = content["noise"]
    sensors = ", ".join(f"{name} {levels[0]:.2e} rad" for name, levels in noise["sensors"].items())
    print(f"\nNoise: process {noise['process_density']:.2e} {noise['process_unit']}; {sensors}")
    compiling = union(spans)
    print(f"Time: {total:.1f} s, of which {compiling:.1f} s compiling and {total - compiling:.1f} s identifying")
    predict(estimate, study)

    estimate.save(OUT)
    written = sx.write_report(OUT, content, estimate.states)
    assert estimate.scene is not None
    poses = estimated_motion(OUT, estimate.scene, None)
    motion = sx.view(estimate.scene, poses).save(OUT / "motion.html")
    print(f"\nReport:    {written}\n3D page:   {motion}\nDemo time: {time.time() - began:.0f} s")
    if estimate.status != "converged":
        print("FAILED: the identification did not converge", file=sys.stderr)
        return 1
    if not good:
        print("FAILED: see the table", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
