"""`spookax identify` and `spookax view` around an identification that is made up; one real run is slow."""

import importlib
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.scenes import ROOT, SLIDER, refused, run, study_folder, write
from report import synthetic

import spookax as sx
from spookax._progress import compiling
from spookax.scene import FileProblem
from spookax.study.identifying.estimate import Estimate
from spookax.study.identifying.identify import Progress

Fake = Callable[..., list[dict[str, Any]]]


def made_up(folder: Path, status: str, message: str) -> Estimate:
    content = synthetic.estimate()
    del content["status"], content["message"]
    scene = sx.read_scene(folder / "slider.yaml")
    time = np.linspace(0.0, 1.0, 11)
    for run_ in ("train", "second & third"):
        content["runs"][run_]["samples"] = time.size
    e = np.zeros((11, 1, 4))
    e[..., 0] = 1.0
    r = np.stack([time, 0 * time, 1 + 0 * time], axis=-1)[:, None, :] + np.array([0.1, 0, 0])
    poses = {"state_time": time, "r": r, "e": e, "v": 0 * r, "w": 0 * r}
    states = synthetic.states() | {f"train/{key}": value for key, value in poses.items()}
    return Estimate(status, message, content, states, scene, {"z": np.zeros(1)})


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    """Put a made-up identification in place of the real one; returns what it is called with."""

    def install(
        status: str = "converged", message: str = "", error: BaseException | None = None, sent: int | None = None
    ) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def identify(
            study: Path, *, report: Callable[[Progress], None] | None, resume: Path | None, keep: Path
        ) -> Estimate:
            calls.append({"study": study, "report": report is not None, "resume": resume, "keep": keep})
            with compiling("first"), compiling("second"):
                pass
            if error is not None:
                raise error
            if sent is not None:
                signal.raise_signal(sent)
            if report is not None:
                report(Progress(2, 7, 123.5, 0.25, 1e-4, 3.2, "stages"))
                report(Progress(0, 8, 120.0, 1e-9, 1e-5, 4.0, "noise 1"))
            return made_up(tmp_path, status, message)

        monkeypatch.setattr(importlib.import_module("spookax.study.identifying.identify"), "identify", identify)
        return calls

    study_folder(tmp_path)
    return install


def test_the_folder_is_written_and_progress_shown(fake: Fake, tmp_path: Path):
    calls = fake()
    out = tmp_path / "deep/out"
    result = run("identify", tmp_path / "study.yaml", "--out", out)
    assert result.exit_code == 0, result.output
    assert calls == [{"study": tmp_path / "study.yaml", "report": True, "resume": None, "keep": out}]
    first, *lines = [line.split() for line in result.stderr.splitlines()]
    assert first[0] == "compiling;"
    assert lines == [
        ["phase", "iteration", "cost", "step", "damping", "time"],
        ["stages", "3", "7", "123.5", "2.50e-01", "1.00e-04", "3.2", "s"],
        ["noise", "1", "8", "120", "1.00e-09", "1.00e-05", "4.0", "s"],
    ]
    names = {"estimate.json", "states.npz", "scene.yaml", "checkpoint.npz", "report.html"}
    assert {file.name for file in out.iterdir()} == names
    assert json.loads((out / "estimate.json").read_text())["status"] == "converged"
    assert "motors.drive.gain" in (out / "report.html").read_text(encoding="utf-8")
    (row,) = [line.split() for line in result.stdout.splitlines() if line.startswith("motors.drive.gain")]
    assert row[1:] == ["0.02", "0.0411", "0.0003", "N", "m/V"]
    assert "Only the ratio of" in result.stdout
    assert "train, tip: RMS error 0.001 m along the estimate, 0.02 simulated from the start" in result.stdout
    assert result.stdout.endswith("converged\n")


def test_quiet_says_no_progress(fake: Fake, tmp_path: Path):
    calls = fake()
    result = run("identify", tmp_path / "study.yaml", "--out", tmp_path / "out", "--quiet")
    assert result.exit_code == 0
    assert not calls[0]["report"]
    assert result.stderr == ""


