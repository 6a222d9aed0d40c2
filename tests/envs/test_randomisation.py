"""Mechanisms drawn from what an estimate does not know."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs.rigs import environment, scene

import spookax as sx
from spookax import envs
from spookax.models import Free, ParameterMap
from spookax.models.parameters import Tie
from spookax.scene.expression import Expression
from spookax.study.judging.posterior import posterior, posterior_content

COUNT = 4000
VISCOUS, COM, XX, YY = (
    "joints.pivot.friction.viscous",
    "bodies.rod.com.z",
    "bodies.rod.inertia.xx",
    "bodies.rod.inertia.yy",
)
TRUTH = {VISCOUS: 0.05, COM: -0.5, XX: 0.1, YY: 0.1}
SD = np.array([0.2, 0.05, 0.3])  # of log viscous, com over its start, log yy
CORRELATION = np.array([[1.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 1.0]])


def estimate(covariance=None, reach=(0.0, 0.0, 0.0), lower=0.01, sd=0.02) -> sx.Estimate:
    """As one is saved: three unknowns, one of them with a bound, and a number tied to them."""
    mechanism = scene()
    system, _ = sx.build(mechanism)
    free = (
        Free(VISCOUS, 0.05, lower=lower),
        Free(COM, -0.5, transform="identity"),
        Free(YY, 0.1),
    )
    shared = ParameterMap(system, free, (Tie("bodies.rod.mass", Expression(f"0.5 - {COM}"), ()),))
    covariance = SD[:, None] * CORRELATION * SD if covariance is None else covariance
    iterate = types.SimpleNamespace(z=shared.encode([0.05, -0.5, 0.1]))
    fit = types.SimpleNamespace(iterate=iterate, covariance=covariance, reach=np.array(reach))
    content = {
        "posterior": posterior_content(shared, fit),
        "noise": {"sensors": {"now": [sd], "late": [0.03]}},
        "parameters": {},
    }
    return sx.Estimate("converged", "", content, {}, mechanism, {"z": iterate.z})


@sx.jit
def _draws(randomisation, system, params, keys):
    return jax.vmap(lambda key: randomisation.draw(system, params, key))(keys)


def draws(found, **options):
    """Drawn parameters, and their z: logarithm of the friction, centre of mass over its start, logarithm of yy."""
    made = envs.Posterior(found, **options)
    system, params = sx.build(found.scene)
    made.check(system)
    drawn = _draws(made, system, params, jax.random.split(jax.random.PRNGKey(0), COUNT))
    z = np.stack([np.log(drawn.viscous[:, 0]), drawn.com[:, 0, 2] / 0.5, np.log(drawn.inertia[:, 0, 1])], axis=1)
    return drawn, z


def test_a_saved_estimate_draws_its_covariance_and_every_body_is_possible(tmp_path):
    found = sx.load_estimate(estimate().save(tmp_path / "out"))
    drawn, z = draws(found)
    # the sample covariance of n draws of a Gaussian is off by sqrt((1 + rho^2) / n) of the variances: five of those
    allowed = 5 * np.sqrt(2 / COUNT)
    bound = (np.log(0.05) - np.log(0.01)) / SD[0]
    assert bound > 5, "the bound cuts nothing off"
    np.testing.assert_allclose(np.cov(z.T) / SD / SD[:, None], CORRELATION, rtol=0, atol=allowed)
    np.testing.assert_allclose((z.mean(axis=0) - [np.log(0.05), -1, np.log(0.1)]) / SD, 0, atol=5 / np.sqrt(COUNT))
    np.testing.assert_allclose(drawn.mass[:, 0], 0.5 - drawn.com[:, 0, 2], rtol=1e-12)  # what is tied follows
    xx, yy, zz = np.asarray(drawn.inertia[:, 0, :3]).T  # xx and zz have no effect, and make way
    assert (np.abs(xx - zz) <= yy * (1 + 1e-9)).all()
    assert (yy <= (xx + zz) * (1 + 1e-9)).all()
    assert (yy > 0.2).any(), "no draw that 0.1 and 0.1 would not allow"
    _, wider = draws(found, factor=2.0)
    np.testing.assert_allclose(np.std(wider, axis=0) / SD, 2.0, rtol=0.1)


def test_draws_keep_bounds_and_what_is_at_one_lies_to_one_side():
    cut, z = draws(estimate(lower=0.045))
    assert (cut.viscous >= 0.045 * (1 - 1e-6)).all()
    # a Gaussian cut off at -a standard deviations has the mean phi(a) / Phi(a)
    from scipy.stats import norm

    a = np.log(0.05 / 0.045) / SD[0]
    mean = (z[:, 0].mean() - np.log(0.05)) / SD[0]
    np.testing.assert_allclose(mean, norm.pdf(a) / norm.cdf(a), rtol=0, atol=5 / np.sqrt(COUNT))
    covariance = np.diag(SD**2)
    _, z = draws(estimate(covariance, reach=(0.4, 0.0, 0.0), lower=0.05))
    assert (z[:, 0] >= np.log(0.05) - 1e-9).all()
    np.testing.assert_allclose(np.sqrt(np.mean((z[:, 0] - np.log(0.05)) ** 2)), SD[0], rtol=5 / np.sqrt(COUNT))


def test_what_nothing_is_known_of_is_held_with_a_warning():
    covariance = np.diag(SD**2)
    covariance[1, 1] = np.inf
    with pytest.warns(UserWarning, match=rf"nothing is known of {COM}: not drawn"):
        drawn, _ = draws(estimate(covariance))
    np.testing.assert_allclose(drawn.com[:, 0, 2], -0.5, rtol=1e-12)
    assert np.std(drawn.viscous) > 0


@pytest.mark.slow
def test_an_environment_of_an_estimate_has_its_mechanisms_and_its_noise():
    env = environment(randomise=estimate())
    states, seen = env.reset_many(jax.random.split(jax.random.key(1), 400))
    assert len(set(np.asarray(states.own.params.viscous[:, 0]).tolist())) == 400  # pyright: ignore[reportOptionalMemberAccess]
    angle = np.asarray(states.past.near[:, 0, 0])
    noise = np.asarray(seen) - angle[:, None]
    np.testing.assert_allclose(noise.std(axis=0), [0.02, 0.03], rtol=5 / np.sqrt(2 * 400))


def test_an_estimate_without_a_posterior_or_of_another_scene_is_refused():
    old = estimate()
    del old.content["posterior"]
    with pytest.raises(ValueError, match=r"has no `posterior`: an earlier version wrote it. Identify again."):
        envs.Posterior(old)
    system, _ = sx.build(scene(motors={}))
    found = posterior(estimate().content, system)
    np.testing.assert_allclose(found.shared.values(jnp.asarray(found.mean))[:2], [0.05, -0.5], rtol=1e-12)
    bodies = {"bar": {"mass": 1.0, "com": (0, 0, -0.5), "inertia": (0.1, 0.1, 0.1)}}
    joints = {"pivot": {"type": "hinge", "child": "bar", "axis": (0, 1, 0)}}
    with pytest.raises(ValueError, match=r"lacks a number that is drawn: no parameter 'bodies.rod.com.z'"):
        environment(scene=scene(bodies=bodies, joints=joints), randomise=estimate())
    with pytest.raises(ValueError, match="`factor` must not be negative"):
        envs.Posterior(estimate(), factor=-1.0)
    with pytest.raises(ValueError, match="must be at least 0 and less than 1"):
        envs.Uniform({"bodies.*.mass": 1.0})


def test_shares_of_numbers_are_drawn_evenly():
    system, params = sx.build(scene())
    made = envs.Uniform({"bodies.*.mass": 0.3, "bodies.rod.com.*": 0.1, "bodies.rod.com.z": 0.2})
    made.check(system)
    assert made.drawn(system) == ("bodies.rod.mass", "bodies.rod.com.x", "bodies.rod.com.y", "bodies.rod.com.z")
    drawn = _draws(made, system, params, jax.random.split(jax.random.PRNGKey(0), COUNT))
    for value, middle, share in ((drawn.mass[:, 0], 1.0, 0.3), (drawn.com[:, 0, 2], -0.5, 0.2)):
        off = np.asarray(value / middle - 1)
        assert (np.abs(off) <= share).all()
        np.testing.assert_allclose(off.std(), share / np.sqrt(3), rtol=5 * np.sqrt(0.8 / (4 * COUNT)))
    np.testing.assert_array_equal(drawn.viscous, 0.05)


def test_a_page_shows_what_was_drawn(tmp_path):
    env = environment(randomise=estimate())
    page = envs.save_draws(env, tmp_path / "drawn.html", count=20)
    text = page.read_text(encoding="utf-8")
    assert all(path in text for path in (VISCOUS, COM, YY, "bodies.rod.mass"))
    assert "src=" not in text.split("<body>")[1].split("plotly.js")[0]  # nothing from elsewhere
    with pytest.raises(ValueError, match="draws nothing"):
        envs.save_draws(environment(), tmp_path / "none.html")
