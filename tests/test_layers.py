"""The house rules of imports (`.importlinter`), and that importing changes nothing for others."""

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONTRACTS = ROOT / ".importlinter"


def lint_imports(contracts_in: Path, source: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts in one folder on the package `spookax` inside another."""
    check = "from importlinter.cli import lint_imports; import sys; sys.exit(lint_imports(no_cache=True))"
    return subprocess.run(
        [sys.executable, "-c", check],
        cwd=contracts_in,
        env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    """A package of the same name with every layer and room as an empty folder, and the contracts beside it."""
    shutil.copy(CONTRACTS, tmp_path)
    config = configparser.ConfigParser()
    config.read(CONTRACTS)
    for contract in config.sections():
        for layer in re.findall(r"\w+", config[contract].get("layers", "")):
            folder = tmp_path / config[contract]["containers"].replace(".", "/") / layer
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "__init__.py").touch()
    (tmp_path / "spookax" / "__init__.py").touch()
    return tmp_path


def test_imports_point_downwards():
    result = lint_imports(ROOT, ROOT / "src")
    assert result.returncode == 0, result.stdout + result.stderr


def test_an_import_of_a_lower_layer_is_allowed(skeleton: Path):
    (skeleton / "spookax/stepping/__init__.py").write_text("from .. import math\n")
    result = lint_imports(skeleton, skeleton)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("math", "import spookax.stepping", "The house"),
        ("estimation", "from .. import models", "The house"),
        ("models", "from .. import estimation", "The house"),
        ("viewer", "from .. import report", "The house"),
        ("estimation/recursive", "from .. import slow", "The rooms of estimation"),
        ("estimation/linearise", "from ..batch import problem", "The rooms of estimation"),
        ("study/judging", "from .. import identifying", "The rooms of study"),
        ("protocol/capabilities", "from .. import core", "The protocol"),
        ("scene", "import jax", "without JAX"),
    ],
)
def test_a_forbidden_import_is_found(skeleton: Path, module: str, line: str, contract: str):
    (skeleton / "spookax" / module / "__init__.py").write_text(line + "\n")
    result = lint_imports(skeleton, skeleton)
    assert result.returncode == 1
    assert re.search(f"{contract}.* BROKEN", result.stdout), result.stdout


@pytest.mark.parametrize("folder", ["", "estimation", "study", "protocol"])
def test_a_folder_without_a_layer_is_found(skeleton: Path, folder: str):
    (skeleton / "spookax" / folder / "misc.py").touch()
    result = lint_imports(skeleton, skeleton)
    assert result.returncode == 1
    assert ".".join(filter(None, ["spookax", folder, "misc"])) in result.stdout


def test_importing_changes_no_jax_setting():
    program = """
import jax
before = dict(jax.config.values)
import spookax
changed = {name for name, value in jax.config.values.items() if before.get(name, value) != value}
assert not changed, changed
assert len(before) > 50, "not the settings"
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
