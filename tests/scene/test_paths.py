"""Numbers of a scene by path: every one can be read, has a unit, and can be changed alone."""

from pathlib import Path

import pytest

from spookax.scene import (
    SceneError,
    UnknownPathError,
    get_number,
    numeric_paths,
    read_scene,
    unit_of,
    with_numbers,
)

SCENE = read_scene(Path(__file__).with_name("full.yaml"))
PATHS = numeric_paths(SCENE)


def test_the_paths_that_studies_use():
    expected = {
        "bodies.arm.mass": (0.3, "kg"),
        "bodies.arm.com.y": (-0.2, "m"),
        "bodies.arm.inertia.xz": (-2e-4, "kg m^2"),
        "joints.shoulder.friction.viscous": (0.02, "N m s/rad"),
        "joints.shoulder.friction.drag": (0.003, "N m s^2/rad^2"),
        "joints.shoulder.friction.coulomb": (0.01, "N m"),
        "joints.shoulder.friction.backward": (1.3, "1"),
        "joints.shoulder.friction.stribeck.excess": (0.005, "N m"),
        "joints.shoulder.friction.stribeck.speed": (0.2, "rad/s"),
        "joints.shoulder.friction.stribeck.exponent": (1.5, "1"),
        "joints.shoulder.spring.stiffness": (0.7, "N m/rad"),
        "joints.shoulder.spring.rest": (0.3, "rad"),
        "joints.shoulder.armature": (1e-4, "kg m^2"),
        "joints.shoulder.at.z": (1.0, "m"),
        "joints.shoulder.child_at.z": (-0.5, "m"),
        "joints.slide.friction.viscous": (0.0, "N s/m"),
        "joints.slide.friction.drag": (0.0, "N s^2/m^2"),
        "joints.slide.friction.coulomb": (0.0, "N"),
        "joints.slide.friction.stribeck.speed": (0.1, "m/s"),
        "joints.slide.spring.stiffness": (0.0, "N/m"),
        "joints.shaft.axes.slide.friction.learned.speed": (0.4, "m/s"),
        "joints.shaft.axes.slide.friction.learned.force": (2.0, "N"),
        "joints.shaft.axes.slide.friction.learned.weights.4": (0.5, "1"),
        "joints.slide.spring.rest": (0.0, "m"),
        "joints.slide.armature": (0.0, "kg"),
        "joints.wrist.at.x": (0.0, "m"),
        "joints.wrist.friction.viscous": (0.05, "N m s/rad"),
        "joints.mount.axes.rz.armature": (0.02, "kg m^2"),
        "joints.wheel.radius": (0.04, "m"),
        "motors.drive.gain": (0.02, "N m/V"),
        "motors.drive.back_emf": (8e-4, "N m s/rad"),
        "motors.push.gain": (35.0, "N/u"),
        "motors.push.bias": (-1.5, "N"),
        "motors.push.cogging.12.5.sin": (-0.2, "N"),
        "sensors.encoder.offset": (0.02, "rad"),
        "sensors.encoder.cyclic_error.8.cos": (1e-3, "rad"),
        "tilt.x": (0.01, "rad"),
        "tilt.y": (-0.02, "rad"),
        "gravity.z": (-9.7, "m/s^2"),
    }
    assert {path: (PATHS[path], unit_of(SCENE, path)) for path in expected} == expected


@pytest.mark.parametrize(
    "path",
    [
        *["step", "regularisation.v_creep", "joints.shoulder.axis.x", "joints.weld.friction.viscous"],
        *["joints.wrist.spring.rest", "joints.wrist.axes.rx.friction.viscous"],
        *["sensors.encoder.sd", "motors.push.back_emf", "initial.shoulder.position", "bodies.arm", "tilt.z"],
    ],
)
def test_what_is_no_parameter(path):
    assert path not in PATHS
    for ask in (get_number, unit_of):
        with pytest.raises(UnknownPathError, match="has no number"):
            ask(SCENE, path)
    with pytest.raises(UnknownPathError):
        with_numbers(SCENE, {path: 1.0})


def test_every_number_can_be_changed_alone():
    for path, value in PATHS.items():
        changed = with_numbers(SCENE, {path: value * 1.001 + 1e-6})
        assert get_number(changed, path) == value * 1.001 + 1e-6
        assert {other: number for other, number in numeric_paths(changed).items() if other != path} == {
            other: number for other, number in PATHS.items() if other != path
        }


def test_changing_nothing_or_back_gives_the_same_scene():
    assert with_numbers(SCENE, {}) == SCENE
    other = with_numbers(SCENE, {"bodies.arm.mass": 5.0, "joints.shoulder.at.x": 2.0})
    assert other != SCENE
    assert SCENE.bodies["arm"].mass == 0.3
    assert with_numbers(other, {"bodies.arm.mass": 0.3, "joints.shoulder.at.x": 0.0}) == SCENE


def test_an_unknown_path_names_the_nearest():
    with pytest.raises(UnknownPathError, match=r"Nearest: joints\.shoulder\.friction\.viscous"):
        get_number(SCENE, "joints.shoulder.friction.viscus")


def test_numbers_that_are_not_physical_are_refused_together():
    bad = {"bodies.arm.mass": -1.0, "bodies.base.inertia.xx": 9.0, "tilt.x": float("nan")}
    with pytest.raises(SceneError) as caught:
        with_numbers(SCENE, bad)
    assert sorted(problem.path for problem in caught.value.problems) == [
        "bodies.arm.mass",
        "bodies.base.inertia",
        "tilt[0]",
    ]
    assert "full: bodies.arm.mass: must be > 0 kg, got -1.0." in str(caught.value)
