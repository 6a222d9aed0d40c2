"""MuJoCo's compiler, which reads MJCF and URDF. MuJoCo is optional and imported when it is needed."""

import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from spookax.mjcf.missing import Report
from spookax.scene.explain import nearest_file
from spookax.scene.wrong_kind import told_apart


def mujoco_module(report: Report) -> ModuleType:
    """MuJoCo.

    **Raises:** `MjcfError` if it is not installed.
    """
    try:
        import mujoco  # pyright: ignore[reportMissingImports]
    except ImportError:
        cure = "Install it with the extra of this package: pip install 'spookax[mjcf]'."
        raise report.refuse("", "reading MJCF and URDF needs MuJoCo, which is not installed", cure) from None
    return mujoco


def compiled(mujoco: ModuleType, file: str | os.PathLike[str], report: Report) -> Any:
    """The `mujoco.MjModel` of an MJCF or URDF file.

    **Raises:** `MjcfError` if the file cannot be read, and with MuJoCo's own words if it does not compile.
    """
    try:
        Path(file).read_bytes()
    except FileNotFoundError:
        raise report.refuse("", "no such file", nearest_file(Path(file))) from None
    except OSError as failed:
        raise report.refuse("", f"cannot be read: {failed.strerror}", "Give a file that can be opened.") from None
    if other := told_apart(file, "an MJCF or URDF file", "mjcf", "urdf"):
        raise report.refuse("", *other)
    try:
        return mujoco.MjModel.from_xml_path(os.fspath(file))
    except (ValueError, mujoco.FatalError) as failed:
        words = " ".join(str(failed).split())
        raise report.refuse("", f"MuJoCo cannot compile it: {words}", "Repair the file.") from None


class Names:
    """Names of a scene for elements of a model: valid, not empty, and each given once.

    Characters that a scene does not take become `_`, a name that begins with a digit gets `_` in front, an element
    without name is called by its kind and number, and a name that is taken gets a number behind.
    """

    def __init__(self, taken: tuple[str, ...] = ()):
        self._taken = set(taken)

    def new(self, name: str, otherwise: str) -> str:
        valid = re.sub(r"[^A-Za-z0-9_-]", "_", name) or otherwise
        valid = valid if re.match(r"[A-Za-z_]", valid) else f"_{valid}"
        number, free = 1, valid
        while free in self._taken:
            number += 1
            free = f"{valid}_{number}"
        self._taken.add(free)
        return free
