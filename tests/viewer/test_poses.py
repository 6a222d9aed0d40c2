import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from scipy.spatial.transform import Rotation

from spookax.scene import Scene, read_scene
from spookax.scene.shapes import matrices
from spookax.stepping import state_from_joints
from spookax.system import build
from spookax.viewer import BodyPoses, initial_poses
from spookax.viewer.poses import poses_of, quaternions

ROUND = {"mass": 1.0, "com": (0.1, -0.2, 0.3), "inertia": [1.0, 1.0, 1.0]}
EVERY_JOINT = """
spookax: 1
bodies:
  first: &round {mass: 1.0, com: [0.1, -0.2, 0.3], inertia: [1.0, 1.0, 1.0]}
  second: *round
  third: *round
  fourth: *round
  loose: *round
  on_loose: *round
joints:   # the tree reaches `second` before `first`, which is its parent
  slide: {type: prismatic, parent: first, child: second, axis: [1, 2, -1], at: [0, 0.2, 0],
    rotation: [1, 0, 0]}
  turn: {type: hinge, child: second, axis: [0, -1, 0.5], at: [1, 0, 0], child_at: [0, 0, 0.4]}
  ball: {type: ball, parent: first, child: third, rotation: [0.1, 0.2, -0.3]}
  weld: {type: fixed, parent: third, child: fourth, rotation: [0, 3.1, 0], at: [0, 0, 1]}
  hook: {type: hinge, parent: loose, child: on_loose, rotation: [0.3, 0, 0], at: [0, 1, 0]}
initial: {slide: {position: 0.3}, turn: {position: 2.0}, hook: {position: -4.0}}
"""


@pytest.fixture
def three_bodies() -> Scene:
    return Scene.model_validate({"spookax": 1, "bodies": dict.fromkeys(("a", "b", "c"), ROUND)})


def random_poses(rng, times=50, names=("a", "b", "c"), rate=100.0) -> BodyPoses:
    e = rng.standard_normal((times, len(names), 4))
    return BodyPoses(np.arange(times) / rate, rng.standard_normal((times, len(names), 3)), e, names)


def test_matrices_agree_with_another_library(rng):
    e = rng.standard_normal((200, 4))
    e /= np.linalg.norm(e, axis=1, keepdims=True)
    np.testing.assert_allclose(matrices(e), Rotation.from_quat(e, scalar_first=True).as_matrix(), atol=1e-14)


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1.0, 3.1, np.pi])
def test_quaternions_undo_matrices(rng, angle):
    axes = np.concatenate([rng.standard_normal((50, 3)), np.eye(3), -np.eye(3)])
    R = Rotation.from_rotvec(angle * axes / np.linalg.norm(axes, axis=1, keepdims=True)).as_matrix()
    np.testing.assert_allclose(matrices(quaternions(R)), R, atol=1e-14)


def test_the_centre_of_mass_lies_where_the_state_says(rng, three_bodies):
    r, e = rng.standard_normal((5, 3, 3)), rng.standard_normal((5, 3, 4))
    e /= np.linalg.norm(e, axis=-1, keepdims=True)
    poses = BodyPoses.from_states(three_bodies, np.arange(5), r, e)
    turn = Rotation.from_quat(e.reshape(-1, 4), scalar_first=True)
    centres = poses.p_WB + turn.apply(ROUND["com"]).reshape(5, 3, 3)
    np.testing.assert_allclose(centres, r, atol=1e-14)


def test_one_state_is_one_pose(rng, three_bodies):
    r, e = rng.standard_normal((3, 3)), rng.standard_normal((3, 4))
    assert BodyPoses.from_states(three_bodies, 2.5, r, e).time.tolist() == [2.5]


def test_states_of_another_mechanism_are_refused(rng, three_bodies):
    with pytest.raises(ValueError, match="has 3 bodies"):
        BodyPoses.from_states(three_bodies, np.arange(5), np.zeros((5, 2, 3)), np.zeros((5, 2, 4)))
    with pytest.raises(ValueError, match="bodies p, q, r, the scene has a, b, c"):
        poses_of(three_bodies, random_poses(rng, names=("p", "q", "r")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time": np.zeros(4)}, "must be finite and increase"),
        ({"time": np.array([0.0, 1.0, np.nan, 3.0])}, "must be finite and increase"),
        ({"time": np.arange(3.0)}, "got"),
        ({"e_WB": np.zeros((4, 1, 4))}, "length zero"),
        ({"p_WB": np.zeros((4, 2, 3))}, "got"),
    ],
)
def test_arrays_that_cannot_be_poses_are_refused(change, message):
    good = {"time": np.arange(4.0), "p_WB": np.zeros((4, 1, 3)), "e_WB": np.ones((4, 1, 4)), "names": ("a",)}
    BodyPoses(**good)
    with pytest.raises(ValueError, match=message):
        BodyPoses(**(good | change))


def test_a_motion_that_failed_is_shown_until_then(rng, three_bodies):
    poses = random_poses(rng)
    poses.p_WB[30, 1, 2] = np.inf
    poses.e_WB[31, 0] = np.nan
    shown = poses_of(three_bodies, poses)
    np.testing.assert_array_equal(shown.time, poses.time[:30])
    with pytest.raises(ValueError, match="first pose is not finite"):
        poses[30:].until_failure()


@pytest.mark.parametrize("rate", [61.0, 200.0, 1000.0])
def test_thinning_keeps_at_most_sixty_poses_a_second_and_both_ends(rng, rate):
    poses = random_poses(rng, times=3001, rate=rate)
    duration = poses.time[-1]
    thin = poses.thinned(60.0)
    assert thin.time[0] == 0
    assert thin.time[-1] == duration
    assert 30 * duration < thin.time.size <= 60 * duration + 2
    same = np.searchsorted(poses.time, thin.time)
    np.testing.assert_array_equal(thin.p_WB, poses.p_WB[same])


@pytest.mark.parametrize("rate", [1.0, 30.0, 60.0])
def test_thinning_leaves_slow_motion_alone(rng, rate):
    poses = random_poses(rng, rate=rate)
    np.testing.assert_array_equal(poses.thinned(60.0).time, poses.time)


def test_initial_poses_agree_with_the_engine():
    """The engine assembles the same mechanism by its own forward kinematics."""
    scene = Scene.model_validate(yaml.safe_load(EVERY_JOINT))
    system, params = build(scene)
    joints = {name: {"position": jnp.asarray(start.position)} for name, start in scene.initial.items()}
    assembled = poses_of(scene, jax.jit(functools.partial(state_from_joints, system))(params, joints))
    drawn = initial_poses(scene)
    np.testing.assert_allclose(drawn.p_WB, assembled.p_WB, atol=1e-12)
    np.testing.assert_allclose(matrices(drawn.e_WB), matrices(assembled.e_WB), atol=1e-12)


def test_a_loop_that_the_file_closes_is_drawn_closed(pytestconfig):
    """The joint points of crank, coupler, rocker and ground meet, also where the tree was cut."""
    scene = read_scene(pytestconfig.rootpath / "scenes" / "four_bar.yaml")
    poses = initial_poses(scene)
    R = dict(zip(poses.names, matrices(poses.e_WB[0]), strict=True)) | {"world": np.eye(3)}
    p = dict(zip(poses.names, poses.p_WB[0], strict=True)) | {"world": np.zeros(3)}
    assert len(scene.joints) > len(scene.bodies), "no loop"
    for joint in scene.joints.values():
        ends = p[joint.parent] + R[joint.parent] @ joint.at, p[joint.child] + R[joint.child] @ joint.child_at
        np.testing.assert_allclose(*ends, atol=1e-6)
