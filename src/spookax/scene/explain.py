"""Pydantic's errors in plain words: where, what is wrong and what to write instead.

A field's description may hold its unit in square brackets, which the sentences then name. A `Cure` in its
annotation says what to do about a value out of range.
"""

import difflib
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

Loc = tuple[str | int, ...]


@dataclass(frozen=True)
class Finding:
    """Something wrong with data: where (keys and list indices), the value, what is wrong, and a cure."""

    loc: Loc
    value: Any
    message: str
    cure: str


@dataclass(frozen=True)
class Cure:
    """Annotation of a field: the sentence that helps when its value is out of range."""

    text: str


def refuse(found: Iterable[Finding]) -> None:
    """Raise what a pydantic validator may raise, carrying findings whose places are relative to its model.

    **Raises:** `PydanticCustomError` if there is any finding; `findings` unpacks it again.
    """
    found = list(found)
    if found:
        text = "; ".join(f"{'.'.join(map(str, finding.loc))}: {finding.message}" for finding in found)
        raise PydanticCustomError("findings", "{text}", {"text": text, "findings": found})


# what others call it -> what it is called here
_SYNONYMS = {
    **dict.fromkeys(("revolute", "continuous", "rotational", "rotary", "pin", "pivot"), "hinge"),
    **dict.fromkeys(("slider", "slide", "linear", "translational", "sliding"), "prismatic"),
    **dict.fromkeys(("spherical", "socket"), "ball"),
    **dict.fromkeys(("weld", "welded", "rigid"), "fixed"),
    **dict.fromkeys(("cardan", "hooke"), "universal"),
    **dict.fromkeys(("helical", "leadscrew"), "screw"),
    **dict.fromkeys(("rope", "cable", "tendon"), "line"),
    **dict.fromkeys(("free", "floating", "6dof"), "generic"),
    **dict.fromkeys(("wheel", "disc", "disk"), "rolling_disc"),
    **dict.fromkeys(("effort", "force"), "torque"),
    **dict.fromkeys(("voltage", "dc_motor"), "dc"),
    "servo": "position",
    **dict.fromkeys(("encoder", "angle"), "joint_position"),
    **dict.fromkeys(("tachometer", "tacho"), "joint_rate"),
    **dict.fromkeys(("touch", "contact", "force_plate", "load_cell"), "contact_force"),
    **dict.fromkeys(("cube", "cuboid"), "box"),
}


def _meant(word: object, known: Iterable[str]) -> str:
    """A question that names the known word of the same meaning or, if there is none, the most similar; or nothing."""
    known, synonym = list(known), _SYNONYMS.get(str(word).lower())
    near = [synonym] if synonym in known else difflib.get_close_matches(str(word), known, n=1, cutoff=0.5)
    return f"Did you mean `{near[0]}`?" if near else ""


def nearest(name: object, known: Iterable[str]) -> str:
    """Sentences that name the nearest known word, if any is near, and the known ones."""
    known = list(dict.fromkeys(known))
    meant = f"{question} " if (question := _meant(name, known)) else ""
    listed = ", ".join(f"`{word}`" for word in known[:24]) + (", ..." if len(known) > 24 else "")
    return meant + (f"Known here: {listed}." if known else "None is defined.")


def nearest_file(path: Path) -> str:
    """A sentence that names the file in the same folder whose name is nearest."""
    names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"Did you mean {path.parent / near[0]}?" if near else "Check the name and the folder."


