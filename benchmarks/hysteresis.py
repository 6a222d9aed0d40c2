"""Hysteresis by elasto-slide elements: the source's bank and its variants, the batch method, recursive least squares.

`bank`, `batch` and `bouc_wen` are the parts; set-up and published numbers in `hysteresis_setup`.
"""

import os
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from scipy.interpolate import CubicSpline
from scipy.optimize import nnls

from spookax._results import ESTIMATE_RESULTS
from spookax.estimation import LeastSquares, Settings
from spookax.models import ElastoSlide

from .hysteresis_setup import (
    GRID,
    LEFT_OUT,
    SETUP,
    STEP,
    VARIANTS,
    bank,
    deflections,
    draw,
    fitted,
    rms,
    scores,
    started,
)
from .measure import Row, compile_clock, row, timed

DRAWS = 5  # of thirty runs, for the scatter of the scores
VAGUE = 1 / 3  # of a prior where elements may vanish: a factor of 20 is one standard deviation
WANDER = 1e-4  # density of the blocks in the batch method [m/sqrt(s)]
COUNTS = (3, 7, 15)
TRUE_OSCILLATOR = (2.0, 10.0, 5e4)  # [kg], [N s/m], [N/m] of the Bouc-Wen record
BAND = (4.9, 150.1)  # [Hz] of its excitation


def run(part: str) -> list[Row]:
    """Rows of a part."""
    return {"bank": _bank, "batch": _batch, "bouc_wen": _bouc_wen}[part]()


def _against(case: str, quantity: str, value: float, published: float, unit: str = "%") -> Row:
    return row(case, quantity, value, unit, over=published, to=f"{published:g}")


def _bank() -> list[Row]:
    rows: list[Row] = []
    for name in "AB":
        estimator, all_scores = bank(name), []
        for seed in range(DRAWS):
            records = draw(name, seed)
            start = started(estimator, records, 100 + seed)
            if not seed:
                with compile_clock() as clock:
                    estimator.run(*start, many=True)
                    rows.append(row(name, "30 runs, compile", clock.take(), "s"))
                times = timed(lambda start=start, e=estimator: e.run(*start, many=True).modes.fitted, budget=6.0)
                rows.append(row(name, "30 runs", times.best, "s", median=times.median))
                rows.append(row(name, "30 runs, processor time", times.processor, "s"))
            all_scores.append(scores(name, records, estimator.run(*start, many=True)))
        table = np.array([[s.mean_error, s.single_error, s.stiffness[0], s.regime_error] for s in all_scores])
        for i, quantity in enumerate(("mean force error", "single-run force error", "K", "regime error")):
            if name == "A" or i < 2:
                unit, case = "" if quantity == "K" else "%", f"{name}, {DRAWS} draws of 30 runs"
                rows.append(row(case, f"{quantity}, mean", float(table[:, i].mean()), unit))
                rows.append(row(case, f"{quantity}, largest", float(table[:, i].max()), unit))
    for label, variant in VARIANTS.items():
        for name, published in SETUP["variants"][label].items():
            records, estimator = draw(name, 0, variant), bank(name, variant)
            found = scores(name, records, estimator.run(*started(estimator, records, 100), many=True))
            case = f"{name}, {label}"
            rows.append(_against(case, "mean force error", found.mean_error, published[0]))
            rows.append(_against(case, "single-run force error", found.single_error, published[1]))
            if name == "A":
                rows.append(_against(case, "K", float(found.stiffness[0]), published[2], ""))
    return rows + _least_squares()


