"""What an estimate knows of its unknowns, in the coordinates of the search: enough to draw mechanisms from it later."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..._typing import Float
from ...estimation.batch.problem import Fit
from ...models import ParameterMap
from ...models.parameters import Free, Tie
from ...scene.expression import Expression
from ...system import System


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """A normal distribution of transformed unknowns z, and the map from them to the numbers of a scene.

    `reach` is not zero for unknowns at a bound, with the sign of the way they may go; of these `covariance` has the
    mean square distance from there on its diagonal. Infinite entries: the recordings say nothing of that unknown.
    """

    shared: ParameterMap
    mean: np.ndarray  # (p,)
    covariance: np.ndarray  # (p, p)
    reach: np.ndarray  # (p,)


def factored(
    covariance: Float[np.ndarray, "p p"], reach: Float[np.ndarray, " p"]
) -> tuple[Float[np.ndarray, "p p"], Float[np.ndarray, " p"]]:
    """What draws are made with: z = mean + root n + one_sided |n| for standard normal n.

    `root` is a factor of the covariance of the unknowns that are at no bound; `one_sided` the standard deviation of the
    others, with the sign of the way they may go. Of what nothing is known both are zero: it stays as found.
    """
    sd = np.sqrt(np.diag(covariance))
    unknown = ~np.isfinite(sd)
    aside = unknown | (reach != 0)
    values, vectors = np.linalg.eigh(np.where(aside[:, None] | aside, 0.0, covariance))
    return vectors * np.sqrt(np.maximum(values, 0.0)), np.sign(reach) * np.where(unknown, 0.0, sd)


def without(covariance: Float[np.ndarray, "p p"], direction: Float[np.ndarray, " p"]) -> Float[np.ndarray, "p p"]:
    """A covariance with nothing left along a direction of length 1, and no square below zero whatever rounding does."""
    known = np.isfinite(np.diag(covariance))
    known = known[:, None] & known
    values, vectors = np.linalg.eigh(np.where(known, covariance, 0.0))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    root = root - np.outer(direction, direction @ root)
    return np.where(known, root @ root.T, covariance)


def posterior_content(shared: ParameterMap, fit: Fit) -> dict[str, Any]:
    """The part `posterior` of `estimate.json`."""
    return {
        "unknowns": [dataclasses.asdict(free) for free in shared.free],
        "ties": [{"path": t.path, "expression": t.expression.text, "known": dict(t.known)} for t in shared.ties],
        "mean": np.asarray(fit.iterate.z).tolist(),
        "covariance": np.asarray(fit.covariance).tolist(),
        "reach": np.asarray(fit.reach, dtype=float).tolist(),
    }


def posterior(content: Mapping[str, Any], system: System) -> Gaussian:
    """The posterior that is in `estimate.json`, for a system that has its unknowns.

    **Raises:** `ValueError` if there is none: the estimate was written by a version that kept none.
    """
    if not (told := content.get("posterior")):
        raise ValueError("the estimate has no `posterior`: an earlier version wrote it. Identify again.")
    free = []
    for unknown in told["unknowns"]:
        start = unknown["start"]
        start = tuple(start) if isinstance(start, list | tuple) else start
        free.append(Free(**{**unknown, "start": start, "parts": tuple(unknown["parts"])}))
    ties = [Tie(t["path"], Expression(t["expression"]), tuple(t["known"].items())) for t in told["ties"]]
    size = len(told["mean"])
    covariance = np.asarray(told["covariance"], dtype=float).reshape(size, size)
    return Gaussian(
        ParameterMap(system, tuple(free), tuple(ties)),
        np.asarray(told["mean"], dtype=float),
        covariance,
        np.asarray(told["reach"], dtype=float),
    )
