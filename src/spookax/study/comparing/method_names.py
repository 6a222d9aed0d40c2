"""Names of the methods that a comparison runs; known before anything that computes is imported."""

from collections.abc import Sequence

from ...scene import FileError, FileProblem
from ...scene.explain import nearest

NAMES = ("batch", "filter", "smoother", "shooting", "simulation", "equation", "network")
"""In the order in which they are told."""


def known_methods(names: Sequence[str]) -> list[str]:
    """The names, each once, in the order in which methods are told.

    **Raises:** `FileError` that lists the unknown ones, or says that there is none.
    """
    wrong = [(f"there is no method '{name}'", nearest(name, NAMES)) for name in names if name not in NAMES]
    if not names:
        wrong = [("names no method", nearest("", NAMES))]
    if wrong:
        raise FileError([FileProblem("--methods", 0, "", None, message, cure) for message, cure in wrong])
    return [name for name in NAMES if name in names]
