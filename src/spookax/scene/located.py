"""Files people write: YAML read with the line of every value, and reports that list every problem at once."""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pydantic
import yaml

from spookax.scene.explain import Finding, Loc, findings, nearest_file
from spookax.scene.wrong_kind import told_apart
from spookax.scene.yaml12 import Loader12, number

Model = TypeVar("Model", bound=pydantic.BaseModel)


@dataclass(frozen=True)
class FileProblem:
    """One thing that is wrong in a file, where it is and what to do about it.

    `line` counts from 1; 0 stands for the file as a whole. `path` is empty for the root of the file.
    """

    file: str
    line: int
    path: str
    value: object = field(compare=False)
    message: str
    cure: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        message = self.message.rstrip(".")
        return " ".join(f"{place}: {self.path + ': ' if self.path else ''}{message}. {self.cure}".split())


class FileError(Exception):
    """A file was refused. `problems` has everything that is wrong with it; `str()` prints one per line."""

    def __init__(self, problems: Iterable[FileProblem]):
        self.problems: list[FileProblem] = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True)
class Located:
    """The data of a YAML file, and the line on which every key and every list item stands.

    `lines` maps the keys and list indices that lead to a value to its line, counted from 1. `problems` are
    those that leave the rest of the file readable (a key written twice); `validate` reports them too. Where the
    data is not as it was written, `moved` has the places of the file: one in `data` -> one in `lines`.
    """

    file: str
    data: Any
    lines: Mapping[Loc, int] = field(default_factory=dict)
    problems: tuple[FileProblem, ...] = ()
    moved: Mapping[Loc, Loc] = field(default_factory=dict)

    def origin(self, loc: Loc) -> Loc:
        """Where in the file a place in the data was written."""
        for size in range(len(loc), 0, -1):
            if loc[:size] in self.moved:
                return (*self.moved[loc[:size]], *loc[size:])
        return loc

    def line_of(self, loc: Loc) -> int:
        """Line of a value, or of the nearest thing around it that has one; 0 when lines are not known."""
        loc = self.origin(loc)
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return self.lines.get(loc, 0)

    def problem(self, finding: Finding) -> FileProblem:
        """A finding about the data, with this file's name and the line it belongs to."""
        line = self.line_of(finding.loc)
        return FileProblem(
            self.file, line, dotted(self.origin(finding.loc)), finding.value, finding.message, finding.cure
        )