@pytest.mark.parametrize(("status", "code"), [("iteration_limit", 1), ("no_progress", 1), ("interrupted", 130)])
def test_what_did_not_converge_is_saved_and_explained(fake: Fake, tmp_path: Path, status: str, code: int):
    fake(status, "This is why.")
    result = run("identify", tmp_path / "study.yaml", "--out", tmp_path / "out")
    assert result.exit_code == code
    assert result.stderr.endswith(f"{status.replace('_', ' ')}: This is why.\n")
    assert (tmp_path / "out/checkpoint.npz").is_file()
    assert (tmp_path / "out/report.html").is_file()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_told_by_the_exit_status(fake: Fake, tmp_path: Path, number: int, code: int):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as a shell starts a command
    try:
        fake("interrupted", "This is why.", sent=number)
        result = run("identify", tmp_path / "study.yaml", "--out", tmp_path / "out")
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.exit_code == code
    assert (tmp_path / "out/checkpoint.npz").is_file()


def test_ctrl_c_before_the_first_iterate_leaves_nothing(fake: Fake, tmp_path: Path):
    fake(error=KeyboardInterrupt())
    result = run("identify", tmp_path / "study.yaml", "--out", tmp_path / "out")
    assert result.exit_code == 130
    assert "nothing was written" in result.stderr
    assert not list((tmp_path / "out").iterdir())


def test_a_refusal_comes_without_the_head_of_a_table(fake: Fake, tmp_path: Path):
    fake(error=sx.FileError([FileProblem("checkpoint.npz", 0, "", None, "cannot be read", "Run it again.")]))
    said = refused("identify", tmp_path / "study.yaml", "--out", tmp_path / "out", "--resume").splitlines()
    assert said[0].startswith("compiling")  # what was compiled before it was refused
    assert said[1:] == ["checkpoint.npz: cannot be read. Run it again."]


def test_resume_goes_on_from_the_folder(fake: Fake, tmp_path: Path):
    calls = fake()
    run("identify", tmp_path / "study.yaml", "--out", tmp_path / "out", "--resume", "--quiet")
    assert calls[0]["resume"] == tmp_path / "out"


def test_bad_input_is_found_before_anything_is_computed(fake: Fake, tmp_path: Path):
    calls = fake()
    (tmp_path / "file").touch()
    said = refused("identify", tmp_path / "study.yaml", "--out", tmp_path / "file")
    assert said.endswith(
        f"{tmp_path / 'file'}: File exists. A file stands where a folder is wanted: choose another name.\n"
    )
    assert "no such file" in refused("identify", tmp_path / "studi.yaml", "--out", tmp_path / "out")
    write(tmp_path, run_csv="t [s],u [V]\n0,1\n")
    assert "no column 'x'" in refused("identify", tmp_path / "study.yaml", "--out", tmp_path / "out")
    assert not calls


def test_view_of_an_estimate_shows_a_run(fake: Fake, tmp_path: Path):
    fake()
    out, page = tmp_path / "out", tmp_path / "page.html"
    run("identify", tmp_path / "study.yaml", "--out", out, "--quiet")
    result = run("view", out, "--html", page)
    assert result.exit_code == 0, result.output
    assert page.is_file()
    assert run("view", out, "--html", page, "--run", "train").exit_code == 0
    assert "Known here: `train`" in refused("view", out, "--html", page, "--run", "test")
    (out / "states.npz").write_bytes((out / "states.npz").read_bytes()[:100])
    assert refused("view", out, "--html", page).startswith(str(out / "states.npz"))
    (out / "states.npz").unlink()
    assert "identify" in refused("view", out, "--html", page)


def test_view_of_scenes(tmp_path: Path):
    page = tmp_path / "page.html"
    scene = write(tmp_path, slider_yaml=SLIDER) / "slider.yaml"
    assert run("view", scene, "--html", page).exit_code == 0
    assert "slider" in page.read_text(encoding="utf-8")
    assert run("view", ROOT / "scenes/four_bar.yaml", "--html", page).exit_code == 0  # assembled
    assert "holds no estimate" in refused("view", tmp_path, "--html", page)
    assert "no such file" in refused("view", tmp_path / "slide.yaml", "--html", page)
    assert "--run" in refused("view", scene, "--html", page, "--run", "train")
