"""Random motions with contacts, 75 in each scene: bodies of all shapes, slots, joints, a loop, rough ground."""

import numpy as np
import pytest

from benchmarks.random_contacts import SCENES, deepest, energies, is_finite, motions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", SCENES)
def test_nothing_explodes(name):
    """No NaN, no step that fails, no more energy than at the start, and no surface deep in another."""
    system, params, found = motions(SCENES[name])
    assert is_finite(found)
    assert np.all(np.asarray(found.failed_step) < 0)
    energy = energies(params, found)
    assert np.all(energy <= (1 + 1e-3) * energy[:, :1])
    assert np.mean(energy[:, -1] < 0.95 * energy[:, 0]) > 0.9, "they touch"
    assert deepest(system, params, found) > -0.02
