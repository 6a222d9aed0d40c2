"""Fenced blocks of the Markdown pages, and how they are run: each page in order, in a folder of its own.

`demo`, `scenes`, `studies`, `tasks` and `tests` of the repository stand in that folder. A `python` block is executed
with the names of those before it, a `console` block line by line, and what it quotes of the output must come, numbers
to their last digit. A comment just before a block says what else is to happen:

    <!-- block: write FILE -->     the block becomes this file
    <!-- block: merge FILE -->     its top keys take the place of those of this YAML file
    <!-- block: head of FILE -->   this file begins with it
    <!-- block: printed -->        the program before it prints this
    <!-- block: slow -->           it takes long: it runs with the slow tests
    <!-- block: by TEST -->        another test runs it, `tests/FILE.py::NAME`
    <!-- block: not run, WHY -->   it cannot be run here
    <!-- run: COMMAND -->          a command that readers do not see; it runs with the block after it, or at the end

A `text` block is no code: a formula, or an output.
"""

import contextlib
import io
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from typer.testing import CliRunner

from spookax.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted(str(p.relative_to(ROOT)) for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
LINKED = ("demo", "scenes", "studies", "tasks", "tests")
CODE = ("python", "console", "yaml")

_PIECE = re.compile(
    r"^<!-- run: (?P<hidden>.*?) -->$"
    r"|(?:^<!-- block: (?P<how>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")


class Block(NamedTuple):
    """A block of a page: `line` of its fence, `how` its comment says it is run, hidden commands before it."""

    page: str
    line: int
    language: str
    how: str
    text: str
    hidden: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def slow(self) -> bool:
        return self.how == "slow"

    @property
    def elsewhere(self) -> bool:
        """Whether it is not for the runner of pages."""
        return self.how.startswith(("by ", "not run, "))


def blocks(page: str) -> list[Block]:
    """All blocks of a page in order; hidden commands after the last one stand before an empty block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found: list[Block] = []
    hidden: list[str] = []
    for piece in _PIECE.finditer(text):
        if piece["hidden"]:
            hidden.append(piece["hidden"])
            continue
        line = text.count("\n", 0, piece.start("language")) + 1
        found.append(Block(page, line, piece["language"], piece["how"] or "", piece["text"], tuple(hidden)))
        hidden = []
    return [*found, Block(page, text.count("\n"), "text", "", "", tuple(hidden))] if hidden else found


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Command lines of a console block with the output that is quoted under each."""
    line, quoted = "", []
    for text in block.text.splitlines():
        if text.startswith("$ "):
            if line:
                yield line, quoted
            line, quoted = text[2:], []
        elif text.strip():
            quoted.append(text)
    if line:
        yield line, quoted


def run_page(page: str, folder: Path, patch: pytest.MonkeyPatch, slow: bool) -> dict[str, Any]:
    """Run the blocks of a page, with or without the slow ones; what its programs have defined."""
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    patch.chdir(folder)
    patch.setattr("webbrowser.open", lambda *_, **__: True)
    names: dict[str, Any] = {}
    printed = ""
    for block in blocks(page):
        if block.elsewhere or (block.slow and not slow):
            printed = ""
            continue
        for command in block.hidden:
            run_command(command, block.place)
        if block.how == "printed":
            if slow or printed:
                compare(printed, block.text.splitlines(), block.place)
            continue
        with contextlib.redirect_stdout(io.StringIO()) as said:
            _run(block, names)
        printed = said.getvalue()
    return names


def _run(block: Block, names: dict[str, Any]) -> None:
    how, _, file = block.how.rpartition(" ")
    if how == "write":
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(block.text, encoding="utf-8")
    elif how == "merge":
        merged = yaml.safe_load(Path(file).read_text(encoding="utf-8")) | yaml.safe_load(block.text)
        Path(file).write_text(yaml.safe_dump(merged, sort_keys=False), encoding="utf-8")
    elif how == "head of":
        assert Path(file).read_text(encoding="utf-8").startswith(block.text), f"{block.place}: {file}"
    elif block.language == "python":
        exec(compile(block.text, block.place, "exec"), names)
    elif block.language == "console":
        for line, quoted in commands(block):
            compare(run_command(line, block.place), quoted, f"{block.place}: {line}")


def run_command(line: str, place: str) -> str:
    """What a command prints; it must end with status 0. Ours run in this process, so that they compile once."""
    program, *arguments = shlex.split(line, comments=True)
    if program == "spookax" and "|" not in arguments:
        result = CliRunner().invoke(app, arguments)
        status, output, error = result.exit_code, result.stdout, result.stderr
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
    else:
        done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
        status, output, error = done.returncode, done.stdout, done.stderr
    assert status == 0, f"{place}: {line}\n{output}\n{error}"
    return output


def compare(output: str, quoted: list[str], place: str) -> None:
    """Every quoted line comes, in order; `...` is any number of lines."""
    lines = iter(output.splitlines())
    for wanted in quoted:
        if wanted.strip() == "...":
            continue
        assert any(same(line, wanted) for line in lines), f"{place}\nnot printed: {wanted}\nprinted:\n{output}"


def same(line: str, wanted: str) -> bool:
    """Whether a line says what is quoted: words and whole numbers as they are, others but for one of the last digit."""
    (here, found), (there, told) = (
        ([" ".join(part.split()) for part in _NUMBER.split(text)], _NUMBER.findall(text)) for text in (line, wanted)
    )
    return here == there and all(_near(a, b) for a, b in zip(found, told, strict=True))


def _near(found: str, told: str) -> bool:
    if re.fullmatch(r"[-+]?\d+", told):
        return found == told
    digits, _, power = told.partition("e")
    last = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return abs(float(found) - float(told)) <= 1.001 * last
