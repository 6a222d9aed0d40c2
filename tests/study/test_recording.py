"""Recordings: good files read to the right numbers, damaged ones refused with one report."""

import csv
import hashlib
import io
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from spookax.study import RecordingError, RecordingSpec, Study, read_recording, read_recordings

COLUMNS = ["t [s]", "u [V]", "arm [deg]", "pend [rad]", "extra [counts]"]
ROWS = [[f"{0.01 * k:.2f}", str(k % 7), f"{k * k}", f"{0.1 * k:.1f}", str(7 * k)] for k in range(40)]


def spec(**changes) -> RecordingSpec:
    """What most tests read from the files below."""
    entry = {
        "file": "run.csv",
        "time": "t",
        "inputs": {"drive": "u"},
        "sensors": {"arm": "arm", "pend": "pend"},
    }
    return RecordingSpec.model_validate(entry | changes)


def text(header=COLUMNS, rows=ROWS) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *rows])
    return out.getvalue()


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def with_cell(row: int, column: int, cell: str) -> str:
    rows = [list(one) for one in ROWS]
    rows[row][column] = cell
    return text(rows=rows)


def arrays() -> dict[str, np.ndarray]:
    return {name: np.array([float(row[k]) for row in ROWS]) for k, name in enumerate(COLUMNS)}


# Good files


@pytest.mark.parametrize("ending", ["csv", "txt", "npz"])
def test_a_recording_is_read_in_si_units(tmp_path, ending):
    path = tmp_path / f"run.{ending}"
    if ending == "npz":
        np.savez(path, **arrays())  # pyright: ignore[reportArgumentType]
    else:
        write(path, text())
    run = read_recording(path, spec())
    k = np.arange(40)
    assert run.name == "run"
    assert run.path == path
    assert run.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    np.testing.assert_allclose(run.time, 0.01 * k, atol=1e-15)
    np.testing.assert_array_equal(run.inputs["drive"], k % 7)
    np.testing.assert_allclose(run.sensors["arm"], np.deg2rad(k * k)[:, None])
    np.testing.assert_allclose(run.sensors["pend"], 0.1 * k[:, None])
    assert run.input_units == {"drive": "V"}
    assert run.sensor_units == {"arm": ("rad",), "pend": ("rad",)}
    assert {a.dtype for a in (run.time, *run.inputs.values(), *run.sensors.values())} == {np.dtype(np.float64)}


