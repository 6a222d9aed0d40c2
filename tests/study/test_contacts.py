"""Studies of bodies that touch: where their first trajectories go, and what noisy poses tell of contacts."""

from typing import Any

import jax
import numpy as np
import pytest
import yaml

import spookax as sx
from spookax.math import rotation
from spookax.scene import Scene
from spookax.study.running.setup import set_up

pytestmark = pytest.mark.quick
COLUMNS = ("x", "y", "z", "rx", "ry", "rz")
SD = 5e-4
TABLE = {"type": "plane", "at": [0.0, 0.0, 0.01]}


def slides() -> dict[str, Any]:
    """A box that is pushed along a table."""
    size = [0.1, 0.1, 0.08]
    body = {"mass": 0.4, "inertia": [6e-4, 8e-4, 8e-4], "initial": {"position": [0, 0, 0.05], "velocity": [1, 0.3, 0]}}
    surfaces = {"table": TABLE, "thing": {"type": "box", "body": "thing", "size": size}}
    return _scene(body, surfaces, 0.005, friction=0.2)


def slides_by_a_wall() -> dict[str, Any]:
    """The same, with a slot for the table or for a wall that is far away."""
    scene = slides()
    scene["contacts"]["surfaces"]["wall"] = {"type": "plane", "at": [-3.0, 0.0, 0.0], "rotation": [0.0, np.pi / 2, 0.0]}
    return {**scene, "contacts": {**scene["contacts"], "slots": 1}}


def bounces() -> dict[str, Any]:
    """A ball that falls onto a table."""
    body = {"mass": 0.05, "inertia": [8e-6] * 3, "initial": {"position": [0, 0, 0.5], "velocity": [0.3, 0, 0]}}
    surfaces = {"table": TABLE, "thing": {"type": "sphere", "body": "thing", "radius": 0.02}}
    return _scene(body, surfaces, 0.002, friction=0.3, restitution=0.7)


def _scene(body: dict, surfaces: dict, step: float, **material: float) -> dict[str, Any]:
    return {
        "spookax": 1,
        "step": step,
        "bodies": {"thing": body},
        "contacts": {"materials": {"default": material}, "surfaces": surfaces},
        "sensors": {"pose": {"type": "body_pose", "body": "thing", "sd": SD}},
    }


def study(folder, scene: dict[str, Any], seconds: float, parameters: dict[str, Any]) -> Any:
    """A study of noisy poses of what the scene does, at 200 Hz."""
    system, params, state = sx.load(Scene.model_validate(scene))
    steps, every = round(seconds / scene["step"]), round(0.005 / scene["step"] + 1e-9) or 1
    found = sx.rollout(system, params, state, np.zeros((steps, 0)))
    pose = np.concatenate([found.r[:, 0], jax.vmap(rotation.log)(found.e[:, 0])], axis=1)
    pose = pose + SD * np.random.default_rng(1).normal(size=pose.shape)
    columns = {"t [s]": scene["step"] * np.arange(len(pose))}
    columns |= {f"{c} [{'m' if i < 3 else 'rad'}]": pose[:, i] for i, c in enumerate(COLUMNS)}
    np.savez(folder / "toss.npz", **{name: values[::every] for name, values in columns.items()})
    (folder / "scene.yaml").write_text(yaml.safe_dump(scene))
    recording = {"file": "toss.npz", "time": "t", "sensors": {"pose": list(COLUMNS)}}
    text = {"spookax": 1, "scene": "scene.yaml", "recordings": [recording], "parameters": parameters}
    (folder / "study.yaml").write_text(yaml.safe_dump(text))
    return sx.load_study(folder / "study.yaml"), found


def test_first_trajectories_of_free_bodies_are_where_poses_were_read(tmp_path):
    """Also where the scene starts elsewhere, and where the rotation vector jumps: the box turns more than once."""
    scene = slides()
    scene["bodies"]["thing"]["initial"] = {"position": [0, 0, 2.0], "angular_velocity": [0, 0, 20.0]}
    read, found = study(tmp_path, scene, 0.5, {"contacts.materials.default.friction": {"start": 0.5}})
    setup = set_up(read, sx.read_scene(read.scene_path), sx.read_recordings(read))
    ((path, _),) = setup.plans()
    steps = len(found.r) - 1
    np.testing.assert_allclose(path.x.p[:steps, 0], found.r[:-1, 0], atol=4 * SD)
    turned = np.asarray(jax.vmap(rotation.minus)(path.x.e[:steps, 0], found.e[:-1, 0]))
    assert np.max(np.abs(turned)) < 4 * SD
    np.testing.assert_allclose(path.x.w[:steps, 0], np.broadcast_to([0, 0, 20.0], (steps, 3)), atol=0.5)


