"""What all recursive estimators take alike: gates, missing readings, noise levels of each step, one kind of result."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from estimation.pendulum_model import LEVELS, PENDULUM, PENDULUM_Z, swing

from spookax._results import STEP_RESULTS
from spookax.estimation import (
    IMM,
    AbstractFilter,
    AbstractSmoothingFilter,
    AugmentedState,
    DualFilter,
    EnsembleFilter,
    Filter,
    Innovation,
    SlowFilter,
    Unscented,
    WithParameters,
)
from spookax.protocol import AbstractModel, AbstractVectorModel, Noise, SearchedStep, StepDuration

close = functools.partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-10)

GATE = 8.0


def every_filter(model: AbstractModel = PENDULUM) -> dict[str, tuple[AbstractFilter, Any]]:
    """Estimators of the pendulum with a gate, and what they believe at first."""
    x0, sd, z, z_sd = jnp.array([0.8, 0.0]), np.array([0.5, 1.0]), jnp.asarray(PENDULUM_Z), np.array([0.1, 0.1])
    both, all_sd, joint = AugmentedState(x0, z), np.append(sd, z_sd), WithParameters(model, 2)
    plain = Filter(model, z, LEVELS, gate=GATE)
    bank = IMM([Filter(model, z, LEVELS)] * 2, np.array([[0.9, 0.1], [0.2, 0.8]]), gate=GATE)
    members = EnsembleFilter(model, z, LEVELS, 30, gate=GATE)
    dual, slow = DualFilter(model, LEVELS, gate=GATE), SlowFilter(joint, LEVELS, gate=GATE)
    return {
        "extended": (plain, plain.init(x0, sd)),
        "ensemble": (members, members.init(x0, sd, jax.random.key(0))),
        "dual": (dual, dual.init(x0, sd, z, z_sd)),
        "slow": (slow, slow.init(both, all_sd)),
        "bank": (bank, bank.init(x0, sd)),
    }


@pytest.mark.parametrize("name", ["extended", "ensemble", "dual", "slow", "bank"])
def test_gates_missing_readings_and_levels_are_taken_alike(name, rng):
    """Run, and sample by sample: a wild reading is kept out, a missing one is none, levels are those of each step."""
    f, belief = every_filter()[name]
    samples, _ = swing(rng, 12)
    y, seen = np.array(samples.y), np.array(samples.weight)
    y[4], seen[7] = 1e3, 0.0
    samples = samples._replace(y=y, weight=seen)
    scale = np.linspace(1.0, 2.0, 12)
    levels = Noise(0.2 * scale, 0.05 * scale[:, None])
    of_modes = jax.tree.map(lambda a: np.stack([a, a], axis=1), levels) if name == "bank" else levels
    found = f.run(belief, samples, of_modes)
    np.testing.assert_array_equal(np.flatnonzero(np.asarray(found.innovation.accepted) == 0), [4])
    np.testing.assert_array_equal(np.flatnonzero(np.asarray(found.innovation.size) == 0), [7])
    now = belief
    for k in range(12):
        level = jax.tree.map(lambda a, k=k: np.asarray(a[k]), of_modes)
        reading = np.where(seen[k] > 0, y[k], np.nan)
        now, what = f.update(now, samples.u[k], reading, noise=level)
        innovation = what if isinstance(what, Innovation) else what.innovation
        jax.tree.map(lambda a, b, k=k: close(a, b[k]), innovation, found.innovation)
        now = f.predict(now, samples.u[k], noise=level)
    jax.tree.map(close, *(eqx.filter(belief, eqx.is_inexact_array) for belief in (now, found.last)))
    if isinstance(f, AbstractSmoothingFilter):
        back = f.smooth(f.run(belief, samples, of_modes, trail=True))
        jax.tree.map(lambda a: np.testing.assert_array_equal(a.shape[0], 13), back.x)
        with pytest.raises(ValueError, match="trail"):
            f.smooth(found)
    else:
        with pytest.raises(ValueError, match="forwards only"):
            f.run(belief, samples, trail=True)


TOO_MUCH = 20.0


@eqx.filter_jit
def twice(tree: Any) -> Any:
    """Every array twice, along a leading axis."""
    return jax.tree.map(lambda a: jnp.stack([a, a]), tree)


class Stubborn(AbstractVectorModel, SearchedStep, StepDuration):
    """The pendulum, whose step is not solved where the input is too large."""

    tangent_size: int = eqx.field(static=True, default=2)
    noise_size: int = eqx.field(static=True, default=1)
    num_channels: int = eqx.field(static=True, default=1)

    @property
    def reads_pair(self):
        return False

    def prepare(self, z):
        return PENDULUM.prepare(z)

    def duration(self, p):
        return PENDULUM.duration(p)

    def first_guess(self):
        return jnp.zeros(0)

    def stepped(self, x, p, u, w, noise, guess):
        result = STEP_RESULTS.where(jnp.abs(u[0]) > TOO_MUCH, STEP_RESULTS.pivot_limit, STEP_RESULTS.successful)
        return *self.step(x, p, u, w, noise, guess), result

    def replay(self, x, p, u, w, noise, guess):
        return self.step(x, p, u, w, noise, guess)[0]

    def step(self, x, p, u, w, noise, guess):
        return PENDULUM.step(x, p, u, w, noise, guess)

    def observe(self, x, x1, p, s):
        return PENDULUM.observe(x, x1, p, s)


@pytest.mark.parametrize("name", ["extended", "ensemble", "dual", "slow", "bank", "sigma points", "slow sigma points"])
def test_a_step_that_is_not_solved_shows_by_name(name, rng):
    """In the result of its step and of no other, forwards, backwards and sample by sample."""
    model = Stubborn()
    filters, z, sd = every_filter(model), jnp.asarray(PENDULUM_Z), np.array([0.5, 1.0])
    start = filters["slow"][1]
    filters["sigma points"] = (Filter(model, z, LEVELS, Unscented()), Filter(model, z, LEVELS).init(jnp.zeros(2), sd))
    filters["slow sigma points"] = (SlowFilter(WithParameters(model, 2), LEVELS, spread=3**0.5), start)
    f, belief = filters[name]
    samples, _ = swing(rng, 8)
    u = np.array(samples.u)
    u[5] = 1.5 * TOO_MUCH
    trail = isinstance(f, AbstractSmoothingFilter)
    found = f.run(belief, samples._replace(u=u), trail=trail)
    failed = np.asarray(found.result == STEP_RESULTS.pivot_limit)
    np.testing.assert_array_equal(np.flatnonzero(failed), [5])
    assert np.all(np.asarray(found.result == STEP_RESULTS.successful) != failed)
    assert found.failed_step == 5
    assert f.run(belief, samples, trail=trail).failed_step == -1
    both = twice((belief, samples))
    many = f.run(both[0], both[1]._replace(u=np.stack([samples.u, u])), many=True)
    np.testing.assert_array_equal(many.failed_step, [-1, 5])
    assert f.ended(f.predict(belief, u[5])) == STEP_RESULTS.pivot_limit
    if isinstance(f, AbstractSmoothingFilter):
        back = f.smooth(found).result
        np.testing.assert_array_equal(np.flatnonzero(np.asarray(back != STEP_RESULTS.successful)), [5])
