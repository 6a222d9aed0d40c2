"""Many slow parameters: the structured filter is the dense one, and with constant parameters the batch problem."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from estimation.linear_model import NOISE, SENSOR_SD, H, LinearModel, Masses, recording

from spookax._results import ESTIMATE_RESULTS
from spookax.estimation import (
    AugmentedState,
    Drift,
    Extended,
    Filter,
    SlowBelief,
    SlowFilter,
    Unscented,
    WithParameters,
    most_likely,
)
from spookax.models.neural_friction import AbstractStepper, FrictionMass, NeuralFriction, RungeKutta, Sticking
from spookax.protocol import Noise, Samples, StepDuration

pytestmark = pytest.mark.timeout(300)

close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)
LAW = NeuralFriction((1, 4, 3, 1))
STEP = 0.1
DENSITY = 0.1
SENSOR = 0.01
DRIFT = Drift(jnp.asarray(np.sqrt(1e-5)), 1e-4)


class TimedLinear(LinearModel, StepDuration):
    """The linear model, which says how long its step is."""

    def duration(self, p):
        return jnp.asarray(H)


class Euler(AbstractStepper):
    """One stage: quick to compile."""

    def __call__(self, law, p, x, a, mass, h):
        return x + h * jnp.stack([x[1], a - law.level(p, jnp.abs(x[1])) * jnp.sign(x[1]) / mass])


class Late(FrictionMass):
    """Reads where the mass is within its step, and the position with an offset that depends on a parameter."""

    num_channels: int = eqx.field(static=True, default=2)

    @property
    def reads_pair(self) -> bool:
        return True

    def prepare(self, z):
        return z

    def step(self, x, p, u, w, noise, guess):
        return super().step(x, self.law.prepare(p[:-1]), u, w, noise, guess)

    def observe(self, x, x1, p, s):
        return (1 - s) * x + s * x1 + jnp.array([1.0, 0.0]) * jnp.tanh(p[-1])


def friction_samples(rng: np.random.Generator, steps: int, dtype=np.float64) -> Samples:
    """A mass that is pushed about against dry friction of 1 N, roughly."""
    u = 3 * np.cos(0.3 * np.arange(steps)) + rng.normal(size=steps)
    x, rows = np.zeros(2), []
    for k in range(steps):
        rows.append(x)
        a = u[k] - np.sign(x[1]) * (1 + 0.5 * np.abs(x[1]))
        x = x + STEP * np.array([x[1], a])
    y = np.array(rows) + SENSOR * rng.normal(size=(steps, 2))
    seen = (rng.uniform(size=(steps, 1, 2)) < 0.8).astype(float)
    return Samples(*(jax.device_put(a.astype(dtype)) for a in (u[:, None], y[:, None], np.zeros((steps, 1)), seen)))


def friction_model(dtype=np.float64, law: NeuralFriction = LAW, stepper=None, kind: type[FrictionMass] = FrictionMass):
    return kind(law, STEP, [DENSITY, DENSITY], stepper=stepper or RungeKutta(), dtype=dtype)


def same(slow, dense):
    """Recursions of the two filters agree."""
    close(slow.x.x, dense.x.x)
    close(slow.x.z, dense.x.z)
    close(slow.sd, dense.sd)
    for a, b in zip(slow.innovation, dense.innovation, strict=True):
        close(a, b)


@pytest.mark.parametrize("stepper", [RungeKutta(), Sticking(3)])
@pytest.mark.parametrize("gate", [np.inf, 5.0])
def test_structured_is_dense(rng, stepper, gate):
    """The mass, read at the start of a step: state, parameters, deviations and innovations of 300 steps."""
    model = WithParameters(friction_model(stepper=stepper), LAW.size, DRIFT)
    samples, noise = friction_samples(rng, 300), Noise(jnp.asarray(1.0), jnp.full(2, SENSOR))
    x0, sd = AugmentedState(np.zeros(2), LAW.draw(rng)), np.append([1.0, 1.0], np.ones(LAW.size))
    given = np.asarray(gate)  # a number would be compiled into the program
    dense, slow = Filter(model, np.zeros(0), noise, gate=given), SlowFilter(model, noise, gate=given)
    a, b = slow.run(slow.init(x0, sd), samples), dense.run(dense.init(x0, sd), samples)
    same(a, b)
    assert (np.asarray(b.innovation.accepted).min() == 0) == np.isfinite(gate)
    covariance = b.last.factor @ b.last.factor.T
    close(a.last.P_zz, covariance[2:, 2:])
    close(a.last.P_za, covariance[2:, :2])
    close(a.last.P_aa, covariance[:2, :2])


def test_structured_is_dense_where_readings_depend_on_the_step_and_on_parameters(rng):
    model = WithParameters(friction_model(kind=Late, stepper=Euler()), LAW.size + 1, DRIFT)
    # with a narrow prior: in a wide one the parameters wander so far that rounding is amplified a millionfold
    samples, noise = friction_samples(rng, 300), Noise(jnp.asarray([0.5, 2.0]), jnp.full(2, SENSOR))
    samples = samples._replace(s=jnp.asarray(rng.uniform(size=(300, 1))))
    x0, factor = AugmentedState(np.zeros(2), np.append(LAW.draw(rng), 0.1)), rng.normal(size=(LAW.size + 3, 5))
    factor = 0.1 * np.column_stack([factor, np.eye(LAW.size + 3)])
    dense, slow = Filter(model, np.zeros(0), noise), SlowFilter(model, noise)
    a, b = slow.run(slow.init(x0, factor), samples), dense.run(dense.init(x0, factor), samples)
    same(a, b)


def test_sample_by_sample_is_the_whole_recording(rng):
    model = WithParameters(friction_model(stepper=Euler()), LAW.size, DRIFT)
    samples, noise = friction_samples(rng, 5), Noise(jnp.asarray(1.0), jnp.full(2, SENSOR))
    f = SlowFilter(model, noise)
    belief = start = f.init(AugmentedState(np.zeros(2), LAW.draw(rng)), np.ones(LAW.size + 2))
    innovation = None
    for u, y, seen in zip(samples.u, samples.y, samples.weight, strict=True):
        belief, innovation = f.update(belief, u, np.where(seen[0] > 0, y[0], np.nan))
        belief = f.predict(belief, u)
    found = f.run(start, samples)
    for a, b in zip(jax.tree.leaves(belief), jax.tree.leaves(found.last), strict=True):
        close(a, b)
    assert innovation is not None
    close(innovation.nis, found.innovation.nis[-1])


def test_iterated_updates_are_those_of_the_iterated_rule(rng):
    model = WithParameters(friction_model(kind=Late, stepper=Euler()), LAW.size + 1, DRIFT)
    samples, noise = friction_samples(rng, 60), Noise(jnp.asarray(1.0), jnp.full(2, SENSOR))
    samples = samples._replace(s=jnp.asarray(rng.uniform(size=(60, 1))))
    x0, sd = AugmentedState(np.zeros(2), np.append(LAW.draw(rng), 0.1)), np.full(LAW.size + 3, 0.1)
    dense, slow = Filter(model, np.zeros(0), noise, rule=Extended(3)), SlowFilter(model, noise, iterations=3)
    same(slow.run(slow.init(x0, sd), samples), dense.run(dense.init(x0, sd), samples))


@pytest.mark.parametrize("filter_kind", [Filter, SlowFilter])
def test_constant_parameters_are_the_bordered_batch_problem(rng, filter_kind):
    """Joint filter without drift: mean of z, and its covariance as the inverse of the Schur complement, of the least
    squares problem of all first states, noises and parameters."""
    steps, z_sd, x_sd = 40, np.array([2.0, 2.0, 1.0]), np.array([0.5, 0.5, 1.0, 1.0])
    samples, _ = recording(rng, steps, np.array([1.5, -0.7]), 0.3)
    model = TimedLinear()
    x0, z0 = Masses(np.array([0.9, -0.4]), np.zeros(2)), np.array([0.2, 0.1, 0.0])
    joint = WithParameters(model, 3)
    f = SlowFilter(joint, NOISE) if filter_kind is SlowFilter else Filter(joint, np.zeros(0), NOISE)
    found = f.run(f.init(AugmentedState(x0, z0), np.append(x_sd, z_sd)), samples)

    @jax.jit
    def problem(unknowns):
        """Slopes of the whitened residuals at (dx_0, w, dz), and these."""
        return jax.jacfwd(lambda a: (rows(a),) * 2, has_aux=True)(unknowns)

    def rows(unknowns):
        d, w, dz = unknowns[:4], unknowns[4:-3].reshape(steps, 2), unknowns[-3:]

        def body(x, step):
            u, y, s, seen, w = step
            x1, _ = model.step(x, z0 + dz, u, w, NOISE, jnp.zeros(0))
            return x1, seen[0] * (y[0] - model.observe(x, x1, z0 + dz, s[0])) / SENSOR_SD

        e = jax.lax.scan(body, model.retract(x0, d), (*samples, w))[1]
        return jnp.concatenate([d / x_sd, unknowns[4:-3], dz / z_sd, e.reshape(-1)])

    R, c = map(np.asarray, problem(np.zeros(4 + 2 * steps + 3)))
    N, g = R.T @ R, -R.T @ c
    xx, xz, zz = N[:-3, :-3], N[:-3, -3:], N[-3:, -3:]
    S = zz - xz.T @ np.linalg.solve(xx, xz)
    P = np.linalg.inv(S)
    mean = P @ (g[-3:] - xz.T @ np.linalg.solve(xx, g[:-3]))
    close(found.x.z[-1], z0 + mean)
    close(found.sd[-1, 4:], np.sqrt(np.diag(P)))
    last = found.last
    close(last.P_zz if isinstance(last, SlowBelief) else (last.factor @ last.factor.T)[4:7, 4:7], P)


@pytest.mark.parametrize("filter_kind", [Filter, SlowFilter])
def test_short_floats_with_a_wide_prior_stay_finite_and_symmetric(rng, filter_kind):
    """P0 = 10, little noise, 4000 steps in float32: finite, symmetric to the last bit, variances above 0."""
    steps, short = 4000, np.float32
    law = NeuralFriction() if filter_kind is SlowFilter else LAW
    samples = friction_samples(rng, steps, short)
    drift = Drift(jnp.asarray(1e-4, short), 1e-4)
    inner = FrictionMass(law, STEP, [1e-3, 1e-3], dtype=short)
    model, noise = WithParameters(inner, law.size, drift), Noise(jnp.asarray(1.0, short), jnp.full(2, SENSOR, short))
    x0 = AugmentedState(np.zeros(2, short), law.draw(rng).astype(short))
    f = SlowFilter(model, noise) if filter_kind is SlowFilter else Filter(model, np.zeros(0, short), noise)
    found = f.run(f.init(x0, np.full(2 + law.size, np.sqrt(10), short)), samples)
    for leaf in jax.tree.leaves((found.x, found.sd, found.last)):
        assert leaf.dtype == short or leaf.size == 0 or np.issubdtype(leaf.dtype, np.integer)  # how steps ended
        assert np.all(np.isfinite(leaf))
    assert np.min(found.sd) > 0
    if isinstance(found.last, SlowBelief):
        for P in (found.last.P_zz, found.last.P_aa):
            np.testing.assert_array_equal(P, P.T)
        values = np.linalg.eigvalsh(np.asarray(found.last.P_zz, float))
        assert values[0] > -100 * np.finfo(short).eps * values[-1]  # a covariance, but for rounding


@pytest.mark.parametrize("pair", [False, True])
def test_smoothing_is_that_of_the_dense_filter(rng, pair):
    """Means of states and parameters; readings that the gate kept out say nothing backwards, too."""
    kind, size = (Late, LAW.size + 1) if pair else (FrictionMass, LAW.size)
    model, noise = (
        WithParameters(friction_model(kind=kind, stepper=Euler()), size, DRIFT),
        Noise(jnp.asarray(1.0), jnp.full(2, SENSOR)),
    )
    samples = friction_samples(rng, 60)
    if pair:
        samples = samples._replace(s=jnp.asarray(rng.uniform(size=(60, 1))))
    x0, sd = AugmentedState(np.zeros(2), np.append(LAW.draw(rng), 0.1)[:size]), np.full(size + 2, 0.1)
    dense, slow = Filter(model, np.zeros(0), noise, gate=8.0), SlowFilter(model, noise, gate=8.0)
    a, b = slow.run(slow.init(x0, sd), samples, trail=True), dense.run(dense.init(x0, sd), samples, trail=True)
    assert 0 < np.sum(a.innovation.accepted) < 60
    found, wanted = slow.smooth(a), dense.smooth(b)
    np.testing.assert_allclose(found.x.x, wanted.x.x, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.x.z, wanted.x.z, rtol=1e-8, atol=1e-9)
    with pytest.raises(ValueError, match="trail"):
        slow.smooth(slow.run(slow.init(x0, sd), samples))


def test_sigma_points_of_the_state_are_those_of_the_unscented_rule(rng):
    """Known parameters and no readings: predictions and their deviations are those of the dense filter."""
    law = NeuralFriction((1, 3, 1))
    inner, noise = friction_model(law=law, stepper=Euler()), Noise(jnp.asarray(1.0), jnp.full(2, SENSOR))
    samples = friction_samples(rng, 40)._replace(weight=jnp.zeros((40, 1, 2)))
    z = law.draw(rng)
    slow = SlowFilter(WithParameters(inner, law.size), noise, spread=2.0)
    dense = Filter(inner, z, noise, rule=Unscented(2.0))
    a = slow.run(slow.init(AugmentedState(np.zeros(2), z), np.append([0.1, 0.2], np.zeros(law.size))), samples)
    b = dense.run(dense.init(np.zeros(2), np.array([0.1, 0.2])), samples)
    # the dense one keeps its chart where the mean leads
    close(a.x.x, b.x)
    close(a.sd[:, :2], b.sd)


def test_sigma_points_are_derivatives_where_the_model_is_linear(rng):
    samples, _ = recording(rng, 50, np.array([1.5, -0.7]), 0.3)
    joint = WithParameters(TimedLinear(), 3, Drift(jnp.asarray(0.1), 1.0))
    x0, sd = AugmentedState(Masses(np.zeros(2), np.zeros(2)), np.zeros(3)), np.ones(7)
    f, g = SlowFilter(joint, NOISE), SlowFilter(joint, NOISE, spread=3.0)
    a, b = f.run(f.init(x0, sd), samples), g.run(g.init(x0, sd), samples)
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        close(one, other)
    with pytest.raises(ValueError, match=r"at least 2\.449"):
        SlowFilter(joint, NOISE, spread=2.0).run(g.init(x0, sd), samples)


@pytest.mark.parametrize("exact", [False, True])
def test_the_most_likely_parameters_of_a_linear_model_are_the_joint_filters(rng, exact):
    """One Gauss-Newton step with a Gaussian prior: mean and covariance, and the likelihood that a filter gives."""
    samples, _ = recording(rng, 40, np.array([1.5, -0.7]), 0.3)
    model, z_sd, x_sd = TimedLinear(), np.array([2.0, 2.0, 1.0]), np.array([0.5, 0.5, 1.0, 1.0])
    x0, z0 = Masses(np.array([0.9, -0.4]), np.zeros(2)), np.array([0.2, 0.1, 0.0])
    f = SlowFilter(WithParameters(model, 3), NOISE)
    joint = f.run(f.init(AugmentedState(x0, z0), np.append(x_sd, z_sd)), samples)
    found = most_likely(f, x0, x_sd, z0, samples, z_sd=z_sd, prior=z0, tolerance=1e-10, exact=exact)
    np.testing.assert_allclose(found.z, joint.x.z[-1], rtol=1e-6)
    np.testing.assert_allclose(found.covariance, joint.last.P_zz, rtol=1e-8)
    assert found.result == ESTIMATE_RESULTS.successful
    none = most_likely(f, x0, x_sd, z0, samples, z_sd=z_sd, prior=z0, iterations=0, exact=exact)
    assert none.result == ESTIMATE_RESULTS.iteration_limit
    np.testing.assert_array_equal(none.z, z0)
    plain = Filter(model, found.z, NOISE)
    log_likelihood = plain.run(plain.init(x0, x_sd), samples).log_likelihood
    np.testing.assert_allclose(found.cost, np.sum(((found.z - z0) / z_sd) ** 2) / 2 - log_likelihood, rtol=1e-10)


def test_the_slope_of_a_likelihood_can_be_asked_for(rng):
    """A filter's run inside another transformation."""
    samples, _ = recording(rng, 20, np.array([1.5, -0.7]), 0.3)
    x0, sd = Masses(np.zeros(2), np.zeros(2)), np.ones(4)

    def value(z):
        f = Filter(LinearModel(), z, NOISE)
        return f.run(f.init(x0, sd), samples).log_likelihood

    z, d = jnp.array([0.3, -0.2, 0.1]), jnp.array([0.0, 1e-5, 0.0])
    slope = jax.jit(lambda z, d: jax.jvp(value, (z,), (d,))[1])(z, d / 1e-5)
    np.testing.assert_allclose(slope, (value(z + d) - value(z - d)) / 2e-5, rtol=1e-6)


def test_refusals():
    model = WithParameters(friction_model(), LAW.size, DRIFT)
    f = SlowFilter(model, Noise(jnp.asarray(1.0), jnp.full(2, SENSOR)))
    with pytest.raises(ValueError, match=f"{LAW.size + 2} entries"):
        f.init(AugmentedState(np.zeros(2), np.zeros(LAW.size)), np.ones(3))
    samples = friction_samples(np.random.default_rng(0), 5)
    with pytest.raises(ValueError, match="not finite"):
        most_likely(f, np.zeros(2), np.ones(2), np.full(LAW.size, np.nan), samples)
    with pytest.raises(Exception, match="must be 0"):
        f.run(
            f.init(AugmentedState(np.zeros(2), np.zeros(LAW.size)), np.ones(LAW.size + 2)),
            samples._replace(s=samples.s + 0.5),
        )