def shown(value: object) -> str:
    """A value as a reader would recognise it, on one short line."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping"
        case list() | tuple() if len(str(value)) > 40:
            return f"a list of {len(value)}"
        case list() | tuple():
            return str(list(value))
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) < 60 else text[:57] + "..."


def findings(refused: pydantic.ValidationError, model: type[pydantic.BaseModel], data: Any) -> list[Finding]:
    """Every error of a pydantic validation as a `Finding` that speaks of the user's keys.

    `model` is what was validated and `data` what it was given. Names that pydantic adds to a place (the
    chosen member of a union) are taken out again. One finding is kept per place.
    """
    found: dict[Loc, Finding] = {}
    for error in refused.errors(include_url=False):
        for finding in _explain(error, _Place(model, data, error)):
            found.setdefault(finding.loc, finding)
    return [finding for finding in found.values() if not _is_beside_the_point(finding, found)]


def _is_beside_the_point(finding: Finding, found: Iterable[Loc]) -> bool:
    """Whether a member of a union that the user did not mean complains about the whole of a mapping."""
    size = len(finding.loc)
    inside = any(len(other) > size and other[:size] == finding.loc for other in found)
    return inside and isinstance(finding.value, dict) and finding.message.startswith("must be ")


class _Place:
    """An error's place, walked through the model's types and the data at the same time."""

    def __init__(self, model: type[pydantic.BaseModel], data: Any, error: ErrorDetails):
        self.loc: Loc = ()
        self.info: FieldInfo | None = None  # of the field at `loc`, or of the nearest one around it
        self.around: list[Any] = []  # the types of which the value at `loc` is a part
        self.types: list[Any] = [model]  # the types that the value at `loc` may have
        parts = error["loc"]
        for number, part in enumerate(parts):
            chosen = [kind for kind in self.types if _is_called(kind, part)]
            last = number == len(parts) - 1
            if len(self.types) > 1 and chosen:
                self.types = chosen
            elif _has(data, part) or (last and (error["type"] == "missing" or isinstance(data, list | tuple))):
                self.loc = (*self.loc, part)
                data = _under(data, part)
                self.around = self.types
                self.types, self.info = _descend(self.types, part, self.info)

    def known_keys(self) -> list[str]:
        return list(dict.fromkeys(str(key) for kind in _models(self.around) for key in _keys(kind)))

    def tags(self) -> list[str]:
        return [tag for kind in _models(self.types) for tag in _tags(kind)]

    @property
    def description(self) -> str:
        return (self.info and self.info.description) or ""

    @property
    def meaning(self) -> str:
        text = self.description
        return f" ({text[:1].lower()}{text[1:].rstrip('.')})" if text else ""

    @property
    def keys(self) -> str:
        """The keys of what lies here, to be added to a sentence."""
        known = [str(key) for kind in _models(self.types) for key in _keys(kind)]
        return f", with keys such as {', '.join(f'`{key}`' for key in known[:4])}" if known else ""

    @property
    def unit(self) -> str:
        found = re.search(r"\[([^\]]*)\]", self.description)
        return f" {found[1]}" if found else ""

    def size(self, context: Mapping[str, Any]) -> str:
        """How many entries the list, or that of which this is a missing entry, must have."""
        fixed = [kind for kind in (*self.types, *self.around) if typing.get_origin(kind) is tuple]
        counts = [len(args) for kind in fixed if Ellipsis not in (args := typing.get_args(kind))]
        bounds = [f"{word} {context[key]}" for key, word in _BOUNDS.items() if key in context]
        number = str(counts[0]) if counts else bounds[0]
        return f"{number} {'entry' if number.endswith(' 1') else 'entries'}"

    def cure(self, otherwise: str) -> str:
        given = [item.text for item in (self.info.metadata if self.info else []) if isinstance(item, Cure)]
        return given[0] if given else otherwise


def _has(data: Any, part: str | int) -> bool:
    if isinstance(data, dict):
        return part in data
    return isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)


def _under(data: Any, part: str | int) -> Any:
    return data[part] if _has(data, part) else None


def _models(candidates: Iterable[Any]) -> list[type[pydantic.BaseModel]]:
    return [kind for kind in candidates if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)]


def _keys(model: type[pydantic.BaseModel]) -> dict[str | int, FieldInfo]:
    """The fields by what files call them."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _tags(model: type[pydantic.BaseModel]) -> tuple[str, ...]:
    field = model.model_fields.get("type")
    return typing.get_args(field.annotation) if field else ()


def _is_called(kind: Any, part: str | int) -> bool:
    """Whether a part of pydantic's place is the tag or the name of this member of a union."""
    return getattr(kind, "__name__", None) == part or any(part in _tags(model) for model in _models([kind]))


