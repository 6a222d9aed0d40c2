"""The force by sensors that feel at once when it jumps."""

import numpy as np
import pytest

from benchmarks.latent_records import drawn
from benchmarks.latent_setup import nmse
from spookax.study.latent.fitting import fitted
from spookax.study.latent.mechanism import Mechanism, Oscillator
from spookax.study.latent.record import Record

SAMPLES = 1500


def centred(a: np.ndarray) -> np.ndarray:
    """Nobody tells the zero of a displacement that is not read: a constant force stays unknown."""
    return a - np.mean(a)


@pytest.mark.slow
@pytest.mark.parametrize("which", [4, 5])  # Stribeck; Dieterich and Ruina, sticks for a tenth of the time
@pytest.mark.parametrize("kind", ["velocity", "acceleration"])
def test_sticking_and_jumps_by_sensors_that_feel_them(kind, which, rng):
    """Within the step in which friction turns over, something between both its signs acts. If nothing did, the velocity
    after it would be off by many standard deviations of a reading, jumps would not be believed in, and the force would
    be worse than that of one regime. A contact that sticks is read as well as one that slides, or nobody believes it.
    """
    made = drawn(6, SAMPLES, 7)
    m, c, k, h = (float(a[which]) for a in (made.mass, made.damping, made.stiffness, made.h))
    z, v, force, u = (a[which] for a in (made.z, made.v, made.force, made.u))
    clean, share = {"velocity": (v, 1 / 800), "acceleration": ((u - c * v - k * z - force) / m, 1 / 200)}[kind]
    y = clean + share * np.std(clean) * rng.normal(size=SAMPLES)
    record = Record("run", h * np.arange(SAMPLES), h, y[:, None], u[:, None], (kind,), "")
    found = fitted([record], Oscillator(Mechanism(m, c, k), kind), 3, None, lambda _: None)
    [regimes], [alone] = found.forces, found.alone
    assert regimes.evidence > alone.evidence
    error, error_alone = (nmse(centred(f.x[:, 2]), centred(force)) for f in (regimes, alone))
    assert error < error_alone
    off = np.abs(centred(regimes.x[:, 2] - force))
    assert np.mean(off < 1.645 * regimes.sd[:, 2]) > 0.8
    sticks = np.argmax(regimes.probability, axis=1) == 1
    truth = made.sticks[which]
    assert np.mean(sticks != truth) < np.mean(truth), "better than to say that it never sticks"
