"""Tables of numbers as files: CSV, NPZ and Parquet, read so that every cell can be pointed at."""

import contextlib
import csv
import hashlib
import io
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import numpy as np
from jaxtyping import Float

from spookax.scene.located import FileError, FileProblem
from spookax.scene.wrong_kind import told_apart
from spookax.study.file.units import is_unit


class RecordingError(FileError):
    """A recording was refused. `problems` has everything that is wrong with it."""


_NO_SAMPLES = "Record it again, or export it with a header line and samples."

Cells = Sequence[str] | Float[np.ndarray, " rows"]


@dataclass
class Report:
    """Problems of one file, collected until `refuse` raises them together."""

    file: str
    problems: list[FileProblem] = field(default_factory=list)

    def add(self, message: str, cure: str, *, line: int = 0, column: str = "", value: object = None) -> None:
        """One more problem; `column` as the reader finds it in the file."""
        self.problems.append(FileProblem(self.file, line, column, value, message, cure))

    def stop(self, message: str, cure: str, *, line: int = 0, value: object = None) -> NoReturn:
        """**Raises:** `RecordingError`, because after this problem nothing more can be read."""
        self.add(message, cure, line=line, value=value)
        raise RecordingError(self.problems)

    def refuse(self) -> None:
        """**Raises:** `RecordingError` if there is any problem."""
        if self.problems:
            once = dict.fromkeys(self.problems)
            raise RecordingError(sorted(once, key=lambda problem: problem.line))


@dataclass(frozen=True)
class Table:
    """Header cells, and under each the cells of its column: text from a CSV file, else numbers.

    `lines` has the line of each row of a CSV file, and `header_line` that of its header; None and 0 for files
    without lines.
    """

    header: tuple[str, ...]
    columns: Sequence[Cells]
    sha256: str
    lines: Sequence[int] | None = None
    header_line: int = 0

    def place(self, row: int) -> str:
        """Where a row is, in words."""
        return f"sample {row + 1}" if self.lines is None else f"line {self.lines[row]}"

    def line(self, row: int) -> int:
        """Line of a row, or 0."""
        return 0 if self.lines is None else self.lines[row]

    def label(self, index: int) -> str:
        """A column as a reader finds it."""
        return f"column {index + 1} '{self.header[index]}'"

    def places(self, rows: Sequence[int]) -> str:
        """The first few of some rows, and how many there are if there are more."""
        shown = ", ".join(self.place(row) for row in rows[:3])
        return f"{shown} and {len(rows) - 3} more" if len(rows) > 3 else shown


def read_table(path: str | os.PathLike[str], report: Report) -> Table:
    """Reads a CSV, NPZ or Parquet file, by the ending of its name.

    **Raises:** `RecordingError` if the file cannot be read at all. Rows that do not fit the header are put
    into `report` and left out.
    """
    path = Path(path)
    if other := told_apart(path, "a recording (CSV, NPZ or Parquet)", "recording", "archive"):
        report.stop(*other)
    try:
        raw = path.read_bytes()
    except OSError as error:
        report.stop(f"cannot be read: {error.strerror}", "Check the name and the folder.")
    digest = hashlib.sha256(raw).hexdigest()
    if not raw.strip():
        report.stop("the file is empty", _NO_SAMPLES)
    match path.suffix.lower():
        case ".npz":
            return _read_npz(raw, digest, report)
        case ".parquet" | ".pq":
            return _read_parquet(raw, digest, report)
    return _read_csv(raw, digest, report)


