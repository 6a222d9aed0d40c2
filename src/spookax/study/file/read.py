"""Read study files."""

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pydantic

from spookax import datasets
from spookax.scene.explain import Finding, nearest
from spookax.scene.files import is_scene
from spookax.scene.located import FileError, Located, load_located, validate
from spookax.study.file import units as u
from spookax.study.file.columns import Picker
from spookax.study.file.key_rules import DATASET_FILE, study_rules
from spookax.study.file.study import Column, Recorded, Study, recording_path
from spookax.study.file.table import Report, read_table
from spookax.study.file.windows import LISTS, located_out

Kind = TypeVar("Kind", bound=Recorded)


class StudyError(FileError):
    """A study file was refused. `problems` has everything that is wrong with it."""


def read_study(path: str | os.PathLike[str], *, locate: bool = True) -> Study:
    """Reads a study file.

    With `locate`, the scene file and the recordings must exist; without, only the study file is checked.

    **Raises:** `StudyError` with every problem of the file: YAML, keys, values, files that are not there.
    """
    located = load_located(path, error=StudyError)
    if is_latent(located.data):
        cure = f"Use `spookax latent {path}`, or delete `latent` and name a `scene` and `parameters`."
        raise StudyError([located.problem(Finding(("latent",), None, "this is a study of an unknown force", cure))])
    return read_as(Study, located, locate=locate)


def is_latent(data: Any) -> bool:
    """Whether the data of a file are meant to be a study of an unknown force, which may have a scene or none."""
    return isinstance(data, dict) and "latent" in data


def read_as(kind: type[Kind], located: Located, *, locate: bool = True) -> Kind:
    """The data of a file as a study of some kind; see `read_study`."""
    path = Path(located.file)
    if is_scene(located.data):
        cure = f"Give a study, which names it as its `scene`, or use `spookax simulate {path}`."
        raise StudyError([located.problem(Finding((), None, "this is a scene, not a study", cure))])

    located = located_out(located, functools.partial(_span, path.parent))

    def also(data: Any) -> Iterator[Finding]:
        yield from study_rules(data, located.origin)
        if locate:
            yield from _absent_files(data, path.parent)

    study = validate(located, kind, error=StudyError, also=also, context=located.origin)
    study._located = located
    return study


def _span(folder: Path, entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """First and last stamp of a recording's file; None where they cannot be read, which is reported later."""
    try:
        path = recording_path(folder, entry.get("file"), entry.get("dataset"))
        report = Report(str(path))
        pick = Picker(read_table(path, report), report)
        time = pick(Column.model_validate(entry.get("time")), "the time", (u.TIME,)).values
    except (FileError, TypeError, ValueError, pydantic.ValidationError):
        return None
    stamps = time[np.isfinite(time)]
    return (float(stamps[0]), float(stamps[-1])) if stamps.size and not report.problems else None


def _absent_files(data: dict[str, Any], folder: Path) -> Iterator[Finding]:
    """Files that the raw data of a study names and that do not exist; wrong types are left to the schema."""
    scene = data.get("scene")
    if isinstance(scene, str) and not os.path.isfile(folder / scene):
        yield Finding(("scene",), scene, f"no such file: {folder / scene}", _nearest_file(folder / scene))
    told: set[str] = set()
    listed = {name: data[name] for name in LISTS if isinstance(data.get(name), list)}
    for here, entry in [((name, index), entry) for name in listed for index, entry in enumerate(listed[name])]:
        for key in ("file", "dataset"):
            value = entry.get(key) if isinstance(entry, dict) else None
            if not isinstance(value, str) or (key == "dataset" and not DATASET_FILE.fullmatch(value)):
                continue
            try:
                path = recording_path(folder, **{"file": None, "dataset": None, key: value})
            except datasets.DatasetMissing as missing:
                message, cure = missing.problems[0].message, missing.problems[0].cure
                cure = "As above." if message in told else cure
                told.add(message)
            else:
                if os.path.isfile(path):
                    continue
                message, cure = f"no such file: {path}", _nearest_file(path)
            yield Finding((*here, key), value, message, cure)


def _nearest_file(path: Path) -> str:
    if not os.path.isdir(path.parent):
        return "Check the folder; paths are relative to the study file."
    there = sorted(entry.name for entry in path.parent.iterdir() if entry.suffix == path.suffix)
    return nearest(path.name, there) if there else "Check the name and the folder."
