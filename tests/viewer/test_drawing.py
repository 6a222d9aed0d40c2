import numpy as np
import pytest
import trimesh

from spookax.scene import Scene, read_scene
from spookax.viewer.drawing import Part, parts_of

POSE = {"at": [0.5, -1.0, 2.0], "rotation": [0.4, -1.1, 0.7], "colour": "#cc6677"}
SHAPES = [
    {"type": "box", "size": [0.1, 0.2, 0.3]},
    {"type": "cylinder", "radius": 0.1, "length": 0.7},
    {"type": "capsule", "radius": 0.1, "length": 0.7},
    {"type": "sphere", "radius": 0.2},
]


def scene_with(shape: dict | None, **body) -> Scene:
    body = {"mass": 1.0, "inertia": [1.0, 1.0, 1.0], "shapes": [shape] if shape else []} | body
    return Scene.model_validate({"spookax": 1, "bodies": {"body": body}})


def vertices(part: Part) -> np.ndarray:
    """Vertices in body axes, of three.js's geometry as its documentation describes it."""
    geometry = part.geometry
    match geometry["type"]:
        case "BoxGeometry":
            own = trimesh.creation.box([geometry[key] for key in ("width", "height", "depth")]).vertices
        case "SphereGeometry":
            own = trimesh.creation.uv_sphere(geometry["radius"]).vertices
        case "CylinderGeometry":
            own = trimesh.creation.cylinder(geometry["radiusTop"], geometry["height"]).vertices[:, [1, 2, 0]]  # along y
        case _:
            own = geometry["data"]["attributes"]["position"]["array"].reshape(-1, 3)
    return own @ part.X_BP[:3, :3].T + part.X_BP[:3, 3]


def reference(shape: dict) -> trimesh.Trimesh:
    """The same shape from another library, at its place in the body."""
    match shape["type"]:
        case "box":
            mesh = trimesh.creation.box(shape["size"])
        case "cylinder":
            mesh = trimesh.creation.cylinder(shape["radius"], shape["length"])
        case "capsule":
            mesh = trimesh.creation.capsule(shape["length"], shape["radius"])
        case _:
            mesh = trimesh.creation.uv_sphere(shape["radius"])
    axis, angle = np.array(POSE["rotation"]), np.linalg.norm(POSE["rotation"])
    return mesh.apply_transform(trimesh.transformations.rotation_matrix(angle, axis)).apply_translation(POSE["at"])


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape["type"])
def test_shapes_stand_where_another_library_puts_them(shape):
    """The convex hull is the same, to the coarseness of round faces."""
    parts = parts_of(scene_with(shape | POSE))["body"]
    drawn = trimesh.PointCloud(np.concatenate([vertices(part) for part in parts])).convex_hull
    wanted = reference(shape).convex_hull
    np.testing.assert_allclose(drawn.bounds, wanted.bounds, atol=2e-3)
    np.testing.assert_allclose(drawn.center_mass, wanted.center_mass, atol=2e-3)
    np.testing.assert_allclose(drawn.moment_inertia, wanted.moment_inertia, rtol=0.05, atol=1e-5)
    assert {part.colour for part in parts} == {"#cc6677"}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape["type"])
def test_corners_enclose_a_part_tightly(shape):
    for part in parts_of(scene_with(shape | {"rotation": [0, 0, np.pi / 2]}))["body"]:
        points = vertices(part)
        np.testing.assert_allclose(part.corners.min(axis=0), points.min(axis=0), atol=1e-3)
        np.testing.assert_allclose(part.corners.max(axis=0), points.max(axis=0), atol=1e-3)


def test_a_mesh_is_scaled_and_placed(tmp_path):
    mesh = trimesh.creation.icosphere(radius=20.0)
    mesh.export(tmp_path / "ball.stl")
    (tmp_path / "scene.yaml").write_text(
        "spookax: 1\nbodies:\n  ball:\n    density: 1000\n"
        "    shapes: [{type: mesh, file: ball.stl, scale: 0.001, at: [1, 2, 3]}]\n"
    )
    (part,) = parts_of(read_scene(tmp_path / "scene.yaml"))["ball"]
    np.testing.assert_allclose(np.linalg.norm(vertices(part) - [1, 2, 3], axis=1), 0.02, rtol=1e-5)
    assert part.geometry["data"]["index"]["array"].size == 3 * len(mesh.faces)


def test_a_body_without_shapes_shows_its_mass_and_reaches_its_joints():
    scene = Scene.model_validate(
        {
            "spookax": 1,
            "bodies": {
                "heavy": {"mass": 8.0, "com": [0.5, 0, 0.2], "inertia": [1.0, 1.0, 1.0]},
                "light": {"mass": 1.0, "com": [0, 0.1, 0], "inertia": [1.0, 1.0, 1.0]},
            },
            "joints": {
                "root": {"type": "hinge", "child": "heavy", "child_at": [-0.3, 0.4, 0]},
                "tip": {"type": "ball", "parent": "heavy", "child": "light", "at": [1.0, 0, 0]},
            },
        }
    )
    parts = {body: {part.name: part for part in own} for body, own in parts_of(scene).items()}
    heavy, light = parts["heavy"]["com"], parts["light"]["com"]
    np.testing.assert_allclose(heavy.X_BP[:3, 3], [0.5, 0, 0.2])
    assert heavy.geometry["radius"] == pytest.approx(2 * light.geometry["radius"])  # 8 times the volume
    for rod, joint in (("rod_0", [-0.3, 0.4, 0]), ("rod_1", [1.0, 0, 0])):
        part = parts["heavy"][rod]
        half = part.X_BP[:3, 1] * part.geometry["height"] / 2
        ends = [part.X_BP[:3, 3] + half, part.X_BP[:3, 3] - half]
        np.testing.assert_allclose(ends, [joint, [0.5, 0, 0.2]], atol=1e-12)


def test_a_point_without_extent_can_be_drawn():
    parts = parts_of(scene_with(None))["body"]
    assert all(np.ptp(part.corners, axis=0).min() > 0 for part in parts)


@pytest.mark.parametrize("kind", ["hinge", "prismatic"])
def test_markers_lie_along_the_axes_of_joints(kind):
    joint = {"type": kind, "child": "body", "at": [1, 2, 3], "axis": [1, -2, 2]}
    body = {"mass": 1.0, "inertia": [1.0, 1.0, 1.0]}
    scene = Scene.model_validate({"spookax": 1, "bodies": {"body": body}, "joints": {"j": joint}})
    marker = parts_of(scene)["world"][-1]
    assert marker.name == "joint_j"
    np.testing.assert_allclose(marker.X_BP[:3, 3], [1, 2, 3])
    np.testing.assert_allclose(abs(marker.X_BP[:3, 1] @ [1, -2, 2]), 3.0)  # the cylinder's own axis is y
    np.testing.assert_allclose(np.linalg.det(marker.X_BP), 1.0)
    assert not [part for part in parts_of(scene, joints=False)["world"] if part.name.startswith("joint_")]
