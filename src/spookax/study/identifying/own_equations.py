"""Identification of one's own equations from arrays: the batch method for a model of the protocol in continuous time.

What a study file is for a scene, arguments are here: a model, stamps, readings, inputs.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._compiled import compiled, on_device
from ..._results import ESTIMATE_RESULTS
from ..._typing import AnyArray, Array, Float
from ...estimation import Filter, Problem, Settings, Stage, fit
from ...estimation.batch.one_recording import Plan, follow, gains_of, linearised
from ...estimation.batch.problem import Fit, Iterate
from ...estimation.batch.shooting import segmented, shoot, shots
from ...estimation.batch.uncertainty import state_uncertainty
from ...estimation.continuous import checks
from ...estimation.linearise import Path, all_successful, before
from ...models import Equations
from ...models.parameters import values_and_sd
from ...protocol import ModelError, Noise, Samples

# scales of the process noise that are tried for the first trajectory; then they fall, one fit after the other
_SCALES = 10.0 ** np.arange(1.0, 4.5, 0.5)
_LAST = 10.0**0.5  # that falls to one
_SPREAD = np.log(3.0)  # of restarts, in z
_MULTIPLE = 64  # steps are filled up to a multiple of this


class StampGrid:
    """Steps between stamps: as many equal ones, none longer than h, as lead from one to the next."""

    def __init__(self, time: Float[AnyArray, " k"], h: float):
        time = np.asarray(time, dtype=float)
        if time.ndim != 1 or len(time) < 2 or not np.all(np.diff(time) > 0):
            raise ModelError("`time` must be at least two stamps, each later than the one before it")
        gaps = np.append(np.diff(time), min(h, float(np.min(np.diff(time)))))
        counts = np.maximum(np.ceil(gaps / h - 1e-9).astype(int), 1)
        self.of_stamp = np.concatenate([[0], np.cumsum(counts)[:-1]])  # the step that begins at each stamp
        lengths = np.repeat(gaps / counts, counts)
        filled = -len(lengths) % _MULTIPLE
        self.lengths = np.concatenate([lengths, np.full(filled, lengths[-1])])
        self.time = time[0] + np.concatenate([[0.0], np.cumsum(self.lengths)])  # of every state

    def samples(
        self, y: Float[AnyArray, "k channels"], u: Float[AnyArray, "k inputs"], sd: Float[AnyArray, " channels"]
    ) -> Samples:
        """Readings at their steps, NaN where there is none; inputs held until the next stamp."""
        steps, y = len(self.lengths), np.asarray(y, dtype=float)
        held = np.searchsorted(self.of_stamp, np.arange(steps), side="right") - 1
        read, weight = np.zeros((2, steps, 1, y.shape[1]))
        read[self.of_stamp, 0], weight[self.of_stamp, 0] = np.nan_to_num(y), np.isfinite(y)
        inputs = np.column_stack([np.asarray(u, dtype=float)[held], self.lengths])
        return Samples(*map(on_device, (inputs, read, np.zeros((steps, 1)), weight)))


@dataclasses.dataclass(frozen=True)
class EquationsEstimate:
    """Parameters and states of equations of motion. `result` names the cause where it failed."""

    parameters: dict[str, dict[str, float]]  # name -> value, sd, start
    time: Float[np.ndarray, " k"]  # the stamps [s]
    states: Float[np.ndarray, "k n"]  # at the stamps
    sd: Float[np.ndarray, "k n"]  # standard deviations of the states
    process: float  # scale of the process noise, as found
    sensor: Float[np.ndarray, " channels"]  # standard deviations of the readings, as given or found
    result: ESTIMATE_RESULTS
    message: str  # of a failure, else empty
    fit: Fit

    @property
    def covariance(self) -> np.ndarray:
        """Of the unknowns in the coordinates of the search (`Equations.unknown`)."""
        return self.fit.covariance


@compiled
def _likelihoods(f: Filter, x0: Array, sd: Array, samples: Samples, scales: Array) -> Array:
    def one(scale: Array) -> Array:
        scaled = f.with_noise(Noise(f.noise.process * scale, f.noise.sensor))
        return scaled.run(scaled.init(x0, sd), samples).log_likelihood

    return jax.vmap(one)(scales)


def first_path(
    model: Equations, z: AnyArray, noise: Noise, samples: Samples, x0: AnyArray, sd: AnyArray
) -> tuple[Path, float]:
    """A trajectory of the simulator to begin with, and the factor on the process noise that it takes.

    The parameters may be far off, so the noise has to be what the model lacks at the start: of some scales the one
    with the largest likelihood in a filter. Its smoother says where to go; the simulation is led there by the feedback
    that the problem, linearised along the way, asks for.
    """
    f = Filter(model, np.asarray(z), noise)
    told = np.asarray(_likelihoods(f, jnp.asarray(x0), jnp.asarray(sd), samples, jnp.asarray(_SCALES)))
    scale = float(_SCALES[int(np.argmax(np.where(np.isfinite(told), told, -np.inf)))])
    led = Noise(noise.process * scale, noise.sensor)
    f = f.with_noise(led)
    x = np.asarray(f.smooth(f.run(f.init(np.asarray(x0), np.asarray(sd)), samples, trail=True)).x)
    steps = len(samples.u)
    still = np.zeros((steps, model.noise_size))
    plan = Path(x, still, np.zeros((steps, 0)), all_successful(steps))
    gains = gains_of(linearised(model, np.asarray(z), led, plan, samples))
    path = follow(model, np.asarray(z), led, Plan(before(x), still, gains), samples.u, np.zeros(0))
    if not np.all(np.isfinite(np.asarray(path.x))):
        checks.model(model, z, x0, np.asarray(samples.u)[0, : model.inputs])
    return path, scale


def identify_equations(
    model: Equations,
    time: Float[AnyArray, " k"],
    y: Float[AnyArray, "k channels"],
    u: Float[AnyArray, "k inputs"] | None = None,
    *,
    sd: Sequence[float] | AnyArray,
    x0: Sequence[float] | AnyArray | None = None,
    x0_sd: Sequence[float] | AnyArray | float = 10.0,
    process: float = 1.0,
    restarts: int = 0,
    settings: Settings | None = None,
) -> EquationsEstimate:
    """Find the unknowns of equations of motion, and the states, from all readings at once (the batch method).

    **Arguments:**

    - `time`: stamps, as they come: irregular ones and gaps are ordinary. [s]
    - `y`: readings, NaN where one is missing; `u`: inputs, each held until the next stamp.
    - `sd`: standard deviations of the readings.
    - `x0`, `x0_sd`: guess of the first state, where a filter begins that finds the first trajectory.
    - `process`: scale of the model's process noise that is expected at the end. The iteration begins with more, as much
      as the start values need: then the states follow the readings, whatever the parameters, and the problem in these
      is nearly linear. With less and less of it the parameters have to explain the motion.
    - `restarts`: further starts, an unknown in a box anywhere there, every other up to a factor of three off; the best
      end counts.
    - `settings`: of the last fit; by default the level of the process noise is found from the evidence, too.

    **Returns:** an `EquationsEstimate`; a failure is its `result`.

    **Raises:** `ModelError` for arrays that do not fit the model, and for a drift that is NaN at `x0`.
    """
    sd = np.asarray(sd, dtype=float)
    grid, samples, x0, x0_sd = _given(model, time, y, u, sd, x0, x0_sd)
    z0, noise = model.unknown.start(), Noise(on_device(process), on_device(sd))
    lower, upper = model.unknown.bounds()
    weight, nothing = model.unknown.prior_weight(), np.zeros(0)
    problem = Problem((samples,), z0, z0.copy(), weight, lower, upper, nothing, float(np.max(x0_sd)))
    settings = settings or Settings(process=True, max_iterations=100)
    rng, ends = np.random.default_rng(0), []
    for k in range(1 + restarts):
        z = z0 if not k else np.clip(elsewhere(model, z0, rng), lower, upper)
        path, scale = first_path(model, z, noise, samples, x0, x0_sd)
        falling = [process * s for s in (*reversed(_SCALES[scale >= _SCALES]), _LAST, 1.0)]
        stages = [Stage(model, Noise(on_device(s), on_device(sd))) for s in falling]
        held = dataclasses.replace(settings, process=False, silent=True)
        led = fit(problem, stages, Iterate(z, (nothing,), (path,)), held).iterate
        ends.append(fit(problem, stages[-1:], led, settings))
    found = min(ends, key=_objective)
    return _estimate(model, grid, problem, found)


def shoot_equations(
    model: Equations,
    time: Float[AnyArray, " k"],
    y: Float[AnyArray, "k channels"],
    u: Float[AnyArray, "k inputs"] | None = None,
    *,
    sd: Sequence[float] | AnyArray,
    segment: float | None = None,
    x0: Sequence[float] | AnyArray | None = None,
    x0_sd: Sequence[float] | AnyArray | float = 10.0,
    process: float = 1.0,
) -> dict[str, dict[str, float]]:
    """Find the unknowns by least squares of the simulation error, which knows no process noise (`estimation.shooting`).

    **Arguments:** as for `identify_equations`, whose filter finds where the simulations begin; `segment`: length of the
    segments of multiple shooting, None for one simulation of the whole recording. [s]

    **Returns:** name -> value, sd, start; NaN if no simulation stays finite.

    **Raises:** as `identify_equations`.
    """
    sd = np.asarray(sd, dtype=float)
    _, samples, x0, x0_sd = _given(model, time, y, u, sd, x0, x0_sd)
    z0, noise = model.unknown.start(), Noise(on_device(process), on_device(sd))
    path, _ = first_path(model, z0, noise, samples, x0, x0_sd)
    length = None if segment is None else max(round(segment / float(model.h)), 1)
    pieces = segmented([samples], [path.x], length)
    prior = z0, model.unknown.prior_weight()
    found = shoot(shots(model, noise, pieces, z0, prior, model.unknown.bounds(), np.zeros(0)), [z0])
    z = found.z if np.isfinite(found.cost) else np.full_like(z0, np.nan)
    value, spread = values_and_sd(model.unknown, z, found.covariance)
    start = np.asarray(model.unknown.values(jnp.asarray(z0)))
    return {
        name: {"value": float(v), "sd": float(s), "start": float(b)}
        for name, v, s, b in zip(model.names, value, spread, start, strict=True)
    }


def elsewhere(model: Equations, z0: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Another start: anywhere in a box, every other unknown up to a factor of three off."""
    z = z0 + _SPREAD * rng.uniform(-1, 1, z0.shape)
    boxed = np.array([free.transform == "box" for free in model.unknown.free])
    share = rng.uniform(0.02, 0.98, z0.shape)
    return np.where(boxed, np.log(share / (1 - share)), z)


