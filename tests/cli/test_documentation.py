"""What the README, the documentation and the help of the commands show is true."""

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from cli.scenes import ROOT, run, study_folder
from documentation.pages import PAGES, blocks, commands

import spookax as sx
from spookax.cli import app

COMMANDS = (
    "check",
    "simulate",
    "identify",
    "predict",
    "compare",
    "choose-friction",
    "filter",
    "smooth",
    "latent",
    "view",
    "import-mjcf",
    "export-mjcf",
)


def shown_commands() -> list[tuple[str, str]]:
    """Where, and the command line without `spookax`."""
    found = []
    for page in PAGES:
        lines = [line for block in blocks(page) if block.language == "console" for line, _ in commands(block)]
        found += [(page, line.removeprefix("spookax ")) for line in lines if line.startswith("spookax ")]
    for name in COMMANDS:
        examples = re.findall(r"^ +spookax (.*)$", run(name, "--help").stdout, re.MULTILINE)
        found += [(f"{name} --help", line) for line in examples]
    return found


def test_every_command_has_an_example_in_its_help():
    for name in COMMANDS:
        result = run(name, "--help")
        assert result.exit_code == 0
        assert re.search(rf"^ +spookax {name} ", result.stdout, re.MULTILINE), result.stdout


@pytest.mark.parametrize(("page", "line"), shown_commands())
def test_shown_commands_are_understood_and_their_files_exist(page: str, line: str):
    words = shlex.split(line, comments=True)
    name, *arguments = itertools.dropwhile(lambda word: word.startswith("-"), words)  # options of every command
    command = typer.main.get_command(app).commands[name]  # pyright: ignore[reportAttributeAccessIssue]
    context = command.make_context(name, arguments)
    for value in context.params.values():
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, Path) and path.parts[0] in ("scenes", "studies", "demo"):
                assert (ROOT / path).is_file(), f"{page}: {path}"


def programs(page: str) -> list[str]:
    return [block.text for block in blocks(page) if block.language == "python"]


def readme_program() -> str:
    (program,) = programs("README.md")
    return program


def in_folder(program: str) -> str:
    """The program of the README on the small scene and study of the tests."""
    small = program.replace("demo/furuta.yaml", "slider.yaml").replace("demo/furuta_study.yaml", "study.yaml")
    small = small.replace("(1000, ", "(100, ")
    assert small.count("slider.yaml") == small.count("study.yaml") == small.count("(100, ") == 1
    return small


def test_the_program_in_the_readme_simulates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(study_folder(tmp_path))
    names: dict[str, object] = {}
    exec(in_folder(readme_program()).partition("study =")[0], names)
    trajectory = names["trajectory"]
    assert isinstance(trajectory, sx.Trajectory)
    assert float(trajectory.position[-1, 0]) == pytest.approx(0.5 * 4.0 / 2.0 / 2, abs=1e-6)
    assert (tmp_path / "out/free.html").is_file()


def test_the_program_of_the_filters_runs():
    (program,) = programs("docs/filtering.md")
    names: dict[str, Any] = {}
    exec(program, names)
    assert abs(float(names["seen"].whitened[0])) < 2
    assert names["belief"].mean.shape == (4,)


@pytest.mark.slow  # a gradient and a batch are compiled
def test_the_program_of_the_gradients_is_right(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    program, *_ = programs("docs/gradients.md")  # the others are run as blocks of the page
    names: dict[str, Any] = {}
    exec(program, names)
    last_angle, level, arm = names["last_angle"], float(names["level"]), float(names["arm"])
    for i, at in enumerate((level, arm)):
        d = 1e-4 * at
        ahead, back = ([level, arm] for _ in range(2))
        ahead[i], back[i] = at + d, at - d
        difference = (last_angle(*ahead) - last_angle(*back)) / (2 * d)
        assert float(names["slopes"][i]) == pytest.approx(float(difference), rel=1e-4)
    assert np.all(np.diff(names["angles"]) > 0)  # the more friction, the less far it swings


def test_every_public_name_is_there():
    assert {"load", "identify", "Scene"} < set(sx._HOME)
    for name in (*sx._HOME, *sx._ROOMS):
        assert getattr(sx, name) is not None
        assert name in dir(sx)
    with pytest.raises(AttributeError, match=r"spookax.*'nothing'"):
        _ = sx.nothing  # pyright: ignore[reportAttributeAccessIssue]
