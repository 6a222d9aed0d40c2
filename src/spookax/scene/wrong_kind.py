"""What a file is, where another kind of file was wanted."""

import json
import os
import re
from pathlib import Path
from typing import Literal

Kind = Literal[
    "scene", "study", "recording", "estimate", "urdf", "mjcf", "xml", "archive", "sheet", "folder", "results"
]

_CALLED: dict[Kind, str] = {
    "scene": "a scene",
    "study": "a study",
    "recording": "a recording",
    "estimate": "a file of an estimate",
    "urdf": "a URDF file",
    "mjcf": "an MJCF file",
    "xml": "an XML file",
    "archive": "a file of arrays",
    "sheet": "a spreadsheet",
    "folder": "a folder",
    "results": "the folder of an estimate",
}
_RESULTS = {"estimate.json", "tracking.json", "prediction.json"}
_ENOUGH = 65536  # bytes that tell
_KEY = re.compile(r"^([A-Za-z_]+)\s*:", re.MULTILINE)
_JSON_KEY = re.compile(r'^\{? {0,2}"([A-Za-z_]+)"\s*:', re.MULTILINE)
_SHEETS = (".xlsx", ".xls", ".ods")
_SIGNS: dict[bytes, Kind] = {b"PK\x03\x04": "archive", b"PAR1": "recording", b"\x93NUMPY": "archive"}


def kind_of(path: str | os.PathLike[str]) -> Kind | None:
    """What a file or folder is by name and content, as far as that can be told."""
    path = Path(path)
    if path.is_dir():
        return "results" if any((path / name).is_file() for name in _RESULTS) else "folder"
    try:
        with path.open("rb") as stream:
            raw = stream.read(_ENOUGH)
    except OSError:
        return None
    if path.suffix.lower() in _SHEETS:
        return "sheet"
    for sign, kind in _SIGNS.items():
        if raw.startswith(sign):
            return kind
    text = raw.decode("utf-8-sig", errors="ignore")
    if text.lstrip().startswith("<"):
        tags: dict[str, Kind] = {"robot": "urdf", "mujoco": "mjcf", "mujocoinclude": "mjcf"}
        found = re.search(r"<([A-Za-z]+)\b", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))
        return tags.get(found[1], "xml") if found else "xml"
    if path.suffix.lower() in (".csv", ".tsv"):
        return "recording"
    braced = text.lstrip().startswith("{")
    keys = _json_keys(text) if braced else set(_KEY.findall(text))
    if path.suffix.lower() == ".json" and not keys.isdisjoint({"status", "log_likelihood", "horizon", "created"}):
        return "estimate"
    if not keys.isdisjoint({"bodies", "joints"}):
        return "scene"
    if not keys.isdisjoint({"scene", "recordings", "parameters"}):
        return "study"
    if braced:
        return None
    first = text.lstrip().partition("\n")[0]
    return "recording" if re.search(r"\[[^\]]*\]\s*[,;\t]", first) else None


def _json_keys(text: str) -> set[str]:
    """Of the outermost object; where the text is cut off or no JSON, those at the beginnings of lines."""
    try:
        found = json.loads(text)
    except ValueError:
        return set(_JSON_KEY.findall(text))
    return set(found)


def told_apart(path: str | os.PathLike[str], wanted: str, *fits: Kind) -> tuple[str, str] | None:
    """Message and cure for a file that is none of the kinds that fit; None where it is one, or nothing is known.

    `wanted`: what should have been given, in words.
    """
    kind = kind_of(path)
    if kind is None or kind in fits:
        return None
    return f"this is {_CALLED[kind]}, not {wanted}", _cure(kind, Path(path), wanted)


def _cure(kind: Kind, path: Path, wanted: str) -> str:
    match kind:
        case "recording" if "scene" in wanted:
            return "Recordings are named by a study; give the study or its scene."
        case "estimate":
            return f"Give its folder, {path.parent}, to `spookax simulate`, `predict`, `compare` or `view`."
        case "results" if "scene" in wanted:
            return "It can be given to `spookax simulate`, `predict`, `compare` and `view`."
        case "urdf" | "mjcf" if "scene" in wanted:
            return f"Make a scene of it: `spookax import-mjcf {path} --out {path.stem}.yaml`."
        case "study" if "estimate" in wanted:
            return f"Identify it first: `spookax identify {path} --out DIR`, then give DIR."
        case "sheet":
            return "Export it as CSV."
        case "folder":
            return "Name a file in it."
    return f"Give {wanted}."
