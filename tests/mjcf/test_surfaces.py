"""Geoms that collide become surfaces that touch in the same pairs, and go back."""

from typing import Any

import jax
import numpy as np
import pytest
from mjcf.models import mujoco, write

from spookax import load, rollout
from spookax.constraints.contact_rows import gaps
from spookax.mjcf import MjcfError, import_mjcf, write_mjcf
from spookax.scene.contacts import joined_bodies, pairs_of

LEGGED = """
<default><geom friction="0.7 .005 .0001"/></default>
<worldbody>
  <geom name="floor" type="plane" size="2 2 .1" pos="0 0 0.1"/>
  <geom name="step" type="box" size=".1 .2 .3" pos="1 0 .1" euler="0 20 0"/>
  <body name="base" pos="0 0 0.5"><freejoint/>
    <geom name="trunk" type="box" size=".2 .1 .05"/>
    <body name="plate" pos="0.3 0 0"><geom name="bumper" type="cylinder" size=".1 .05"/></body>
    <body name="leg" pos=".2 0 0"><joint name="hip" axis="0 1 0"/>
      <geom name="shank" type="capsule" fromto="0 0 0 0 0 -.3" size=".02"/>
      <geom name="foot" type="sphere" size=".03" pos="0 0 -.3" friction="1.2 .005 .0001"/>
    </body>
  </body>
  <body name="ball" pos="2 0 1"><freejoint/><geom name="ball" type="sphere" size=".1"/></body>
</worldbody>
<contact><exclude body1="ball" body2="leg"/></contact>
"""


def contacts_of(scene) -> Any:
    assert scene.contacts is not None
    return scene.contacts


def touching(scene):
    """Friction of every pair of surfaces that touch."""
    contacts, joints = contacts_of(scene), {name: joint.model_dump() for name, joint in scene.joints.items()}
    level = {name: contacts.materials[s.material].friction for name, s in contacts.surfaces.items()}
    return {frozenset(p): max(level[n] for n in p) for p in pairs_of(contacts.model_dump(), joined_bodies(joints))}


def test_the_pairs_are_those_of_mujoco(tmp_path):
    """Everything is moved into everything else: MuJoCo's contacts, with its friction, in a pile of all geoms."""
    imported = import_mjcf(write(tmp_path, LEGGED))
    model = mujoco.MjModel.from_xml_path(str(tmp_path / "model.xml"))
    model.geom_pos[:], model.body_pos[:], model.geom_margin[:] = 0, 0, 10
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_MIDPHASE  # which would look at places of before
    data = mujoco.MjData(model)
    data.qpos[:3] = data.qpos[8:11] = 0
    mujoco.mj_forward(model, data)
    expected = {}
    for contact in data.contact:
        names = frozenset(mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_GEOM, g) for g in contact.geom)
        expected[names] = contact.friction[0]
    assert touching(imported.scene) == pytest.approx(expected)


def test_surfaces_stand_where_the_geoms_do(tmp_path):
    """In the bodies that carry them: what is welded to a body in that one's frame, a free body's in the world's."""
    scene = import_mjcf(write(tmp_path, LEGGED)).scene
    surfaces = contacts_of(scene).surfaces
    assert {name: s.body for name, s in surfaces.items()} == {
        **dict.fromkeys(("floor", "step"), "world"),
        **dict.fromkeys(("trunk", "bumper"), "base"),
        **dict.fromkeys(("shank", "foot"), "leg"),
        "ball": "ball",
    }
    assert surfaces["bumper"].at == pytest.approx((0.3, 0, 0.5))
    assert surfaces["step"].rotation == pytest.approx((0, np.deg2rad(20), 0))
    assert surfaces["step"].size == pytest.approx((0.2, 0.4, 0.6))
    assert (surfaces["shank"].radius, surfaces["shank"].length) == pytest.approx((0.02, 0.3))


