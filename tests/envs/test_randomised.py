"""Gradients of what is smoothed by random arguments, where the plain gradient knows nothing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import spookax as sx
from spookax.control import randomised_gradient
from spookax.scene import Scene

KEY = jax.random.PRNGKey(0)


def test_a_jump_has_the_slope_of_its_mean():
    """E H(x + s xi) is the normal distribution function of x / s; the slopes of a jump are zero."""

    def jump(x):
        return jnp.where(x[0] > 0, 1.0, 0.0) + 0.0 * x[0]

    x, sd = jnp.array([0.1]), 0.3
    found = randomised_gradient(jump, x, sd, key=KEY, pairs=4000)
    assert abs(found.value - norm.cdf(0.1 / sd)) < 4 * found.value_sd
    assert abs(found.gradient[0] - norm.pdf(0.1 / sd) / sd) < 4 * found.gradient_sd[0] < 0.1
    assert randomised_gradient(jump, x, sd, key=KEY, by="slopes").gradient[0] == 0


@pytest.mark.parametrize("by", ["values", "slopes"])
def test_a_smooth_function_has_the_gradient_of_its_mean(by):
    """E sin(x + s xi) = exp(-s^2 / 2) sin x; a scale for every argument."""
    x, sd = jnp.array([[0.4, 1.0]]), jnp.array([[0.2, 0.5]])
    found = randomised_gradient(lambda x: jnp.sum(jnp.sin(x)), x, sd, key=KEY, pairs=2000, by=by)
    assert found.gradient.shape == x.shape
    assert jnp.all(abs(found.gradient - jnp.exp(-(sd**2) / 2) * jnp.cos(x)) < 4 * found.gradient_sd)
    assert jnp.all(found.gradient_sd < 0.1)


@pytest.mark.parametrize(("keys", "said"), [({"pairs": 1}, "pairs"), ({"sd": 0.0}, "sd"), ({"by": "both"}, "by")])
def test_what_makes_no_sense_is_refused(keys, said):
    with pytest.raises(ValueError, match=f"`{said}` must be"):
        randomised_gradient(jnp.sum, jnp.zeros(2), **{"sd": 0.1, "key": KEY, **keys})


@pytest.mark.slow
def test_a_box_that_sticks_is_known_to_slide_under_a_stronger_push():
    """By the speed at which it is pushed: it sticks, or slides v^2 / (2 mu g) far. The mean over random speeds of
    standard deviation s is odd, and its slope at zero that of s times E |xi|^3 / (2 mu g) over s.
    """
    mu, sd, steps = 0.5, 0.3, 80
    start = {"position": (0, 0, 0.1)}
    box = {"type": "box", "body": "box", "size": (0.2, 0.2, 0.2)}
    scene = Scene(
        spookax=1,
        bodies={"box": {"mass": 1.0, "inertia": (0.0067,) * 3, "initial": start}},
        contacts={"surfaces": {"floor": {"type": "plane"}, "box": box}, "materials": {"default": {"friction": mu}}},
    )
    system, params, state = sx.load(scene)

    def way(x):
        pushed = eqx.tree_at(lambda s: s.v, state, state.v.at[0, 0].set(x[0]))
        return sx.rollout(system, params, pushed, jnp.zeros((steps, 0)), throw=False).r[-1, 0, 0]

    x = jnp.zeros(1)
    plain = jax.jit(jax.grad(way))(x)
    found = sx.jit(lambda x: randomised_gradient(way, x, sd, key=KEY, pairs=150))(x)
    expected = sd * np.sqrt(8 / np.pi) / (2 * mu * 9.81)
    assert abs(plain[0]) < 0.1 * expected, "it sticks"
    assert abs(found.gradient[0] - expected) < 4 * found.gradient_sd[0] < expected
