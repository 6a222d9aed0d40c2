"""`defaults` and `windows` of a study file: what they stand for, and where their mistakes are reported."""

from pathlib import Path

import numpy as np
import pytest

from spookax.study import Study, StudyError, read_recordings, read_study
from spookax.study.recordings import recording

HEAD = "spookax: 1\nscene: scene.yaml\nparameters: {tilt.x: {}}\n"
DEFAULTS = """\
defaults:
  time: t
  sensors: {arm: q}
  offsets: {arm: 0.1}
  every: 2
"""
MAPPED = "{file: run.csv, time: t, sensors: {arm: q}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scene.yaml").write_text("spookax: 1\nbodies: {}\n")
    lines = [f"{k / 10},{k}" for k in range(101)]
    (tmp_path / "run.csv").write_text("\n".join(["t [s],q [rad]", *lines]) + "\n")
    return tmp_path


def read(folder: Path, text: str) -> Study:
    (folder / "study.yaml").write_text(HEAD + text)
    return read_study(folder / "study.yaml")


def said(folder: Path, text: str) -> list[str]:
    """The problems, as line and what follows."""
    with pytest.raises(StudyError) as caught:
        read(folder, text)
    return [str(problem).removeprefix(f"{folder}/study.yaml:") for problem in caught.value.problems]


def test_recordings_take_the_defaults_that_they_do_not_set(folder: Path):
    text = "recordings:\n  - {file: run.csv}\n  - {file: run.csv, name: other, every: 1, offsets: {}}\n"
    first, second = read(folder, DEFAULTS + text).recordings
    assert (first.time.column, first.sensors["arm"][0].column) == ("t", "q")
    assert (first.every, first.offsets, first.name) == (2, {"arm": 0.1}, "run")
    assert (second.every, second.offsets, second.time) == (1, {}, first.time)


def test_each_window_is_a_recording(folder: Path):
    study = read(folder, DEFAULTS + "recordings:\n  - {file: run.csv, windows: [[0, 2.5], [5.0, 8]]}\n")
    assert [(r.name, r.start, r.stop) for r in study.recordings] == [("run_1", 0, 2.5), ("run_2", 5, 8)]
    first, second = read_recordings(study)
    np.testing.assert_array_equal(first.time, np.arange(26) / 10)
    np.testing.assert_array_equal(second.sensors["arm"][:, 0], np.arange(50, 81))


@pytest.mark.parametrize(
    ("given", "starts"),
    [
        ("windows: {length: 2.5}, stop: 10", [0, 2.5, 5, 7.5]),
        ("windows: {length: 0.1}, start: 0.2, stop: 0.5", [0.2, 0.3, 0.4]),  # not lost to rounding
        ("windows: {length: 3}, start: 0.5, stop: 10", [0.5, 3.5, 6.5]),
        ("windows: {length: 1, every: 3}, stop: 10", [0, 3, 6, 9]),
    ],
)
def test_a_length_splits_into_whole_windows(folder: Path, given: str, starts: list[float]):
    found = read(folder, f"recordings:\n  - {MAPPED}, name: swing, {given}}}\n").recordings
    assert [r.start for r in found] == starts
    assert [r.name for r in found] == [f"swing_{k + 1}" for k in range(len(starts))]


def test_without_a_stop_the_file_says_where_it_ends(folder: Path):
    text = DEFAULTS + "recordings:\n  - {file: run.csv, windows: {length: 4}}\n"
    assert [(r.start, r.stop) for r in read(folder, text).recordings] == [(0, 4), (4, 8)]
    lines = [f"{1e9 + k},{k}" for k in range(11)]  # a clock that counts from 1970
    (folder / "run.csv").write_text("\n".join(["t [s],q [rad]", *lines]) + "\n")
    assert [(r.start, r.stop) for r in read(folder, text).recordings] == [(1e9, 1e9 + 4), (1e9 + 4, 1e9 + 8)]
    later = text.replace("run.csv,", "run.csv, start: 1000000005,")
    assert [r.start for r in read(folder, later).recordings] == [1e9 + 5]
    (folder / "run.csv").write_text("")
    (found,) = said(folder, text)
    assert found.startswith("10: recordings[0].windows: nothing says where the last window ends, for the times")