@pytest.mark.parametrize(
    "content",
    [
        "\ufeff" + text(),  # byte order mark
        text().replace("\n", "\r\n"),
        text() + "\n\n",
        re.sub(r",", " , ", text()),
        text(header=[f" {cell} " for cell in COLUMNS]),
        re.sub(r"(?m)^([^,\n]+)", r'"\1"', text()),  # quoted cells
        text(rows=[[f"+{float(cell):.3e}" for cell in row] for row in ROWS]),
    ],
    ids=["bom", "crlf", "blank lines", "spaces", "spaces in header", "quotes", "exponents"],
)
def test_ways_of_writing_the_same_table_read_alike(tmp_path, content):
    plain = read_recording(write(tmp_path / "plain.csv", text()), spec())
    other = read_recording(write(tmp_path / "other.csv", content), spec())
    for a, b in zip(
        (plain.time, plain.inputs["drive"], plain.sensors["arm"], plain.sensors["pend"]),
        (other.time, other.inputs["drive"], other.sensors["arm"], other.sensors["pend"]),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_an_empty_cell_is_a_missing_sample_of_a_sensor(tmp_path):
    rows = [list(row) for row in ROWS]
    rows[0][2] = rows[5][2] = rows[39][3] = ""
    run = read_recording(write(tmp_path / "run.csv", text(rows=rows)), spec())
    assert np.flatnonzero(np.isnan(run.sensors["arm"][:, 0])).tolist() == [0, 5]
    assert np.flatnonzero(np.isnan(run.sensors["pend"][:, 0])).tolist() == [39]


def test_an_empty_cell_of_an_input_holds_the_value_before(tmp_path):
    rows = [list(row) for row in ROWS]
    for k in (3, 4, 39):
        rows[k][1] = ""
    run = read_recording(write(tmp_path / "run.csv", text(rows=rows)), spec())
    expected = np.arange(40.0) % 7
    expected[[3, 4]], expected[39] = 2, 38 % 7
    np.testing.assert_array_equal(run.inputs["drive"], expected)


def test_in_npz_nan_is_a_missing_sample(tmp_path):
    data = arrays()
    data["u [V]"][3] = data["arm [deg]"][0] = np.nan
    np.savez(tmp_path / "run.npz", **data)  # pyright: ignore[reportArgumentType]
    run = read_recording(tmp_path / "run.npz", spec())
    assert run.inputs["drive"][3] == 2
    assert np.isnan(run.sensors["arm"][0, 0])


def test_the_window_is_on_the_recordings_own_clock(tmp_path):
    rows = [[f"{100 + 0.01 * k:.2f}", *row[1:]] for k, row in enumerate(ROWS)]
    rows[0][1] = "3"
    rows[1][1] = rows[10][1] = ""
    path = write(tmp_path / "run.csv", text(rows=rows))
    run = read_recording(path, spec(start=100.1, stop=100.2))
    assert run.time[[0, -1]].tolist() == [100.1, 100.2]
    assert run.inputs["drive"][0] == 9 % 7  # held from before the window
    assert run.sensors["arm"].shape == (11, 1)


@pytest.mark.parametrize("samples", [3, -3])
@pytest.mark.parametrize("rest", [-0.004, 0.0, 0.004])
def test_a_column_is_shifted_to_the_nearest_sample(tmp_path, samples, rest):
    """Where no input is known there is no recording; readings are missing there."""
    path, whole = write(tmp_path / "run.csv", text()), np.arange(40)
    shift = 0.01 * samples + rest
    late = read_recording(path, spec(inputs={"drive": {"column": "u", "shift": shift}}))
    kept = whole[samples:] if samples > 0 else whole[:samples]
    np.testing.assert_allclose(late.time, 0.01 * kept)
    np.testing.assert_array_equal(late.inputs["drive"], (kept - samples) % 7)
    np.testing.assert_allclose(late.sensors["pend"][:, 0], 0.1 * kept)
    assert late.shifts == {"drive": shift}
    read = read_recording(path, spec(sensors={"pend": {"column": "pend", "shift": shift}}))
    np.testing.assert_array_equal(read.inputs["drive"], whole % 7)
    there = (whole >= samples) & (whole < 40 + samples)
    np.testing.assert_allclose(read.sensors["pend"][:, 0], np.where(there, 0.1 * (whole - samples), np.nan))


@pytest.mark.parametrize("shift", [0.03, -0.03])
def test_a_shifted_column_has_no_readings_from_across_a_gap_and_holds_its_input(tmp_path, shift):
    """Twenty samples, half a second without any, twenty more."""
    time = 0.01 * np.concatenate([np.arange(20), 70 + np.arange(20)])
    rows = [[f"{t:.2f}", f"{k}", "0", f"{k}", "0"] for k, t in enumerate(time)]
    path = write(tmp_path / "run.csv", text(rows=rows))
    shifted = {"inputs": {"drive": {"column": "u", "shift": shift}}}
    shifted["sensors"] = {"pend": {"column": "pend", "shift": shift}}
    found = read_recording(path, spec(**shifted))
    number = np.rint(found.time / 0.01)
    before = number - np.rint(shift / 0.01)  # of the sample that was made then, if there was one
    there = ((before >= 0) & (before < 20)) | ((before >= 70) & (before < 90))
    said = np.where(before < 70, np.minimum(before, 19), before - 50)  # held through the gap
    np.testing.assert_array_equal(found.inputs["drive"], said)
    np.testing.assert_array_equal(found.sensors["pend"][:, 0], np.where(there, said, np.nan))


def test_no_reading_counts_twice_where_stamps_jitter(tmp_path, rng):
    time = 0.01 * (np.arange(400) + rng.uniform(-0.4, 0.4, 400))
    rows = [[f"{t:.6f}", f"{k}", "0", f"{k}", "0"] for k, t in enumerate(time)]
    path = write(tmp_path / "run.csv", text(rows=rows))
    found = read_recording(path, spec(sensors={"pend": {"column": "pend", "shift": 0.02}}))
    said = found.sensors["pend"][:, 0]
    numbers = said[np.isfinite(said)].astype(int)
    assert np.all(np.diff(numbers) > 0)
    assert numbers.size > 300
    off = found.time[np.isfinite(said)] - time[numbers] - 0.02
    assert np.max(np.abs(off)) < 0.0055
    # half a sample is rounded one way
    even = write(tmp_path / "even.csv", text())
    half = read_recording(even, spec(inputs={"drive": {"column": "u", "shift": -0.015}}))
    assert np.all(np.diff(half.inputs["drive"]) % 7 == 1)


def test_a_shifted_input_is_held_before_it_is_shifted(tmp_path):
    """Cells that are not used may be empty."""
    path = write(tmp_path / "run.csv", with_cell(0, 1, ""))
    with pytest.raises(RecordingError, match="has no value at its first sample"):
        read_recording(path, spec())
    found = read_recording(path, spec(inputs={"drive": {"column": "u", "shift": -0.02}}))
    np.testing.assert_array_equal(found.inputs["drive"], np.arange(2, 40) % 7)
    late = read_recording(path, spec(inputs={"drive": {"column": "u", "shift": 0.02}}))
    np.testing.assert_allclose(late.time, 0.01 * np.arange(3, 40))


def test_a_shift_of_the_time_or_beyond_the_recording_is_refused(tmp_path):
    with pytest.raises(ValidationError, match="the time is what other columns are shifted by"):
        spec(time={"column": "t", "shift": 0.01})
    path = write(tmp_path / "run.csv", text())
    with pytest.raises(RecordingError, match="Make `shift` shorter than the recording"):
        read_recording(path, spec(inputs={"drive": {"column": "u", "shift": 0.385}}))
    with pytest.raises(RecordingError, match="the sensor 'pend' has no sample"):
        read_recording(path, spec(sensors={"pend": {"column": "pend", "shift": -0.5}}))


def test_units_may_come_from_the_study(tmp_path):
    bare = text(header=["t", "u", "arm [deg]", "pend", "extra"])
    units = {
        "time": {"column": "t", "unit": "ms"},
        "inputs": {"drive": "u [mV]"},
        "sensors": {"arm": {"column": "arm", "unit": "deg"}, "pend": {"column": "pend", "unit": "turn"}},
    }
    run = read_recording(write(tmp_path / "run.csv", bare), spec(**units))
    k = np.arange(40)
    np.testing.assert_allclose(run.time, 1e-5 * k)
    np.testing.assert_allclose(run.inputs["drive"], 1e-3 * (k % 7))
    np.testing.assert_allclose(run.sensors["pend"][:, 0], 0.2 * np.pi * k)


def test_a_sensor_of_several_numbers_reads_several_columns(tmp_path):
    content = text(header=["t [s]", "x [mm]", "y [cm]", "z [m]", "other"])
    path = write(tmp_path / "run.csv", content)
    reads = spec(inputs={}, sensors={"marker": ["z", "x", "y"]})
    run = read_recording(path, reads, {"marker": ("length",) * 3})
    np.testing.assert_allclose(run.sensors["marker"][9], [0.9, 2e-3, 0.81])
    with pytest.raises(RecordingError, match="the sensor 'marker' reads 2 numbers, the study names 3 columns"):
        read_recording(path, reads, {"marker": ("length",) * 2})


def test_a_large_file_is_read_in_well_under_a_second(tmp_path, rng):
    table = np.column_stack([np.arange(40_000) * 1e-3, rng.normal(size=(40_000, 5)).round(6)])
    header = "t [s],u [V],arm [rad],pend [rad],a [1],b [1]"
    np.savetxt(tmp_path / "run.csv", table, fmt="%.6f", delimiter=",", header=header, comments="")
    reads = spec(inputs={"drive": "u", "second": "a", "third": "b"})
    seconds = []
    run = read_recording(tmp_path / "run.csv", reads)
    for _ in range(3):
        began = time.process_time()
        run = read_recording(tmp_path / "run.csv", reads)
        seconds.append(time.process_time() - began)
    np.testing.assert_array_equal(run.sensors["pend"][:, 0], table[:, 3])
    assert min(seconds) < 1.0


# Damaged files: 20 of each kind


def missing_column(k, rng):
    column = int(rng.integers(4))
    typing_slip = COLUMNS[column].replace(" [", f"{'x_2z'[k % 4]} [")
    header = [typing_slip if index == column else cell for index, cell in enumerate(COLUMNS)]
    name = COLUMNS[column].partition(" ")[0]
    return text(header=header), rf":1: {name}: no column '{name}' for .*Did you mean `{name}"


def unit_missing(k, rng):
    column = int(rng.integers(4))
    header = [cell.partition(" ")[0] if index == column else cell for index, cell in enumerate(COLUMNS)]
    return text(header=header), rf":1: column {column + 1} .*has no unit\. Write `\w+ \[unit\]`"


def wrong_dimension(k, rng):
    wrong = {
        0: ["m", "V", "rad", "1"],
        1: ["s", "deg", "m/s", "rpm"],
        2: ["V", "s", "Nm", "mA"],
        3: ["N", "%", "us", "A"],
    }
    column = k % 4
    header = list(COLUMNS)
    header[column] = f"{header[column].partition(' ')[0]} [{wrong[column][k // 4 % 4]}]"
    return text(header=header), rf":1: column {column + 1} .* must be an? .*, but \[.*\] is an? "


def unknown_unit(k, rng):
    column = k % 4
    header = list(COLUMNS)
    unit = ["counts", "", "furlong", "Hz", "RAD"][k // 4]
    header[column] = f"{header[column].partition(' ')[0]} [{unit}]"
    return text(header=header), rf":1: column {column + 1} .* unit "


def literal_nan(k, rng):
    row, column = int(rng.integers(40)), int(rng.integers(4))
    word = ["nan", "NaN", "NAN", " nan ", "-nan", "N/A", "null", "None"][k % 8]
    return with_cell(row, column, word), rf":{row + 2}: column {column + 1} .*must be a finite number, got '{word}'"


def infinite(k, rng):
    row, column = int(rng.integers(40)), int(rng.integers(4))
    word = ["inf", "-inf", "Infinity", "1e999", "-1e400"][k % 5]
    return with_cell(row, column, word), rf":{row + 2}: column {column + 1} .*must be a finite number, got '{word}'"


def text_in_number(k, rng):
    row, column = int(rng.integers(40)), int(rng.integers(4))
    word = ["abc", "1.2.3", "0x10", "1_000", "3 V", "--1", "1e", "e5", "..", "true", "0,5", "١٢", "1d3", "+"][k % 14]
    expected = rf":{row + 2}: column {column + 1} .*must be a number, got '{re.escape(word)}'.*decimal point"
    return with_cell(row, column, word), expected


def unsorted_time(k, rng):
    row = int(rng.integers(1, 40))
    back = 0.01 * row - 0.01 - rng.uniform(0.001, 0.5)
    return with_cell(row, 0, f"{back:.6f}"), rf":{row + 2}: column 1 't \[s\]': time goes back: .*\(line {row + 2}\)"


def shuffled_time(k, rng):
    rows = [ROWS[index] for index in rng.permutation(40)]
    return text(rows=rows), r"time goes back: .*\(line \d+, line \d+, line \d+ and \d+ more\)"


def duplicate_time(k, rng):
    row = int(rng.integers(1, 40))
    return with_cell(row, 0, ROWS[row - 1][0]), rf":{row + 2}: column 1 .*time repeats: .*\(line {row + 2}\)"


def empty_time(k, rng):
    row = int(rng.integers(40))
    return with_cell(row, 0, " " * (k % 3)), rf":{row + 2}: column 1 't \[s\]': must not be empty"


def empty_first_input(k, rng):
    rows = [list(row) for row in ROWS]
    for row in rows[: k + 1]:
        row[1] = " " * (k % 2)
    return text(rows=rows), r":2: column 2 .*the input 'drive' has no value at its first sample \(line 2\)"


def sensor_without_samples(k, rng):
    rows = [list(row) for row in ROWS]
    for row in rows:
        row[2 + k % 2] = " " * (k // 2 % 2)
    return text(rows=rows), rf"the sensor '{['arm', 'pend'][k % 2]}' has no sample"


def empty_file(k, rng):
    return [" ", "\n", "\r\n", "\t", ""][k % 5] * (k // 5), r"the file is empty\. Record it again"


def header_only(k, rng):
    return text(rows=[]).rstrip("\n") + "\n" * k, r":1: the file has a header but no samples"


def too_few_samples(k, rng):
    return text(rows=ROWS[k : k + 1 + k % 2]), rf"has {1 + k % 2} samples, and at least 3 are needed"


def missing_cells(k, rng):
    row, cells = int(rng.integers(40)), 1 + k % 4
    rows = [one[:cells] if index == row else one for index, one in enumerate(ROWS)]
    return text(rows=rows), rf":{row + 2}: has {cells} cells where the header has 5"


def extra_cells(k, rng):
    row = int(rng.integers(40))
    rows = [[*one, *["1"] * (k % 3 + 1)] if index == row else one for index, one in enumerate(ROWS)]
    return text(rows=rows), rf":{row + 2}: has {6 + k % 3} cells where the header has 5"


def cut_short(k, rng):
    lines = text(rows=ROWS[: 5 + k]).rstrip().split("\n")
    return "\n".join([*lines[:-1], lines[-1].rpartition(",")[0]]), rf":{5 + k + 1}: has 4 cells where the header"


def open_quote(k, rng):
    lines = text().split("\n")
    lines[1 + k] = '"' + lines[1 + k]
    return "\n".join(lines), r"broken CSV: .*quotation mark"


def not_utf8(k, rng):
    lines = text().encode().split(b"\n")
    lines[1 + k] = lines[1 + k] + bytes([0xFF - k])
    return b"\n".join(lines), rf":{k + 2}: byte 0x{0xFF - k:02x} is not UTF-8"


def no_header(k, rng):
    return text().partition("\n")[2].partition("\n" * (k % 2))[2] if k % 2 else text().partition("\n")[2], (
        r":1: the file has no header"
    )


def other_separator(k, rng):
    return text().replace(",", ";\t"[k % 2]), r":1: the cells are separated by (semicolons|tabs)"


def column_twice(k, rng):
    column = k % 4
    header = [*COLUMNS[:4], COLUMNS[column]]
    return text(header=header), r":1: \w+: 2 columns '\w+' for .*Give each column its own name"


DAMAGE = [
    missing_column, unit_missing, wrong_dimension, unknown_unit, literal_nan, infinite, text_in_number,
    unsorted_time, shuffled_time, duplicate_time, empty_time, empty_first_input, sensor_without_samples,
    empty_file, header_only, too_few_samples, missing_cells, extra_cells, cut_short, open_quote, not_utf8,
    no_header, other_separator, column_twice,
]  # fmt: skip


@pytest.mark.parametrize("k", range(20))
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_csv_file_gives_one_clear_report(tmp_path, rng, damage, k):
    for _ in range(k):
        rng.integers(2, size=k)
    content, expected = damage(k, rng)
    path = write(tmp_path / "run.csv", content)
    with pytest.raises(RecordingError) as caught:
        read_recording(path, spec())
    report = str(caught.value)
    assert re.search(expected, report), report
    assert len(caught.value.problems) == 1, report
    assert report.startswith(str(path))
    assert report.count("\n") == 0
    assert len(caught.value.problems[0].cure) > 5


def test_all_problems_are_in_one_report(tmp_path):
    rows = [list(row) for row in ROWS]
    rows[3][2], rows[4][2], rows[9][3], rows[20][0] = "nan", "nan", "oops", "0.01"
    rows[30].pop()
    content = text(header=["t [s]", "u [m]", "arm [deg]", "pend [rad]", "extra"], rows=rows)
    path = write(tmp_path / "run.csv", content)
    with pytest.raises(RecordingError) as caught:
        read_recording(path, spec(inputs={"drive": "u", "other": "w"}))
    assert [problem.line for problem in caught.value.problems] == [1, 1, 5, 11, 22, 32]
    assert "(line 5, line 6)" in caught.value.problems[2].message


def test_a_unit_that_header_and_study_disagree_about_is_refused(tmp_path):
    path = write(tmp_path / "run.csv", text())
    with pytest.raises(RecordingError, match=r"the header says \[deg\], the study says \[rad\]"):
        read_recording(path, spec(sensors={"arm": {"column": "arm", "unit": "rad"}}))
    agreed = read_recording(path, spec(sensors={"arm": "arm [°]"}))
    assert agreed.sensors["arm"][1, 0] == pytest.approx(np.deg2rad(1))


def test_what_a_sensor_reads_is_checked_when_the_scene_says_so(tmp_path):
    path = write(tmp_path / "run.csv", text())
    read_recording(path, spec(), {"arm": ("angle",), "pend": ("angle",)})
    with pytest.raises(RecordingError, match=r"the sensor 'pend' must be a length, but \[rad\] is an angle"):
        read_recording(path, spec(), {"arm": ("angle",), "pend": ("length",)})


@pytest.mark.parametrize("window", [{"start": 1.0}, {"stop": -1.0}, {"start": 0.1, "stop": 0.11}])
def test_a_window_without_samples_is_refused(tmp_path, window):
    path = write(tmp_path / "run.csv", text())
    with pytest.raises(RecordingError, match=r"The recording runs from 0 s to 0\.39 s"):
        read_recording(path, spec(**window))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    for path, said in ((tmp_path / "none.csv", "cannot be read"), (tmp_path, "this is a folder, not a recording")):
        with pytest.raises(RecordingError, match=said):
            read_recording(path, spec())


def npz(data: dict[str, np.ndarray]) -> bytes:
    out = io.BytesIO()
    np.savez(out, **data)  # pyright: ignore[reportArgumentType]
    return out.getvalue()


def npz_damage(kind: str, k: int, rng: np.random.Generator) -> tuple[bytes, str]:
    data, name = arrays(), COLUMNS[k % 4]
    row = int(rng.integers(1, 40))
    match kind:
        case "cut":
            return npz(data)[: int(rng.integers(1, len(npz(data)) - 30))], "not a readable NPZ file"
        case "not an archive":
            return rng.bytes(200), "not a readable NPZ file"
        case "missing key":
            data[f"x{name}"] = data.pop(name)
            return npz(data), "no column"
        case "two dimensions":
            data[name] = data[name].reshape(2, 20)
            return npz(data), "must have one dimension"
        case "other length":
            data[name] = data[name][: 5 + k]
            return npz(data), f"has {5 + k} samples where others have 40"
        case "text":
            data[name] = data[name].astype(str)
            return npz(data), "must hold real numbers"
        case "objects":
            data[name] = data[name].astype(object)
            return npz(data), "not a readable NPZ file"
        case "complex":
            data[name] = data[name] + 1j
            return npz(data), "must hold real numbers"
        case "infinite":
            data[name][row] = np.inf
            return npz(data), rf"must be finite, got 'inf' \(sample {row + 1}\)"
        case "time missing":
            data["t [s]"][row] = np.nan
            return npz(data), rf"must not be empty, got 'nan' \(sample {row + 1}\)"
        case "time repeats":
            data["t [s]"][row] = data["t [s]"][row - 1]
            return npz(data), rf"time repeats: .*\(sample {row + 1}\)"
        case "no samples":
            return npz({key: column[:0] for key, column in data.items()}), "the columns have no samples"
    return npz({}), "the file has no columns"


@pytest.mark.parametrize("k", range(20))
@pytest.mark.parametrize(
    "kind",
    [
        "cut", "not an archive", "missing key", "two dimensions", "other length", "text", "objects",
        "complex", "infinite", "time missing", "time repeats", "no samples", "no columns",
    ],
)  # fmt: skip
def test_a_damaged_npz_file_gives_one_clear_report(tmp_path, kind, k):
    content, expected = npz_damage(kind, k, np.random.default_rng(k))
    path = write(tmp_path / "run.npz", content)
    with pytest.raises(RecordingError, match=expected) as caught:
        read_recording(path, spec())
    assert len(caught.value.problems) == 1
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_flipped_bytes_never_raise_anything_else(tmp_path, ending):
    whole = text().encode() if ending == "csv" else npz(arrays())
    refused = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        broken = bytearray(whole)
        for place in rng.integers(len(broken), size=1 + seed % 5):
            broken[place] = int(rng.integers(256))
        try:
            read_recording(write(tmp_path / f"run.{ending}", bytes(broken)), spec())
        except RecordingError as error:
            refused += 1
            assert error.problems  # noqa: PT017
    assert refused > 50


# All recordings of a study


def study(*entries: dict) -> Study:
    parts = [spec(**entry).model_dump(exclude_unset=True) for entry in entries]
    data = {"spookax": 1, "scene": "scene.yaml", "recordings": parts, "parameters": {"tilt.x": {}}}
    return Study.model_validate(data)


def test_problems_of_several_recordings_come_in_one_report(tmp_path):
    good, bad, worse = (tmp_path / f"{name}.csv" for name in ("good", "bad", "worse"))
    write(good, text())
    write(bad, with_cell(3, 2, "nan"))
    write(worse, "")
    with pytest.raises(RecordingError) as caught:
        read_recordings(study(*({"file": str(path), "name": path.stem} for path in (good, bad, worse))))
    assert [problem.file for problem in caught.value.problems] == [str(bad), str(worse)]


def test_inputs_of_a_motor_have_one_dimension_in_all_recordings(tmp_path):
    a, b, c = (tmp_path / f"{name}.csv" for name in "abc")
    write(a, text())
    write(b, text(header=["t [s]", "u [mV]", *COLUMNS[2:]]))
    write(c, text(header=["t [s]", "u [A]", *COLUMNS[2:]]))
    entries = [{"file": str(path), "name": path.stem} for path in (a, b, c)]
    assert [run.name for run in read_recordings(study(*entries[:2]))] == ["a", "b"]
    with pytest.raises(RecordingError, match=r"the input 'drive' is in A, but in .* it is in V"):
        read_recordings(study(*entries))


def test_parquet_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = write(tmp_path / "run.parquet", b"PAR1")
    with pytest.raises(RecordingError, match=r"Install spookax\[parquet\]"):
        read_recording(path, spec())


def test_parquet_reads_like_npz(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    data: dict = {name: column.tolist() for name, column in arrays().items()}
    data["arm [deg]"][5] = None
    parquet.write_table(pyarrow.table(data), tmp_path / "run.parquet")
    run = read_recording(tmp_path / "run.parquet", spec())
    assert np.flatnonzero(np.isnan(run.sensors["arm"][:, 0])).tolist() == [5]
    np.testing.assert_allclose(run.sensors["arm"][6, 0], np.deg2rad(36))
    whole = (tmp_path / "run.parquet").read_bytes()
    for size in (4, 100, len(whole) - 5):
        with pytest.raises(RecordingError, match="not a readable Parquet file"):
            read_recording(write(tmp_path / "cut.parquet", whole[:size]), spec())
