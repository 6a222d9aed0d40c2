"""One record, one friction, three ways: the switching Gaussian process that knows no law, the batch method that knows
the form of it, and a network of the speed in the same batch method.

The record is that of `demo/friction`, made with Stribeck's law; mass, damping and stiffness are known to all. Every one
ends in a scene, which is simulated with the load of the record, and of another one.
"""

import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import yaml

import spookax as sx
from spookax.constraints.boxes import dry_friction
from spookax.scene import Scene, write_scene

from .latent_setup import nmse
from .measure import ROOT, Row, row

FOLDER = ROOT / "demo/friction"
MASS, DAMPING, STIFFNESS = 2.0, 4.0, 900.0
COULOMB, EXCESS, FADES = 2.0, 0.5, 0.02  # N, N, m/s: of the scene that made the record
STEP, RATE = 0.0005, 500.0  # s, 1/s
PLACE = "joints.slide.friction"
BATCH = {  # friction of the scene that the search starts from, and its unknown numbers
    "batch, Stribeck's law": (
        {"coulomb": 1.0, "stribeck": {"excess": 0.2, "speed": 0.05}},
        ("coulomb", "stribeck.excess", "stribeck.speed"),
    ),
    "batch, Coulomb's law": ({"coulomb": 1.0}, ("coulomb",)),
    "batch, network": ({"learned": {"force": 1.0, "speed": 0.1}}, ("learned.weights",)),
}


def run() -> list[Row]:
    """Errors of the law over the speeds of the record, of the force along it, of a prediction; processor time."""
    rows: list[Row] = []
    loads = {name: np.genfromtxt(FOLDER / f"{name}.csv", delimiter=",", skip_header=1).T for name in ("train", "test")}
    truth = _simulated(sx.read_scene(FOLDER / "oscillator.yaml"), *loads["train"][:2])
    speed = np.abs(truth["v"][np.abs(truth["v"]) > 1e-3])

    def told(name: str, scene: Scene, seconds: float) -> None:
        level, force = _level(scene, speed), _simulated(scene, *loads["train"][:2])["force"]
        z = _simulated(scene, *loads["test"][:2])["z"]
        true = COULOMB + EXCESS * np.exp(-((speed / FADES) ** 2))
        rows.append(row(name, "law, rms of its error", float(np.sqrt(np.mean((level - true) ** 2))), "N"))
        rows.append(row(name, "level at rest (true 2.5)", float(_level(scene, np.zeros(1))[0]), "N"))
        rows.append(row(name, "level at 0.1 m/s (true 2.0)", float(_level(scene, np.array([0.1]))[0]), "N"))
        rows.append(row(name, "force of a simulation, NMSE", nmse(force, truth["force"]), "%"))
        rows.append(row(name, "prediction of the other record, NMSE", nmse(z, loads["test"][2]), "%"))
        rows.append(row(name, "processor time, programs compiled", seconds, "s"))

    began = time.process_time()
    found = sx.find_force(FOLDER / "study.yaml")
    seconds = time.process_time() - began
    along, sd = (found.states[f"train/mass/{key}"] for key in ("force", "force_sd"))
    name = "switching process"
    rows.append(row(name, "force itself, NMSE", nmse(along, truth["force"]), "%"))
    inside = float(100 * np.mean(np.abs(along - truth["force"]) < 1.645 * sd))
    rows.append(row(name, "samples in its 90 % bands", inside, "%"))
    told(name, found.scene, seconds)
    for name, (friction, unknown) in BATCH.items():
        began = time.process_time()
        scene = _identified(friction, unknown)
        told(name, scene, time.process_time() - began)
    return rows


def _identified(friction: dict, unknown: tuple[str, ...]) -> Scene:
    data = sx.read_scene(FOLDER / "oscillator.yaml").plain()
    data["step"] = STEP
    data["joints"]["slide"]["friction"] = {"viscous": DAMPING} | friction
    recording = {"time": "t", "inputs": {"load": "load"}, "sensors": {"displacement": "y"}}
    study = {
        "spookax": 1,
        "scene": "scene.yaml",
        "recordings": [{"file": str(FOLDER / "train.csv")} | recording],
        "parameters": {f"{PLACE}.{key}": {} for key in unknown},
        "estimator": {"check_half_step": False},
    }
    with tempfile.TemporaryDirectory() as folder:
        write_scene(Scene.model_validate(data), Path(folder) / "scene.yaml")
        (Path(folder) / "study.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
        estimate = sx.identify(sx.load_study(Path(folder) / "study.yaml"))
    print(estimate.status, estimate.message, flush=True)
    assert estimate.scene is not None
    return estimate.scene


def _simulated(scene: Scene, time: np.ndarray, load: np.ndarray) -> dict[str, np.ndarray]:
    """Displacement, velocity and friction at the samples, from rest; loads are straight lines between them."""
    system, params, _ = sx.load(scene)
    h = float(params.step)
    every, steps = round(1.0 / RATE / h), round(float(time[-1]) / h)
    pushed = np.interp((np.arange(steps) + 0.5) * h, time, load)
    state = sx.state_from_joints(system, params, {"slide": {"position": 0.0, "rate": 0.0}})
    found = sx.rollout(system, params, state, jnp.asarray(pushed)[:, None])
    z, v = (np.asarray(a)[:, 0] for a in (found.position, found.rate))
    at = np.interp(np.arange(steps + 1) * h, time, load)
    force = at - DAMPING * v - STIFFNESS * z - MASS * np.gradient(v, h)
    return {"z": z[::every], "v": v[::every], "force": force[::every]}


def _level(scene: Scene, speed: np.ndarray) -> np.ndarray:
    """Friction of the scene that is not the known damping."""
    system, params, _ = sx.load(scene)
    dry = jax.vmap(lambda v: dry_friction(system, params, jnp.zeros(1), v[None], jnp.zeros(1))[0])(jnp.asarray(speed))
    return np.asarray(dry) + (scene.joints["slide"].friction.viscous - DAMPING) * speed
