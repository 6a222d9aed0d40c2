import json
import re
import subprocess
import sys
import webbrowser
from html.parser import HTMLParser

import numpy as np
import pytest

from spookax.scene import Scene, read_scene
from spookax.scene.shapes import matrices
from spookax.viewer import BodyPoses, initial_poses, save_html, view


@pytest.fixture
def scene(pytestconfig) -> Scene:
    return read_scene(pytestconfig.rootpath / "scenes" / "cart_pole.yaml")


@pytest.fixture
def motion(scene, rng) -> BodyPoses:
    """Two seconds at 1 kHz that start at 7 s, of a cart that goes far."""
    time = np.arange(2001) / 1000
    rest = initial_poses(scene)
    p_WB = rest.p_WB + np.stack([40 * time, 0 * time, np.sin(time)], axis=-1)[:, None]
    e_WB = rng.standard_normal((time.size, 2, 4))
    return BodyPoses(7 + time, p_WB, e_WB, rest.names)


def drawn(html: str) -> list[dict]:
    """The commands in a page."""
    found = re.findall(r'<script id="commands" type="application/json">(.*?)</script>', html, re.DOTALL)
    assert len(found) == 1
    return json.loads(found[0])


def of_type(html: str, kind: str) -> dict[str, dict]:
    return {command["path"]: command for command in drawn(html) if command["type"] == kind}


def matrix(command: dict) -> np.ndarray:
    return np.reshape(command["matrix"], (4, 4)).T


class Loads(HTMLParser):
    """Whatever a browser would fetch for this page."""

    def __init__(self):
        super().__init__()
        self.addresses: list[str] = []
        self.policy = ""

    def handle_starttag(self, tag, attrs):
        attributes = {key: value or "" for key, value in attrs}
        self.addresses += [attributes[key] for key in ("src", "href", "data", "poster") if attributes.get(key)]
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]


def test_the_page_loads_nothing_from_elsewhere(scene, motion):
    html = view(scene, motion).html
    page = Loads()
    page.feed(html)
    assert page.addresses == ["data:,"]
    assert page.policy.startswith("default-src 'none'; script-src 'unsafe-inline'")
    assert not re.search(r"https?:", page.policy)
    assert set(re.findall(r"https?://[\w.-]+", html)) <= {"http://www.w3.org"}, "only names of XML namespaces"
    assert not re.search(r"@import|url\(\s*['\"]?https?:", html)


def test_a_page_is_written_without_network_server_or_jax(pytestconfig, tmp_path):
    """Audited by the interpreter itself, in a process of its own."""
    scene, page = pytestconfig.rootpath / "scenes" / "pendulum.yaml", tmp_path / "page.html"
    program = f"""
import sys
def refuse(event, args):
    if event in ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system") or event.startswith("socket."):
        raise AssertionError(event)
sys.addaudithook(refuse)
from spookax.scene import read_scene
from spookax.viewer import save_html
loaded = set(sys.modules)
save_html(read_scene({str(scene)!r}), None, {str(page)!r})
late = {{name.split(".")[0] for name in set(sys.modules) - loaded}}
assert not late & {{"zmq", "IPython", "meshcat", "jax"}}, late
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert page.stat().st_size > 500_000  # the viewer is inside


def test_every_body_is_drawn_at_its_first_pose(scene, motion):
    transforms = of_type(view(scene, motion).html, "set_transform")
    for i, name in enumerate(("cart", "pole")):
        X_WB = matrix(transforms[f"/scene/{name}"])
        np.testing.assert_allclose(X_WB[:3, 3], motion.p_WB[0, i], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(X_WB[:3, :3], matrices(motion.e_WB[0, i]), atol=1e-6)


def test_objects_name_their_geometry_material_and_colour(scene):
    objects = of_type(view(scene).html, "set_object")
    assert {"/scene/cart/box_0", "/scene/pole/capsule_0", "/scene/world/joint_rail"} <= set(objects)
    described = [command["object"] for command in objects.values()]
    uuids = [part["uuid"] for d in described for part in (d["object"], *d["materials"], *d["geometries"])]
    assert len(set(uuids)) == len(uuids)
    for d in described:
        assert d["object"]["geometry"] == d["geometries"][0]["uuid"]
        assert d["object"]["material"] == d["materials"][0]["uuid"]
    assert objects["/scene/cart/box_0"]["object"]["materials"][0]["color"] == 0x4477AA


def test_the_animation_follows_the_poses(scene, motion):
    """At most 60 keys a second, seconds from the first pose, quaternions as three.js orders them."""
    html = view(scene, motion).html
    animations = {a["path"]: a["clip"] for c in drawn(html) if c["type"] == "set_animation" for a in c["animations"]}
    assert list(animations) == ["/scene/cart", "/scene/pole"]
    for i, clip in enumerate(animations.values()):
        position, quaternion = clip["tracks"]
        times = np.array(position["times"])
        assert 100 < times.size <= 2 * 60 + 2
        assert (clip["fps"], times[0], times[-1]) == (1, 0.0, 2.0)
        assert quaternion["times"] == position["times"]
        frames = np.round(times * 1000).astype(int)
        np.testing.assert_allclose(
            np.reshape(position["values"], (-1, 3)), motion.p_WB[frames, i], rtol=1e-6, atol=1e-7
        )
        wxyz = motion.e_WB[frames, i]
        np.testing.assert_allclose(np.reshape(quaternion["values"], (-1, 4)), wxyz[:, [1, 2, 3, 0]], atol=1e-6)
    assert "START = 7.0, DURATION = 2.0" in html


def test_a_scene_at_rest_has_no_animation(scene):
    html = view(scene).html
    assert not [command for command in drawn(html) if command["type"] == "set_animation"]
    assert "DURATION = 0.0" in html


def test_all_of_the_motion_fits_into_the_picture(scene, motion):
    """The root transform moves everything that moves into the unit ball, and uses at least half of it."""
    root = matrix(of_type(view(scene, motion).html, "set_transform")["/scene"])
    places = motion.p_WB.reshape(-1, 3) @ root[:3, :3].T + root[:3, 3]
    assert 0.5 < np.linalg.norm(places, axis=1).max() <= 1.0


def test_names_cannot_break_out_of_the_page(scene):
    name = '</title></script><script>alert("x")</script>'
    renamed = {"name": name, "bodies": {name: scene.bodies["cart"]}, "joints": {}, "initial": {}}
    html = view(scene.model_copy(update=renamed)).html
    assert f"/scene/{name}/box_0" in of_type(html, "set_object")
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html


def test_a_page_is_saved_where_asked(scene, tmp_path):
    path = save_html(scene, None, tmp_path / "new" / "folder" / "scene.html")
    assert path == tmp_path / "new" / "folder" / "scene.html"
    assert path.read_text(encoding="utf-8") == view(scene).html


def test_the_browser_opens_the_page_when_asked(scene, monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    view(scene)
    assert not opened
    view(scene, open_browser=True)
    assert re.fullmatch(r"file://.*/scene\.html", opened[0])
    assert len(list(tmp_path.glob("spookax-*/scene.html"))) == 1


def test_notebooks_show_the_page_in_a_frame(scene):
    frame = view(scene)._repr_html_()
    parser = Frame()
    parser.feed(frame)
    assert parser.srcdoc == view(scene).html


class Frame(HTMLParser):
    srcdoc = ""

    def handle_starttag(self, tag, attrs):
        self.srcdoc = dict(attrs)["srcdoc"]
