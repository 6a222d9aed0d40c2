"""Contact points and forces in the page."""

import json
import re

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from spookax import ContactPoints
from spookax.scene import Scene
from spookax.viewer import BodyPoses, view

STEP = 0.01
SCENE = Scene.model_validate(
    {
        "spookax": 1,
        "bodies": {"ball": {"mass": 1.0, "inertia": [0.1] * 3}},
        "contacts": {
            "surfaces": {"floor": {"type": "plane"}, "ball": {"type": "sphere", "body": "ball", "radius": 0.5}}
        },
    }
)


@pytest.fixture
def poses() -> BodyPoses:
    time = STEP * np.arange(101)
    p_WB = np.stack([0.1 * time, 0 * time, 0.5 + 0 * time], axis=-1)[:, None]
    return BodyPoses(time, p_WB, np.tile([1.0, 0, 0, 0], (101, 1, 1)), ("ball",))


@pytest.fixture
def contacts(poses) -> ContactPoints:
    """A ball that is pressed for the second half of a second, by 3 N and across by 4 N; another place never touches."""
    force = np.zeros((100, 2, 3))
    force[50:, 0] = [4.0, 0.0, 3.0]
    point = poses.p_WB[:-1] - [0, 0, 0.5]
    up = np.tile([0, 0, 1.0], (100, 2, 1))
    pair = np.zeros((100, 2), dtype=int)
    return ContactPoints(
        poses.time[:-1], point.repeat(2, axis=1), up, 0 * force[..., 0], force, pair, (("ball", "floor"),)
    )


def commands(html: str) -> list[dict]:
    (found,) = re.findall(r'<script id="commands" type="application/json">(.*?)</script>', html, re.DOTALL)
    return json.loads(found)


def tracks(html: str, path: str) -> dict[str, np.ndarray]:
    clips = [
        a["clip"] for c in commands(html) if c["type"] == "set_animation" for a in c["animations"] if a["path"] == path
    ]
    (clip,) = clips
    return {t["name"]: np.reshape(t["values"], (len(t["times"]), -1)) for t in clip["tracks"]}


def test_an_arrow_points_along_the_force_from_its_place(poses, contacts):
    """It is as long as the body for the median of forces, here the only one, and not to be seen without a force."""
    found = tracks(view(SCENE, poses, contacts=contacts).html, "/scene/contact forces/force_0")
    late = found[".position"][:, 0] > 0.0501
    turned = Rotation.from_quat(found[".quaternion"][late]).apply([0.0, 1.0, 0.0])
    np.testing.assert_allclose(turned, np.tile([0.8, 0.0, 0.6], (late.sum(), 1)), atol=1e-6)
    np.testing.assert_allclose(found[".scale"][late][:-1, 1], 1.0, rtol=1e-6)
    assert np.all(found[".scale"][found[".position"][:, 0] < 0.0449] < 1e-5)
    np.testing.assert_allclose(found[".position"][late][0, 1:], 0.0, atol=1e-9)


def test_only_places_that_touch_are_drawn(poses, contacts):
    html = view(SCENE, poses, contacts=contacts).html
    marks = {c["path"] for c in commands(html) if c["type"] == "set_object" and "contact forces" in c["path"]}
    assert marks == {f"/scene/contact forces/{part}" for part in ("point_0/ball", "force_0/shaft", "force_0/tip")}


def test_an_arrow_is_never_longer_than_three_bodies(poses, contacts):
    contacts.force[99, 0] *= 1000
    found = tracks(view(SCENE, poses, contacts=contacts).html, "/scene/contact forces/force_0")
    np.testing.assert_allclose(np.max(found[".scale"]), 3.0)


@pytest.mark.parametrize("direction", [[0.0, -1.0, 0.0], [0.0, 1.0, 0.0], [1.0, -1.0, 0.5]])
def test_arrows_point_anywhere(poses, contacts, direction):
    contacts.force[50:, 0] = direction
    found = tracks(view(SCENE, poses, contacts=contacts).html, "/scene/contact forces/force_0")
    turned = Rotation.from_quat(found[".quaternion"][-1]).apply([0.0, 1.0, 0.0])
    np.testing.assert_allclose(turned, direction / np.linalg.norm(direction), atol=1e-6)


def test_the_page_shows_forces_over_time_and_can_hide_them(poses, contacts):
    html = view(SCENE, poses, contacts=contacts).html
    assert '<input id="shown" type="checkbox" checked>' in html
    assert "ball on floor" in html
    assert "arrows: 5 N per metre" in html
    lines = re.findall(r'<polyline.*?points="(.*?)">', html)
    normal, friction = (np.array([[*map(float, p.split(","))] for p in line.split()]) for line in lines)
    np.testing.assert_allclose(normal[-1], [1.0, 0.75])  # friction is the larger force here
    np.testing.assert_allclose(friction[-1], [1.0, 1.0])
    assert np.all(normal[normal[:, 0] < 0.48, 1] == 0)


def test_a_page_without_contacts_has_nothing_to_hide(poses, contacts):
    assert 'id="shown"' not in view(SCENE, poses).html
    contacts.force[:] = 0
    assert "nothing touches" in view(SCENE, poses, contacts=contacts).html


def test_contacts_of_another_time_are_refused(poses, contacts):
    later = BodyPoses(poses.time + 5, poses.p_WB, poses.e_WB, poses.names)
    with pytest.raises(ValueError, match="not those of this motion, which goes from 5 to 6 s"):
        view(SCENE, later, contacts=contacts)
