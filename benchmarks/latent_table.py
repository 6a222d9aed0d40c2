"""The tables of Marino and Cicirello (2023) by the chain of `spookax latent`: scores with hyperparameters by their
evidence, and corrections of wrong numbers.

No default was chosen on this record; the choices were made on those of `latent_records`.
"""

import numpy as np

from spookax.study.latent.correction import Correction, correction
from spookax.study.latent.fitting import fitted
from spookax.study.latent.mechanism import Mechanism, Oscillator
from spookax.study.latent.record import Record
from spookax.study.latent.sliding import sliding_points
from spookax.study.latent.switching_model import KINDS, Force

from .latent_setup import DAMPING, MASS, STEP, STIFFNESS, folder, nmse, nmv, record
from .latent_setup import Record as Truth
from .measure import Row, row

TRUE = Mechanism(MASS, DAMPING, STIFFNESS)
GUESS = Mechanism(1.5, 7.0, 600.0)  # wrong by a half, two fifths, a fifth
PASSES = 4


def run() -> list[Row]:
    """NMSE (24), normalised mean variance (25), regime error, coverage; corrections (32)."""
    truth, rows = record(folder()), []
    own = Record("oscillator", truth.time, STEP, truth.y[:, None], truth.u[:, None], ("displacement",), "")
    for count in (3, 5):
        found = fitted([own], Oscillator(TRUE), count, None, lambda _: None)
        if count == 3:
            rows += _scores("one regime", found.alone[0], truth)
        rows += _scores(f"I = J = {count}", found.forces[0], truth)
        sd = np.sqrt(np.diag(found.covariance))
        for name, log, s in zip(KINDS, found.log, sd, strict=True):
            rows.append(
                row(
                    f"I = J = {count}", f"hyperparameter {name}", float(np.exp(log)), f"SI, a factor of {np.exp(s):.2g}"
                )
            )
    m = GUESS
    for number in range(PASSES):
        found = fitted([own], Oscillator(m), 3, None, lambda _: None)
        fix = _correction(own, found.forces[0], m)
        m = Mechanism(*(float(getattr(m, name)) + fix.change[name] for name in Mechanism._fields))
        for name in Mechanism._fields:
            value, true = float(getattr(m, name)), float(getattr(TRUE, name))
            rows.append(row(f"corrected, pass {number + 1}", f"error of {name}", 100 * (value / true - 1), "%"))
    return rows


def _correction(own: Record, force: Force, m: Mechanism) -> Correction:
    points, at = sliding_points(force.x, force.sd, force.probability)
    return correction([own], [force], [at], [points.phase], m, Mechanism._fields, base=False)


def _scores(group: str, found: Force, truth: Truth) -> list[Row]:
    (z, v, f), sd = found.x.T, found.sd
    acceleration = (truth.u - DAMPING * v - STIFFNESS * z - f) / MASS
    values = {
        "displacement": nmse(z, truth.z),
        "velocity": nmse(v, truth.v),
        "acceleration": nmse(acceleration, truth.acceleration),
        "force": nmse(f, truth.force),
        "NMV of the displacement": nmv(sd[:, 0] ** 2, truth.z),
        "NMV of the velocity": nmv(sd[:, 1] ** 2, truth.v),
        "NMV of the acceleration, by the force's": nmv((sd[:, 2] / MASS) ** 2, truth.acceleration),
        "NMV of the force": nmv(sd[:, 2] ** 2, truth.force),
        "samples in the 90 % bands of the force": float(100 * np.mean(np.abs(f - truth.force) < 1.645 * sd[:, 2])),
        "regime error": float(100 * np.mean((np.argmax(found.probability, axis=1) == 1) != truth.sticks)),
    }
    return [row(group, name, value, "%") for name, value in values.items()]
