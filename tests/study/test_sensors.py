"""Every kind of sensor is enough to identify from: poses and points through inverse kinematics, rates alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

import spookax as sx
from spookax.math import rotation
from spookax.scene import Scene
from spookax.study.judging.output import as_read

pytestmark = pytest.mark.timeout(400)

H, STEPS = 5e-3, 512
TIP = [0.1, 0.0, -0.6]
TRUTH = {"bodies.bob.inertia.xx": 0.02, "joints.pin.friction.viscous": 0.02, "motors.drive.gain": 0.5}
START = {"position": 2.0, "rate": 1.0}
SENSORS = {
    "camera": {"type": "body_pose", "body": "bob", "sd": 1e-3},
    "marker": {"type": "point_position", "body": "bob", "at": TIP, "sd": 1e-3},
    "gyro": {"type": "joint_rate", "joint": "pin", "sd": 1e-2},
}
SCENE = {
    "spookax": 1,
    "step": H,
    "bodies": {"bob": {"mass": 1.0, "com": [0, 0, -0.3], "inertia": [0.02, 1, 1]}},
    "joints": {"pin": {"type": "hinge", "child": "bob", "axis": [1, 0, 0], "friction": {"viscous": 0.02}}},
    "motors": {"drive": {"type": "torque", "joint": "pin", "gain": 0.5}},
    "sensors": SENSORS,
    "initial": {"pin": START},
}


@pytest.fixture(scope="module")
def motion():
    """Command and what the three sensors would read; the swing goes over the top, where rotation vectors jump."""
    system, params = sx.build(Scene.model_validate(SCENE))
    u = np.where(H * np.arange(STEPS) % 0.8 < 0.4, 4.0, -4.0)
    states = sx.rollout(system, params, sx.state_from_joints(system, params, {"pin": START}), jnp.asarray(u)[:, None])
    angle, rate = (np.asarray(a) for a in states.joint("pin"))
    e = np.array([np.cos(angle / 2), np.sin(angle / 2), 0 * angle, 0 * angle]).T[:STEPS]
    R = np.asarray(jax.vmap(rotation.matrix)(jnp.asarray(e)))
    turns = np.asarray(jax.vmap(rotation.log)(jnp.asarray(e)))
    assert np.max(np.abs(np.diff(turns[:, 0]))) > 6
    pose = np.column_stack([np.zeros((STEPS, 3)), turns])
    return u, {"camera": pose, "marker": R @ np.array(TIP), "gyro": rate[:STEPS, None]}


def test_a_rotation_vector_is_compared_with_the_nearer_of_its_two():
    """On both sides of half a turn; a missing reading and no rotation leave it as it is."""
    measured = np.array([[1.0, 2, 3, np.pi - 0.01, 0, 0], [1, 2, 3, 0.5, 0, 0], [np.nan] * 6, [0.0] * 6])
    predicted = np.array([[1.0, 2, 3, 0.02 - np.pi, 0, 0], [1, 2, 3, 0.4, 0, 0], [1, 2, 3, -3, 0, 0], [0.0] * 6])
    wanted = predicted.copy()
    wanted[0, 3] = np.pi + 0.02
    np.testing.assert_allclose(as_read(measured, predicted), wanted, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(as_read(measured[:, :1], predicted[:, :1]), predicted[:, :1])


@pytest.mark.slow
def test_each_kind_alone_in_its_recording(tmp_path, rng, motion):
    u, readings = motion
    recordings = []
    for name, clean in readings.items():
        sd, unit = (
            SENSORS[name]["sd"],
            {"camera": ["m"] * 3 + ["rad"] * 3, "marker": ["m"] * 3, "gyro": ["rad/s"]}[name],
        )
        y = clean + sd * rng.normal(size=clean.shape)
        columns = [f"c{i}" for i in range(y.shape[1])]
        head = ",".join(["t [s]", "u [V]", *(f"{c} [{k}]" for c, k in zip(columns, unit, strict=True))])
        table = np.column_stack([H * np.arange(STEPS), u, y])
        np.savetxt(tmp_path / f"{name}.csv", table, delimiter=",", header=head, comments="", fmt="%.17g")
        sensors = {name: columns if len(columns) > 1 else columns[0]}
        recordings.append({"file": f"{name}.csv", "time": "t", "inputs": {"drive": "u"}, "sensors": sensors})
    parameters = {path: {"start": value * (1.5 if i % 2 else 0.5)} for i, (path, value) in enumerate(TRUTH.items())}
    parameters["motors.drive.gain"]["transform"] = "log"
    study = {"spookax": 1, "scene": "scene.yaml", "recordings": recordings, "parameters": parameters}
    study["estimator"] = {"process_noise": {"density": 1e-4, "estimate": False}}
    (tmp_path / "scene.yaml").write_text(yaml.safe_dump(SCENE))
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    found = sx.identify(tmp_path / "study.yaml")
    assert found.status == "converged"
    for path, true in TRUTH.items():
        entry = found.parameters[path]
        assert abs(entry["value"] - true) < 3.5 * entry["sd"], path
        assert entry["sd"] < 0.02 * true, path
    for name in readings:
        assert found.content["runs"][name]["signals"][name]["rms"] < 1.2 * SENSORS[name]["sd"]