def _least_squares() -> list[Row]:
    """Recursive least squares on what the bank sees, stiffness constant and changed in the middle, experiment A."""
    rows, steps = [], SETUP["samples"]
    changed = np.where(np.arange(steps) < steps // 2, 0.33, 0.15)[:, None]
    for case, stiffness in (("A", None), ("A, K 0.33 -> 0.15 after 8 s", changed)):
        records = draw("A", 0, stiffness=stiffness)
        true = np.full(steps, 0.33) if stiffness is None else changed[:, 0]
        phi = [deflections(u, np.array([0.55])) for u in records.u]
        estimates = {}
        for rate in (1.0, 0.999, 0.99):
            f = LeastSquares(SETUP["output_sd"], rate)
            found = [f.run(f.init(jnp.array([0.25]), np.ones(1)), p, y)[1] for p, y in zip(phi, records.y, strict=True)]
            K = np.array(found)[..., 0]
            estimates[f"least squares, forgetting {rate:g}"] = K, K * np.array(phi)[..., 0]
        estimator = bank("A")
        told = estimator.run(*started(estimator, records, 100), many=True)
        K = (np.asarray(told.modes.probability) @ GRID)[..., 0].T
        estimates["bank"] = K, np.asarray(told.modes.fitted).sum(axis=(2, 3, 4)).T
        for label, (K, force) in estimates.items():
            error = 100 * rms((force - records.force)[:, LEFT_OUT:]) / rms(records.force[:, LEFT_OUT:])
            rows.append(row(case, f"single-run force error, {label}", error, "%"))
            rows.append(row(case, f"rms error of K, {label}", rms((K - true)[:, LEFT_OUT:]), ""))
            if stiffness is not None:
                there = np.abs(K.mean(axis=0) - 0.15)[steps // 2 :] < 0.1 * (0.33 - 0.15)
                late = STEP * float(np.argmax(there)) if there.any() else np.nan
                rows.append(row(case, f"until a tenth of the change is left, {label}", late, "s"))
    return rows


def _batch() -> list[Row]:
    rows: list[Row] = []
    settings = Settings(determinant=False)
    for name, unknown, runs in (
        ("A", ("stiffness",), 30),
        ("B", ("stiffness",), 30),
        ("B", ("stiffness", "reach"), 30),
    ):
        records = draw(name, 0)
        reach, sd = np.array(SETUP["experiments"][name]["model_reach"]), SETUP["output_sd"]
        model = ElastoSlide(np.full(len(reach), 0.2), reach, STEP, WANDER, unknown=unknown)
        z, errors, seconds, rounds, failed, misfits = [], [], [], [], 0, []
        for u, y, force in zip(records.u[:runs], records.y, records.force, strict=False):
            began = time.perf_counter()
            found = fitted(model, u, y, sd, settings, weight=0.0 if name == "A" else VAGUE)
            seconds.append(time.perf_counter() - began)
            z.append(found[0])
            errors.append(100 * rms((found[1] - force)[LEFT_OUT:]) / rms(force[LEFT_OUT:]))
            rounds.append(found[2].iterations)
            failed += bool(found[2].result != ESTIMATE_RESULTS.successful)
            phi = deflections(u, reach)[LEFT_OUT:]
            rest = force[LEFT_OUT:] - phi @ np.linalg.lstsq(phi, force[LEFT_OUT:], rcond=None)[0]
            misfits.append(100 * rms(rest) / rms(force[LEFT_OUT:]))
        case = f"{name}, {' and '.join(unknown)} unknown, {runs} runs"
        if name == "A":
            K = np.exp(np.array(z)[:, 0])
            rows.append(_against(case, "K, mean", float(K.mean()), 0.33, ""))
            rows.append(row(case, "K, standard deviation of a run", float(K.std()), ""))
        else:
            rows.append(_against(case, "noise-free misfit of the elements", float(np.mean(misfits)), 2.56))
        rows += [
            row(case, "single-run force error, rms over runs", rms(np.array(errors)), "%"),
            row(case, "single-run force error, largest", max(errors), "%"),
            row(case, "runs that did not converge", float(failed), ""),
            row(case, "iterations", float(np.mean(rounds)), ""),
            row(case, "one run", min(seconds), "s", median=float(np.median(seconds))),
            row(case, "the first run, compile", seconds[0], "s"),
        ]
    return rows


def _bouc_wen() -> list[Row]:
    """Third-party simulation of a Bouc-Wen oscillator: elements between its displacement and its force.

    Force is u = m y'' + c y' + k y + sum K_i c_i(y), linear in m, c, k and K for given reaches (evenly spread over the
    amplitude). Both sides are multiplied by window times wave for every frequency of the excitation and integrated, so
    that derivatives fall on the smooth window and none is taken of the record; what is left over is scored.
    """
    folder = os.environ.get("SPOOKAX_DATA")
    file = Path(folder or "") / "boucwen_simulated/multisine_train.csv"
    if not folder or not file.exists():
        print("skipped: SPOOKAX_DATA names no folder with boucwen_simulated/multisine_train.csv (docs/study.md)")
        return []
    _, u, y = np.loadtxt(file, delimiter=",", skiprows=1).T[:3]
    force, motion = _transformed(u)[2], np.column_stack(_transformed(y))
    rows = [row("no elements", "NRMSE of the force", 100 * _misfit(motion, force), "%")]
    m, c, k = TRUE_OSCILLATOR
    left = force - motion @ [m, c, k] - _transformed(_bouc_wen_force(y))[2]
    share = np.linalg.norm(left) / np.linalg.norm(force)
    rows.append(row("the law and the numbers that made the record", "NRMSE of the force", 100 * float(share), "%"))
    for count in COUNTS:
        reach = np.max(np.abs(y)) * np.arange(1, count + 1) / (count + 1)
        elements = np.column_stack([_transformed(d)[2] for d in deflections(y, reach).T])
        both, case = np.column_stack([motion, elements]), f"{count} elements"
        rows.append(row(case, "NRMSE of the force, K positive", 100 * _misfit(both, force, positive=True), "%"))
        rows.append(row(case, "NRMSE of the force, K of either sign", 100 * _misfit(both, force), "%"))
    return rows


def _transformed(y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y'', y' and y, each times sin^4(pi t / T) exp(-i w t), integrated, for every frequency of the excitation."""
    count, rate = len(y), 750.0
    angle, turn = 2 * np.pi * np.arange(count) / count, 2 * np.pi * rate / count
    window = 3 / 8 - np.cos(angle) / 2 + np.cos(2 * angle) / 8
    slope = turn * (np.sin(angle) / 2 - np.sin(2 * angle) / 4)
    bend = turn**2 * (np.cos(angle) / 2 - np.cos(2 * angle) / 2)
    frequency = np.fft.rfftfreq(count, 1 / rate)
    band = (frequency > BAND[0]) & (frequency < BAND[1])
    w = 2 * np.pi * frequency[band]
    plain, by_slope, by_bend = (np.fft.rfft(h * y)[band] for h in (window, slope, bend))
    return by_bend - 2j * w * by_slope - w**2 * plain, 1j * w * plain - by_slope, plain


def _bouc_wen_force(y: np.ndarray, fine: int = 40) -> np.ndarray:
    """z of z' = alpha y' - beta (gamma |y'| z + delta y' |z|) along a displacement, by the midpoint rule."""
    alpha, beta, gamma, delta = 5e4, 1e3, 0.8, -1.1
    path = CubicSpline(np.arange(len(y)), y)
    moves = np.diff(path(np.arange((len(y) - 1) * fine + 1) / fine))

    def change(z: float, dy: float) -> float:
        return alpha * dy - beta * (gamma * abs(dy) * z + delta * dy * abs(z))

    z, out = 0.0, np.zeros(len(y))
    for k, dy in enumerate(moves):
        z += change(z + change(z, dy) / 2, dy)
        if (k + 1) % fine == 0:
            out[(k + 1) // fine] = z
    return out


def _misfit(columns: np.ndarray, wanted: np.ndarray, positive: bool = False) -> float:
    """What linear least squares leave over, relative to what is wanted."""
    columns, wanted = (np.concatenate([np.real(a), np.imag(a)]) for a in (columns, wanted))
    columns = columns / np.linalg.norm(columns, axis=0)
    weights = nnls(columns, wanted)[0] if positive else np.linalg.lstsq(columns, wanted, rcond=None)[0]
    return float(np.linalg.norm(wanted - columns @ weights) / np.linalg.norm(wanted))