def dotted(loc: Loc) -> str:
    """Path as text: `bodies.arm.shapes[0].size`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.removeprefix(".")


def validate(
    located: Located,
    model: type[Model],
    error: type[FileError] = FileError,
    also: Callable[[Any], Iterable[Finding]] | None = None,
    context: Any = None,
) -> Model:
    """Turn the data of a file into a pydantic model.

    **Arguments:**

    - `located`: from `load_located`.
    - `model`: the pydantic model of the whole file.
    - `error`: what to raise, a `FileError` or a subclass of it.
    - `also`: rules that read the raw data (and must tolerate any), so that they report even when the schema
        fails elsewhere.
    - `context`: handed to pydantic's validators.

    **Raises:** `error` with one problem per thing that is wrong, in the order of the file.
    """
    found: list[Finding] = []
    result: Model | None = None
    try:
        result = model.model_validate(located.data, context=context)
    except pydantic.ValidationError as refused:
        found += findings(refused, model, located.data)
    if also is not None:
        found += also(located.data)
    problems: dict[str, FileProblem] = {}
    for problem in [*located.problems, *(located.problem(finding) for finding in found)]:
        problems.setdefault(problem.path, problem)
    if result is None or problems:
        raise error(sorted(problems.values(), key=lambda problem: problem.line))
    return result


def load_located(path: str | os.PathLike[str], text: str | None = None, error: type[FileError] = FileError) -> Located:
    """Read a YAML file (or `text`, under the name `path`) that holds a mapping.

    Numbers and words follow YAML 1.2: `1e-3` is a number, `on` and `yes` are text.

    **Raises:** `error` with a single problem when the file is missing, empty, not UTF-8, broken YAML or not
    a mapping.
    """
    file = os.fspath(path)

    def refuse(line: int, message: str, cure: str) -> FileError:
        return error([FileProblem(file, line, "", None, message, cure)])

    if text is None:
        if other := told_apart(path, "a scene or a study", "scene", "study"):
            raise refuse(0, *other)
        try:
            raw = Path(path).read_bytes()
        except FileNotFoundError:
            raise refuse(0, "no such file", nearest_file(Path(path))) from None
        except OSError as failed:
            raise refuse(0, f"cannot be read: {failed.strerror}", "Give a file that can be opened.") from None
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as failed:
            line = raw[: failed.start].count(b"\n") + 1
            message = f"byte 0x{raw[failed.start]:02x} is not UTF-8 text"
            raise refuse(line, message, "Save it as UTF-8.") from None
    try:
        node = yaml.compose(text, Loader=Loader12)
        if node is None or (isinstance(node, yaml.ScalarNode) and node.value == ""):
            raise refuse(1, "the file is empty", "Write `spookax: 1` on its first line, then the rest.")
        if not isinstance(node, yaml.MappingNode):
            raise refuse(node.start_mark.line + 1, "must be a mapping", "Write lines such as `key: value`.")
        walk = _Walk(file)
        data = walk.value(node, ())
    except yaml.MarkedYAMLError as broken:
        line, message, cure = _explain_yaml(broken, text)
        raise refuse(line, message, cure) from None
    except yaml.reader.ReaderError as broken:
        line = text[: broken.position].count("\n") + 1
        message = f"a character that is not text, {text[broken.position]!r}, is not allowed in YAML"
        raise refuse(line, message, "Delete it.") from None
    except RecursionError:
        raise refuse(1, "brackets are nested too deeply", "Look for a repeated bracket.") from None
    return Located(file, data, {(): node.start_mark.line + 1, **walk.lines}, tuple(walk.problems))


class _Walk:
    """Builds plain data from YAML nodes and notes the line of every key and item."""

    def __init__(self, file: str):
        self.file = file
        self.lines: dict[Loc, int] = {}
        self.problems: list[FileProblem] = []
        self.open: list[yaml.Node] = []

    def refuse(self, node: yaml.Node, loc: Loc, message: str, cure: str, value: object = None) -> None:
        line = node.start_mark.line + 1
        self.problems.append(FileProblem(self.file, line, dotted(loc), value, message, cure))

    def value(self, node: yaml.Node, loc: Loc) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, loc)
        if any(node is outer for outer in self.open):
            self.refuse(node, loc, "an alias (*) stands for what contains it", "Write the value out.")
            return None
        self.open.append(node)
        if isinstance(node, yaml.MappingNode):
            result = dict(self.items(node, loc))
        else:
            result = []
            for index, item in enumerate(node.value):
                self.lines[*loc, index] = item.start_mark.line + 1
                result.append(self.value(item, (*loc, index)))
        self.open.pop()
        return result

    def items(self, node: yaml.MappingNode, loc: Loc) -> Iterator[tuple[str, Any]]:
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.refuse(key_node, loc, "a list cannot be a key", "Write a name before the colon.")
                continue
            key = key_node.value
            if key in seen:
                message = f"key `{key}` is written twice; the first is on line {seen[key]}"
                self.refuse(key_node, (*loc, key), message, "Keep one of the two.")
                continue
            seen[key] = line
            self.lines[*loc, key] = line
            yield key, self.value(value_node, (*loc, key))

    def scalar(self, node: yaml.ScalarNode, loc: Loc) -> Any:
        kind, text = node.tag.removeprefix("tag:yaml.org,2002:"), node.value
        match kind:
            case "str":
                return text
            case "null":
                return None
            case "bool" if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case "int" | "float":
                with contextlib.suppress(ValueError):
                    return number(kind, text)
        self.refuse(node, loc, f"the YAML tag {node.tag} does not fit here", "Write the plain value.", text)
        return None


def _explain_yaml(broken: yaml.MarkedYAMLError, text: str) -> tuple[int, str, str]:
    mark = broken.problem_mark or broken.context_mark
    line = min(mark.line + 1, max(1, len(text.splitlines()))) if mark else 1
    problem = broken.problem or "it cannot be parsed"
    began = ""
    if broken.context_mark and broken.context_mark.line + 1 != line:
        began = f" ({broken.context}, begun on line {broken.context_mark.line + 1})"
    if "'\\t'" in problem:
        return line, "a tab stands where YAML wants spaces", "Indent with spaces."
    if "single document" in (broken.context or ""):
        return line, "the file holds more than one YAML document", "Delete `---` and what follows it."
    if "undefined alias" in problem:
        return line, problem, "Define it before, with &name, or write the value out."
    first = broken.context_mark.line if broken.context_mark else line - 1
    for there, content in enumerate(text.splitlines()[first:line], first + 1):
        if colour := re.search(r"\s(#[0-9a-fA-F]{6})\b", content):
            cure = f'# begins a comment, also inside brackets: write "{colour[1]}" in quotes.'
            return there, f"broken YAML: {problem}{began}", cure
    cure = "Look for a missing colon, quote or bracket, or a wrong indentation, here or just above."
    return line, f"broken YAML: {problem}{began}", cure
