"""The cost of one linear problem against the number of recordings: it is to be linear."""

import dataclasses

import spookax as sx
from spookax.estimation import Settings
from spookax.estimation.batch.problem import Iterate
from spookax.estimation.batch.simulator_form import Estimator
from spookax.study.file.against_scene import sensor_dimensions
from spookax.study.running.setup import set_up

from .identification import STUDY
from .measure import Row, peak_memory, row, timed

SECONDS = 2.0
COPIES = (1, 2, 4)


def run() -> list[Row]:
    """Rows of one, two and four copies of a cut of the demo's recording."""
    study = sx.load_study(STUDY)
    cut = study.recordings[0].model_copy(update={"stop": SECONDS})
    study = study.model_copy(update={"recordings": [cut]})
    scene = sx.read_scene(study.scene_path)
    setup = set_up(study, scene, sx.read_recordings(study, sensor_dimensions(scene)))
    start = setup.start()
    rows: list[Row] = []
    one = 0.0
    for copies in COPIES:
        samples = setup.problem.samples * copies
        estimator = Estimator(dataclasses.replace(setup.problem, samples=samples), Settings())
        it = Iterate(start.z, start.own * copies, start.paths * copies)
        times = timed(lambda estimator=estimator, it=it: estimator.linear(setup.stages[0], it), budget=4.0)
        one = one or times.processor * 1e3
        over = {"over": copies * one, "to": f"{copies} times one"}
        case = f"{copies} x {SECONDS:g} s"
        rows += [
            row(case, "one linear problem", times.best * 1e3, "ms", median=times.median * 1e3),
            row(case, "one linear problem, processor time of all threads", times.processor * 1e3, "ms", **over),
        ]
    return [*rows, row("all", "peak memory", peak_memory(), "MiB")]
