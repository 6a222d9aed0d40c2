"""Damaged scene files: at least 20 of every kind. Each gives one report with the right line."""

import re
from pathlib import Path

import pytest

from spookax.scene import SceneError, read_scene

TEXT = Path(__file__).with_name("full.yaml").read_text()
LINES = TEXT.splitlines()
NUMBER = re.compile(r"^( *)(\w+): (-?[\d.]+(?:e-?\d+)?)$")
KEY = re.compile(r"^( *(?:- )?)(\w+):(.*)$")

# Keys that are names which the user chooses, under these sections.
NAMED = ("couplings", "bodies", "joints", "motors", "sensors", "initial", "rows")


def report(folder: Path, text: str):
    path = folder / "scene.yaml"
    path.write_text(text)
    with pytest.raises(SceneError) as caught:
        read_scene(path)
    for problem in caught.value.problems:
        assert problem.message
        assert problem.cure
        assert str(problem).startswith(f"{path}:{problem.line}: ")
    return caught.value.problems


def reads(folder: Path, text: str) -> bool:
    path = folder / "scene.yaml"
    path.write_text(text)
    try:
        read_scene(path)
    except SceneError:
        return False
    return True


def with_line(index: int, line: str) -> str:
    return "\n".join([*LINES[:index], line, *LINES[index + 1 :]]) + "\n"


def numbers() -> list[int]:
    return [index for index, line in enumerate(LINES[: LINES.index("rows:")]) if NUMBER.match(line)]


def keys() -> list[int]:
    """Lines whose key belongs to the format."""
    section, found = "", []
    for index, line in enumerate(LINES):
        match = KEY.match(line)
        if match is None:
            continue
        indent = len(match[1])
        section = match[2] if indent == 0 else section
        of_an_axis = indent == 6 and LINES[index - 1] == "    axes:"
        if section != "rows" and not (indent == 2 and section in NAMED) and not of_an_axis:
            found.append(index)
    return found


def references() -> list[tuple[int, int]]:
    """Lines that name a body, and the place of a letter of the name to damage."""
    found = []
    for index, line in enumerate(LINES):
        if match := re.match(r"^ *(?:parent|child|body): (\w+)$", line):
            found += [(index, match.start(1) + letter) for letter in range(len(match[1]))]
    return found


def test_there_are_enough_variants():
    assert TEXT.splitlines() == LINES
    assert min(len(numbers()), len(keys()), len(references()), len(FORBIDDEN)) >= 20


@pytest.mark.parametrize("number", range(20))
def test_cut_in_the_middle(tmp_path, number):
    cut = len(TEXT) * (number + 1) // 21
    while reads(tmp_path, TEXT[:cut]):  # what is left may be a whole scene: cut elsewhere
        cut += 1
    assert cut < len(TEXT)
    lines = len(TEXT[:cut].splitlines())
    found = report(tmp_path, TEXT[:cut])
    assert all(1 <= problem.line <= lines for problem in found)
    assert len({problem.path for problem in found}) == len(found)


def damaged_numbers(*instead: str) -> list[tuple[int, str]]:
    """Every number replaced by one of some words, in turn."""
    return [(index, instead[place % len(instead)]) for place, index in enumerate(numbers())]


@pytest.mark.parametrize(
    ("index", "wrong"),
    [
        *damaged_numbers("heavy", "[1, 2]", "{a: 1}", "'0.5'", "true"),
        *damaged_numbers("off", "1 kg", "[]", "0,5", "!!str 5"),
        *damaged_numbers(".nan", ".inf", "-.inf", "1e999"),
    ],
)
def test_wrong_type_or_not_finite(tmp_path, index, wrong):
    key = LINES[index].split(":")[0]
    (problem,) = report(tmp_path, with_line(index, f"{key}: {wrong}"))
    assert problem.line == index + 1
    assert problem.path.endswith(key.strip())


def test_nothing_where_a_number_belongs(tmp_path):
    """Where a key has no default, writing nothing is an error; elsewhere it means "not given"."""
    optional = ("    relative_compliance", "    relaxation_steps", "    density")
    given = [index for index in numbers() if not LINES[index].startswith(optional)]
    assert len(given) >= 20
    for index in given:
        (problem,) = report(tmp_path, with_line(index, LINES[index].split(":")[0] + ":"))
        assert problem.line == index + 1


