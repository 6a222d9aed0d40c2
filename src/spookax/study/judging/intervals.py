"""Intervals of parameters in their own units: one-sided at a bound, from a profile of the cost, or of a normal law."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..._compiled import on_device
from ...estimation.batch.problem import Fit
from ...estimation.batch.profile import FAR, TAIL, Ends
from ...models import ParameterMap
from ...models.parameters import natural_values, values_and_sd


def intervals(shared: ParameterMap, fit: Fit, profiles: Mapping[int, Ends]) -> dict[str, dict[str, Any]]:
    """Path -> `interval`, which the parameter leaves with 5 % at either end, and its `interval_kind`.

    - `one-sided`: it ended at a bound, which is one end. With it go `at_bound` (lower or upper) and as `sd` the root
      mean square distance from there.
    - `profile`: the ends are where the cost, all else fitted again, has risen by as much as it would there if it were
      a parabola. Infinite where the recordings set no end.
    - `normal`: from the standard deviation, in the coordinate of the search where the parameter has one of its own.
    - `unchecked`: the same where it is large, and no profile was found to tell whether it is right.

    `profiles`: those of the shared parameters that were looked at, by their number in z. What is tied to one unknown
    alone has that one's interval.
    """
    found: dict[str, dict[str, Any]] = {}
    z = np.asarray(fit.iterate.z)
    value, jac = map(np.asarray, natural_values(shared, on_device(z)))
    sd = values_and_sd(shared, z, fit.covariance)[1]
    deviation = np.sqrt(np.diag(fit.covariance))
    lower, upper = shared.bounds()
    for j, path in enumerate(shared.paths):
        (alone,) = np.nonzero(jac[j]) if np.count_nonzero(jac[j]) == 1 else (np.zeros(0, dtype=int),)

        def there(distance: float, i: int, j: int = j) -> float:
            moved = np.where(np.arange(len(z)) == i, z + distance, z)
            return float(np.asarray(natural_values(shared, on_device(moved))[0])[j])

        if not alone.size:
            ends, kind = (value[j] - TAIL * sd[j], value[j] + TAIL * sd[j]), "normal"
        elif reach := fit.reach[i := int(alone[0])]:
            far, typical = there(reach, i), there(np.sign(reach) * deviation[i], i)
            ends, kind = (value[j], far), "one-sided"
            found[path] = {"at_bound": "lower" if far > value[j] else "upper", "sd": abs(typical - float(value[j]))}
        elif i in profiles and profiles[i].kind == "profile":
            ends, kind = (there(profiles[i].below, i), there(profiles[i].above, i)), "profile"
        else:
            z_i, half = float(z[i]), TAIL * deviation[i] if TAIL * deviation[i] < FAR else np.inf
            ahead = np.clip(z_i + half * np.array([-1, 1]), lower[i], upper[i]) - z_i
            unchecked = i in profiles and profiles[i].kind == "unchecked"
            ends, kind = (there(ahead[0], i), there(ahead[1], i)), "unchecked" if unchecked else "normal"
        found[path] = {**found.get(path, {}), "interval": sorted(map(float, ends)), "interval_kind": kind}
    return found