def test_margins_are_those_of_mujoco(tmp_path):
    """A ball rests above the floor by both margins, here as there; a `gap` moves nothing. And they go back."""
    ball = '<body pos="0 0 0.13"><freejoint/><geom name="ball" size="0.1" margin="0.01" gap="0.005"/></body>'
    floor = '<geom name="floor" type="plane" size="5 5 1" margin="0.02"/>'
    options = '<option timestep="0.002"/><default><geom solref="0.004 1" solimp="0.99 0.999 0.001"/></default>'
    file = write(tmp_path, f"{options}<worldbody>{floor}{ball}</worldbody>")
    scene = import_mjcf(file).scene
    surfaces = contacts_of(scene).surfaces
    assert (surfaces["floor"].margin, surfaces["ball"].margin) == pytest.approx((0.02, 0.01))
    system, params, state = load(scene)
    height = float(rollout(system, params, state, np.zeros((500, 0))).r[-1, 0, 2])
    assert height == pytest.approx(0.13, abs=1e-5)
    model = mujoco.MjModel.from_xml_path(str(file))
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, 500)
    assert height == pytest.approx(data.qpos[2], abs=2e-4)
    write_mjcf(scene, tmp_path / "again.xml", allow_missing=True)
    again = contacts_of(import_mjcf(tmp_path / "again.xml").scene).surfaces
    assert {name: s.margin for name, s in again.items()} == pytest.approx({"floor": 0.02, "ball": 0.01})


def test_they_go_back(tmp_path):
    """Written and read again: the same surfaces, pairs and friction."""
    scene = import_mjcf(write(tmp_path, LEGGED)).scene
    assert not write_mjcf(scene, tmp_path / "again.xml")
    again = import_mjcf(tmp_path / "again.xml").scene
    assert touching(again) == pytest.approx(touching(scene))
    for name, surface in contacts_of(scene).surfaces.items():
        other = contacts_of(again).surfaces[name]
        assert (other.type, other.body) == (surface.type, surface.body)
        np.testing.assert_allclose(other.at, surface.at, atol=1e-12)
        np.testing.assert_allclose(other.rotation, surface.rotation, atol=1e-12)


FREE = '<body name="{0}"><freejoint/><geom name="{0}" type="sphere" size="0.1" {1}/></body>'


@pytest.mark.parametrize(
    ("first", "second", "extra", "words"),
    [
        ("", "", '<contact><pair geom1="a" geom2="b" margin="0.01"/></contact>', "its margin is 0.01"),
        ('type="ellipsoid" size="0.1 0.2 0.3"', "", "", "ellipsoid on sphere: 1"),
        ("", "", '<contact><pair geom1="a" geom2="b" friction="0.1 0.1 0 0 0"/></contact>', None),
        ('contype="0"', 'contype="0"', "", None),
    ],
)
def test_what_surfaces_do_not_say_is_listed(first, second, extra, words, tmp_path):
    size = 'type="sphere" size="0.1"'
    bodies = FREE.format("a", first) + FREE.format("b", second)
    bodies = bodies.replace(f"{size} type", "type") if "ellipsoid" in first else bodies
    file = write(tmp_path, f"<worldbody>{bodies}</worldbody>{extra}")
    if words is None:
        scene = import_mjcf(file).scene
        assert (scene.contacts is None) == bool(second)
        assert second or touching(scene) == {frozenset("ab"): 0.1}
        return
    with pytest.raises(MjcfError) as refused:
        import_mjcf(file)
    assert any(words in problem.message for problem in refused.value.problems)


def test_friction_that_spins_and_rolls_is_read_and_written(tmp_path):
    """Of the kinds that `condim` switches on."""
    numbers = 'condim="{}" friction="0.8 0.02 0.003"'
    bodies = FREE.format("a", numbers.format(6)) + FREE.format("b", numbers.format(4))
    floor = '<geom name="floor" type="plane" size="1 1 .1" condim="1" friction="0 0 0"/>'
    pairs = '<contact><exclude body1="a" body2="b"/></contact>'
    scene = import_mjcf(write(tmp_path, f"<worldbody>{floor}{bodies}</worldbody>{pairs}")).scene
    assert not write_mjcf(scene, tmp_path / "again.xml")
    for found in (scene, import_mjcf(tmp_path / "again.xml").scene):
        contacts = contacts_of(found)
        materials = [contacts.materials[contacts.surfaces[name].material] for name in ("a", "b")]
        told = [(m.friction, m.spinning_friction, m.rolling_friction) for m in materials]
        np.testing.assert_allclose(told, [(0.8, 0.02, 0.003), (0.8, 0.02, 0.0)], atol=1e-9)


