"""Bands of an unknown friction force on drawn records: how often they hold the truth; by the chain of the shell."""

import numpy as np

from spookax.study.latent.fitting import Fitted, along_axes, averaged, fitted
from spookax.study.latent.mechanism import Mechanism, Oscillator
from spookax.study.latent.record import Record
from spookax.study.latent.static import Read, static_friction

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
            rows.append(row(of, f"{name}, mean", float(np.nanmean(found[chosen, column])), "%"))
        static = found[chosen, -1]
        rows.append(row(of, "static friction, rms of its error", float(np.sqrt(np.nanmean(static**2))), "%"))
        rows.append(row(of, "records that tell it", float(np.sum(np.isfinite(static))), ""))
    for column in (1, 3):
        for p in (10, 90):
            value = float(np.percentile(found[:, column], p))
            rows.append(row("all", f"{NAMES[column]}, {p} % of records below", value, "%"))
    return rows


NAMES = (
    "force NMSE",
    "samples in the 90 % bands of the force",
    "force NMSE, `hyperparameters: laplace`",
    "samples in the bands, `hyperparameters: laplace`",
    "force NMSE, one regime",
    "samples in the bands, one regime",
    "regime error",
    "error of the static friction",
)


def _scores(made: Drawn, i: int) -> list[float]:
    time, u = made.h[i] * np.arange(SAMPLES), made.u[i]
    record = Record(f"record {i}", time, made.h[i], made.y[i][:, None], u[:, None], ("displacement",), "")
    known = Oscillator(Mechanism(made.mass[i], made.damping[i], made.stiffness[i]))
    found: Fitted = fitted([record], known, 3, None, lambda _: None)
    force, [spread] = found.forces[0], averaged(found, along_axes(found.log, found.covariance), lambda _: None)
    scores = []
    for each in (force, spread, found.alone[0]):
        within = np.abs(each.x[:, 2] - made.force[i]) < BAND * each.sd[:, 2]
        scores += [nmse(each.x[:, 2], made.force[i]), float(100 * np.mean(within))]
    sticks = np.argmax(force.probability, axis=1) == 1
    scores += [float(100 * np.mean(sticks != made.sticks[i])), _static(made, i, found)]
    print(
        f"{i}: {made.law[i]}, " + ", ".join(f"{name} {s:.3g}" for name, s in zip(NAMES, scores, strict=True)),
        flush=True,
    )
    return scores


def _static(made: Drawn, i: int, found: Fitted) -> float:
    """Error beside the largest force that holds the mass in the record [%]; NaN if no stop tells it."""
    force, read = found.forces[0], Read("displacement", made.y[i], float(np.exp(found.log[2])))
    pull = made.u[i] - made.stiffness[i] * force.x[:, 0] - made.damping[i] * force.x[:, 1]
    time = made.h[i] * np.arange(SAMPLES)
    told = static_friction(time, pull, force.x, force.sd, force.probability, made.mass[i], read)
    if told is None or not np.any(made.sticks[i] > 0.5):
        return np.nan
    return float(100 * (told.mean / np.max(np.abs(made.force[i][made.sticks[i] > 0.5])) - 1))