MAY_BE_NEGATIVE = (
    "xy",
    "xz",
    "yz",
    "rest",
    "pitch",
    "ratio",
    "gain",
    "bias",
    "offset",
    "position",
    "rate",
    "cos",
    "sin",
)
FORBIDDEN = [index for index in numbers() if LINES[index].split(":")[0].strip() not in MAY_BE_NEGATIVE]


@pytest.mark.parametrize("index", FORBIDDEN)
def test_negative(tmp_path, index):
    key = LINES[index].split(":")[0]
    (problem,) = report(tmp_path, with_line(index, f"{key}: -1e-3"))
    blamed = {"xx": "inertia", "yy": "inertia", "zz": "inertia", "torque_constant": "back_emf_constant"}
    assert problem.path.split(".")[-1] == blamed.get(key.strip(), key.strip())
    assert LINES[problem.line - 1].strip().startswith(problem.path.split(".")[-1] + ":")
    assert abs(problem.line - (index + 1)) <= 3


@pytest.mark.parametrize("index", keys())
def test_unknown_key(tmp_path, index):
    match = KEY.match(LINES[index])
    assert match is not None
    known = match[2]
    unknown = f"{known[:-1]}_{known[-1]}"
    found = report(tmp_path, with_line(index, f"{match[1]}{unknown}:{match[3]}"))
    if known == "type" and not any(problem.message == "unknown key" for problem in found):
        (problem,) = found  # what else may stand there depends on the type
        assert (problem.path.split(".")[-1], problem.message) == ("type", "is missing")
        return
    (problem,) = [problem for problem in found if problem.message == "unknown key"]
    assert problem.line == index + 1
    assert problem.path.endswith(unknown)
    assert problem.cure.startswith(f"Did you mean `{known}`?")
    others = [other.message for other in found if other is not problem]  # what is not there any more
    assert all(re.search("missing|there is no joint", message) for message in others)


@pytest.mark.parametrize(("index", "letter"), references())
def test_reference_to_a_missing_body(tmp_path, index, letter):
    line = LINES[index]
    (problem,) = report(tmp_path, with_line(index, line[:letter] + "_" + line[letter:]))
    name = line.split(": ")[1]
    assert problem.line == index + 1
    assert problem.path.endswith(line.split(":")[0].strip())
    assert problem.message.startswith("there is no body '")
    assert problem.cure.startswith(f"Did you mean `{name}`?")


EMPTY = [
    *["\n" * count for count in range(10)],
    *[" " * count + "\n" for count in range(1, 4)],
    *["# a comment\n" * count for count in range(1, 4)],
    *["---\n", "---\n...\n", "%YAML 1.2\n---\n", "\ufeff", "\ufeff# x\n", "null\n", "~\n", "''\n"],
]


@pytest.mark.parametrize("text", EMPTY)
def test_empty_file(tmp_path, text):
    (problem,) = report(tmp_path, text)
    assert problem.line == 1
    assert problem.path == ""
    assert "empty" in problem.message or "must be a mapping" in problem.message


ODD = [
    "abc",
    "[]",
    "{}",
    "",
    "true",
    ".nan",
    "1e308",
    "-1e308",
    "5e-324",
    "9" * 290,
    "''",
    "[[1]]",
    "{1: 2}",
    "&a [*a]",
]


@pytest.mark.parametrize("shift", range(4))
def test_nothing_but_scene_errors(tmp_path, shift):
    """Any value of any key, and any entry of a list, replaced by something odd: it is read or refused."""
    refused = 0
    for index, line in enumerate(LINES):
        odd = ODD[(index + 4 * shift) % len(ODD)]
        if match := KEY.match(line):
            refused += not reads(tmp_path, with_line(index, f"{match[1]}{match[2]}: {odd}"))
        if entry := re.search(r"\[([^,\]]+),", line):
            refused += not reads(tmp_path, with_line(index, line.replace(entry[1], odd, 1)))
    assert refused > 30