def test_friction_that_is_not_the_larger_of_two_is_listed(tmp_path):
    """Where ab has 2, bc 5 and ac 1, no numbers of three surfaces say so; with 5 of ac they do."""
    bodies = "".join(FREE.format(name, "") for name in "abc")
    pairs = "".join(f'<pair geom1="{a}" geom2="{b}" friction="{mu} {mu} 0 0 0"/>' for a, b, mu in ("ab2", "bc5", "ac5"))
    imported = import_mjcf(write(tmp_path, f"<worldbody>{bodies}</worldbody><contact>{pairs}</contact>"))
    assert touching(imported.scene) == {frozenset("ab"): 2, frozenset("bc"): 5, frozenset("ac"): 5}
    pairs = pairs.replace('geom1="a" geom2="c" friction="5 5', 'geom1="a" geom2="c" friction="1 1')
    with pytest.raises(MjcfError, match=r"'b', 'c'.*its friction is 5, and would be 2"):
        import_mjcf(write(tmp_path, f"<worldbody>{bodies}</worldbody><contact>{pairs}</contact>"))


def test_restitution_is_not_written(tmp_path):
    scene = import_mjcf(write(tmp_path, LEGGED)).scene
    elastic = {name: m.model_copy(update={"restitution": 0.5}) for name, m in contacts_of(scene).materials.items()}
    contacts = contacts_of(scene).model_copy(update={"materials": elastic})
    with pytest.raises(MjcfError, match="`restitution`"):
        write_mjcf(scene.model_copy(update={"contacts": contacts}), tmp_path / "elastic.xml")


PART = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


def test_a_mesh_touches_a_plane_where_mujoco_has_it(tmp_path):
    """The height of the lowest vertex, by the places of ours and by the contacts of MuJoCo."""
    (tmp_path / "part.obj").write_text(PART)
    path = write(
        tmp_path,
        '<asset><mesh name="m" file="part.obj" scale="0.1 0.1 0.1"/></asset><worldbody>'
        '<geom name="floor" type="plane" size="1 1 .1"/><body name="a" pos="0 0 0.2"><freejoint/>'
        '<geom name="part" type="mesh" mesh="m" quat="0.8 0.1 0.3 0.2" gap="1"/></body></worldbody>',
    )
    scene = import_mjcf(path).scene
    system, params, state = load(scene)
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    expected = min(contact.dist for contact in data.contact)
    assert float(gaps(system, params, state.r, state.e).min()) == pytest.approx(expected, abs=1e-7)
    surface = contacts_of(scene).surfaces["part"]
    assert surface.type == "mesh"
    assert not surface.hull


TERRAIN = """<asset><hfield name="t" nrow="3" ncol="4" size="1 .7 .3 .1" elevation="0 1 2 1  3 1 0 2  1 1 4 0"/></asset>
<worldbody><geom name="terrain" type="hfield" hfield="t" pos="0.1 0.2 0.3" euler="3 4 5"/>
<body name="a" pos="0.2 0.3 0.9"><freejoint/><geom name="ball" size="0.12"/></body></worldbody>"""


def test_a_ball_touches_a_height_field_as_deep_as_in_mujoco(tmp_path):
    """At the deepest of MuJoCo's contacts, which are one of every triangle; also after it is written and read."""
    path = write(tmp_path, TERRAIN)
    scene = import_mjcf(path).scene
    again = scene.model_copy(
        update={"bodies": {n: b.model_copy(update={"initial": None}) for n, b in scene.bodies.items()}}
    )
    assert not write_mjcf(again, tmp_path / "again.xml")
    surfaces = [contacts_of(s).surfaces["terrain"] for s in (scene, import_mjcf(tmp_path / "again.xml").scene)]
    for key in ("size", "at", "heights", "rotation"):
        np.testing.assert_allclose(*(getattr(s, key) for s in surfaces), rtol=0, atol=1e-7)
    system, params, state = load(scene)
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    rng, seen, gaps_of = np.random.default_rng(0), 0, jax.jit(gaps, static_argnums=0)
    for _ in range(100):
        at = np.array([0.1, 0.2, 0.5]) + rng.uniform(-0.4, 0.4, 3) * (1, 0.7, 0.4)
        data.qpos[:3] = at
        mujoco.mj_forward(model, data)
        ours = float(np.min(gaps_of(system, params, np.array([at]), state.e)))
        if -0.1 < ours < 0:  # a ball deeper than its centre comes out elsewhere in MuJoCo
            seen += 1
            assert min(contact.dist for contact in data.contact) == pytest.approx(ours, abs=1e-5)
        elif ours > 0:
            assert not data.ncon
    assert seen > 15
