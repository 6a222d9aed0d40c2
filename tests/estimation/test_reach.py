"""How far steps go: the rules alone, and a mass that sticks and slips, whose exact derivative ends at every event."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from estimation.linear_model import Masses

from spookax._results import ESTIMATE_RESULTS, MLCP_RESULTS, STEP_RESULTS
from spookax.estimation import Problem, Settings, Stage, fit
from spookax.estimation.batch.problem import Iterate
from spookax.estimation.batch.reach import Reach
from spookax.estimation.levenberg_marquardt import Ending
from spookax.estimation.linearise import Path, all_successful
from spookax.protocol import AbstractModel, Noise, Samples, SearchedStep

LONG = 10.0  # of a step, in standard deviations


def refused(reach: Reach) -> int:
    """The model that is asked after a step was not taken."""
    reach.refuse(LONG)
    return reach.width


@pytest.mark.parametrize(("begin", "asked"), [(Reach.to_the_end, [0, 0, 0, 1]), (Reach.roughly, [0, 1, 1])])
def test_a_step_is_cut_before_another_model_is_asked(begin, asked):
    reach = begin(1)
    assert [refused(reach) for _ in asked] == asked
    assert reach.alpha == 0.25
    assert reach.ending is None


def test_a_step_grows_when_it_kept_its_promise():
    reach = Reach(1e-4, 0)
    reach.refuse(LONG)
    reach.accept(0.4, 1.0)
    assert reach.alpha == 0.5
    reach.accept(0.6, 1.0)
    assert reach.alpha == 1.0


def test_steps_are_not_taken_and_refused_in_turn():
    """After a longer step that failed, the next one is longer only after two good ones, then four."""
    reach, taken = Reach(1e-4, 0), []
    for _ in range(12):
        taken.append(reach.alpha <= 0.5)
        if taken[-1]:
            reach.accept(1.0, 1.0)
        else:
            reach.refuse(LONG)
    assert taken == [False, True, False, True, True, False, True, True, True, True, False, True]


def test_without_another_model_it_is_stuck_and_with_one_at_a_corner():
    alone, wider = Reach(1e-4, 0), Reach(1e-4, 1)
    while alone.ending is None:
        alone.refuse(LONG)
    assert alone.ending is Ending.stuck
    while wider.ending is None:
        wider.refuse(LONG)
    assert wider.width == 1
    assert wider.ending is Ending.corner
    assert 0.1 / LONG / 4 <= wider.alpha <= 0.1 / LONG  # short of a tenth of a standard deviation


def test_the_own_model_has_the_last_word():
    reach = Reach(1e-4, 1, width=1)
    assert reach.goes_on(Ending.settled)
    assert (reach.width, reach.alpha) == (0, 1.0)
    while reach.ending is None:
        assert refused(reach) == 0
    assert not reach.goes_on(reach.ending)


def test_a_rough_phase_ends_with_any_model_and_none_goes_on_without_iterations():
    assert not Reach.roughly(1, width=1).goes_on(Ending.settled)
    assert not Reach(1e-4, 1, width=1).goes_on(Ending.limit)


# ---------------------------------------------------------------------------------------------------------------
# a mass on a spring with dry friction

H, AMOUNT, COUNT = 0.01, 2e-4, 1024
TRUE = np.log([1.0, 30.0, 2.0])


class Sticking(AbstractModel, SearchedStep):
    """z = log (mass, stiffness, friction) of a driven mass whose position is read; friction is f v / width, at most f.

    Rows of the step: m (v1 - v) = h (u - k q - f clip(v1 / width, -1, 1)) + impulse, solved in closed form.
    """

    width: jax.Array
    tangent_size: int = eqx.field(static=True, default=2)
    noise_size: int = eqx.field(static=True, default=1)
    num_channels: int = eqx.field(static=True, default=1)

    def prepare(self, z):
        return jnp.exp(z)

    def step(self, x, p, u, w, noise, guess):
        m, _, f = p
        v = self._sticking(x, p, u, w, noise)
        slow = jnp.abs(v) < self.width
        v = jnp.where(slow, v, (self._free(x, p, u, w, noise) - H * f * jnp.sign(v)) / m)
        return Masses(x.q + H * v, v), v

    def stepped(self, x, p, u, w, noise, guess):
        return *self.step(x, p, u, w, noise, guess), STEP_RESULTS.promote(MLCP_RESULTS.successful)

    def replay(self, x, p, u, w, noise, guess):
        # along the trajectory as it was, whatever the width that it was simulated with
        m, _, f = p
        slides = (self._free(x, p, u, w, noise) - H * f * jnp.sign(guess)) / m
        v = jnp.where(jnp.abs(guess) < self.width, self._sticking(x, p, u, w, noise), slides)
        return Masses(x.q + H * v, v)

    def _free(self, x, p, u, w, noise):
        return p[0] * x.v + H * (u - p[1] * x.q) + AMOUNT * noise.process * w

    def _sticking(self, x, p, u, w, noise):
        return self._free(x, p, u, w, noise) / (p[0] + H * p[2] / self.width)

    def first_guess(self):
        return jnp.zeros(1)

    def observe(self, x, x1, p, s):
        return x.q + s * H * x1.v

    def difference(self, y, predicted):
        return y - predicted

    def retract(self, x, d):
        return Masses(x.q + d[:1], x.v + d[1:])

    def local(self, x1, x0):
        return jnp.concatenate([x1.q - x0.q, x1.v - x0.v])


NARROW, WIDE, WIDEST = (Sticking(jnp.asarray(width)) for width in (1e-4, 1e-2, 5e-2))


@jax.jit
def path_of(z: np.ndarray, u: jax.Array, w: jax.Array, noise: Noise) -> Path:
    p = NARROW.prepare(jnp.asarray(z))

    def body(x, step):
        x1, guess = NARROW.step(x, p, *step, noise, jnp.zeros(1))
        return x1, (x1, guess)

    start = Masses(jnp.zeros(1), jnp.zeros(1))
    _, (states, guess) = jax.lax.scan(body, start, (u, w))
    return Path(
        jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, states), w, guess, all_successful(len(u))
    )


@pytest.fixture(scope="module")
def record() -> tuple[Samples, Noise]:
    """Friction that changes with the place, which the model does not know; its sensor is as good as the model is."""
    m, k, f = np.exp(TRUE)
    t = H * np.arange(COUNT)
    u = 3 * np.sin(t) + 0.6 * np.sin(15 * t)
    q, v, y = 0.0, 0.0, []
    for push in u:
        y.append(q)
        free = m * v + H * (push - k * q)
        v = np.sign(free) * max(abs(free) - H * f * (1 + 0.3 * np.sin(60 * q)), 0.0) / m
        q += H * v
    noise = Noise(jnp.asarray(1.0), jnp.array([0.05 * np.std(y)]))
    read = np.array(y) + 1e-3 * np.random.default_rng(3).normal(size=COUNT)
    samples = Samples(
        jnp.asarray(u[:, None]), jnp.asarray(read[:, None, None]), jnp.zeros((COUNT, 1)), jnp.ones((COUNT, 1, 1))
    )
    return samples, noise


def test_a_trajectory_that_sticks_is_fitted_in_fewer_iterations(record):
    """A wider friction speed in the linear problem alone: the cost is no higher, and it ends by itself."""
    samples, noise = record
    z0, none = TRUE + np.array([-0.2, 0.2, -0.5]), np.zeros(3)
    problem = Problem((samples,), z0, none, none, np.full(3, -np.inf), np.full(3, np.inf), np.zeros(0), 1e-2)
    start = Iterate(z0, (np.zeros(0),), (path_of(z0, samples.u, jnp.zeros((COUNT, 1)), noise),))
    alone, helped = (
        fit(problem, [Stage(NARROW, noise, smoother)], start, Settings(determinant=False))
        for smoother in ((), (WIDE, WIDEST))
    )
    assert helped.result == ESTIMATE_RESULTS.successful
    assert helped.iterations < 0.8 * alone.iterations
    assert helped.cost < 1.01 * alone.cost
