"""The YAML reader that studies and scenes share: lines, words and numbers, and one sentence per problem."""

import math
from typing import Annotated, Literal

import pydantic
import pytest
from pydantic import Field

from spookax.scene.located import FileError, FileProblem, load_located, validate


class Column(pydantic.BaseModel, extra="forbid"):
    column: str
    unit: str = Field(default="1", description="Unit of the column")


class Round(pydantic.BaseModel, extra="forbid"):
    type: Literal["round"]
    radius: float = Field(gt=0, description="Radius [m]")


class Square(pydantic.BaseModel, extra="forbid"):
    type: Literal["square"]
    round: float = Field(ge=0, lt=1, description="Rounding of the edges [m]")


class File(pydantic.BaseModel, extra="forbid"):
    spookax: Literal[1]
    time: str | Column = "t"
    count: int = 3
    flag: bool = False
    parts: dict[str, Annotated[Round | Square, Field(discriminator="type")]] = {}
    pair: tuple[float, float] = (0.0, 0.0)
    even: int = 2

    @pydantic.field_validator("even")
    @classmethod
    def _is_even(cls, even: int) -> int:
        if even % 2:
            raise ValueError("Must be even")
        return even


def problems(text: str) -> list[FileProblem]:
    with pytest.raises(FileError) as caught:
        validate(load_located("file.yaml", text), File)
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
    return caught.value.problems


def found(text: str) -> list[tuple[int, str]]:
    return [(problem.line, problem.path) for problem in problems(text)]


def test_a_problem_prints_as_file_line_path_message_cure():
    problem = FileProblem("a.yaml", 3, "b.c", -1, "must be > 0 kg, got -1", "Write more.")
    assert str(problem) == "a.yaml:3: b.c: must be > 0 kg, got -1. Write more."
    assert str(FileProblem("a.yaml", 0, "", None, "no such file", "Look.")) == "a.yaml: no such file. Look."


def test_every_key_and_item_has_its_line():
    located = load_located("x", "a: 1\nb:\n  c:\n    - 5\n    - {d: 6,\n       e: 7}\n")
    assert located.data == {"a": 1, "b": {"c": [5, {"d": 6, "e": 7}]}}
    lines = {(): 1, ("a",): 1, ("b",): 2, ("b", "c"): 3, ("b", "c", 0): 4, ("b", "c", 1): 5}
    assert located.lines == {**lines, ("b", "c", 1, "d"): 5, ("b", "c", 1, "e"): 6}
    assert located.line_of(("b", "c", 7, "z")) == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("1e-3", 1e-3), ("1E3", 1e3), ("-.5", -0.5), ("5.", 5.0), ("+3", 3), ("0x10", 16), ("0o17", 15)],
        *[
            ("017", 17),
            ("on", "on"),
            ("off", "off"),
            ("yes", "yes"),
            ("No", "No"),
            ("y", "y"),
            ("true", True),
        ],
        *[("FALSE", False), ("1:30", "1:30"), ("2024-01-01", "2024-01-01"), ("1_000", "1_000"), ("~", None)],
        *[("", None), ("null", None), (".inf", math.inf), ("-.INF", -math.inf), ("'1'", "1"), ("<<", "<<")],
        *[("!!str 1", "1"), ("!!float 2", 2.0), ("1e999", math.inf), ("9" * 5000, math.inf), ("1e", "1e")],
    ],
)
def test_words_and_numbers_follow_yaml_1_2(text, value):
    data = load_located("x", f"a: {text}").data
    assert data == {"a": value}
    assert type(data["a"]) is type(value)


def test_nan_is_read_as_a_number():
    assert math.isnan(load_located("x", "a: .nan").data["a"])


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "is empty"),
        ("# nothing\n\n", 1, "is empty"),
        ("- 1\n- 2\n", 1, "must be a mapping"),
        ("\n\nword\n", 3, "must be a mapping"),
        ("spookax: 1\nparts: {a: [1, 2\n", 2, "broken YAML"),
        ("spookax: 1\nname: 'cut", 2, "broken YAML"),
        ("spookax: 1\n\ttime: t\n", 2, "a tab"),
        ("spookax: 1\nparts:\n  a: 1\n b: 2\n", 4, "broken YAML"),
        ("spookax: 1\n---\nspookax: 1\n", 2, "more than one YAML document"),
        ("spookax: *one\n", 1, "undefined alias"),
        ("spookax: 1\ntime: \x00\n", 2, "not text"),
        ("[" * 2000, 1, "nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_problem(text, line, words):
    (problem,) = problems(text)
    assert problem.line == line
    assert words in problem.message
    assert problem.cure


def test_files_on_disk_that_cannot_be_read(tmp_path):
    good = tmp_path / "good.yaml"
    good.write_bytes(b"\xef\xbb\xbfspookax: 1\n")
    assert load_located(good).data == {"spookax": 1}
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"spookax: 1\ntime: Zeit in \xb5s\n")
    for path, line, words in (
        (latin, 2, "byte 0xb5 is not UTF-8"),
        (tmp_path / "god.yaml", 0, "no such file"),
        (tmp_path / "no" / "where.yaml", 0, "no such file"),
        (tmp_path, 0, "this is a folder"),
    ):
        with pytest.raises(FileError) as caught:
            load_located(path)
        (problem,) = caught.value.problems
        assert (problem.file, problem.line) == (str(path), line)
        assert words in problem.message
    with pytest.raises(FileError, match=r"Did you mean .*good\.yaml"):
        load_located(tmp_path / "god.yaml")


