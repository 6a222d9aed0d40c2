"""Public recordings of real machines, against published numbers; skipped where the recordings are not at hand."""

from pathlib import Path

import pytest

import spookax as sx

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STUDIES = Path(__file__).parents[2] / "studies"


def test_emps(data_dir):
    """Mass, friction and offset of a positioning axis, from position and voltage alone (Janot et al., 2019)."""
    found = sx.identify(STUDIES / "emps.yaml")
    assert found.status == "converged"
    published = {
        "bodies.carriage.mass": (95.11, 0.01),
        "joints.slide.friction.viscous": (203.5, 0.01),
        "joints.slide.friction.coulomb": (20.39, 0.01),
        "motors.drive.bias": (3.165, 0.05),
    }
    for path, (value, limit) in published.items():
        assert found.value(path) == pytest.approx(value, rel=limit), path


def test_furuta_ringdown(data_dir):
    """37 s of a decaying pendulum with the arm clamped, simulated from the estimated first state."""
    found = sx.identify(STUDIES / "furuta_ringdown.yaml")
    assert found.status == "converged"
    (run,) = found.content["runs"].values()
    (signal,) = run["signals"].values()
    assert signal["rms_open_loop"] < 0.015
