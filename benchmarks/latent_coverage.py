"""Bands of an unknown friction force on drawn records: how often they hold the truth; by the chain of the shell."""

import numpy as np

from spookax.study.latent.fitting import Fitted, along_axes, averaged, fitted
from spookax.study.latent.mechanism import Mechanism, Oscillator
from spookax.study.latent.record import Record
from spookax.study.latent.static import Read, static_friction

from .latent_records import Drawn, drawn
from .latent_setup import nmse
from .measure import Row, row

RECORDS, SAMPLES, SEED = 50, 1500, 2027
BAND = 1.645


def run(records: int = RECORDS, seed: int = SEED) -> list[Row]:
    """Records of a seed that took no part in the choice of any default; every one has hyperparameters of its own."""
    made = drawn(records, SAMPLES, seed)
    every = [_scores(made, i) for i in range(records)]
    found, laws, rows = np.array([scores for scores, _ in every]), np.array(made.law), []
    groups = {"all": np.ones(records, dtype=bool)} | {law: laws == law for law in sorted(set(made.law))}
    for group, chosen in groups.items():
        of = f"{group}, {np.sum(chosen)} records"
        for column, name in enumerate(NAMES):
            rows.append(row(of, f"{name}, mean", float(np.mean(found[chosen, column])), "%"))
        rows += _of_stops(of, np.concatenate([stops for (_, stops), own in zip(every, chosen, strict=True) if own]))
    for column in (1, 3):
        for p in (10, 90):
            value = float(np.percentile(found[:, column], p))
            rows.append(row("all", f"{NAMES[column]}, {p} % of records below", value, "%"))
    return rows


def _of_stops(group: str, stops: np.ndarray) -> list[Row]:
    """Static friction at every stop that tells it, beside that of the law."""
    error, sd = stops.T
    return [
        row(group, "stops that tell static friction", float(len(stops)), ""),
        row(group, "static friction, mean of its error", float(np.mean(error)), "%"),
        row(group, "static friction, rms of its error", float(np.sqrt(np.mean(error**2))), "%"),
        row(
            group, "static friction, rms of error / standard deviation", float(np.sqrt(np.mean((error / sd) ** 2))), ""
        ),
        row(group, "static friction, within 1.645 sd", float(100 * np.mean(np.abs(error) < BAND * sd)), "%"),
    ]


NAMES = (
    "force NMSE",
    "samples in the 90 % bands of the force",
    "force NMSE, `hyperparameters: laplace`",
    "samples in the bands, `hyperparameters: laplace`",
    "force NMSE, one regime",
    "samples in the bands, one regime",
    "regime error",
)


def _scores(made: Drawn, i: int) -> tuple[list[float], np.ndarray]:
    """Of one record; and errors of the static friction at its stops, with their standard deviations [%]."""
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
    scores.append(float(100 * np.mean(sticks != made.sticks[i])))
    stops = _static(made, i, found)
    told = ", ".join(f"{error:+.1f} +- {sd:.1f}" for error, sd in stops)
    print(
        f"{i}: {made.law[i]}, {', '.join(f'{name} {s:.3g}' for name, s in zip(NAMES, scores, strict=True))}, "
        f"static friction off by [{told}] %",
        flush=True,
    )
    return scores, stops


def _static(made: Drawn, i: int, found: Fitted) -> np.ndarray:
    force, read = found.forces[0], Read("displacement", made.y[i], float(np.exp(found.log[2])))
    pull = made.u[i] - made.stiffness[i] * force.x[:, 0] - made.damping[i] * force.x[:, 1]
    time = made.h[i] * np.arange(SAMPLES)
    told = static_friction(time, pull, force.x, force.sd, force.probability, made.mass[i], read)
    if told is None:
        return np.zeros((0, 2))
    return 100 * np.stack([np.array(told.values) / made.static[i] - 1, np.array(told.sds) / made.static[i]], axis=1)
