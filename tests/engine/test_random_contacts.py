"""Random motions with contacts, 75 in each scene: bodies of all shapes, slots, joints, a loop, rough ground."""

import numpy as np
import pytest

from benchmarks.random_contacts import SCENES, energies, is_finite, motions, steps

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CASES = [*((name, 3) for name in SCENES), ("few", "settled")]
GAIN = {3: 1e-4, "settled": 1e-6}  # of the energy, in a step, beyond what leading overlaps back may give


@pytest.mark.parametrize(("name", "passes"), CASES)
def test_nothing_explodes(name, passes):
    """No NaN, no step that fails, no step that gains energy, and no surface deep in another."""
    scene = SCENES[name]
    contacts = scene.contacts.model_copy(update={"passes": passes})
    system, params, found = motions(scene.model_copy(update={"contacts": contacts}))
    assert is_finite(found)
    assert np.all(np.asarray(found.failed_step) < 0)
    energy, made = energies(params, found), steps(system, params, found)
    assert np.max(made.gain) <= GAIN[passes]
    assert np.all(energy <= (1 + 1e-3) * energy[:, :1])
    assert np.mean(energy[:, -1] < 0.95 * energy[:, 0]) > 0.9, "they touch"
    assert made.deepest > -0.02