CASES = {
    "friction": (slides, 0.8, {"contacts.materials.default.friction": (0.5, 0.2)}),
    "slots": (slides_by_a_wall, 0.8, {"contacts.materials.default.friction": (0.5, 0.2)}),
    "restitution": (
        bounces,
        1.5,
        {"contacts.materials.default.restitution": (0.5, 0.7), "contacts.surfaces.table.at.z": (0.0, 0.01)},
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CASES)
def test_contacts_are_identified_from_noisy_poses_with_defaults(name, tmp_path):
    of, seconds, known = CASES[name]
    read, _ = study(tmp_path, of(), seconds, {path: {"start": start} for path, (start, _) in known.items()})
    estimate = sx.identify(read)
    assert estimate.status == "converged", estimate.message
    for path, (_, truth) in known.items():
        found = estimate.parameters[path]
        assert abs(found["value"] - truth) < 4 * found["sd"]
        assert found["sd"] < 2e-3
    if name == "friction":
        _check_forces(estimate)


def _check_forces(estimate: sx.Estimate) -> None:
    """The table carries the weight of the box, and while it slides friction is what was identified of that."""
    prefix = "toss/contacts/"
    arrays = {key.removeprefix(prefix): a for key, a in estimate.states.items() if key.startswith(prefix)}
    normal, friction = sx.ContactPoints.from_arrays(arrays).by_pair()["thing", "table"].T
    sliding = slice(4, 80)  # a speed of 1 m/s lasts for 0.5 s
    np.testing.assert_allclose(np.mean(normal[sliding]), 0.4 * 9.81, rtol=0.02)
    level = estimate.value("contacts.materials.default.friction")
    np.testing.assert_allclose(np.sum(friction[sliding]), level * np.sum(normal[sliding]), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_force_plate_tells_the_mass_that_poses_do_not(tmp_path):
    """Of the box that slides: friction is known by its poses, and from the forces on the table so is its mass."""
    scene = slides()
    scene["sensors"]["plate"] = {"type": "contact_force", "surface": "table", "sd": 0.05}
    system, params, state = sx.load(Scene.model_validate(scene))
    found = sx.rollout(system, params, state, np.zeros((64, 0)))
    rng = np.random.default_rng(2)
    pose = np.concatenate([found.r[:-1, 0], jax.vmap(rotation.log)(found.e[:-1, 0])], axis=1)
    columns = {"t [s]": found.time[:-1]}
    for names, unit, sd, values in (
        (COLUMNS, ("m", "m", "m", "rad", "rad", "rad"), SD, pose),
        (("fx", "fy", "fz"), ("N",) * 3, 0.05, found.contact_force(system, "table")),
    ):
        noisy = np.asarray(values) + sd * rng.normal(size=np.shape(values))
        columns |= {f"{n} [{u}]": a for n, u, a in zip(names, unit, noisy.T, strict=True)}
    np.savez(tmp_path / "slide.npz", **columns)
    (tmp_path / "scene.yaml").write_text(yaml.safe_dump(scene))
    sensors = {"pose": list(COLUMNS), "plate": ["fx", "fy", "fz"]}
    unknown = {"bodies.thing.mass": {"start": 0.6}, "contacts.materials.default.friction": {"start": 0.3}}
    text = {"spookax": 1, "scene": "scene.yaml", "parameters": unknown}
    text |= {"recordings": [{"file": "slide.npz", "time": "t", "sensors": sensors}]}
    text["estimator"] = {"process_noise": {"kind": "bodies", "density": 1e-3, "estimate": False}, "restarts": 0}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(text))
    estimate = sx.identify(tmp_path / "study.yaml")
    assert estimate.status == "converged", estimate.message
    for path, truth in {"bodies.thing.mass": 0.4, "contacts.materials.default.friction": 0.2}.items():
        of = estimate.parameters[path]
        assert abs(of["value"] - truth) < 4 * of["sd"]
        assert of["sd"] < 0.02 * truth
