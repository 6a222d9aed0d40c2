"""Smoothers that linearise about a path: the iterated one, serial or parallel in time, and one with a fixed lag."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._compiled import compiled
from ..._typing import AnyArray, Array, Float
from ...math.smoother import ForwardPass
from ...math.sqrt_gaussian import (
    Affine,
    InformationRows,
    backward,
    backward_with_noise,
    combine,
    condition,
    lower,
    nothing,
    smoothed_in_parallel,
)
from ...protocol import Noise, Samples
from ..linearise import after, before
from .every_filter import Innovation, Smoothed, reading_of, standard_deviations
from .filter import Filter, Trail
from .step_rules import Belief, Context, Reading, line_at, motion_along, readings_along, readings_at


def _predicted(steps: Affine, mean: Array, factor: Array) -> tuple[Array, Array]:
    """Predicted means and factors at the start of every step and at the end, one step after the other."""
    q = steps.B.shape[2]

    def body(carry, step: Affine):
        mean, factor = carry
        both = jax.scipy.linalg.block_diag(factor, jnp.eye(q, dtype=factor.dtype))
        HJ, AB = jnp.concatenate([step.H, step.J], axis=1), jnp.concatenate([step.A, step.B], axis=1)
        post = condition(jnp.concatenate([mean, jnp.zeros(q, dtype=mean.dtype)]), both, HJ, step.y)
        return (AB @ post.mean + step.c, lower(AB @ post.factor)), (mean, factor)

    end, found = jax.lax.scan(body, (mean, factor), steps)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), found, end)


def _spoken(steps: Affine) -> InformationRows:
    """What the readings from every step on say about its state, one step after the other; and, of nothing, the end."""

    def back(rows: InformationRows, step: Affine):
        rows = backward(step, rows)
        return rows, rows

    end = nothing(steps.A.shape[1], steps.A.dtype)
    _, found = jax.lax.scan(back, end, steps, reverse=True)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), found, end)


def smooth_affine(
    steps: Affine, mean: Float[Array, " n"], factor: Float[Array, "n n"], parallel: bool = False
) -> tuple[Float[Array, "steps_1 n"], Float[Array, "steps_1 n n"], Float[Array, "steps q"]]:
    """Smoothed states of a linear model with their factors, and the smoothed noise of every step.

    `parallel`: in a number of rounds that grows with the logarithm of the length, at a few times the arithmetic; for
    devices with more arithmetic units than steps have use for.
    """
    if parallel:
        m, S, rows = smoothed_in_parallel(steps, mean, factor)
    else:
        (m, S), rows = _predicted(steps, mean, factor), _spoken(steps)
    d, smoothed = jax.vmap(combine)(m, S, rows)
    q = steps.B.shape[2]

    def noise(mean: Array, factor: Array, step: Affine, later: InformationRows) -> Array:
        both = jax.scipy.linalg.block_diag(jnp.eye(q, dtype=mean.dtype), factor)
        return combine(jnp.concatenate([jnp.zeros(q, dtype=mean.dtype), mean]), both, backward_with_noise(step, later))[
            0
        ][:q]

    return d, smoothed, jax.vmap(noise)(m[:-1], S[:-1], steps, jax.tree.map(lambda a: a[1:], rows))


@compiled
def _iterated(
    f: Filter, belief: Belief, samples: Samples, x: Any, w: Array, guess: Array, parallel: bool
) -> tuple[Any, Array, Array, Array, Array, Any]:
    """One Gauss-Newton iteration: linearise along a path, smooth, move the path."""
    model, n = f.model, f.model.tangent_size
    p = model.prepare(jnp.asarray(f.z))

    def line(x, x1, w, guess, u, reading: Reading):
        at, here = Context(model, p, f.noise, u), Belief(x, jnp.zeros(n, dtype=w.dtype), jnp.zeros((n, 0)), guess)
        a = jnp.concatenate([here.mean, w])
        line = line_at(at, here, a)
        if model.reads_pair:
            H, y = readings_along(at, here, reading, a, line)
        else:
            H, y = readings_at(at, here, reading, here.mean)
            H = jnp.concatenate([H, jnp.zeros((H.shape[0], w.shape[0]), dtype=w.dtype)], axis=1)
        move = motion_along(at, a, line)
        gap = model.local(move.x, x1)  # zero where the path is one of the simulator's
        return Affine(move.A, move.B, gap + move.c, H[:, :n], H[:, n:], y), move.guess, move.result

    reading = Reading(samples.y, samples.s, samples.weight)
    steps, guess, result = jax.vmap(line)(before(x), after(x), w, guess, samples.u, reading)
    x0 = jax.tree.map(lambda a: a[0], x)

    def first(d: Array) -> tuple[Array, Array]:  # the prior in the chart about the path's first state
        there = model.local(model.retract(belief.x, d), x0)
        return there, there

    turned, mean = jax.jacfwd(first, has_aux=True)(belief.mean[:n])
    d, S, w = smooth_affine(steps, mean, turned @ belief.factor[:n, :n], parallel)
    change = jnp.max(jnp.abs(d) / (standard_deviations(S) + jnp.finfo(d.dtype).tiny))
    return jax.vmap(model.retract)(x, d), w, guess, S, change, result


def smooth_iterated(
    f: Filter,
    belief: Belief,
    samples: Samples,
    *,
    iterations: int = 10,
    tolerance: float = 1e-8,
    parallel: bool = False,
) -> Smoothed:
    """The states of largest posterior density: an extended smoother, linearised again about what it finds.

    This is Gauss-Newton on all states and noises at once (iterated extended Kalman smoother), each iteration a filter
    and a smoother on the linearised model.

    **Arguments:**

    - `iterations`: at most so many; it ends when no state moves by `tolerance` of its standard deviation.
    - `parallel`: smooth all steps at once (`smooth_affine`).

    **Source:** Bell (1994).
    """
    found = f.smooth(f.run(belief, samples, trail=True))
    x, w = found.x, jnp.zeros((samples.u.shape[0], f.model.noise_size), dtype=found.sd.dtype)
    guess = jnp.broadcast_to(belief.guess, (samples.u.shape[0], *belief.guess.shape))
    S, result = found.factor, found.result
    for _ in range(iterations):
        x, w, guess, S, change, result = _iterated(f, belief, samples, x, w, guess, parallel)
        if float(change) < tolerance:
            break
    return Smoothed(x, standard_deviations(S), S, result=result)


class Window(eqx.Module):
    """The last steps of a filter that smooths with a fixed lag."""

    trail: Trail
    belief: Belief  # predicted after the last step


class FixedLag(eqx.Module):
    """A filter that tells every state `lag` steps late, from the readings up to then; one compiled call a sample."""

    filter: Filter
    lag: int = eqx.field(static=True)

    def init(self, belief: Belief) -> Window:
        """From the belief before the first reading. Until `lag` steps have passed, the first state is told."""
        model, dtype = self.filter.model, belief.mean.dtype
        n, c, q = model.tangent_size, model.num_channels, self.filter.rule.noises(model)
        shapes = (n, q), (n,), (c, n), (c, q), (c,)
        still = Affine(jnp.eye(n, dtype=dtype), *(jnp.zeros(shape, dtype=dtype) for shape in shapes))
        one = Trail(belief.x, ForwardPass(belief.mean[:n], belief.factor[:n, :n], still, None))
        return Window(jax.tree.map(lambda a: jnp.broadcast_to(a, (self.lag + 1, *a.shape)), one), belief)

    def step(
        self,
        window: Window,
        u: AnyArray,
        y: AnyArray,
        weight: AnyArray | None = None,
        noise: Noise | None = None,
    ) -> tuple[Window, Any, Float[Array, " n"], Innovation]:
        """The window after a step with its readings, and the state `lag` steps before it with its standard deviation.

        Arguments as in `Filter.update`; one set of readings a step, at its start.
        """
        reading = reading_of(self.filter.model, y, weight, None, window.belief.mean.dtype)
        return _lagged(self, window, jnp.asarray(u), reading, noise or self.filter.noise)


@compiled
def _lagged(lagged: FixedLag, window: Window, u: Array, reading: Reading, noise: Noise):
    f, n = lagged.filter, lagged.filter.model.tangent_size
    belief = window.belief
    _, after, innovation, affine, _ = f.followed(belief, u, reading, noise)
    new = Trail(belief.x, ForwardPass(belief.mean[:n], belief.factor[:n, :n], affine, None))
    trail = jax.tree.map(lambda a, b: jnp.concatenate([a[1:], b[None]]), window.trail, new)
    oldest = jax.tree.map(lambda a: a[0], trail)
    rows, _ = jax.lax.scan(
        lambda rows, step: (backward(step, rows), None), nothing(n, u.dtype), trail.path.affine, reverse=True
    )
    d, S = combine(oldest.path.mean, oldest.path.factor, rows)
    return Window(trail, after), f.model.retract(oldest.x, d), standard_deviations(S), innovation
