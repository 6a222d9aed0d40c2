"""One friction, one record, three ways to it: regimes of a latent force, formulas by the batch method, a network.

The source's oscillator, five seconds at its noise, with the friction of Dieterich and Ruina, which no scene has. Each
is given mass, damping, stiffness, the load and the same readings, and no law. The laws that they find are simulated by
the engine from the same start, along the record and for the five seconds after it. A chart is drawn in `docs/figures`.
"""

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax.report.charts import law_chart
from spookax.report.svg import svg
from spookax.scene import Scene
from spookax.study.file.study import Study
from spookax.study.latent.laws import Law
from spookax.study.latent.run import LatentFit, latent
from spookax.study.latent.section import LatentStudy

from .latent_setup import DAMPING, MASS, STIFFNESS, nmse
from .latent_sweeps import FASTEST, FIGURES, LENGTH, NOISE, RATE, Truth, law, truth
from .measure import Row, row

EVERY = FASTEST // RATE
STEP = 1.0 / FASTEST  # of the engine [s]
BATCH = {  # friction of the scene to begin with, and what is sought of it
    "Coulomb's law, batch": ({"coulomb": 0.5}, ("coulomb",)),
    "Stribeck's law, batch": (
        {"coulomb": 0.5, "stribeck": {"excess": 0.1, "speed": 0.05}},
        ("coulomb", "stribeck.excess", "stribeck.speed"),
    ),
    "network, batch": ({"learned": {"force": 0.5, "speed": 0.1}}, ("learned.weights",)),
}


class Found(NamedTuple):
    """A scene with the law that was found, and that law: its level over the speed, at rest with standard deviation."""

    scene: Scene
    level: Callable[[np.ndarray], np.ndarray]  # [N], of speeds [m/s]
    static: tuple[float, float]  # [N]


