"""What faults of a recording would do to its readings: signatures, and how much of the innovations each explains.

A fault of size theta (a delay of theta seconds, readings 1 + theta times as large) adds theta times its signature to
the readings or to the impulses on the joints. The last linearised fit tells what that does to the innovations: the
signature passes the filter as the column of one more parameter would, S = -(H Y + D), Y+ = A Y + B c + K S. With the
innovations nu, their covariance F and the columns of all that is estimated projected out, the fault explains

    b theta - a theta^2 / 2   [nats],      a = S' F^-1 S,   b = -S' F^-1 nu,

which is averaged over the sizes that a fault usually has, a normal density about zero: a fault that would have to be
absurdly large explains nothing. A sign or a unit has one size only. No parameter is estimated again and nothing is
compiled.

**Source:** the score test of Rao (1948) on the innovations form of the likelihood; de Jong (1989) for the columns.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..._typing import Float
from ...estimation.batch.problem import Fit, Part
from ...system import Params
from ..recordings.grid import Grid, kick_means
from ..recordings.recording import Recording
from ..running.setup import Setup

_SHIFTS = (1, 2, 3, 5, 8, 12, 18, 27)  # usual distances of samples that an input is shifted by, to both sides
_EDGE = 0.2  # of the RMS speed: where dry friction turns over, and where it falls with the speed
_SCALE, _DELAY, _DRIFT, _CLOCK = 0.03, 10.0, 0.3, 0.01  # usual sizes: -, samples, of how much a channel moves, -
_FACTORS = (np.pi / 180, 180 / np.pi, 1e-3, 1e3)  # between units
_CLOCKS = (0.003, 0.01)  # relative errors of a clock that are tried, to both sides
_DRIFTS = 4.0  # gain of a drift beside a wrong zero from which on both count as a drift [nats]
_FROM_ZERO = ", right where it starts"  # form of a drift, of a sensor that was set to zero before
_ABSURD = 10.0  # times the usual size: such a fault is something else
_NOVEL = 1e-4  # of a signature's square that the parameters must leave, or it says nothing of its own


class Key(NamedTuple):
    """Which fault: kind, the sensor, input or joint that has it, and the form that the signature has."""

    kind: str
    where: str
    form: str = ""


class Explained(NamedTuple):
    """`gain`: rise of the log-evidence [nats]; `share`: of the innovations' square that goes; `size`: of the fault;
    `shift`: by which the shared parameters z would move beside it, where it is small enough to tell.
    """

    key: Key
    gain: float
    share: float
    size: float
    shift: Float[np.ndarray, " p"] | None


class Column(NamedTuple):
    """A signature per unit of the fault: of readings at every stamp [unit of the sensor], or of forces on an axis at
    every step [N m or N]. `usual`: size of the fault, as a standard deviation; None where there is no scale for it.
    """

    usual: float | None
    readings: dict[str, np.ndarray]
    axis: int | None = None
    force: np.ndarray | None = None


def signatures(
    setup: Setup, recording: Recording, grid: Grid, estimated: dict[str, np.ndarray], params: Params
) -> dict[Key, Column]:
    """Signatures of all faults that a recording may have, along its estimated readings (stamps, numbers).

    `params`: those of the fit.
    """
    time, apart = recording.time - recording.time[0], float(np.median(np.diff(recording.time)))
    rates = {name: np.gradient(values, time, axis=0) for name, values in estimated.items()}
    found: dict[Key, Column] = {}
    for name, values in estimated.items():
        one, moves = np.ones_like(values), float(np.std(values))
        found[Key("zero", name)] = Column(moves, {name: one})
        found[Key("scale", name)] = Column(_SCALE, {name: values})
        found[Key("delay", name)] = Column(_DELAY * apart, {name: -rates[name]})
        found[Key("drift", name, recording.name)] = Column(
            _DRIFT * moves, {name: one * (time / time[-1] - 0.5)[:, None]}
        )
        found[Key("drift", name, recording.name + _FROM_ZERO)] = Column(
            _DRIFT * moves, {name: one * (time / time[-1])[:, None]}
        )
    if recording.inputs:  # a clock that all share is none that the readings can tell
        found[Key("clock", "")] = Column(_CLOCK, {name: time[:, None] * rate for name, rate in rates.items()})
    if setup.model.noise.kind == "joints":  # the fit knows what an impulse on a joint does
        found |= dict(_of_inputs(setup, recording, grid, params))
        found |= dict(_of_friction(setup, recording, grid, estimated, rates))
    return found


def _of_inputs(setup: Setup, recording: Recording, grid: Grid, params: Params) -> Iterator[tuple[Key, Column]]:
    """An input that is larger than recorded, or acts earlier or later."""
    apart = float(np.median(np.diff(recording.time)))
    for m, motor in enumerate(setup.system.motors):
        if motor.name not in recording.inputs:
            continue
        value, factor = recording.inputs[motor.name], float(params.gain[m]) or 1.0
        time = recording.time + float(params.delay[m])
        here = kick_means(grid, time, value)
        yield Key("scale", motor.name), Column(_SCALE, {}, motor.axis, factor * here)
        for n in _SHIFTS:
            for late in (n * apart, -n * apart):
                moved = kick_means(grid, time + late, value) - here
                yield Key("delay", motor.name, f"{late:.9g}"), Column(1.0, {}, motor.axis, factor * moved)
        for fast in (c * side for c in _CLOCKS for side in (1, -1)):
            moved = kick_means(grid, time + fast * (recording.time - recording.time[0]), value) - here
            yield Key("clock", motor.name, f"{fast:g}"), Column(1.0, {}, motor.axis, factor * moved)


def _of_friction(
    setup: Setup,
    recording: Recording,
    grid: Grid,
    estimated: dict[str, np.ndarray],
    rates: dict[str, np.ndarray],
) -> Iterator[tuple[Key, Column]]:
    """Friction of measured joints that depends on speed, position or load as the scene does not say."""
    stamps = (grid.step_of + grid.fraction) * grid.h
    steps = grid.h * np.arange(grid.steps)
    for name, values in estimated.items():
        sensor = setup.system.sensors[setup.system.sensor_index(name)]
        if sensor.type not in ("joint_position", "joint_rate"):
            continue
        axis = sensor.target
        v = np.interp(steps, stamps, (rates[name] if sensor.type == "joint_position" else values)[:, 0])
        usual = float(np.sqrt(np.mean(v**2)))
        if not usual > 0:
            continue
        v = v / usual
        dry = np.tanh(v / _EDGE)
        forms = {
            "speed": -v,
            "direction": -dry,
            "square of the speed": -v * np.abs(v),
            "low speed": -np.sign(v) * np.exp(-((v / _EDGE) ** 2)) * np.minimum(np.abs(v) / (0.1 * _EDGE), 1.0),
        }
        if sensor.type == "joint_position":
            q = np.interp(steps, stamps, values[:, 0])
            turn = 1.0 if setup.system.axes[axis].rotational else 2 * np.pi / max(float(np.ptp(q)), 1e-12)
            forms |= {"position, sine": -dry * np.sin(turn * q), "position, cosine": -dry * np.cos(turn * q)}
        for motor in setup.system.motors:
            if motor.axis == axis and motor.name in recording.inputs:
                load = np.abs(kick_means(grid, recording.time, recording.inputs[motor.name]))
                forms["load"] = -dry * load / max(float(load.max()), 1e-300)
        for form, force in forms.items():
            yield Key("friction", setup.system.axes[axis].name, form), Column(None, {}, axis, force)


def explained(setup: Setup, fit: Fit, columns: list[dict[Key, Column]]) -> list[Explained]:
    """What every signature explains of the innovations of all recordings (one dictionary each), the best first."""
    assert fit.parts is not None
    keys = list(dict.fromkeys(key for of_one in columns for key in of_one))
    shared = len(fit.iterate.z)
    count = shared + len(keys)
    gram, right, square, readings = np.zeros((count, count)), np.zeros(count), 0.0, 0
    for i, (part, of_one) in enumerate(zip(fit.parts, columns, strict=True)):
        white, nu = _through_the_filter(setup, fit, i, part, of_one)
        own = white[:, shared : part.N.shape[0]]
        mine = np.concatenate([white[:, :shared], white[:, part.N.shape[0] :]], axis=1)
        at = np.concatenate([np.arange(shared), [shared + keys.index(key) for key in of_one]]).astype(int)
        corner = np.linalg.pinv(own.T @ own + np.diag(setup.problem.own_weight**2), hermitian=True)
        pull = -own.T @ nu - setup.problem.own_weight**2 * fit.iterate.own[i]
        gram[np.ix_(at, at)] += mine.T @ mine - (mine.T @ own) @ corner @ (own.T @ mine)
        right[at] += -mine.T @ nu - (mine.T @ own) @ corner @ pull
        square, readings = square + float(nu @ nu), readings + int(np.sum(nu != 0))
    inside = [i for i in range(shared) if fit.reach[i] == 0]
    gram[:shared, :shared] += np.diag(setup.problem.weight**2)
    right[:shared] += setup.problem.weight**2 * (setup.problem.prior - fit.iterate.z)
    zeros = {key.where: shared + j for j, key in enumerate(keys) if key.kind == "zero"}
    found = []
    for j, key in enumerate(keys, shared):
        # a zero that is off is not to pass for a scale, or for a drift about a zero of its own
        alone = zeros[key.where] if key.form.endswith(_FROM_ZERO) else j
        held = inside + [at for at in zeros.values() if at not in (j, alone) and key.kind != "zero"]
        solved = np.linalg.pinv(gram[np.ix_(held, held)], hermitian=True) @ gram[held, j]
        a = gram[j, j] - gram[j, held] @ solved
        if not a > _NOVEL * gram[j, j] > 0:
            continue
        b = right[j] - solved @ right[held]
        usual = next(of_one[key].usual for of_one in columns if key in of_one)
        absurd = usual is not None and abs(b / a) > _ABSURD * usual
        weight = a / readings if usual is None else usual**-2
        gain = -np.inf if absurd else b**2 / (2 * (a + weight)) - np.log(1 + a / weight) / 2
        shift = np.zeros(shared)
        shift[inside] = -solved[: len(inside)] * b / (a + weight)  # no further than faults usually go
        found.append(Explained(key, gain, b**2 / a / square, b / a, shift))
        if key.kind == "scale":
            for kind, size in [("sign", -2.0), *(("unit", factor - 1) for factor in _FACTORS)]:
                gain = b * size - a * size**2 / 2
                found.append(Explained(key._replace(kind=kind), gain, 2 * gain / square, size, None))
    off = {e.key.where: e for e in found if e.key.kind == "zero"}
    for i, e in enumerate(found):
        if (
            e.key.kind == "drift"
            and not e.key.form.endswith(_FROM_ZERO)
            and e.gain > _DRIFTS
            and (zero := off.get(e.key.where))
        ):
            found[i] = e._replace(gain=e.gain + max(zero.gain, 0.0), share=e.share + zero.share)
    return sorted(found, key=lambda e: -e.gain)


def _through_the_filter(
    setup: Setup, fit: Fit, i: int, part: Part, columns: dict[Key, Column]
) -> tuple[Float[np.ndarray, "n q"], Float[np.ndarray, " n"]]:
    """Innovations of a recording and what the parameters and the signatures do to them, whitened."""
    A, B, H, J, P, K, nu, S = (
        np.concatenate([np.asarray(getattr(block, name)) for block in blocks])
        for blocks, names in ((part.lin, "ABHJ"), (part.f, ("P", "K", "nu", "S")))
        for name in names
    )
    steps, channels = nu.shape
    D, w = np.zeros((steps, channels, len(columns))), np.zeros((steps, B.shape[2], len(columns)))
    grid, weight = setup.grids[i], np.asarray(setup.problem.samples[i].weight) * fit.root_weights[i]
    unit = setup.density * np.broadcast_to(np.asarray(fit.noise.process), (B.shape[2],)) / np.sqrt(grid.h)
    for j, column in enumerate(columns.values()):
        change, at = np.zeros((len(grid.step_of), weight.shape[2])), 0
        for name in setup.sensors:
            size = setup.system.sensors[setup.system.sensor_index(name)].size
            if name in column.readings:
                change[:, at : at + size] = column.readings[name]
            at += size
        D[:, :, j] = (grid.placed(change, weight.shape[1]) * weight / np.asarray(fit.noise.sensor)).reshape(steps, -1)
        if column.axis is not None and column.force is not None:
            w[:, column.axis, j] = column.force / unit[column.axis]
    C, D = B @ w, D + J @ w
    Y, mine = np.zeros((A.shape[1], len(columns))), np.zeros_like(D)
    for k in range(steps):
        mine[k] = -(H[k] @ Y + D[k])
        Y = A[k] @ Y + C[k] + K[k] @ mine[k]
    F = H @ P @ H.swapaxes(1, 2) + J @ J.swapaxes(1, 2) + np.eye(channels)
    every = np.concatenate([nu[..., None], S, mine], axis=2)
    white = np.linalg.solve(np.linalg.cholesky(F), every).reshape(-1, every.shape[2])
    return white[:, 1:], white[:, 0]
