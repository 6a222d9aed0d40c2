"""What was tried of the networks' settings, which the source does not publish, on all forty draws of its table; each is
one departure from `NETWORKS`. `kalman_bucy_settings.NAME` is one of them.
"""

from spookax.estimation.continuous import Schedule

from .kalman_bucy import trials
from .kalman_bucy_methods import NETWORKS, Trial
from .measure import Row

SMALL = {"width": 20, "waves": 12}  # for Jacobians with a column for every weight
SETTINGS = {
    "source": Trial(sizes={"waves": 0, "depth": 3}, schedule=Schedule(data_first=0)),
    "plain_time": Trial(sizes={"waves": 0, "depth": 3}),
    "equations_first": Trial(schedule=Schedule(data_first=0)),
    "even_weights": Trial(weights=(1.0, 1.0, 1.0)),
    "per_second": Trial(per_second=True),
    "wide": Trial(sizes={"width": 80, "depth": 3}),
    "long": Trial(schedule=Schedule(steps=30000, patience=60)),
    "eight_starts": Trial(starts=8),
    "physics_eight_starts": Trial(physics=True, starts=8),
    "physics_long": Trial(physics=True, schedule=Schedule(steps=30000, patience=60)),
    "physics_small": Trial(physics=True, sizes=SMALL),
    "physics_squares": Trial(physics=True, sizes=SMALL, squares=60),
}


def run(part: str = "") -> list[Row]:
    """All settings, after those of the table, or one."""
    asked = {part: SETTINGS[part]} if part else NETWORKS | SETTINGS
    return trials(asked)
