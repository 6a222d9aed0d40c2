"""The force by sensors that feel at once when it jumps."""

import numpy as np
import pytest

from benchmarks.latent_records import drawn
from benchmarks.latent_setup import nmse
from spookax.study.latent.fitting import fitted
from spookax.study.latent.mechanism import Mechanism, Oscillator
from spookax.study.latent.record import Record

WHICH, SAMPLES = 4, 1500  # of the records that defaults are looked at with; its law is Stribeck's


def centred(a: np.ndarray) -> np.ndarray:
    """Nobody tells the zero of a displacement that is not read: a constant force stays unknown."""
    return a - np.mean(a)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["velocity", "acceleration"])
def test_a_jump_within_a_step_is_no_other_velocity(kind, rng):
    """Within the step in which friction turns over, something between both its signs acts. If nothing did, the velocity
    after it would be off by eleven of a reading's standard deviations here, jumps would not be believed in, and the
    force would be worse than that of one regime."""
    made = drawn(6, SAMPLES, 7)
    m, c, k, h = (float(a[WHICH]) for a in (made.mass, made.damping, made.stiffness, made.h))
    z, v, force, u = (a[WHICH] for a in (made.z, made.v, made.force, made.u))
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
