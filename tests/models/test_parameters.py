"""The map from what an estimator searches over to the numbers of a scene."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spookax as sx
from spookax.models import Free, ParameterMap, Tie
from spookax.models.parameters import values_and_sd
from spookax.scene import Scene
from spookax.scene.expression import Expression
from spookax.system import locate

SCENE = {
    "spookax": 1,
    "bodies": {
        "left-wheel": {"mass": 1.0, "inertia": [0.2, 0.3, 0.4]},
        "right": {"mass": 0.5, "inertia": [0.2, 0.3, 0.4]},
    },
    "joints": {"a": {"type": "hinge", "child": "left-wheel"}, "b": {"type": "hinge", "child": "right"}},
}


@pytest.fixture(scope="module")
def tied() -> ParameterMap:
    """Two unknowns; a mass is what a total leaves, a moment follows from that, another is the same."""
    system, _ = sx.build(Scene.model_validate(SCENE))
    free = (Free("bodies.left-wheel.mass", 1.0), Free("bodies.right.inertia.xx", 0.2))
    ties = (
        Tie("bodies.right.mass", Expression("1.5 - bodies.left-wheel.mass")),
        Tie("bodies.right.inertia.yy", Expression("bodies.right.inertia.xx")),
        Tie(
            "bodies.left-wheel.inertia.zz",
            Expression("sqrt(bodies.right.mass) * bodies.right.inertia.xx / gravity.x ** 2"),
            (("gravity.x", 2.0),),
        ),
    )
    return ParameterMap(system, free, ties)


def test_what_is_tied_follows(tied):
    z = jnp.log(jnp.array([1.1, 0.3]))
    expected = [1.1, 0.3, 1.5 - 1.1, 0.3, np.sqrt(0.4) * 0.3 / 4]
    np.testing.assert_allclose(tied.values(z), expected, rtol=1e-14)
    _, params = sx.build(Scene.model_validate(SCENE))
    there = tied.apply(params, z)
    np.testing.assert_allclose([locate(tied.system, path).get(there) for path in tied.paths], expected, rtol=1e-14)


def test_standard_deviations_of_what_is_tied(tied):
    z, cov = np.log([1.1, 0.3]), np.array([[0.01, 0.002], [0.002, 0.04]])
    value, sd = values_and_sd(tied, z, cov)
    assert sd[2] == pytest.approx(sd[0])  # a total minus it
    assert sd[3] == pytest.approx(sd[1])
    # of f(z) by central differences
    step = 1e-6 * np.eye(2)
    slope = [(tied.values(jnp.asarray(z + d))[4] - tied.values(jnp.asarray(z - d))[4]) / 2e-6 for d in step]
    assert sd[4] == pytest.approx(np.sqrt(np.array(slope) @ cov @ np.array(slope)), rel=1e-6)
    assert value[4] == pytest.approx(np.sqrt(0.4) * 0.3 / 4)


def test_of_what_is_hardly_known_the_standard_deviation_is_infinite(tied):
    """Squares beyond the range of floats are no numbers and no warnings."""
    _, sd = values_and_sd(tied, np.array([np.log(1.1), 700.0]), np.diag([0.01, 1e300]))
    np.testing.assert_array_equal(np.isinf(sd), [False, True, False, True, True])


def test_ties_are_differentiated_in_both_modes(tied):
    z = jnp.log(jnp.array([1.1, 0.3]))
    forward, reverse = jax.jacfwd(tied.values)(z), jax.jacrev(tied.values)(z)
    np.testing.assert_allclose(forward, reverse, rtol=1e-14)
    np.testing.assert_allclose(forward[2], [-1.1, 0.0], rtol=1e-14)


def test_what_may_be_zero_is_linear_below_its_start_and_exponential_above():
    system, _ = sx.build(Scene.model_validate(SCENE))
    start = 0.3
    shared = ParameterMap(system, (Free("joints.a.friction.viscous", start, transform="sinh", lower=0.0),))
    z = shared.start()
    np.testing.assert_allclose(shared.values(z), start)
    lower, upper = shared.bounds()
    np.testing.assert_allclose(shared.values(lower), 1e-6 * start)
    assert np.all(np.isinf(upper))
    slope = jax.vmap(jax.grad(lambda z: shared.values(z[None])[0] / start))(jnp.array([lower[0], 0.01, 0.1, 8.0]))
    np.testing.assert_allclose(slope[:3], 1.0, atol=6e-3)  # down to the end, where a logarithm has none left
    np.testing.assert_allclose(slope[3] * start, shared.values(jnp.array([8.0])), rtol=1e-6)
    # a prior's and a factor's steps are those of the logarithm
    step = 1e-6
    change = np.log(shared.values(z + step) / shared.values(z))
    np.testing.assert_allclose(step / change, shared.relative_steps(z), rtol=1e-5)
    np.testing.assert_allclose(shared.prior_units() * shared.relative_steps(z), 1.0)
    with pytest.raises(ValueError, match=r"starts above zero and is not negative, got -0\.1"):
        shared.encode([-0.1])