def _read_csv(raw: bytes, digest: str, report: Report) -> Table:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        report.stop(f"byte 0x{raw[error.start]:02x} is not UTF-8 text", "Save the file as UTF-8.", line=line)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        for row in reader:
            if row:
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        cure = "Look for a quotation mark that is not closed, or export the file again."
        report.stop(f"broken CSV: {error}", cure, line=reader.line_num)
    if not rows:
        report.stop("the file is empty", _NO_SAMPLES)
    header, rows, header_line, lines = rows[0], rows[1:], lines[0], lines[1:]
    _check_header(header, header_line, report)
    _check_second_line(header, rows[:1], lines[:1], report)
    if not rows:
        report.add("the file has a header but no samples", _NO_SAMPLES, line=header_line)
    width = len(header)
    wrong = [index for index, row in enumerate(rows) if len(row) != width]
    if wrong:
        first = wrong[0]
        cells = f"has {len(rows[first])} cells where the header has {width}"
        cure = "Delete the line, or repair it; a decimal comma makes two cells of one number."
        more = f" (and {len(wrong) - 1} more such lines)" if len(wrong) > 1 else ""
        report.add(cells + more, cure, line=lines[first], value=rows[first])
        lines = [line for line, row in zip(lines, rows, strict=True) if len(row) == width]
        rows = [row for row in rows if len(row) == width]
    columns = list(zip(*rows, strict=True)) if rows else [()] * width
    return Table(tuple(cell.strip() for cell in header), columns, digest, lines, header_line)


def _check_header(header: Sequence[str], line: int, report: Report) -> None:
    """Refuses what reads as a header only by accident, since every later problem would follow from it."""
    if header[0].lstrip().startswith("#"):
        cure = "Delete it, and the # before a header; the first line is one such as `t [s],u [V],q [rad]`."
        report.stop("the first line is a comment", cure, line=line, value=header[0])
    if len(header) == 1 and (found := re.search(r"[;\t]", header[0])):
        name = {";": "semicolons", "\t": "tabs"}[found[0]]
        cure = "Export it with commas between the cells and points in the numbers."
        report.stop(f"the cells are separated by {name}", cure, line=line, value=header[0])
    if all(_NUMBER.fullmatch(cell.strip()) for cell in header):
        cure = "Write a first line such as `t [s],u [V],q [rad]`."
        report.stop("the file has no header, its first line has numbers only", cure, line=line)


def _check_second_line(
    header: Sequence[str], rows: Sequence[Sequence[str]], lines: Sequence[int], report: Report
) -> None:
    """Refuses units in a line of their own."""
    for row, line in zip(rows, lines, strict=True):
        found = [(name.strip(), cell.strip("[]() ")) for name, cell in zip(header, row, strict=False)]
        units = [cell for _, cell in found if cell]
        if any(unit != "1" for unit in units) and all(map(is_unit, units)):
            said = ",".join(f"{name} [{cell}]" if cell else name for name, cell in found)
            cure = f"Write them into the header, `{said}`, and delete this line."
            report.stop("the units stand in a line of their own", cure, line=line)


