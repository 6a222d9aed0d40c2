"""Every model that installed packages ship is read, or refused with a list: never a crash, never silence."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from mjcf.models import mujoco

from spookax.mjcf import MjcfError, import_mjcf
from spookax.scene import FileProblem, Scene

PACKAGES = ("mujoco", "mujoco.mjx", "dm_control", "robot_descriptions", "pybullet_data")


def shipped() -> list[Path]:
    found = set()
    for name in PACKAGES:
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            continue
        for folder in spec.submodule_search_locations or [] if spec else []:
            found |= {path for end in ("xml", "urdf") for path in Path(folder).rglob(f"*.{end}")}
    return sorted(found)


def attempt(file: Path, allow_missing: bool) -> tuple[Scene | None, Sequence[FileProblem]]:
    try:
        imported = import_mjcf(file, allow_missing)
    except MjcfError as refused:
        return None, refused.problems
    return imported.scene, imported.missing


def test_shipped_models(tmp_path, monkeypatch):
    """`pytest -rP` shows how many."""
    monkeypatch.chdir(tmp_path)  # MuJoCo logs its warnings into the working folder
    files = shipped()
    assert any(Path(mujoco.__file__).parent in file.parents for file in files)
    count = {"read": 0, "refused": 0, "of them read when allowed": 0, "not compiled by MuJoCo": 0, "without motion": 0}
    count["with contacts"] = 0
    for file in files:
        scene, problems = attempt(file, allow_missing=False)
        assert (scene is None) == bool(problems), file
        assert all(problem.message and problem.cure for problem in problems), file
        count["read" if scene else "refused"] += 1
        if scene is None:
            scene, problems = attempt(file, allow_missing=True)
            assert problems, file
            count["of them read when allowed"] += scene is not None
            count["not compiled by MuJoCo"] += problems[0].message.startswith("MuJoCo cannot compile")
            count["without motion"] += problems[0].message == "nothing in it moves"
        count["with contacts"] += scene is not None and scene.contacts is not None
    assert count["read"] + count["refused"] == len(files)
    print(*(f"{number} {key}" for key, number in count.items()), sep=", ")
