"""The frame of Marino and Cicirello (2023), real: from two displacements to the friction of its contact at three loads.

The mass is that of their hammer test; damping and stiffness start there, and are corrected. One load takes no part
at last: law, damping and stiffness are between those of the others. A chart like their figure 19 is drawn in
`docs/figures`.
"""

import os
from pathlib import Path

import numpy as np

from spookax.report.charts import law_chart
from spookax.report.svg import svg
from spookax.study.latent.forward import SUBSTEPS, forward
from spookax.study.latent.laws import SceneLaw
from spookax.study.latent.mechanism import Mechanism, Oscillator
from spookax.study.latent.record import read_records
from spookax.study.latent.run import latent
from spookax.study.latent.section import LatentStudy

from .latent_sweeps import FIGURES
from .measure import Row, row

LOADS = {250: 2.5, 350: 3.5, 550: 5.5}  # disc [g]: normal force [N]
MASS, DAMPING, STIFFNESS = 3.0799, 0.669, 1191.0
SPEEDS = (2e-3, 5e-3, 1e-2, 1.5e-2)


def study(grams: int) -> LatentStudy:
    """Of one load."""
    file = Path(os.environ["SPOOKAX_DATA"]) / f"brass_steel_frame/frame_load_{grams}g.csv"
    data = {
        "spookax": 1,
        "recordings": [
            {"file": str(file), "time": "t", "inputs": {"base": "u_base"}, "sensors": {"displacement": "z_top"}}
        ],
        "latent": {
            "mass": MASS,
            "damping": DAMPING,
            "stiffness": STIFFNESS,
            "correct": ["stiffness", "damping"],
            "law": "stribeck",
        },
    }
    return LatentStudy.model_validate(data)


def run() -> list[Row]:
    """Forward prediction of every load, force over the speed, and of one load that took no part."""
    rows, laws, found, offsets, points = [], {}, {}, {}, []
    for grams, normal in LOADS.items():
        of = f"{normal} N"
        fit = latent(study(grams))
        content = fit.content
        points.append([fit.states[f"contact/mass/points/{name}"] for name in ("speed", "force")])
        (told,) = content["runs"].values()
        laws[grams] = SceneLaw(**content["contacts"]["mass"]["law"]["in_scene"])
        found[grams] = [content["mechanism"]["numbers"][name]["used"] for name in ("damping", "stiffness")]
        offsets[grams] = content["mechanism"]["offset"]
        rows.append(row(of, "NMSE of the prediction", told["prediction_nmse"], "%"))
        rows.append(row(of, "damping", found[grams][0], "N s/m"))
        rows.append(row(of, "stiffness", found[grams][1], "N/m"))
        static = content["contacts"]["mass"]["static_friction"]
        rows.append(row(of, "static friction", static["mean"], "N"))
        rows.append(row(of, "sd of it", static["sd"], "N"))
        for speed in SPEEDS:
            rows.append(row(of, f"friction at {1e3 * speed:g} mm/s", float(_level(laws[grams], np.array(speed))), "N"))
    share = (3.5 - 2.5) / (5.5 - 2.5)
    between = SceneLaw(*(float((1 - share) * a + share * b) for a, b in zip(laws[250], laws[550], strict=True)))
    damping, stiffness = ((1 - share) * a + share * b for a, b in zip(found[250], found[550], strict=True))
    known = Oscillator(Mechanism(MASS, damping, stiffness), base=True)
    (record,) = read_records(study(350))
    seen = known.seen(record)
    start = np.array([record.y[0, 0], float(np.gradient(record.y[:, 0], record.h)[0])])
    scene = known.scene("between", [between], record.h / SUBSTEPS, start)
    for name, offset in (("zeros of its own sensors", offsets[350]), ("zeros as they are", 0.0)):
        [nmse] = forward(scene, known.readings, record, known.loads(known.from_zeros(seen, [offset])), start).nmse
        rows.append(row("3.5 N by the law of the others", f"NMSE of the prediction, {name}", nmse, "%"))
    _drawn(points, laws)
    return rows


def _drawn(points: list[list[np.ndarray]], laws: dict[int, SceneLaw]) -> None:
    """Samples that slide and laws over the speed, of every load."""
    every = np.concatenate([speed for speed, _ in points]), np.concatenate([force for _, force in points])
    speed = np.linspace(0.0, float(np.max(every[0])), 201)
    lines = {f"{LOADS[grams]} N": _level(law, speed) for grams, law in laws.items()}
    chart = law_chart("friction against the speed, three normal forces", "force [N]", every, speed, lines)
    (FIGURES / "latent_frame.svg").write_text(svg(chart), encoding="utf-8")


def _level(law: SceneLaw, speed: np.ndarray) -> np.ndarray:
    return law.coulomb + law.excess * np.exp(-((speed / law.speed) ** law.exponent)) + law.viscous * speed
