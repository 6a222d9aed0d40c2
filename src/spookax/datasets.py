"""Public data sets that studies and tests refer to: what they are and where to get them.

None of the data is part of this package. A data set is a folder `NAME` of CSV files (one column per
signal, units in the header) that is looked for in the folder named by the environment variable
`SPOOKAX_DATA`, then in `$XDG_CACHE_HOME/spookax` (usually `~/.cache/spookax`). When it is in neither,
`path` says what to download, from where, under which licence, and where to put it.
"""

import functools
import importlib.resources
import os
from dataclasses import dataclass
from pathlib import Path

import yaml

from spookax.scene.explain import nearest
from spookax.scene.located import FileError, FileProblem


class DatasetMissing(FileError):
    """A data set, or one of its files, is unknown or not on this machine."""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What is known about a data set without having it.

    - `files`: names of the files in the folder `name`.
    - `columns`: header of the CSV files, `name [unit]` separated by commas; empty if it differs per file.
    - `purpose`: what it is good for here.
    - `origin`: repository, commit and path of the records.
    - `prepared`: what was done to the records upstream; empty if columns were only chosen and renamed.
    """

    name: str
    title: str
    purpose: str
    origin: str
    licence: str
    citation: str
    files: tuple[str, ...]
    columns: str = ""
    prepared: str = ""

    def __str__(self) -> str:
        rows = {
            "for": self.purpose,
            "origin": self.origin,
            "licence": self.licence,
            "cite": self.citation,
            "files": ", ".join(self.files),
            "columns": self.columns,
            "prepared": self.prepared,
        }
        lines = (f"  {key}: {text}" for key, text in rows.items() if text)
        return "\n".join([f"{self.name}: {self.title}", *lines])


def list_datasets() -> tuple[str, ...]:
    """Names of the known data sets, sorted."""
    return tuple(sorted(_catalogue()))


def describe(name: str) -> Dataset:
    """What is known about the data set `name`; `print` it for a readable text.

    **Raises:** `DatasetMissing` if there is no such data set; it names the nearest one.
    """
    if name not in _catalogue():
        raise _missing(name, f"unknown data set '{name}'", nearest(name, list_datasets()))
    return _catalogue()[name]


def folders() -> list[Path]:
    """Folders in which data sets are looked for, in this order; they need not exist."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spookax"
    given = os.environ.get("SPOOKAX_DATA")
    return [Path(given).expanduser(), cache] if given else [cache]


def path(name: str, file: str) -> Path:
    """Where the file `file` of the data set `name` is on this machine.

    **Raises:** `DatasetMissing` if the data set or file is unknown, or if it is not here; then the
    message says what to download from where, the licence, and where to put it.
    """
    dataset = describe(name)
    candidates = [folder / name / file for folder in folders()]
    for candidate in candidates:
        if os.path.isfile(candidate):  # False, not an error, for a name that cannot exist
            return candidate
    if file not in dataset.files:
        raise _missing(f"{name}/{file}", f"the data set '{name}' has no file '{file}'", nearest(file, dataset.files))
    columns = f" as a table with the columns {dataset.columns}" if dataset.columns else ""
    prepared = f" ({dataset.prepared})" if dataset.prepared else ""
    raise _missing(
        f"{name}/{file}",
        f"the data set '{name}', {dataset.title}, is not on this machine",
        f"Get it from {dataset.origin}; licence: {dataset.licence}. Save it{columns}{prepared} to "
        f"{candidates[0]}, or set SPOOKAX_DATA to the folder that holds the folder '{name}'.",
    )


@functools.cache
def _catalogue() -> dict[str, Dataset]:
    text = importlib.resources.files("spookax").joinpath("datasets.yaml").read_text(encoding="utf-8")
    return {
        name: Dataset(name=name, files=tuple(entry.pop("files")), **entry)
        for name, entry in yaml.safe_load(text).items()
    }


def _missing(where: str, message: str, cure: str) -> DatasetMissing:
    return DatasetMissing([FileProblem(file=where, line=0, path="", value=None, message=message, cure=cure)])
