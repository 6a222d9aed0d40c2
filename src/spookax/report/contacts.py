"""Charts of the forces between surfaces that touch."""

from collections.abc import Iterable, Mapping

import numpy as np

from .._contact_points import ContactPoints
from .charts import Figure, contact_chart

MOST = 6
"""Pairs that are drawn, those that press hardest; `states.npz` has all."""


def contact_charts(
    prefix: str, runs: Iterable[str], states: Mapping[str, np.ndarray]
) -> dict[str, dict[str, tuple[str, Figure]]]:
    """Run -> name of a chart -> its caption and itself, for runs in which surfaces touch."""
    found = {}
    for r, run in enumerate(runs):
        start = f"{run}/contacts/"
        arrays = {key.removeprefix(start): array for key, array in states.items() if key.startswith(start)}
        if not arrays:
            continue
        contacts, charts = ContactPoints.from_arrays(arrays), {}
        for i, ((first, second), forces) in enumerate([*contacts.by_pair().items()][:MOST]):
            title = f"{first} on {second}"
            caption = f"{run}, {title}: normal force and friction, all places at which they touch together."
            charts[f"{prefix}-{r}-{i}"] = caption, contact_chart(title, contacts.time, forces)
        found[run] = charts
    return found
