"""What a run that was cut short has computed, in a file, so that another one goes on from there."""

import hashlib
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from spookax._typing import Float
from spookax.scene import FileError, FileProblem, Scene
from spookax.study.latent.evidence import Maximum
from spookax.study.latent.record import Record
from spookax.study.latent.sampling import Draws
from spookax.study.latent.section import LatentStudy

UNFINISHED = "unfinished.npz"


class Unfinished:
    """Of a run: corrections so far, the best hyperparameters of this pass, their maximum where it is found, draws.

    **Arguments:** `folder`: of the file; nothing is kept without one. `of`: what the file belongs to.
    """

    def __init__(self, folder: Path | None, of: str):
        self.folder, self.of = folder, of
        self.passes = 0
        self.total: Float[np.ndarray, " which"] = np.zeros(0)  # corrections that are applied
        self.first: Float[np.ndarray, " which"] = np.zeros(0)  # what the first pass said
        self.log: Float[np.ndarray, " n"] | None = None
        self.best: Maximum | None = None
        self.covariance: Float[np.ndarray, "n n"] | None = None
        self.draws: Draws | None = None
        self.written = False

    def next_pass(self, total: Float[np.ndarray, " which"], log: Float[np.ndarray, " n"]) -> None:
        """Begin again with more corrections."""
        self.passes, self.total, self.log = self.passes + 1, total, log
        self.best = self.covariance = None
        self.write()

    def better(self, log: Float[np.ndarray, " n"]) -> None:
        """The best so far."""
        self.log = log
        self.write()

    def settle(self, best: Maximum, covariance: Float[np.ndarray, "n n"]) -> None:
        """The maximum of this pass."""
        self.log, self.best, self.covariance = best.at, best, covariance
        self.write()

    def write(self) -> None:
        """Whole or not at all."""
        if self.folder is None:
            return
        out = {"of": np.array(self.of), "passes": np.array(self.passes), "total": self.total, "first": self.first}
        if self.log is not None:
            out["log"] = self.log
        if self.best is not None and self.covariance is not None:
            out["best"] = np.array([self.best.cost, self.best.calls, self.best.converged], dtype=float)
            out["covariance"] = self.covariance
        if self.draws is not None:
            out["draws"], out["tuning"] = self.draws
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / f"{UNFINISHED}.part"
        with part.open("wb") as stream:
            np.savez(stream, **out)  # pyright: ignore[reportArgumentType]
        os.replace(part, self.folder / UNFINISHED)
        self.written = True

    def read(self) -> None:
        """Take over what an earlier run has left.

        **Raises:** `FileError` where there is none, or one of another study.
        """
        assert self.folder is not None
        file, cure = self.folder / UNFINISHED, "Run without --resume."
        if not file.is_file():
            raise _refused(file, "there is nothing to resume from", cure)
        try:
            with np.load(file) as stored:
                data = {key: stored[key] for key in stored.files}
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise _refused(file, "it cannot be read", cure) from error
        if str(data["of"]) != self.of:
            raise _refused(file, "it belongs to another study (other numbers, settings or recordings)", cure)
        self.passes, self.total, self.first = int(data["passes"]), data["total"], data["first"]
        self.log = data.get("log")
        if "best" in data and self.log is not None:
            cost, calls, converged = data["best"]
            self.best, self.covariance = Maximum(self.log, cost, int(calls), bool(converged)), data["covariance"]
        if "draws" in data:
            self.draws = Draws(data["draws"], data["tuning"])


def digest(study: LatentStudy, scene: Scene | None, records: Sequence[Record]) -> str:
    """What the computation of a study depends on; more draws may be asked for later."""
    said = [study.latent.model_dump_json(exclude={"draws", "law", "hyperparameters"})]
    if scene is not None:
        said.append(scene.model_dump_json())
    found = hashlib.sha256("\n".join([*said, *(r.name for r in records)]).encode())
    for array in (array for record in records for array in (record.time, record.y, record.u)):
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _refused(file: Path, message: str, cure: str) -> FileError:
    return FileError([FileProblem(str(file), 0, "", None, message, cure)])
