"""The step of the parameters between their bounds."""

import numpy as np
from scipy.optimize import lsq_linear


def box_step(N: np.ndarray, g: np.ndarray, lower: np.ndarray, upper: np.ndarray, damping: float) -> np.ndarray:
    """Minimiser of 1/2 d' (N + damping diag N) d - g' d between bounds, as bounded least squares: some numbers of the
    host, for which nothing is compiled. NaN if N or g is not finite.

    A parameter that N says nothing about stays where it is, unless g moves it.
    """
    d, free = np.array(lower, dtype=float), np.asarray(lower < upper)
    if not (np.isfinite(N).all() and np.isfinite(g).all()):
        return np.full_like(d, np.nan)
    if not free.any():
        return d
    rest, g = N[free][:, free], (g - N @ np.where(free, 0.0, d))[free]
    diagonal = np.diagonal(rest)
    D = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    curvature, V = np.linalg.eigh(D[:, None] * rest * D)
    root = np.sqrt(np.maximum(curvature, 0.0) + damping)
    A, b, bounds = root[:, None] * V.T, V.T @ (D * g) / root, (lower[free] / D, upper[free] / D)
    d[free] = D * lsq_linear(A, b, bounds, method="bvls", tol=1e-15, max_iter=10 * g.size).x
    return d