def _members(kind: Any) -> list[Any]:
    """The types behind an annotation: a union is taken apart, `Annotated` taken off."""
    if typing.get_origin(kind) is typing.Annotated:
        return _members(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [member for one in typing.get_args(kind) for member in _members(one)]
    return [kind]


def _descend(candidates: list[Any], part: str | int, info: FieldInfo | None) -> tuple[list[Any], FieldInfo | None]:
    """Types, and the field that describes them, of what lies under `part`."""
    inner: list[Any] = []
    for kind in candidates:
        if _models([kind]):
            if (field := _keys(kind).get(part)) is not None:
                info = field
                inner += _members(field.annotation)
        elif args := typing.get_args(kind):
            inner += _members(args[1] if typing.get_origin(kind) is dict else args[0])
    return inner, info


_NUMBER = "Write a plain number, such as 0.1 or 1e-3, without unit or quotes."
_LINES = "Write indented lines `key: value` below it{keys}."
_NAME = "Begin with a letter or _, then letters, digits, _ and -."

# pydantic's error type -> (message, cure)
_SENTENCES = {
    "missing": ("is missing", "Add `{key}: ...`{meaning}."),
    "finite_number": ("must be a finite number, got {value}", "Write an ordinary number{meaning}."),
    "greater_than": ("must be > {gt:g}{unit}, got {value}", "Write a larger number{meaning}."),
    "greater_than_equal": ("must be >= {ge:g}{unit}, got {value}", "Write a larger number{meaning}."),
    "less_than": ("must be < {lt:g}{unit}, got {value}", "Write a smaller number{meaning}."),
    "less_than_equal": ("must be <= {le:g}{unit}, got {value}", "Write a smaller number{meaning}."),
    "float_type": ("must be a number, got {value}", _NUMBER),
    "float_parsing": ("must be a number, got {value}", _NUMBER),
    "int_type": ("must be a whole number, got {value}", "Write a number such as 3."),
    "int_parsing": ("must be a whole number, got {value}", "Write a number such as 3."),
    "int_from_float": ("must be a whole number, got {value}", "Write a number such as 3."),
    "bool_type": ("must be true or false, got {value}", "Write `true` or `false`."),
    "bool_parsing": ("must be true or false, got {value}", "Write `true` or `false`."),
    "string_type": ("must be text, got {value}", "Write a word, in quotes if it looks like a number."),
    "string_pattern_mismatch": ("has the wrong form, got {value}", "Write another text{meaning}."),
    "dict_type": ("must be a mapping, got {value}", _LINES),
    "model_type": ("must be a mapping, got {value}", _LINES),
    "model_attributes_type": ("must be a mapping, got {value}", _LINES),
    "list_type": ("must be a list, got {value}", "Write it in brackets{meaning}."),
    "tuple_type": ("must be a list, got {value}", "Write it in brackets{meaning}."),
    "too_long": ("must have {size}, got {given}", "Write as many{meaning}."),
    "too_short": ("must have {size}, got {given}", "Write as many{meaning}."),
}
_DEGREES = re.compile(r"([-+]?\d*\.?\d+)\s*(?:deg|degrees?|°)")
_BOUNDS = {"min_length": "at least", "max_length": "at most"}
_RANGE = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")


def _explain(error: ErrorDetails, place: _Place) -> list[Finding]:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    loc = place.loc
    match kind:
        case "findings":
            inner: list[Finding] = context["findings"]
            return [Finding((*loc, *found.loc), found.value, found.message, found.cure) for found in inner]
        case "extra_forbidden" if value is None and str(loc[-1])[:1].isdigit():
            cure = "A comma ends a value: write numbers with a decimal point, such as 1.5."
            return [Finding(loc, value, "unknown key", cure)]
        case "extra_forbidden":
            return [Finding(loc, value, "unknown key", nearest(loc[-1], place.known_keys()))]
        case "union_tag_not_found":
            return [Finding((*loc, "type"), None, "is missing", nearest("", place.tags()))]
        case "union_tag_invalid":
            tag = context["tag"]
            return [Finding((*loc, "type"), tag, f"unknown type {shown(tag)}", nearest(tag, place.tags()))]
        case "literal_error":
            words = re.findall(r"'([^']*)'", context["expected"])
            written = "one of these" if len(words) > 1 else context["expected"]
            cure = _meant(value, words) or f"Write {written}."
            return [Finding(loc, value, f"must be {context['expected']}, got {shown(value)}", cure)]
        case "string_pattern_mismatch" if error["loc"][-1] == "[key]":
            return [Finding(loc, value, "this name is not allowed", _NAME)]
        case "missing" if isinstance(loc[-1], int):  # a list that is too short
            kind, loc = "too_short", loc[:-1]
        case "string_type" if value is None:
            cure = 'Write a word. # begins a comment: write what begins with it in quotes, such as "#ff0000".'
            return [Finding(loc, value, "must be text, got nothing", cure)]
        case "float_type" | "float_parsing" if isinstance(value, str) and (angle := _DEGREES.fullmatch(value.strip())):
            radians = math.radians(float(angle[1]))
            return [Finding(loc, value, f"must be a number, got {shown(value)}", f"Write {radians:.6g}, in radians.")]
        case "missing":
            value = None
    otherwise = re.sub(r"^Value error, ", "", error["msg"])
    message, cure = _SENTENCES.get(kind, ("{text}", "Change the value."))
    words = {
        **context,
        "value": shown(value),
        "unit": place.unit,
        "meaning": place.meaning,
        "key": loc[-1] if loc else "",
        "keys": place.keys,
        "size": place.size(context) if kind in ("too_short", "too_long") else "",
        "given": shown(value) if value else "none",
        "text": otherwise[:1].lower() + otherwise[1:],
    }
    cure = cure.format(**words)
    return [Finding(loc, value, message.format(**words), place.cure(cure) if kind in _RANGE else cure)]
