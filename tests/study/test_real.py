"""Studies that ship, identified by the shell with their reports, and some against published numbers; skipped where the
recordings are not at hand.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from cli.scenes import ROOT, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# the network of servo_xl330 takes longer than all others together: its benchmark is `servo_friction`
STUDIES = sorted(p for p in (ROOT / "studies").glob("*.yaml") if p.stem != "servo_xl330")


@pytest.fixture(scope="module")
def identified(data_dir, tmp_path_factory):
    """Folder of the estimate of a study, which one call identifies."""
    found: dict[Path, Path] = {}

    def folder(study: Path) -> Path:
        if study not in found:
            out = tmp_path_factory.mktemp(study.stem)
            result = run("identify", study, "--out", out, "--quiet")
            assert result.exit_code == 0, result.output
            found[study] = out
        return found[study]

    return folder


def estimate(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "estimate.json").read_text())


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.stem)
def test_a_study_that_ships_is_identified_and_reported(identified, study):
    folder = identified(study)
    assert estimate(folder)["status"] == "converged"
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(path in page for path in estimate(folder)["parameters"] if ".weights." not in path)


def test_emps(identified):
    """Mass, friction and offset of a positioning axis, from position and voltage alone (Janot et al., 2019)."""
    found = estimate(identified(ROOT / "studies/emps.yaml"))["parameters"]
    published = {
        "bodies.carriage.mass": (95.11, 0.01),
        "joints.slide.friction.viscous": (203.5, 0.01),
        "joints.slide.friction.coulomb": (20.39, 0.01),
        "motors.drive.bias": (3.165, 0.05),
    }
    for path, (value, limit) in published.items():
        assert found[path]["value"] == pytest.approx(value, rel=limit), path


def test_furuta_ringdown(identified):
    """37 s of a decaying pendulum with the arm clamped, simulated from the estimated first state."""
    (run,) = estimate(identified(ROOT / "studies/furuta_ringdown.yaml"))["runs"].values()
    (signal,) = run["signals"].values()
    assert signal["rms_open_loop"] < 0.015
