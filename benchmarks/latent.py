"""An unknown friction force from a displacement record: scores, times and memory, beside the source's.

`latent.force` scores the source's record, `latent.length` times the filter against the number of samples. By the chain
of `spookax latent`: `latent.table` has the source's tables, `latent.coverage` the bands on drawn records,
`latent.frame` a real frame, `latent.sweeps` curves over noise, length and rate. `latent.two` has two masses with two
contacts, `latent.ageing` friction with a memory, `latent.methods` one record by this, by the batch method and by a
network, `latent.vbmc` hyperparameters by Laplace beside those of pyvbmc, `latent.sampler` beside draws, `latent.base`
two ways to a base that moves.
"""

import numpy as np

from spookax.estimation import MixtureFilter

from .latent_setup import DAMPING, MASS, STIFFNESS, Record, begun, folder, nmse, nmv, one_regime, record, three_regimes
from .measure import Row, row, timed


def run(part: str) -> list[Row]:
    """One of those above."""
    from . import (
        latent_ageing,
        latent_base,
        latent_coverage,
        latent_frame,
        latent_methods,
        latent_sweeps,
        latent_table,
        latent_two,
        latent_vbmc,
    )

    parts = {
        "force": _force,
        "length": _length,
        "coverage": latent_coverage.run,
        "table": latent_table.run,
        "frame": latent_frame.run,
        "sweeps": latent_sweeps.run,
        "two": latent_two.run,
        "ageing": latent_ageing.run,
        "methods": latent_methods.run,
        "vbmc": latent_vbmc.run,
        "sampler": latent_vbmc.run_sampler,
        "base": latent_base.run,
    }
    return parts[part]()


def scores(run: Record, x: np.ndarray, sd: np.ndarray, probability: np.ndarray | None) -> dict[str, float]:
    """By name, in %."""
    z, v, force = x.T
    acceleration = (run.u - DAMPING * v - STIFFNESS * z - force) / MASS
    found = {
        "displacement": nmse(z, run.z),
        "velocity": nmse(v, run.v),
        "acceleration": nmse(acceleration, run.acceleration),
        "force": nmse(force, run.force),
        "NMV of the force": nmv(sd[:, 2] ** 2, run.force),
        "samples in the 90 % bands of the force": float(100 * np.mean(np.abs(force - run.force) < 1.645 * sd[:, 2])),
    }
    if probability is not None:
        found["regime error"] = float(100 * np.mean((np.argmax(probability, axis=1) == 1) != run.sticks))
    return found


def passes(f: MixtureFilter, run: Record) -> list[tuple[str, float]]:
    """Seconds of filter and smoother, compiled."""
    start, samples = begun(f), run.samples
    found = f.run(start, samples, trail=True)
    best = [timed(call).best for call in (lambda: f.run(start, samples, trail=True), lambda: f.smooth(found))]
    return list(zip(("filter", "smoother"), best, strict=True))


def _force() -> list[Row]:
    """Scores at the source's hyperparameters."""
    run, rows = record(folder()), []
    alone = one_regime(1.21, 0.133, 54.5e-12)
    back = alone.smooth(alone.run(begun(alone), run.samples, trail=True))
    for name, value in scores(run, np.asarray(back.x)[:-1], np.asarray(back.sd)[:-1], None).items():
        rows.append(row("one regime", name, value, "%"))
    for count in (1, 3, 5):
        f = three_regimes(0.13, 3.0, 55e-12, count)
        for load, samples in (("", run.samples), (", load of the middle of a step", run.between)):
            back = f.smooth(f.run(begun(f), samples, trail=True))
            x, sd, probability = (np.asarray(a)[:-1] for a in (back.x, back.sd, back.probability))
            for name, value in scores(run, x, sd, probability).items():
                rows.append(row(f"I = J = {count}{load}", name, value, "%"))
        for name, value in passes(f, run):
            rows.append(row(f"I = J = {count}", name, value, "s"))
    return rows


def _length() -> list[Row]:
    """Times against the number of samples."""
    run, rows = record(folder()), []
    f = three_regimes(0.13, 3.0, 55e-12, 3)
    for times in (1, 4, 16, 40):
        longer = Record(*(np.tile(a, times) for a in run))
        for name, value in passes(f, longer):
            rows.append(row(f"{len(longer.y)} samples", name, value, "s"))
    return rows
