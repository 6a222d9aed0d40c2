"""The protocol: a core that every model has, capabilities that some have, and wrappers that pass all of them on."""

import inspect
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spookax.estimation  # its wrappers
import spookax.models  # noqa: F401
from spookax._results import STEP_RESULTS
from spookax.estimation import AugmentedState, Drift, WithParameters
from spookax.protocol import (
    CAPABILITIES,
    AbstractModel,
    AbstractVectorModel,
    CarriedPoses,
    ConstrainedStart,
    FirstSpread,
    FreeDirections,
    HeldNoise,
    Noise,
    PlanTracking,
    SearchedStep,
    StepDuration,
    asked,
)

H = 0.1
NOISE = Noise(jnp.asarray(0.7), jnp.array([0.1]))


class Mass(NamedTuple):
    q: jax.Array
    v: jax.Array


class Able(
    AbstractModel, SearchedStep, CarriedPoses, HeldNoise, ConstrainedStart, FirstSpread, PlanTracking, StepDuration
):
    """A mass on a spring, z = (stiffness,), that can do everything; no answer is that of a model which cannot."""

    tangent_size: int = eqx.field(static=True, default=2)
    noise_size: int = eqx.field(static=True, default=1)
    num_channels: int = eqx.field(static=True, default=1)

    @property
    def reads_pair(self):
        return False

    def prepare(self, z):
        return z[0]

    def step(self, x, p, u, w, noise, guess):
        return self.stepped(x, p, u, w, noise, guess)[:2]

    def stepped(self, x, p, u, w, noise, guess):
        v = x.v + H * (u - p * x.q) + noise.process * w + guess
        return Mass(x.q + H * v, v), 2 * guess, STEP_RESULTS.nonfinite_velocity

    def first_guess(self):
        return jnp.ones(1)

    def replay(self, x, p, u, w, noise, guess):
        return self.step(x, p, u, w, noise, guess / 2)[0]

    @property
    def carried(self):
        return 1

    def carry(self, x, x1, p):
        return Mass(x.q + H * x1.v, x1.v)

    def retract_rates(self, x, d):
        return Mass(x.q, x.v + d)

    def pushed(self, x, p, u, w, noise, guess, push):
        return self.replay(x, p, u + push / H, w, noise, guess)

    def needed(self, x, x1, p, change):
        return change

    def same_noise(self, x, p, w, p_now):
        return w

    def start(self, x, p):
        return Mass(jnp.abs(x.q), x.v)

    def first_sd(self, x, p, sd):
        return sd * jnp.array([2.0, 3.0])

    def tracking_gain(self, x, p, noise):
        return jnp.array([[0.3 / H, 1.0]]) / noise.process

    def duration(self, p):
        return jnp.asarray(H)

    def observe(self, x, x1, p, s):
        return x.q + s * H * x1.v

    def difference(self, y, predicted):
        return jnp.mod(y - predicted + jnp.pi, 2 * jnp.pi) - jnp.pi

    def retract(self, x, d):
        return Mass(x.q + d[:1], x.v + d[1:])

    def local(self, x1, x0):
        return jnp.concatenate([x1.q - x0.q, x1.v - x0.v])


class Plain(AbstractVectorModel):
    """Nothing but the core."""

    tangent_size: int = eqx.field(static=True, default=2)
    noise_size: int = eqx.field(static=True, default=1)
    num_channels: int = eqx.field(static=True, default=1)

    def prepare(self, z):
        return z

    def step(self, x, p, u, w, noise, guess):
        return x + H * jnp.stack([x[1], u[0] - p[0] * x[0] + noise.process * w[0]]), guess

    def observe(self, x, x1, p, s):
        return x[:1]


def subclasses(kind: type) -> set[type]:
    return {c for below in kind.__subclasses__() for c in (below, *subclasses(below))}


def wrapped(kind: type) -> bool:
    """Whether a model of this class stands before another one and is a member of its own."""
    fields = inspect.get_annotations(kind).values()
    ours = kind.__module__.startswith("spookax.")
    return ours and any(inspect.isclass(a) and issubclass(a, AbstractModel) for a in fields)


WITHOUT = {  # what a wrapper does not pass on, for the reason in its docstring
    "WithParameters": {FreeDirections, HeldNoise, StepDuration},
    "JointMotion": set(CAPABILITIES) - {FirstSpread, HeldNoise, StepDuration},  # no other step than its equations'
}


