"""Bodies of which only some moments are unknown: what confines these, and what makes way."""

from typing import Any

import numpy as np
import pytest

from spookax.models import Free
from spookax.scene import Scene, get_number
from spookax.study.file.bodies import idle_doubts, idle_moments, in_the_way, make_way, possible
from spookax.study.file.read import read_study
from spookax.study.identifying.estimate import identified_scene

HINGE = {"type": "hinge", "child": "a", "axis": [0, 1, 0]}


def scene(joints: dict[str, Any], inertia: list[float] | None = None) -> Scene:
    """Up to two bodies."""
    names = sorted({joint["child"] for joint in joints.values()})
    bodies = {name: {"mass": 1.0, "inertia": inertia or [0.2, 0.3, 0.4]} for name in names}
    return Scene.model_validate({"spookax": 1, "bodies": bodies, "joints": joints})


QUARTER = [0, 0, np.pi / 2]  # about z: the child's x is the parent's y
SECOND = {"parent": "a", "child": "b"}


@pytest.mark.parametrize(
    ("joints", "idle"),
    [
        ({"one": HINGE}, {"a": "xx zz"}),
        ({"one": HINGE | {"type": "prismatic"}}, {"a": "xx yy zz"}),
        ({"one": HINGE | {"rotation": QUARTER}}, {"a": "yy zz"}),
        ({"one": HINGE | {"axis": [1, 1, 0]}}, {"a": "zz"}),
        ({"one": {"type": "ball", "child": "a"}}, {"a": ""}),
        ({"one": HINGE, "two": HINGE | SECOND}, {"a": "xx zz", "b": "xx zz"}),
        ({"one": HINGE | {"rotation": QUARTER}, "two": HINGE | SECOND | {"axis": [1, 0, 0]}}, {"b": "yy zz"}),
        ({"one": HINGE, "two": HINGE | SECOND | {"axis": [1, 0, 0]}}, {"a": "xx zz", "b": ""}),
        ({"one": HINGE, "two": {"type": "fixed", **SECOND, "rotation": QUARTER}}, {"b": "yy zz"}),
        # a loop: b hangs on a ball as well as on a hinge
        ({"ball": {"type": "ball", **SECOND}, "one": HINGE, "two": HINGE | {"child": "b"}}, {"b": "xx zz"}),
        # written from the body to the world's side
        ({"two": HINGE | {"parent": "b", "child": "a"}, "one": HINGE | {"child": "b"}}, {"a": "xx zz", "b": "xx zz"}),
    ],
    ids=str,
)
def test_moments_about_what_a_body_never_turns_about_are_idle(joints, idle):
    found = idle_moments(scene(joints))
    assert {name: " ".join(found[name]) for name in idle} == idle


def free(**starts: float) -> list[Free]:
    return [Free("bodies.a.mass", 1.0), *(Free(f"bodies.a.inertia.{part}", value) for part, value in starts.items())]


BALL = {"one": {"type": "ball", "child": "a"}}


def test_one_moment_has_the_others_as_bounds():
    assert possible(scene(BALL), free(xx=0.2), ())[1] == Free("bodies.a.inertia.xx", 0.2, lower=0.4 - 0.3, upper=0.7)
    own = [Free("bodies.a.inertia.xx", 0.2, lower=0.15, upper=9.0)]
    assert possible(scene(BALL), own, ())[0] == Free("bodies.a.inertia.xx", 0.2, lower=0.15, upper=0.7)


def test_several_are_searched_over_together():
    mass, both = possible(scene(BALL), free(zz=0.45, xx=0.2), ())
    assert mass == Free("bodies.a.mass", 1.0)
    assert both == Free("bodies.a.inertia", (0.2, 0.3, 0.45), transform="moments", parts=("xx", "zz"))


@pytest.mark.parametrize(
    ("joints", "unknowns", "tied"),
    [
        ({"one": HINGE}, free(yy=0.3), ()),  # the others are idle
        (BALL, free(xx=0.2), ("bodies.a.inertia.yy",)),
        (BALL, [Free("bodies.a.inertia.xx", 0.2, lower=0.1), Free("bodies.a.inertia.yy", 0.2)], ()),
        (BALL, [Free("bodies.a.inertia.xx", 0.2, prior_sd=0.1), Free("bodies.a.inertia.yy", 0.2)], ()),
        (BALL, [Free("bodies.a.inertia.xx", 0.2, transform="identity")], ()),
    ],
    ids=str,
)
def test_what_is_said_of_moments_otherwise_is_kept(joints, unknowns, tied):
    assert possible(scene(joints), unknowns, tied) == tuple(unknowns)


@pytest.mark.parametrize("value", [1e-3, 0.05, 0.3, 0.7, 5.0])
@pytest.mark.parametrize("others", [(0.2, 0.4), (0.1, 0.35)])
def test_idle_moments_make_way(value, others):
    before = scene({"one": HINGE}, [others[0], 0.3, others[1]])
    moved = make_way(before, {"bodies.a.inertia.yy": value})
    fits = abs(others[1] - others[0]) <= value <= sum(others)
    assert bool(moved) is not fits
    after, said = identified_scene(before, {"bodies.a.inertia.yy": value})
    assert after is not None, said
    assert bool(said) is not fits
    assert get_number(after, "bodies.a.inertia.yy") == value
    for path, number in moved.items():
        assert path in said
        assert get_number(after, path) == number


def test_a_plate_stays_as_it_is():
    """Its largest moment is the sum of the others, but for rounding."""
    for inertia in ([0.1, 0.3, 0.2], [0.1, 0.3 * (1 + 5e-10), 0.2]):
        assert not make_way(scene({"one": HINGE}, inertia), {"bodies.a.inertia.yy": inertia[1]})
        assert not make_way(scene({"one": HINGE}, inertia), {"bodies.a.mass": 2.0})


def test_moments_with_effect_never_make_way():
    assert not make_way(scene(BALL), {"bodies.a.inertia.yy": 5.0})
    missing, why = identified_scene(scene(BALL), {"bodies.a.inertia.yy": 5.0})
    assert missing is None
    assert "triangle inequality" in why


def test_unknowns_without_effect_are_named_before_a_fit(tmp_path):
    text = "spookax: 1\nscene: scene.yaml\nrecordings: [{file: a.csv, time: t, sensors: {angle: q}}]\nparameters:\n"
    path, moment = tmp_path / "study.yaml", "bodies.a.inertia"
    path.write_text(f"{text}  {moment}.xx: {{}}\n  {moment}.yy: {{}}\n")
    (doubt,) = idle_doubts(read_study(path, locate=False), scene({"one": HINGE}))
    assert str(doubt).endswith(
        f"study.yaml:5: parameters.{moment}.xx: body 'a' never turns about its x axis, so that this moment has no "
        "effect. Delete this line."
    )
    path.write_text(f"{text}  {moment}.yy: {{}}\n")
    study = read_study(path, locate=False)
    assert not list(idle_doubts(study, scene({"one": HINGE})))
    (line,) = in_the_way(study, scene({"one": HINGE}))
    assert line.startswith(f"{moment}.yy: xx and zz have no effect")
    assert not list(in_the_way(study, scene({"one": HINGE}, [5.0, 0.3, 5.05])))
    assert not list(in_the_way(study, scene(BALL)))