def _objective(found: Fit) -> float:
    """What is compared between ends: minus the log-likelihood with priors, states integrated out."""
    value = found.cost + found.log_det / 2
    return value if np.isfinite(value) else np.inf


def _given(
    model: Equations, time: Any, y: Any, u: Any, sd: np.ndarray, x0: Any, x0_sd: Any
) -> tuple[StampGrid, Samples, np.ndarray, np.ndarray]:
    """What was given as steps, their samples, and a first state with its standard deviations; or a clear error."""
    time, y = np.asarray(time, dtype=float), np.asarray(y, dtype=float)
    u = np.zeros((len(y), 0)) if u is None else np.asarray(u, dtype=float)
    x0 = np.zeros(model.tangent_size) if x0 is None else np.asarray(x0, dtype=float)
    for name, array, shape in (
        ("y", y, (len(time), model.num_channels)),
        ("u", u, (len(time), model.inputs)),
        ("sd", sd, (model.num_channels,)),
        ("x0", x0, (model.tangent_size,)),
    ):
        if array.shape != shape:
            raise ModelError(f"`{name}` must have the shape {shape}, got {array.shape}")
    try:
        x0_sd = np.broadcast_to(np.asarray(x0_sd, dtype=float), x0.shape)
    except ValueError as error:
        raise ModelError(f"`x0_sd` must be a number or {x0.shape[0]} of them, got {x0_sd}") from error
    for name, array in (("sd", sd), ("x0_sd", x0_sd)):
        if not np.all(array > 0):
            raise ModelError(f"`{name}` must be above zero, got {array}")
    grid = StampGrid(time, float(model.h))
    return grid, grid.samples(y, u, sd), x0, x0_sd


def _estimate(model: Equations, grid: StampGrid, problem: Problem, found: Fit) -> EquationsEstimate:
    z = np.asarray(found.iterate.z)
    value, spread = values_and_sd(model.unknown, z, found.covariance)
    start = np.asarray(model.unknown.values(jnp.asarray(problem.z0)))
    parameters = {
        name: {"value": float(v), "sd": float(s), "start": float(b)}
        for name, v, s, b in zip(model.names, value, spread, start, strict=True)
    }
    assert found.parts is not None
    part = found.parts[0]
    told = state_uncertainty(part.lin, part.f, found.covariance)
    states = np.asarray(found.iterate.paths[0].x)[:-1]
    sd = np.sqrt(np.maximum(np.diagonal(told.covariance, axis1=1, axis2=2), 0.0))
    at = grid.of_stamp
    ok = found.result == ESTIMATE_RESULTS.successful
    return EquationsEstimate(
        parameters,
        grid.time[at],
        states[at],
        sd[at],
        float(found.noise.process),
        np.asarray(found.noise.sensor),
        found.result,
        "" if ok else ESTIMATE_RESULTS[found.result],
        found,
    )
