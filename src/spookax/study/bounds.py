"""What an estimate says of parameters that ended at a bound: one-sided intervals in their own units."""

from typing import Any

import numpy as np

from .._compiled import on_device
from ..estimation.problem import Fit
from ..models import ParameterMap
from ..models.parameters import natural_values


def at_bound(shared: ParameterMap, fit: Fit) -> dict[str, dict[str, Any]]:
    """Path -> `at_bound` (lower or upper), `interval` with the bound as one of its ends, and as `sd` the root mean
    square distance from there; also of what is tied to a single such parameter.
    """
    found: dict[str, dict[str, Any]] = {}
    z, reach = on_device(fit.iterate.z), fit.reach
    if not np.any(reach):
        return found
    value, jac = map(np.asarray, natural_values(shared, z))
    for i in np.flatnonzero(reach):
        ahead = np.sign(reach[i]) * np.array([abs(reach[i]), np.sqrt(fit.covariance[i, i])])
        with np.errstate(over="ignore"):
            far, typical = (np.asarray(natural_values(shared, z.at[i].add(d))[0]) for d in ahead)
        for j, path in enumerate(shared.paths):
            if jac[j, i] != 0 and not np.any(np.delete(jac[j], i)):
                lower = far[j] > value[j]
                ends = (value[j], far[j]) if lower else (far[j], value[j])
                found[path] = {
                    "at_bound": "lower" if lower else "upper",
                    "interval": [float(end) for end in ends],
                    "sd": float(abs(typical[j] - value[j])),
                }
    return found
