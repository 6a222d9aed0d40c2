"""Bands of an unknown friction force on drawn records: how often they hold the truth; by the chain of the shell."""

import numpy as np

from spookax.study.latent.fitting import Fitted, fitted
from spookax.study.latent.model import Mechanism, Setting
from spookax.study.latent.record import Record

from .latent_records import Drawn, drawn
from .latent_setup import nmse
from .measure import Row, row

RECORDS, SAMPLES, SEED = 50, 1500, 2026
BAND = 1.645


def run(records: int = RECORDS, seed: int = SEED) -> list[Row]:
    """Records of a seed that took no part in the choice of any default; every one has hyperparameters of its own."""
    made = drawn(records, SAMPLES, seed)
    found = np.array([_scores(made, i) for i in range(records)])
    rows = []
    groups = {"all": np.ones(records, dtype=bool)} | {law: np.array(made.law) == law for law in sorted(set(made.law))}
    for group, chosen in groups.items():
        of = f"{group}, {np.sum(chosen)} records"
        for column, name in enumerate(NAMES):
            rows.append(row(of, f"{name}, mean", float(np.mean(found[chosen, column])), "%"))
    rows += [
        row("all", f"{NAMES[1]}, {p} % of records below", float(np.percentile(found[:, 1], p)), "%") for p in (10, 90)
    ]
    return rows


NAMES = (
    "force NMSE",
    "samples in the 90 % bands of the force",
    "the same, one regime",
    "force NMSE, one regime",
    "regime error",
)


def _scores(made: Drawn, i: int) -> list[float]:
    record = Record(
        f"record {i}", made.h[i] * np.arange(SAMPLES), made.h[i], made.y[i], made.u[i][:, None], "displacement", ""
    )
    mechanism = Mechanism(made.mass[i], made.damping[i], made.stiffness[i])
    found: Fitted = fitted([record], mechanism, Setting("displacement", False, 3), None, lambda _: None)
    force, alone, truth = found.forces[0], found.alone[0], made.force[i]
    within = [float(100 * np.mean(np.abs(f.x[:, 2] - truth) < BAND * f.sd[:, 2])) for f in (force, alone)]
    sticks = np.argmax(force.probability, axis=1) == 1
    scores = [
        nmse(force.x[:, 2], truth),
        *within,
        nmse(alone.x[:, 2], truth),
        float(100 * np.mean(sticks != made.sticks[i])),
    ]
    print(
        f"{i}: {made.law[i]}, " + ", ".join(f"{name} {s:.3g}" for name, s in zip(NAMES, scores, strict=True)),
        flush=True,
    )
    return scores
