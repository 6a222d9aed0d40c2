"""Height fields: heights over a rectangular grid, written out or from a table or a picture."""

import functools
import math
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pydantic
from pydantic import Field

from spookax.scene.explain import Finding, refuse
from spookax.scene.fields import Number, Positive
from spookax.scene.shapes import FileBeside, Placed

_READ = ".npy, .csv and .png"
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


class HeightField(Placed):
    """Heights above the xy plane through `at`, over a rectangle with its centre there, in triangles; solid below."""

    type: Literal["height_field"] = Field(description="Heights over a grid in local x and y, solid below")
    size: tuple[Positive, Positive] = Field(description="Full lengths of the grid along x and y [m]")
    heights: Annotated[list[list[Number]], Field(min_length=2)] | None = Field(
        default=None, description="Rows of heights, the first at the lowest y, each from the lowest x on [m]"
    )
    file: FileBeside | None = Field(
        default=None,
        description="File of the heights instead, relative to the scene file: rows as above (.npy, .csv), or a grey "
        "picture seen from above (.png)",
    )
    scale: Positive = Field(default=1.0, description="Metres per unit of the file; of a picture from black to white")

    @pydantic.model_validator(mode="after")
    def _one_grid(self) -> "HeightField":
        refuse(_wrong(self))
        return self


def _wrong(shape: HeightField) -> Iterator[Finding]:
    if (shape.heights is None) == (shape.file is None):
        both = "both" if shape.file else "neither"
        yield Finding((), None, f"has {both} of `heights` and `file`", "Write one of them.")
    elif shape.heights is not None:
        widths = [len(row) for row in shape.heights]
        if len(set(widths)) > 1 or widths[0] < 2:
            message = f"rows have {', '.join(map(str, sorted(set(widths))))} heights"
            yield Finding(("heights",), None, message, "Give all rows as many, two at least.")
    else:
        try:
            heights_of(shape)
        except ValueError as wrong:
            yield Finding(("file",), shape.file, str(wrong), f"Give a table of numbers or a grey picture: {_READ}.")


def heights_of(shape: HeightField) -> np.ndarray:
    """Heights (rows, columns): along y and along x. [m]

    **Raises:** `ValueError` with a sentence for a file that cannot be read as such.
    """
    if shape.file is None:
        return np.array(shape.heights, dtype=float)
    return shape.scale * _read(shape.file, os.path.getmtime(shape.file) if os.path.exists(shape.file) else 0.0)


@functools.lru_cache(maxsize=16)
def _read(file: str, _: float) -> np.ndarray:
    try:
        match Path(file).suffix.lower():
            case ".npy":
                found = np.load(file, allow_pickle=False)
            case ".csv":
                found = np.loadtxt(file, delimiter=",", ndmin=2)
            case ".png":
                found = grey_levels(Path(file).read_bytes())[::-1]  # the first row of a picture is its upper one
            case _:
                raise ValueError(f"files that are read are {_READ}")
        found = np.asarray(found, dtype=float)
    except (OSError, ValueError, TypeError, EOFError, zlib.error, struct.error) as failed:
        raise ValueError(f"{file} cannot be read as heights: {failed}") from failed
    if found.ndim != 2 or min(found.shape) < 2:
        raise ValueError(f"{file} has heights of shape {found.shape}, not of two rows and two columns at least")
    if not np.all(np.isfinite(found)):
        raise ValueError(f"{file} has heights that are no finite numbers")
    return found


def grey_levels(data: bytes) -> np.ndarray:
    """Levels (rows, columns) of a grey picture from 0 (black) to 1 (white), its upper row first.

    **Raises:** `ValueError` for other pictures than PNG (ISO/IEC 15948) with 8 or 16 bits of grey, not interlaced.
    """
    if not data.startswith(_SIGNATURE):
        raise ValueError("it is no PNG")
    chunks = list(_chunks(data))
    if not chunks or chunks[0][0] != b"IHDR":
        raise ValueError("it has no header")
    columns, rows, bits, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    if colour != 0 or bits not in (8, 16) or interlaced:
        raise ValueError("it is no grey picture of 8 or 16 bits without interlacing")
    raw = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    width = bits // 8
    if len(raw) != rows * (1 + columns * width):
        raise ValueError("it ends early")
    lines = np.frombuffer(raw, dtype=np.uint8).reshape(rows, -1)
    found, above = np.zeros((rows, columns * width), dtype=np.uint8), np.zeros(columns * width, dtype=np.uint8)
    for row, line in enumerate(lines):
        above = found[row] = _unfiltered(int(line[0]), line[1:], above, width)
    return found.view(">u2" if width == 2 else np.uint8).astype(float) / (2**bits - 1)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_SIGNATURE)
    while at + 8 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += length + 12  # with its checksum


def _unfiltered(kind: int, line: np.ndarray, above: np.ndarray, width: int) -> np.ndarray:
    """The bytes of a row from what was written: differences to those left of it and above, modulo 256."""
    if kind == 0:
        return line
    if kind == 2:
        return line + above
    if kind == 1:
        return np.cumsum(line.reshape(-1, width), axis=0, dtype=np.uint8).ravel()
    if kind not in (3, 4):
        raise ValueError(f"a row has the unknown filter {kind}")
    out = np.zeros(len(line) + width, dtype=int)
    up = np.concatenate([np.zeros(width, dtype=int), above.astype(int)])
    for i, value in enumerate(line.tolist(), start=width):
        left, over, corner = int(out[i - width]), int(up[i]), int(up[i - width])
        guess = (left + over) // 2 if kind == 3 else _paeth(left, over, corner)
        out[i] = (value + guess) % 256
    return out[width:].astype(np.uint8)


def _paeth(left: int, over: int, corner: int) -> int:
    """Whichever is nearest to left + over - corner."""
    guess = left + over - corner
    return min((left, over, corner), key=lambda x: abs(guess - x))


def triangles(shape: HeightField) -> tuple[np.ndarray, np.ndarray]:
    """Corners of the grid (corners, 3) in the axes of the field, and the triangles (triangles, 3) as numbers of these,
    anticlockwise from above: every cell is cut from low x and y to high x and y. [m]"""
    z = heights_of(shape)
    y, x = (np.linspace(-0.5, 0.5, count) * length for count, length in zip(z.shape, shape.size[::-1], strict=True))
    corners = np.stack([*np.meshgrid(x, y), z], axis=-1).reshape(-1, 3)
    number = np.arange(z.size).reshape(z.shape)
    a, b, c, d = number[:-1, :-1], number[:-1, 1:], number[1:, :-1], number[1:, 1:]
    faces = np.stack([np.stack([a, b, d], axis=-1), np.stack([a, d, c], axis=-1)])
    return corners, faces.reshape(-1, 3)


def window(size: tuple[float, float], cells: tuple[int, int], reach: float) -> int:
    """Cells on every side of the one below a point that lie within `reach` of it. [m]"""
    return max(math.ceil(reach * count / length) for length, count in zip(size, cells, strict=True)) or 1
