"""Places of contacts with their forces over time, as plain arrays that need no JAX."""

import dataclasses
from collections.abc import Mapping

import numpy as np

_ARRAYS = ("time", "point", "normal", "gap", "force", "pair")


@dataclasses.dataclass(frozen=True)
class ContactPoints:
    """The places at which surfaces may touch, in every step of a motion.

    A place at which nothing touches in a step has a force of zero; one that no pair has then (an empty slot) the pair
    -1.
    """

    time: np.ndarray  # (steps,) at which the step begins [s]
    point: np.ndarray  # (steps, points, 3) world, in the pose at that time [m]
    normal: np.ndarray  # (steps, points, 3) unit, world, from the second surface to the first
    gap: np.ndarray  # (steps, points) infinite where the surfaces cannot meet at this place [m]
    force: np.ndarray  # (steps, points, 3) on the body of the first surface, world, mean over the step [N]
    pair: np.ndarray  # (steps, points) number in `names`
    names: tuple[tuple[str, str], ...]  # first and second surface of every pair

    @property
    def touches(self) -> np.ndarray:
        """Whether there is a force, (steps, points)."""
        return np.any(self.force != 0, axis=-1)

    def by_pair(self) -> dict[tuple[str, str], np.ndarray]:
        """Of every pair that touches at some time, its normal force and the size of its friction, (steps, 2). [N]

        Normal forces of all places are added up, and so are the vectors of what is across. The pair that presses
        hardest comes first.
        """
        pressed = np.sum(self.force * self.normal, axis=-1)
        across = self.force - pressed[..., None] * self.normal
        found = {}
        for number in np.unique(self.pair[self.touches]).tolist():
            mine = self.pair == number
            friction = np.linalg.norm(np.sum(across * mine[..., None], axis=1), axis=-1)
            found[self.names[number]] = np.column_stack([np.sum(pressed * mine, axis=1), friction])
        return dict(sorted(found.items(), key=lambda item: -float(item[1][:, 0].max())))

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file keeps: the places that touch at some time, and `names` (pairs, 2)."""
        kept = np.any(self.touches, axis=0)
        found = {name: getattr(self, name) for name in _ARRAYS}
        return {n: a if n == "time" else a[:, kept] for n, a in found.items()} | {"names": np.array(self.names)}

    @classmethod
    def from_arrays(cls, found: Mapping[str, np.ndarray]) -> "ContactPoints":
        """The contacts from `arrays`.

        **Raises:** `KeyError` if one is missing.
        """
        names = tuple((str(a), str(b)) for a, b in found["names"])
        time, point, normal, gap, force, pair = (np.asarray(found[name]) for name in _ARRAYS)
        return cls(time, point, normal, gap, force, pair, names)
