"""Random motions with contacts, 75 in each scene: bodies of all shapes, slots, joints, a loop, rough ground."""

import numpy as np
import pytest

from benchmarks.random_contacts import SCENES, energies, is_finite, motions, steps

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
GAIN = 1e-6  # of the energy, in a step, beyond what leading overlaps back may give


@pytest.mark.parametrize("name", SCENES)
def test_nothing_explodes(name):
    """No NaN, no step that fails, no step that gains energy, and no surface deep in another."""
    system, params, found = motions(SCENES[name])
    assert is_finite(found)
    assert np.all(np.asarray(found.failed_step) < 0)
    energy, made = energies(params, found), steps(system, params, found)
    assert np.max(made.gain) <= GAIN
    assert np.all(energy <= (1 + 1e-3) * energy[:, :1])
    assert np.mean(energy[:, -1] < 0.95 * energy[:, 0]) > 0.9, "they touch"
    assert made.deepest > -0.02
