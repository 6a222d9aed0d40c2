"""The mechanism that a study names, and what of the study does not fit it."""

from collections.abc import Iterator

from spookax.protocol import ModelError
from spookax.scene import Scene, read_scene
from spookax.scene.explain import Finding, nearest
from spookax.scene.parts import JointPosition, JointRate, PositionMotor
from spookax.scene.paths import numeric_paths
from spookax.study.file.against_scene import check_recordings
from spookax.study.file.read import StudyError
from spookax.study.latent.mechanism import AbstractKnown, Mechanism, Oscillator
from spookax.study.latent.of_scene import DRY, OfScene
from spookax.study.latent.scene_correction import untold
from spookax.study.latent.section import LatentStudy


def known_of(study: LatentStudy) -> AbstractKnown:
    """The mechanism of a study.

    **Raises:** `SceneError` for a scene that cannot be read; `StudyError` with all that does not fit it.
    """
    if study.scene is None:
        own, [sensor] = study.latent, study.recordings[0].sensors
        assert own.mass is not None and own.damping is not None and own.stiffness is not None  # noqa: PT018
        return Oscillator(Mechanism(own.mass, own.damping, own.stiffness), sensor, study.base)
    scene = read_scene(study.folder / study.scene)
    check_recordings(study, scene)
    if found := list(_misfits(study, scene)):
        raise StudyError([study.located.problem(finding) for finding in found])
    own, first = study.latent, study.recordings[0]
    try:
        known = OfScene(scene, own.joints, list(first.sensors), list(first.inputs), own.bases, own.correct)
    except ModelError as error:
        message, _, cure = str(error).partition(". ")
        cure = cure or "Take it out of the scene."
        raise StudyError([study.located.problem(Finding(("scene",), study.scene, message, cure))]) from None
    if found := list(untold(known)):
        raise StudyError([study.located.problem(finding) for finding in found])
    return known


def _misfits(study: LatentStudy, scene: Scene) -> Iterator[Finding]:
    free = scene.free_axes()
    for i, joint in enumerate(study.latent.joints):
        if joint not in free:
            yield Finding(("latent", "joints", i), joint, f"the scene has no joint '{joint}'", nearest(joint, free))
    numbers = numeric_paths(scene)
    for i, path in enumerate(study.latent.correct):
        loc = "latent", "correct", i
        if path not in numbers:
            yield Finding(loc, path, f"the scene has no number '{path}'", nearest(path, numbers))
        elif any(f".friction.{key}" in path for key in DRY):
            yield Finding(loc, path, "dry friction is what is sought", "Take it out.")
    inputs = study.recordings[0].inputs
    for i, name in enumerate(study.latent.bases):
        loc, motor = ("latent", "bases", i), scene.motors.get(name)
        if name not in inputs:
            yield Finding(loc, name, f"no recording has an input '{name}'", nearest(name, inputs))
        elif not isinstance(motor, PositionMotor) or motor.max_force is not None or not motor.stiffness > 0:
            message = f"'{name}' is no spring to a base"
            cure = "Name a motor of type `position` with a stiffness and without max_force."
            yield Finding(loc, name, message, cure)
    read = set()
    for name in study.recordings[0].sensors:
        sensor, loc = scene.sensors[name], ("recordings", 0, "sensors", name)
        if not isinstance(sensor, JointPosition | JointRate):
            yield Finding(loc, None, f"'{name}' reads no coordinate of a joint", "Name joint_position or joint_rate.")
            continue
        if sensor.delay or (isinstance(sensor, JointPosition) and sensor.cyclic_error):
            yield Finding(loc, None, f"'{name}' has a delay or a cyclic error", "Take them out of the scene.")
        if isinstance(sensor, JointPosition):
            read.add(sensor.joint)
    if unread := [name for name in free if name not in read]:
        message = f"no sensor reads the position of {', '.join(unread)}"
        cure = "Add a joint_position to the scene and its column to the recordings, or lock the joint (`fixed`)."
        yield Finding(("recordings", 0, "sensors"), None, message, cure)
