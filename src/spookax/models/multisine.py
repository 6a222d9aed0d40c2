"""Random-phase multisines, and the spectrum of waves that a wind raises: loads to excite a mechanism with."""

import numpy as np

from .._typing import AnyArray, Float

_WIDTH_BELOW, _WIDTH_ABOVE = 0.07, 0.09  # of the peak, in shares of its frequency


def jonswap(
    omega: Float[AnyArray, " lines"], height: float = 10.0, period: float = 0.5, peak: float = 3.3
) -> Float[np.ndarray, " lines"]:
    """The JONSWAP spectrum, a density over the angular frequency.

    **Arguments:**

    - `omega`: angular frequencies, positive [rad/s].
    - `height`, `period`: H_s and T_p, size of the waves and period of the peak [s].
    - `peak`: how much higher the peak is than without its factor, 1 or more.

    **Source:** Hasselmann et al. (1973), as Marino and Cicirello (2023) have it in (21).
    """
    omega, top = np.asarray(omega, dtype=float), 2.0 * np.pi / period
    width = np.where(omega <= top, _WIDTH_BELOW, _WIDTH_ABOVE)
    swell = peak ** np.exp(-((1.0 - omega / top) ** 2) / (2.0 * width**2))
    return 320.0 * (height / period**2) ** 2 / omega**5 * np.exp(-1.25 * (top / omega) ** 4) * swell


def multisine(
    time: Float[AnyArray, " k"],
    omega: Float[AnyArray, " lines"],
    density: Float[AnyArray, " lines"],
    rng: np.random.Generator,
) -> Float[np.ndarray, " k"]:
    """A sum of cosines at equally spaced frequencies with phases drawn at random, whose spectrum is `density`.

    **Arguments:** stamps [s]; angular frequencies [rad/s] and the density there [unit² s/rad]; where phases come from.
    """
    omega = np.asarray(omega, dtype=float)
    amplitude = np.sqrt(2.0 * np.asarray(density, dtype=float) * (omega[1] - omega[0]))
    phase = rng.uniform(0.0, 2.0 * np.pi, len(omega))
    kept = amplitude > 1e-9 * np.max(amplitude)
    turn = np.outer(np.asarray(time, dtype=float), omega[kept]) + phase[kept]
    return np.cos(turn) @ amplitude[kept]