_NPZ_FAILURES = (
    OSError, ValueError, EOFError, KeyError, TypeError, SyntaxError, RuntimeError, MemoryError, OverflowError,
    struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What numpy and zipfile raise on damaged files."""


def _read_npz(raw: bytes, digest: str, report: Report) -> Table:
    try:
        if not zipfile.is_zipfile(io.BytesIO(raw)):
            raise zipfile.BadZipFile("it is not a complete zip archive")
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            arrays = {name: np.asarray(archive[name]) for name in archive.files}
    except _NPZ_FAILURES as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        report.stop(f"not a readable NPZ file: {reason}", "Write it again with numpy.savez.")
    return _from_arrays(arrays, digest, report)


def _read_parquet(raw: bytes, digest: str, report: Report) -> Table:
    try:
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        cure = "Install spookax[parquet], or export the recording as CSV or NPZ."
        report.stop("reading Parquet needs the package pyarrow, which is not installed", cure)
    try:
        table = pyarrow.parquet.read_table(io.BytesIO(raw))
        arrays = {name: table[name].to_numpy() for name in table.column_names}
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        report.stop(f"not a readable Parquet file: {reason}", "Write it again.")
    return _from_arrays(arrays, digest, report)


def _from_arrays(arrays: dict[str, np.ndarray], digest: str, report: Report) -> Table:
    for index, (name, array) in enumerate(arrays.items()):
        label = f"column {index + 1} '{name}'"
        if array.dtype.kind not in "iufb":
            message = f"must hold real numbers, but its type is {array.dtype}"
            report.add(message, "Save numbers; NaN stands for a missing sample.", column=label)
        elif array.ndim != 1:
            message = f"must have one dimension, but its shape is {array.shape}"
            report.add(message, "Save one column under each key.", column=label)
    if not arrays:
        report.add("the file has no columns", "Save each column under a key such as `q [rad]`.")
    report.refuse()
    sizes = [array.size for array in arrays.values()]
    usual = max(sizes, key=sizes.count)
    for index, (name, size) in enumerate(zip(arrays, sizes, strict=True)):
        if size != usual:
            message = f"has {size} samples where others have {usual}"
            cure = "Save columns of one length; NaN stands for a missing sample."
            report.add(message, cure, column=f"column {index + 1} '{name}'")
    report.refuse()
    if not usual:
        report.add("the columns have no samples", _NO_SAMPLES)
    return Table(tuple(arrays), [array.astype(np.float64) for array in arrays.values()], digest)


_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_PLAIN = frozenset("0123456789+-.eE")
_STANDS_FOR_NOTHING = re.compile(r"[-+]?(nan|inf|infinity|null|none|nil|na|n/a|-|\?)", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d:\d\d", re.ASCII)
_EMPTY = "Leave the cell empty where a sensor has no sample."


def numbers(table: Table, index: int, report: Report, needed: str | None = None) -> Float[np.ndarray, " rows"]:
    """The numbers of one column; NaN where a cell is empty.

    Cells that hold no finite number are put into `report`, one problem for each kind of cell. So are empty
    ones if none may be; `needed` is then the cure.
    """
    cells = table.columns[index]
    values = cells.copy() if isinstance(cells, np.ndarray) else _from_text(cells)
    refused: dict[tuple[str, str], list[int]] = {}
    for row in np.flatnonzero(~np.isfinite(values)).tolist():
        kind = _why_not(cells[row]) or (needed and ("must not be empty", needed))
        if kind:
            refused.setdefault(kind, []).append(row)
    for (message, cure), rows in refused.items():
        cell, line = cells[rows[0]], table.line(rows[0])
        message = f"{message}, got '{cell}' ({table.places(rows)})"
        report.add(message, cure, line=line, column=table.label(index), value=cell)
    return values


def _from_text(cells: Sequence[str]) -> Float[np.ndarray, " rows"]:
    """Numbers of text cells; NaN for what is empty or no number, infinity for what is too large."""
    if set("".join(cells)) <= _PLAIN:  # nearly always, and float() is faster than the expression below
        with contextlib.suppress(ValueError):
            return np.array([float(cell) if cell else math.nan for cell in cells], dtype=np.float64)
    numeric = (_NUMBER.fullmatch(cell.strip()) for cell in cells)
    return np.array([float(found[0]) if found else math.nan for found in numeric], dtype=np.float64)


def _why_not(cell: object) -> tuple[str, str] | None:
    """Message and cure for a cell without a finite number; None for an empty one."""
    if not isinstance(cell, str):
        return None if cell != cell else ("must be finite", "Save NaN where a sensor has no sample.")
    text = cell.strip()
    if not text:
        return None
    if _NUMBER.fullmatch(text):
        return (
            "must be a finite number",
            "Repair the number, or leave the cell empty if a sensor has no sample.",
        )
    if _DATE.search(text):
        return "must be a number", "Write times in seconds, counted from any moment."
    if _STANDS_FOR_NOTHING.fullmatch(text):
        return "must be a finite number", _EMPTY
    return "must be a number", f"Write it with a decimal point and without unit. {_EMPTY}"