def run() -> list[Row]:
    """Force, law, static friction, prediction and time of each."""
    made = truth()
    at = EVERY * np.arange(round(LENGTH * RATE) + 1)
    y = made.z[at] + NOISE * np.random.default_rng(0).normal(size=len(at))
    speed = np.linspace(0.0, float(np.quantile(np.abs(made.v[at]), 0.95)), 201)
    rows = [row("the truth", "static friction", float(law(jnp.zeros(()))), "N")]
    curves = {"truth": np.asarray(law(jnp.asarray(speed)))}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "run.csv"
        lines = [f"{t:.4f},{u:.9g},{z:.9g}" for t, u, z in zip(at / FASTEST, made.u[at], y, strict=True)]
        file.write_text("\n".join(["t [s],u [N],y [m]", *lines, ""]), encoding="utf-8")
        fit, seconds = _timed(lambda: _by_regimes(file))
        own = {name.removeprefix("run/mass/"): a for name, a in fit.states.items()}
        wrong = float(100 * np.mean((own["sticks"] > np.maximum(own["slides"], own["jumps"])) != made.sticks[at]))
        rows += [
            row("latent force", "force, NMSE", nmse(own["force"], made.force[at]), "%"),
            row("latent force", "regime error", wrong, "%"),
        ]
        found = {"law of the latent force": (_law_of(fit), seconds)}
        for name in BATCH:
            estimate, seconds = _timed(lambda name=name: _by_batch(file, name))
            print(name, estimate.status, estimate.content["trust"]["reasons"], flush=True)
            found[name] = _formula_of(estimate), seconds
    for name, (one, seconds) in found.items():
        rows += _scores(name, one, made, at, speed)
        rows.append(row(name, "processor time, with compiling", seconds, "s"))
        curves[name.removesuffix("'s law, batch").removesuffix(", batch").removeprefix("law of the ")] = one.level(
            speed
        )
    slides = fit.states["contact/mass/points/speed"], fit.states["contact/mass/points/force"]
    chart = law_chart("friction against the speed", "force [N]", slides, speed, curves)
    (FIGURES / "latent_methods.svg").write_text(svg(chart), encoding="utf-8")
    return rows


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What is found, and the processor time that it took [s]."""
    began = time.process_time()
    return call(), time.process_time() - began


def _by_regimes(file: Path) -> LatentFit:
    """`spookax latent`."""
    data = {
        "spookax": 1,
        "recordings": [{"file": str(file), "time": "t", "inputs": {"force": "u"}, "sensors": {"displacement": "y"}}],
        "latent": {"mass": MASS, "damping": DAMPING, "stiffness": STIFFNESS},
    }
    return latent(LatentStudy.model_validate(data))


def _by_batch(file: Path, name: str) -> sx.Estimate:
    """`spookax identify`: everything but the friction is known."""
    friction, sought = BATCH[name]
    data = {
        "spookax": 1,
        "name": "oscillator",
        "step": STEP,
        "bodies": {"mass": {"mass": MASS, "inertia": [0.01, 0.01, 0.01]}},
        "joints": {
            "slide": {
                "type": "prismatic",
                "child": "mass",
                "axis": [1, 0, 0],
                "spring": {"stiffness": STIFFNESS},
                "friction": {"viscous": DAMPING, **friction},
            }
        },
        "motors": {"load": {"type": "torque", "joint": "slide", "gain": 1.0}},
        "sensors": {"displacement": {"type": "joint_position", "joint": "slide", "sd": 1e-5}},
    }
    study = {
        "spookax": 1,
        "scene": "scene.yaml",
        "recordings": [{"file": str(file), "time": "t", "inputs": {"load": "u"}, "sensors": {"displacement": "y"}}],
        "parameters": {f"joints.slide.friction.{key}": {} for key in sought},
    }
    return sx.identify(Study.model_validate(study), scene=Scene.model_validate(data))


def _law_of(fit: LatentFit) -> Found:
    """The law that fits the latent force best, and the scene that has it or the nearest one."""
    told = fit.content["contacts"]["mass"]
    best, static = told["law"], told["static_friction"]
    level = Law(best["kind"], best["parameters"], best["sd"], np.zeros(0), 0.0).level
    return Found(fit.scene, level, (static["mean"], static["sd"]))


def _formula_of(estimate: sx.Estimate) -> Found:
    """The law of an identified scene."""
    scene, learned = estimate.scene, estimate.content["friction"].get("slide")
    assert scene is not None
    if learned is not None:
        speeds = np.array(learned["speed"])
        dry = np.array(learned["level"]) - DAMPING * speeds
        return Found(scene, lambda v: np.interp(v, speeds, dry), (float(dry[0]), learned["sd"][0]))
    own, matrix = scene.joints["slide"].friction, np.array(estimate.content["correlation"]["matrix"])
    sd = np.array([told["sd"] for told in estimate.parameters.values()])
    rest = np.array([not path.endswith("speed") for path in estimate.parameters]) * sd
    excess, speed = (own.stribeck.excess, own.stribeck.speed) if own.stribeck else (0.0, 1.0)

    def level(v: np.ndarray) -> np.ndarray:
        return own.coulomb + excess * np.exp(-((v / speed) ** 2))

    return Found(scene, level, (own.coulomb + excess, float(np.sqrt(rest @ matrix @ rest))))


def _scores(name: str, found: Found, made: Truth, at: np.ndarray, speed: np.ndarray) -> list[Row]:
    """The law beside the truth, and what the engine makes of it from the true start."""
    z, force = _simulated(found.scene, made)
    later = at[-1] + at[1:]
    off = found.level(speed[1:]) - np.asarray(law(jnp.asarray(speed[1:])))
    value, sd = found.static
    return [
        row(name, "force simulated along the record, NMSE", nmse(force[at], made.force[at]), "%"),
        row(name, "rms error of the law over the speeds", float(np.sqrt(np.mean(off**2))), "N"),
        row(name, "static friction", value, "N"),
        row(name, "sd of it", sd, "N"),
        row(name, "displacement along the record, NMSE", nmse(z[at], made.z[at]), "%"),
        row(name, "displacement in the five seconds after it, NMSE", nmse(z[later], made.z[later]), "%"),
    ]


def _simulated(scene: Scene, made: Truth) -> tuple[np.ndarray, np.ndarray]:
    """Displacement [m] and dry friction [N] at the times of the truth, under the load as it was sampled."""
    steps = 2 * round(LENGTH * FASTEST)
    times, known = np.arange(steps + 1) / FASTEST, EVERY * np.arange(steps // EVERY + 1)
    start = {"slide": {"position": float(made.z[0]), "rate": float(made.v[0])}}
    system, params = sx.build(scene)
    load = np.interp(times[:-1] + 0.5 / FASTEST, times[known], made.u[known])
    found = sx.rollout(system, params, sx.state_from_joints(system, params, start), jnp.asarray(load[:, None]))
    z, v = np.asarray(found.position[:, 0]), np.asarray(found.rate[:, 0])
    viscous = DAMPING * v + STIFFNESS * z
    return z, made.u[: steps + 1] - viscous - MASS * np.gradient(v, 1.0 / FASTEST)