def test_a_wrapper_answers_for_every_member_itself():
    wrappers = [kind for kind in subclasses(AbstractModel) if wrapped(kind)]
    assert {kind.__name__ for kind in wrappers} == set(WITHOUT)
    for kind in wrappers:
        given = {name for base in kind.__mro__ if base is not AbstractModel for name in vars(base)}
        for name in (*AbstractModel.__abstractmethods__, "reads_pair"):
            assert name in given, (kind, name)
        for capability in set(CAPABILITIES) - WITHOUT[kind.__name__]:
            assert issubclass(kind, capability), (kind, capability)
        for capability in WITHOUT[kind.__name__]:
            assert not issubclass(kind, capability), (kind, capability)


def same(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-15), one, other)


def test_a_model_with_parameters_as_states_does_what_its_model_does(rng):
    model, z = Able(), jnp.array([4.0])
    joint = WithParameters(model, 1, Drift(jnp.asarray(0.1)))
    x, x1 = (Mass(*jnp.asarray(rng.normal(size=(2, 1)))) for _ in range(2))
    p, both, both1 = model.prepare(z), AugmentedState(x, z), AugmentedState(x1, z + 1)
    u, w, guess, still, half = jnp.ones(1), jnp.array([0.3]), jnp.array([0.5]), jnp.zeros(1), jnp.asarray(0.5)
    ends = asked.stepped(joint, both, None, u, jnp.append(w, 0.0), NOISE, guess)
    wanted = asked.stepped(model, x, p, u, w, NOISE, guess)
    same((ends[0].x, ends[1]), wanted[:2])
    assert ends[2] == wanted[2] == STEP_RESULTS.nonfinite_velocity
    again = asked.replayed(joint, both, None, u, jnp.append(w, 0.0), NOISE, ends[1])
    same(again.x, asked.replayed(model, x, p, u, w, NOISE, ends[1]))
    same(asked.first_guess(joint), asked.first_guess(model))
    assert asked.carried(joint) == asked.carried(model) == 1
    same(joint.carry(both, both1, None), AugmentedState(model.carry(x, x1, p), z + 1))
    same(joint.retract_rates(both, jnp.array([2.0, 3.0])), joint.retract(both, jnp.array([0.0, 2.0, 3.0])))
    same(asked.admissible(joint, both, None).x, asked.admissible(model, x, p))
    same(asked.first_sd(joint, both, None, jnp.asarray(0.1))[:2], asked.first_sd(model, x, p, jnp.asarray(0.1)))
    gain = asked.tracking_gain(joint, both, None, NOISE)
    assert gain.shape == (joint.noise_size, joint.tangent_size)
    same(gain[:1, :2], asked.tracking_gain(model, x, p, NOISE))
    assert np.all(gain[1:] == 0)
    assert np.all(gain[:, 2:] == 0)
    same(joint.observe(both, both1, None, half), model.observe(x, x1, p, half))
    same(joint.difference(3.0 + still, -3.0 + still), model.difference(3.0 + still, -3.0 + still))
    assert joint.reads_pair is model.reads_pair
    with pytest.raises(NotImplementedError, match="how long its step is"):
        asked.duration(joint, None)


@pytest.mark.parametrize("model", [Plain(), WithParameters(Plain(), 1)])
def test_what_holds_for_a_model_without_capabilities(model):
    x = jnp.array([0.2, 0.1])
    z, x = (jnp.zeros(0), AugmentedState(x, jnp.ones(1))) if isinstance(model, WithParameters) else (jnp.ones(1), x)
    given = x, model.prepare(z), jnp.ones(1), jnp.ones(1), NOISE, asked.first_guess(model)
    x1, guess, result = asked.stepped(model, *given)
    same(x1, model.step(*given)[0])
    same(asked.replayed(model, *given), x1)
    assert guess.size == 0
    assert result == STEP_RESULTS.successful
    assert asked.carried(model) == 0
    assert asked.admissible(model, x, given[1]) is x
    assert not np.any(asked.tracking_gain(model, x, given[1], NOISE))
    offered = {capability for capability in CAPABILITIES if model.offers(capability) is not None}
    assert offered == ({FirstSpread} if isinstance(model, WithParameters) else set())


def test_a_member_of_a_capability_that_is_not_named_is_refused():
    with pytest.raises(TypeError, match=r"Half has carry but is no `protocol\.CarriedPoses`"):

        class Half(Plain):
            def carry(self, x, x1, p):
                return x1
