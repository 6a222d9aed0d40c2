"""What a wrong mass, damping or stiffness leaves in the force, and their corrections.

With guesses m^, c^, k^ the force that is found is F_L = f + dm z'' + dc z' + dk z, which is (30), with a = dm / m,

    F_L = (1 - a) f + A_1 z + A_2 z' + A_3 u,   A_3 = a,   A_1 = (1 - a) dk - a k^,   A_2 = (1 - a) dc - a c^.

f itself has the sign of the velocity, and a level that may depend on the speed. Where a base moves, z - u_b and
z' - u_b' stand in place of z and z', there is no A_3 (the mass is not told), and a constant is what wrong zeros of the
sensors add.

**Source:** Marino and Cicirello (2023), equations 27 to 33 and 37, who take the level for a constant.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spookax._typing import Float
from spookax.study.latent.mechanism import Mechanism
from spookax.study.latent.record import Record
from spookax.study.latent.switching_model import Force

_SHARES = (0.1, 0.4)  # of the rms speed, in which a level may fall off


class Correction(NamedTuple):
    """By how much guesses are off, dm, dc and dk, with standard deviations; the constant force that a wrong zero of the
    displacement adds, with its standard deviation [N], and that zero, `offset` [m]; `zeros`: of what reads each base,
    with standard deviations.
    """

    change: dict[str, float]
    sd: dict[str, float]
    constant: float
    constant_sd: float
    offset: float
    zeros: tuple[float, ...] = ()
    zeros_sd: tuple[float, ...] = ()


def correction(
    records: Sequence[Record],
    forces: Sequence[Force],
    places: Sequence[Float[np.ndarray, " p"]],
    phases: Sequence[Float[np.ndarray, " p"]],
    m: Mechanism,
    which: Sequence[str],
    base: bool,
) -> Correction:
    """Least squares over samples of sliding (31); errors within a phase of sliding go together.

    **Arguments:** `places`, `phases`: samples of each record that slide, and the phase that each belongs to; `which`:
    the guesses that may be wrong, all others are right.
    """
    speed = np.sqrt(np.mean(np.concatenate([f.x[at, 1] ** 2 for f, at in zip(forces, places, strict=True)])))
    rows, wanted, phase, names = [], [], [], []
    for number, (record, force, at, own) in enumerate(zip(records, forces, places, phases, strict=True)):
        z, v = force.x[at, 0], force.x[at, 1]
        columns, u = levels(v, speed), record.u[at]
        if base:
            z, v = z - u[:, 0], v - u[:, 1]
        if base or record.sensors[0] != "displacement":
            columns["zero"] = np.ones(len(at))
        columns |= {"stiffness": z, "damping": v, "mass": u[:, 0]}
        kept = {name: c for name, c in columns.items() if name in which or name not in ("stiffness", "damping", "mass")}
        names = list(kept)
        rows.append(np.column_stack(list(kept.values())))
        wanted.append(force.x[at, 2])
        phase.append(own + 1e6 * number)
    X, y, phase = np.concatenate(rows), np.concatenate(wanted), np.concatenate(phase)
    A, covariance = by_phases(X, y, phase)
    place = {name: i for i, name in enumerate(names)}

    def changes(A: np.ndarray) -> np.ndarray:
        of = {name: A[place[name]] if name in place else 0.0 for name in ("stiffness", "damping", "mass")}
        share = 1.0 / (1.0 - of["mass"])
        guess = {"mass": m.mass, "damping": m.damping, "stiffness": m.stiffness}
        found = {name: share * (of[name] + of["mass"] * guess[name]) for name in ("stiffness", "damping")}
        found["mass"] = share * of["mass"] * m.mass  # (32)
        return np.array([float(found[name]) for name in which])

    J = np.array([(changes(A + d) - changes(A - d)) / 2.0 for d in np.diag(1e-4 * np.sqrt(np.diag(covariance)))]).T
    J = J / (1e-4 * np.sqrt(np.diag(covariance)) + 1e-300)
    sd = np.sqrt(np.maximum(np.diag(J @ covariance @ J.T), 0.0))
    constant = constant_sd = 0.0
    if "zero" in place:
        constant, constant_sd = float(A[place["zero"]]), float(np.sqrt(covariance[place["zero"], place["zero"]]))
    change, sds = (dict(zip(which, map(float, a), strict=True)) for a in (changes(A), sd))
    offset, offset_sd = (a / float(m.stiffness) if m.stiffness else 0.0 for a in (constant, constant_sd))
    zeros = ((offset,), (offset_sd,)) if base else ((), ())
    return Correction(change, sds, constant, constant_sd, offset, *zeros)


def levels(v: Float[np.ndarray, " p"], speed: float) -> dict[str, Float[np.ndarray, " p"]]:
    """Columns of a friction that has the sign of the velocity, and a level that may fall off with the speed.

    **Arguments:** `speed`: rms of the velocity.
    """
    sign = np.sign(v)
    return {"level": sign} | {f"fade {s}": sign * np.exp(-((v / (s * speed)) ** 2)) for s in _SHARES}


def by_phases(
    X: Float[np.ndarray, "p n"], y: Float[np.ndarray, " p"], phase: Float[np.ndarray, " p"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n n"]]:
    """Least squares y = X A whose errors go together within a phase: A and its covariance."""
    unit = np.sqrt(np.mean(X**2, axis=0)) + 1e-300
    A, _, _, _ = np.linalg.lstsq(X / unit, y, rcond=1e-10)
    left = y - X / unit @ A
    inverse = np.linalg.pinv((X / unit).T @ (X / unit), rcond=1e-10)
    sums = np.array([(X / unit)[phase == p].T @ left[phase == p] for p in np.unique(phase)])
    covariance = inverse @ (sums.T @ sums) @ inverse * len(sums) / max(len(sums) - 1, 1)
    return A / unit, covariance / np.outer(unit, unit)
