"""What `spookax latent` writes: numbers by contact and recording, arrays, a scene with the law that was found."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spookax._typing import Bool, Float
from spookax.scene import Scene, write_scene
from spookax.study.identifying.estimate import finite_json
from spookax.study.latent.forward import Forward
from spookax.study.latent.laws import Law, SceneLaw
from spookax.study.latent.mechanism import AbstractKnown
from spookax.study.latent.record import Record
from spookax.study.latent.sliding import Points
from spookax.study.latent.static import Static
from spookax.study.latent.switching_model import Force

REGIMES = ("slides", "sticks", "jumps")


@dataclass(frozen=True)
class LatentFit:
    """What `spookax latent` finds; `content` is that of latent.json, `states` has arrays by RUN/quantity and
    RUN/CONTACT/quantity.
    """

    content: dict[str, Any]
    states: dict[str, np.ndarray]
    scene: Scene

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write latent.json, states.npz, scene.yaml, and of every recording the force and the load as CSV files."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "latent.json").write_text(finite_json(self.content), encoding="utf-8")
        np.savez_compressed(folder / "states.npz", **self.states)  # pyright: ignore[reportArgumentType]
        write_scene(self.scene, folder / "scene.yaml")
        for run, told in self.content["runs"].items():
            if told["used"]:
                _csv(folder / f"{run}_force.csv", self._forces(run))
            loads = {f"{name} [{unit}]": a for (name, unit), a in zip(told["inputs"], self._load(run).T, strict=True)}
            _csv(folder / f"{run}_load.csv", {"t [s]": self.states[f"{run}/load_time"], **loads})
        return folder

    def _load(self, run: str) -> Float[np.ndarray, "steps motors"]:
        return self.states[f"{run}/load"]

    def _forces(self, run: str) -> dict[str, np.ndarray]:
        """Columns of a recording; with several contacts each begins with the name of its own."""
        columns = {"time [s]": self.states[f"{run}/time"]}
        contacts = self.content["contacts"]
        for contact, told in contacts.items():
            units = told["units"] | {"force_sd": told["units"]["force"]} | dict.fromkeys(REGIMES, "1")
            for name in ("displacement", "velocity", "force", "force_sd", *REGIMES):
                head = name if len(contacts) == 1 else f"{contact}_{name}"
                columns[f"{head} [{units[name]}]"] = self.states[f"{run}/{contact}/{name}"]
        return columns


def _csv(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    text = ",".join(columns) + "\n"
    rows = (",".join(f"{value:.10g}" for value in row) for row in zip(*columns.values(), strict=True))
    path.write_text(text + "\n".join(rows) + "\n", encoding="utf-8")


def contact_told(
    units: Mapping[str, str], laws: Sequence[Law], in_scene: SceneLaw, static: Static | None
) -> dict[str, Any]:
    """Of a contact: its laws, the best first, and what held it."""
    listed = [
        {"kind": law.kind, "parameters": law.parameters, "sd": law.sd, "rms": law.rms, "score": law.score}
        for law in laws
    ]
    best = listed[0] | {"in_scene": in_scene._asdict()}
    return {
        "units": dict(units),
        "law": best,
        "laws": listed,
        "static_friction": static._asdict() if static else None,
    }


def contact_arrays(contact: str, laws: Sequence[Law], points: Points) -> dict[str, np.ndarray]:
    """Of a contact: its laws over the speed, and the points they were fitted to."""
    grid = np.linspace(0.0, float(np.max(points.speed)), 201)
    found = {f"law/{law.kind}": law.level(grid) for law in laws}
    found |= {"law/speed": grid, "points/speed": points.speed, "points/force": points.force, "points/sd": points.sd}
    return {f"contact/{contact}/{name}": a for name, a in found.items()}


def stops_of(probability: Float[np.ndarray, "k 3"], read: Bool[np.ndarray, " k"]) -> list[tuple[int, int]]:
    """First and last sample of every stop: where sticking is the likeliest regime. In a gap of the readings nothing
    tells regimes apart: half of the samples of a stop have to be `read`.
    """
    sticks = np.concatenate([[False], np.argmax(probability, axis=1) == 1, [False]])
    edges = np.flatnonzero(sticks[1:] != sticks[:-1])
    return [(int(a), int(b) - 1) for a, b in edges.reshape(-1, 2) if np.mean(read[a:b]) >= 0.5]


def run_told(record: Record, known: AbstractKnown, simulated: Forward) -> dict[str, Any]:
    """Of a recording and its prediction, whose error is that of the sensor that is met worst."""
    names = [reading.name for reading in known.readings]
    return {
        "samples": len(record.y),
        "step": record.h,
        "missing": int(np.sum(~np.isfinite(record.y).all(axis=1))),
        "sha256": record.sha256,
        "inputs": [list(pair) for pair in known.driven(record)],
        "prediction_nmse": float(np.max(simulated.nmse)),
        "predictions": dict(zip(names, map(float, simulated.nmse), strict=True)),
        "contacts": {},
    }


def used_told(record: Record, contacts: Mapping[str, Force], alone: Force) -> dict[str, Any]:
    """Of a recording that took part: evidence, and of every contact how much of what was read it sticks, and when."""
    own, read = {}, np.asarray(np.isfinite(record.y).any(axis=1))
    for name, force in contacts.items():
        stops = stops_of(force.probability, read)
        sticks = sum(int(np.sum(read[a : b + 1])) for a, b in stops) / int(np.sum(read))
        times = [[float(record.time[a]), float(record.time[b])] for a, b in stops]
        own[name] = {"sticking": sticks, "stops": times}
    evidence = next(iter(contacts.values())).evidence
    return {"evidence": evidence, "evidence_one_regime": alone.evidence, "contacts": own}


def run_arrays(record: Record, known: AbstractKnown, simulated: Forward) -> dict[str, np.ndarray]:
    """Of a recording and its prediction."""
    load = np.concatenate([simulated.load, simulated.load[-1:]])  # up to the last sample
    found = {"time": record.time, "load": load}
    found["load_time"] = record.time[0] + simulated.step * np.arange(len(load))
    for reading, y, predicted in zip(known.readings, record.y.T, simulated.reading.T, strict=True):
        found |= {f"{reading.name}/reading": y, f"{reading.name}/predicted": predicted}
    return {f"{record.name}/{key}": value for key, value in found.items()}


def force_arrays(run: str, contact: str, force: Force) -> dict[str, np.ndarray]:
    """Of a contact along a recording."""
    found = dict(zip(("displacement", "velocity", "force"), force.x.T, strict=True))
    found |= dict(zip(("displacement_sd", "velocity_sd", "force_sd"), force.sd.T, strict=True))
    found |= dict(zip(REGIMES, force.probability.T, strict=True))
    return {f"{run}/{contact}/{key}": value for key, value in found.items()}
