"""The demo's identification from random starts: how many reach the same optimum, in how many iterations."""

import dataclasses
import json

import numpy as np

import spookax as sx
from spookax._interruption import Stop
from spookax.study.file.against_scene import sensor_dimensions
from spookax.study.identifying.solve import Solver
from spookax.study.running.setup import Setup, set_up

from .measure import ROOT, Row, row

STUDY, TRUTH = ROOT / "demo/furuta_study.yaml", ROOT / "demo/truth.json"
COUNT, LIMIT = 20, 15
FACTORS = {"half": (0.5, 1.5), "three": (1 / 3, 3.0)}


def starts(setup: Setup, factors: tuple[float, float]) -> list[np.ndarray]:
    """z of `COUNT` starts, each parameter one or the other factor times the truth."""
    shared, rng = setup.model.shared, np.random.default_rng(100)
    truth = json.loads(TRUTH.read_text(encoding="utf-8"))["parameters"]
    values = np.array([truth[free.path] for free in shared.free])
    return [shared.encode(list(values * rng.choice(factors, values.size))) for _ in range(COUNT)]


def run(kind: str) -> list[Row]:
    """One row for each start, and what they have in common."""
    study = sx.load_study(STUDY)
    scene = sx.read_scene(study.scene_path)
    setup = set_up(study, scene, sx.read_recordings(study, sensor_dimensions(scene)))
    rows: list[Row] = []
    first = None
    for i, z0 in enumerate(starts(setup, FACTORS[kind])):
        problem = dataclasses.replace(setup.problem, z0=z0)
        solver = Solver(study, dataclasses.replace(setup, problem=problem), None, Stop())
        solver.run(None)
        assert solver.fit is not None
        z, sd = np.asarray(solver.fit.iterate.z), np.sqrt(np.diag(solver.fit.covariance))
        first = z if first is None else first
        distance, restarts = float(np.max(np.abs(z - first) / sd)), sum(line.phase != "stages" for line in solver.lines)
        limit = {"over": float(LIMIT), "to": f"limit {LIMIT}"}
        rows.append(row(f"start {i}", "iterations", float(solver.iterations), "", **limit))
        rows.append(row(f"start {i}", "distance from the optimum of start 0", distance, "sd"))
        print(f"start {i}: {solver.iterations} iterations, {distance:.1e} sd, restarted: {restarts > 0}", flush=True)
    return rows