def test_a_study_made_in_python_is_written_out_too():
    entry = {"file": "run.csv", "windows": [[0, 1], [2, 3]]}
    data = {"spookax": 1, "scene": "scene.yaml", "recordings": [entry], "parameters": {"tilt.x": {}}}
    study = Study.model_validate({**data, "defaults": {"time": "t", "sensors": {"arm": "q"}}})
    assert [r.name for r in study.recordings] == ["run_1", "run_2"]
    assert Study.model_validate(study.model_dump(exclude_unset=True)).recordings == study.recordings
    assert entry == {"file": "run.csv", "windows": [[0, 1], [2, 3]]}


def test_windows_of_a_file_read_it_once(folder: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[Path] = []
    real = recording.read_table
    monkeypatch.setattr(recording, "read_table", lambda path, report: calls.append(path) or real(path, report))
    study = read(folder, DEFAULTS + "recordings:\n  - {file: run.csv, windows: {length: 1}, stop: 10}\n")
    assert len(read_recordings(study)) == 10
    assert calls == [folder / "run.csv"]


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ("windows: {length: 20}", "5: recordings[0].windows.length: there is no whole window of 20 s between 0 s and"),
        ("windows: {length: 20}, stop: 10", "5: recordings[0].windows.length: there is no whole window of 20 s"),
        ("windows: {length: 1.0e-5}, stop: 10", "5: recordings[0].windows.length: there is more than 10000 windows"),
        ("windows: {length: no}, stop: 10", "5: recordings[0].windows.length: must be a number > 0 s, got 'no'"),
        ("windows: {lenght: 2}, stop: 10", "5: recordings[0].windows.lenght: unknown key. Did you mean `length`?"),
        ("windows: {length: 2, every: 0}, stop: 10", "5: recordings[0].windows.every: must be a whole number >= 1"),
        ("windows: []", "5: recordings[0].windows: must be a list of windows, got nothing"),
        ("windows: 3", "5: recordings[0].windows: must be a list of windows, got 3"),
        ("windows: [[0, 1], [3, 2]]", "5: recordings[0].windows[1]: must be [start, stop] of a window, got [3, 2]"),
        ("windows: [[0, 1]], stop: 3", "5: recordings[0].stop: the windows have times of their own"),
        ("windows: {length: 2}, stop: ten", "5: recordings[0].stop: must be a number, got 'ten'"),
        ("windows: [[0, 1], [2, 3]], every: 0", "5: recordings[0].every: must be >= 1, got 0"),
        ("windows: [[0, 1], [2, 3]], name: a/b", "5: recordings[0].name: must have no slash"),
    ],
)
def test_mistakes_are_reported_once_and_where_the_user_wrote_them(folder: Path, windows: str, expected: str):
    found = said(folder, f"recordings:\n  - {MAPPED}, {windows}}}\n")
    assert next(one for one in found if "lenght" not in windows or "lenght" in one).startswith(expected), found
    assert len(found) == (2 if "lenght" in windows else 1)


def test_mistakes_of_the_defaults_are_reported_there(folder: Path):
    text = (
        "defaults:\n  time: t\n  sensors: {arm: 3}\n  stop: 4\nrecordings:\n  - {file: run.csv}\n  - {file: no.csv}\n"
    )
    found = said(folder, text)
    assert [one.split(". ")[0] for one in found] == [
        "6: defaults.sensors.arm: must be the name of a column, got 3",
        "7: defaults.stop: unknown key",
        f"10: recordings[1].file: no such file: {folder}/no.csv",
    ]


def test_a_name_that_is_taken_is_named_as_the_user_counts(folder: Path):
    text = f"recordings:\n  - {MAPPED}, windows: [[0, 1], [2, 3]]}}\n  - {MAPPED}, name: run_2}}\n"
    (found,) = said(folder, text)
    assert found.startswith("6: recordings[1].name: the name 'run_2' is taken by recordings[0]")
