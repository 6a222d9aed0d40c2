"""Moments of inertia as unknowns: whatever the coordinates, a body that can exist."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spookax as sx
from spookax.models import Free, ParameterMap
from spookax.scene import Scene
from spookax.scene.inertia import flaws

STARTS = {
    "block": (0.2, 0.3, 0.4),
    "rod": (1.0, 1.0, 1e-6),
    "plate": (1.0, 2.0, 3.0),  # the largest is the sum of the others: no depth
}
PARTS = (("xx", "yy", "zz"), ("xx", "yy"), ("xx", "zz"), ("yy", "zz"))


def moments_of(start: tuple[float, ...], parts: tuple[str, ...]) -> ParameterMap:
    bodies = {"a": {"mass": 1.0, "inertia": list(start)}}
    system, _ = sx.build(Scene.model_validate({"spookax": 1, "bodies": bodies}))
    return ParameterMap(system, (Free("bodies.a.inertia", start, transform="moments", parts=parts),))


def all_three(shared: ParameterMap, values: np.ndarray, start: tuple[float, ...]) -> np.ndarray:
    known = dict(zip(("xx", "yy", "zz"), start, strict=True))
    return np.diag(list((known | dict(zip(shared.free[0].parts, values, strict=True))).values()))


@pytest.mark.parametrize("parts", PARTS, ids="-".join)
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_every_z_within_the_bounds_is_a_body(start, parts, rng):
    shared = moments_of(start, parts)
    assert shared.paths == tuple(f"bodies.a.inertia.{part}" for part in parts)
    lower, upper = shared.bounds()
    ends = np.where(np.isinf(upper), 5.0, upper)
    for share in (np.zeros(shared.size), np.ones(shared.size), *rng.uniform(size=(50, shared.size))):
        inertia = all_three(shared, np.asarray(shared.values(jnp.asarray(lower + share * (ends - lower)))), start)
        assert not flaws(inertia), inertia


@pytest.mark.parametrize("parts", PARTS, ids="-".join)
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_the_start_is_kept_and_can_be_left(start, parts):
    shared = moments_of(start, parts)
    lower, upper = shared.bounds()
    z = jnp.clip(shared.start(), lower, upper)
    expected = [dict(zip(("xx", "yy", "zz"), start, strict=True))[part] for part in parts]
    np.testing.assert_allclose(shared.values(z), expected, rtol=1e-5)
    # also where a second moment is zero: no column of the Jacobian vanishes
    slope = np.asarray(jax.jacfwd(shared.values)(z))
    known = [value for part, value in zip(("xx", "yy", "zz"), start, strict=True) if part not in parts]
    assert np.all(np.linalg.norm(slope, axis=0) > 1e-4 * min(max(start), *known, max(start)))
    assert np.linalg.matrix_rank(slope / np.linalg.norm(slope, axis=0)) == shared.size


def test_two_of_a_body_with_a_known_third_reach_all_its_bodies():
    """Any possible body is found again from its numbers."""
    shared, known = moments_of((0.2, 0.3, 0.4), ("xx", "zz")), 0.3
    for xx, zz in ((0.05, 0.26), (0.5, 0.4), (3.0, 2.9), (0.2, 0.11)):
        z = shared.encode([(xx, known, zz)])
        np.testing.assert_allclose(shared.values(jnp.asarray(z)), [xx, zz], rtol=1e-12)