def test_the_error_may_be_of_another_kind():
    class StudyError(FileError):
        pass

    with pytest.raises(StudyError):
        load_located("x", "", error=StudyError)
    with pytest.raises(StudyError):
        validate(load_located("x", "a: 1"), File, StudyError)


def test_a_key_written_twice_is_reported_beside_everything_else():
    assert found("spookax: 1\neven: 2\ncount: x\neven: 4\n") == [(3, "count"), (4, "even")]
    (problem,) = problems("spookax: 1\neven: 2\neven: 4\n")
    assert "the first is on line 2" in problem.message


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("time: &t [*t]", "time[0]", "an alias"),
        ("time: !!python/name:os.system x", "time", "does not fit"),
        ("time: !!int x", "time", "does not fit"),
        ("time: !!bool on", "time", "does not fit"),
        ("{[1]: 2}: 3", "", "cannot be a key"),
    ],
)
def test_yaml_that_is_not_plain_data(text, path, words):
    problem = problems(f"spookax: 1\n{text}\n")[0]
    assert (problem.line, problem.path) == (2, path)
    assert words in problem.message


def test_a_colour_that_is_a_comment_and_breaks_its_line(tmp_path):
    """Only there: another mistake beside a colour in quotes is not blamed on it."""
    (problem,) = problems("spookax: 1\nparts:\n  a: {type: round,\n    colour: #Ff00a0}\n  b: 1\n")
    assert problem.line == 4
    assert problem.message.startswith("broken YAML")
    assert problem.cure == '# begins a comment, also inside brackets: write "#Ff00a0" in quotes.'
    (problem,) = problems('spookax: 1\nparts: {a: {colour: "#ff00a0"}\ncount: 1\n')
    assert "quote or bracket" in problem.cure


@pytest.mark.parametrize(
    ("text", "path", "message", "cure"),
    [
        ("cout: 4", "cout", "unknown key", "Did you mean `count`?"),
        ("count: 1.5", "count", "must be a whole number, got 1.5", "Write a number such as 3."),
        ("count:", "count", "must be a whole number, got nothing", "Write a number such as 3."),
        ("flag: on top", "flag", "must be true or false, got 'on top'", "Write `true` or `false`."),
        ("even: 3", "even", "must be even", "Change the value."),
        ("pair: [1]", "pair", "must have 2 entries, got [1]", "Write as many"),
        ("pair: [1, 2, 3]", "pair", "must have 2 entries, got [1, 2, 3]", "Write as many"),
        ("pair: 3", "pair", "must be a list, got 3", "in brackets"),
        ("pair: [1, x]", "pair[1]", "must be a number, got 'x'", "plain number"),
        ("parts: 5", "parts", "must be a mapping, got 5", "key: value"),
        ("parts: {a: 5}", "parts.a", "must be a mapping, got 5", "key: value"),
        ("parts: {a: {radius: 1}}", "parts.a.type", "is missing", "`round`, `square`"),
        ("parts: {a: {type: rond}}", "parts.a.type", "unknown type 'rond'", "Did you mean `round`?"),
        ("parts: {a: {type: round}}", "parts.a.radius", "is missing", "Add `radius: ...` (radius [m])."),
        ("parts: {a: {type: round, radius: 0}}", "parts.a.radius", "must be > 0 m, got 0", "larger number"),
        ("parts: {a: {type: square, round: -1}}", "parts.a.round", "must be >= 0 m, got -1", "larger number"),
        ("parts: {a: {type: square, round: 1}}", "parts.a.round", "must be < 1 m, got 1", "smaller number"),
        ("time: {colum: a, column: b}", "time.colum", "unknown key", "Did you mean `column`?"),
        ("time: {}", "time.column", "is missing", "Add `column: ...`."),
        ("time: 5", "time", "must be text, got 5", "in quotes"),
        ("time: #ff0000", "time", "must be text, got nothing", "write what begins with it in quotes"),
    ],
)
def test_pydantic_errors_become_plain_sentences(text, path, message, cure):
    (problem,) = problems(f"spookax: 1\n{text}\n")
    assert (problem.line, problem.path, problem.message) == (2, path, message)
    assert cure in problem.cure


def test_a_good_file_is_a_model():
    assert validate(load_located("x", "spookax: 1\ntime: {column: a}"), File).time == Column(column="a")
