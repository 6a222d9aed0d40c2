"""How much the estimates depend on what the user sets: density of the process noise, time step, compliance.

Each sweep is one identification per setting, of the demo's recording and, if `SPOOKAX_DATA` names the public data
sets, of the five driven recordings of a real Furuta pendulum together. The figures go to `docs/figures/`.
"""

import dataclasses
import json
import os
import time
from collections.abc import Callable

import spookax as sx
from spookax.scene import Scene
from spookax.study.file.study import Study

from .chart import Point, chart
from .measure import ROOT, Row

FIGURES = ROOT / "docs/figures"
RECORDINGS = {"synthetic": "synthetic recording", "real": "real recordings"}
SECONDS = 6.0  # of the demo's recording, to save time
DENSITIES = {"synthetic": (1e-6, 10**-5.5, 1e-5, 10**-4.5, 1e-4), "real": (1e-4, 10**-3.5, 1e-3, 10**-2.5, 1e-2)}
COMPLIANCES = (1e-7, 10**-6.5, 1e-6, 10**-5.5, 1e-5)
STEPS = {"synthetic": (10e-3, 5e-3, 2.5e-3, 1.25e-3, 0.5e-3), "real": (10e-3, 5e-3, 2e-3, 1e-3, 0.5e-3)}  # [s]


@dataclasses.dataclass(frozen=True)
class Case:
    """A study with its scene; `truth` is what the estimates are compared with, or the nominal estimate if None."""

    name: str
    study: Study
    scene: Scene
    truth: dict[str, float] | None

    def identify(self, study: Study | None = None, scene: Scene | None = None) -> sx.Estimate:
        """The estimate of the study, with changes."""
        return sx.identify(study or self.study, scene=scene or self.scene)


def run(sweep: str) -> list[Row]:
    """Rows of one sweep, `density`, `step` or `compliance`, for every recording there is."""
    return [line for case in cases() for line in _SWEEPS[sweep](case)]


def cases() -> list[Case]:
    """The first seconds of the demo's recording, and the real ones if they are there."""
    study = sx.load_study(ROOT / "demo/furuta_study.yaml")
    cut = study.recordings[0].model_copy(update={"stop": SECONDS})
    study = study.model_copy(update={"recordings": [cut]})
    truth = json.loads((ROOT / "demo/truth.json").read_text(encoding="utf-8"))["parameters"]
    found = [Case("synthetic", study, sx.read_scene(study.scene_path), truth)]
    if os.environ.get("SPOOKAX_DATA"):
        real = sx.load_study(ROOT / "studies/furuta_odrive.yaml")
        # harmonics as the scene has them: some are next to nothing, and a ratio to that says nothing
        known = {path: spec for path, spec in real.parameters.items() if not path.endswith((".cos", ".sin"))}
        real = real.model_copy(update={"parameters": known})
        found.append(Case("real", real, sx.read_scene(real.scene_path), None))
    return found


def _estimator(study: Study, **changes: object) -> Study:
    return study.model_copy(update={"estimator": study.estimator.model_copy(update=changes)})


def _density(case: Case) -> list[Row]:
    # A factor on the study's densities, of which the largest is named: another density would be another program to
    # compile. The first stage keeps at least the study's own: with smoothed friction nothing fits at a smaller one.
    given = case.study.estimator.process_noise
    largest = max(given.density.values()) if isinstance(given.density, dict) else given.density
    kept = given.model_copy(update={"estimate": False})
    base = None if case.truth else case.identify(_estimator(case.study, process_noise=given))
    found = base.content["noise"]["process_density"] if base else None
    evidence = max(found.values()) if isinstance(found, dict) else found

    def at(density: float) -> sx.Estimate:
        factor = density / largest
        return case.identify(_estimator(case.study, process_noise=kept, noise_scale=(max(1.0, factor), factor)))

    label = "density [N m √s]"
    return _sweep(case, "density", "process noise", label, DENSITIES[case.name], evidence, at, base)


def _step(case: Case) -> list[Row]:
    def at(h: float) -> sx.Estimate:
        return case.identify(_estimator(case.study, step=h / 1000))

    steps = tuple(1000 * h for h in STEPS[case.name])
    return _sweep(case, "step", "time step", "time step [ms]", steps, 1000 * case.scene.step, at)


def _compliance(case: Case) -> list[Row]:
    settings = case.scene.regularisation

    def at(compliance: float) -> sx.Estimate:
        changed = settings.model_copy(update={"relative_compliance": compliance})
        return case.identify(scene=case.scene.model_copy(update={"regularisation": changed}))

    nominal = settings.relative_compliance
    return _sweep(case, "compliance", "compliance", "relative compliance", COMPLIANCES, nominal, at)


_SWEEPS: dict[str, Callable[[Case], list[Row]]] = {"density": _density, "step": _step, "compliance": _compliance}


def _sweep(
    case: Case,
    name: str,
    title: str,
    label: str,
    settings: tuple[float, ...],
    nominal: float | None,
    at: Callable[[float], sx.Estimate],
    base: sx.Estimate | None = None,
) -> list[Row]:
    """Identify at every setting; draw and list the estimates over the truth, or over the nominal estimate."""
    estimates: dict[float, sx.Estimate] = {}
    for setting in settings:
        began = time.perf_counter()
        estimates[setting] = at(setting)
        status, seconds = estimates[setting].status, time.perf_counter() - began
        print(f"{case.name}: {label} {setting:.3g}: {status}, {seconds:.0f} s", flush=True)
    base = base or estimates[min(settings, key=lambda s: abs(s - (nominal or 0.0)))]
    reference = case.truth or {path: found["value"] for path, found in base.parameters.items()}
    panels: dict[str, list[Point]] = {}
    rows: list[Row] = []
    for path in base.parameters:
        panels[path] = []
        for setting, estimate in estimates.items():
            found, true = estimate.parameters[path], reference[path]
            point = Point(setting, found["value"] / true, found["sd"] / abs(true), estimate.status == "converged")
            panels[path].append(point)
            case_name = f"{case.name} {path}"
            line: Row = {"case": case_name, "setting": setting, "over reference": point.ratio, "sd": point.sd}
            rows.append(line | {"status": estimate.status})
    against = "the truth" if case.truth else "the nominal estimate"
    text = chart(f"Deviation from {against}, {RECORDINGS[case.name]}: {title}", label, panels, nominal)
    FIGURES.mkdir(parents=True, exist_ok=True)
    (FIGURES / f"sensitivity_{case.name}_{name}.svg").write_text(text, encoding="utf-8")
    return rows
