"""`spookax check`: everything that can be known to be wrong before anything is computed."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..scene import FileError, FileProblem, Scene, SceneError, read_scene
from ..scene.files import is_study
from ..scene.located import load_located
from ..study.file.against_scene import check_against_scene, input_dimensions, sensor_dimensions
from ..study.file.bodies import idle_doubts, in_the_way
from ..study.file.read import is_latent, read_study
from ..study.latent.record import Record, read_latent, read_records
from ..study.recordings.doubts import angle_doubts, fastest_turn, recording_doubts, step_doubts
from ..study.recordings.recording import Recording, read_recordings
from ..study.recordings.step_size import chosen_step


@dataclass(frozen=True)
class Checked:
    """A file in which nothing is wrong: one line that says what it holds, further ones, and what looks like a slip."""

    summary: str
    lines: list[str]
    doubts: list[FileProblem]


def check_file(path: Path) -> Checked:
    """Check a scene, or a study with its scene and its recordings.

    **Raises:** `FileError` with everything that is wrong, also with the scene and the recordings of a study.
    """
    located = load_located(path)
    if is_latent(located.data):
        return check_latent(path)
    if is_study(located.data):
        return check_study(path)
    scene = _check_scene(path)
    summary = f"{path}: scene '{scene.name}', {_contents(scene)}, step {scene.step:g} s"
    adrift = scene.adrift()
    lines = [f"no joint holds to the world: {', '.join(adrift)}"] if adrift else []
    return Checked(summary, lines, [*step_doubts(scene.step, located), *angle_doubts(scene, located)])


def _check_scene(path: Path) -> Scene:
    """Read a scene; if it has closed loops, assemble them; if it has limits or contacts, see whether it starts within.

    **Raises:** `SceneError`.
    """
    scene = read_scene(path)
    if has_loops(scene) or ((_has_limits(scene) or scene.contacts) and not scene.rows):
        from ..loading import enable_x64, load  # computing starts JAX, which only these need

        enable_x64()
        load(path)
    return scene


def _has_limits(scene: Scene) -> bool:
    along = [joint.along(axis.name).limits for joint in scene.joints.values() for axis in joint.kind.axes]
    return any(limit is not None for limits in along for limit in (limits.lower, limits.upper))


def has_loops(scene: Scene) -> bool:
    """Whether joints close a loop of bodies."""
    group = {name: name for name in ("world", *scene.bodies)}

    def root(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    for joint in scene.joints.values():
        parent, child = root(joint.parent), root(joint.child)
        if parent == child:
            return True
        group[parent] = child
    return False


def check_study(path: Path) -> Checked:
    """Check a study with its scene and its recordings.

    **Raises:** `FileError` with everything that is wrong, also if the file is no study.
    """
    study = read_study(path)
    refused: list[FileError] = []
    scene = None
    try:
        scene = read_scene(study.scene_path)
        if has_loops(scene):
            from ..loading import assemble, enable_x64

            enable_x64()
            assemble(study.scene_path)
    except SceneError as error:
        refused.append(error)
    dimensions = inputs = None
    if scene is not None:
        try:
            check_against_scene(study, study.located, scene)
            dimensions, inputs = sensor_dimensions(scene), input_dimensions(scene)
        except FileError as error:
            refused.append(error)
    recordings, held_back = [], []
    try:
        recordings = read_recordings(study, dimensions, inputs=inputs)
        held_back = read_recordings(study, dimensions, "validate", recordings, inputs)
    except FileError as error:
        refused.append(error)
    if refused:
        raise FileError(problem for error in refused for problem in error.problems)
    assert scene is not None
    of_scene = load_located(study.scene_path)
    step, located, where = study.estimator.step, study.located, ("estimator", "step")
    if step is None:
        step, located, where = chosen_step(study, scene, recordings), of_scene, ("step",)
    # what turns far in too long a step has no cause of its own
    doubts = list(step_doubts(step, located, where)) or [
        *recording_doubts(study, scene, step, recordings),
        *recording_doubts(study, scene, step, held_back, "validate"),
    ]
    doubts += [*angle_doubts(scene, of_scene), *idle_doubts(study, scene)]
    samples = sum(recording.time.size for recording in recordings)
    runs, unknown = _count(len(recordings), "recording"), _count(len(study.parameters), "unknown parameter")
    summary = f"{path}: study of scene '{scene.name}', {unknown}, {runs} with {samples} samples"
    wild = study.estimator.outliers or 0.0
    lines = [*in_the_way(study, scene), *(_duration(scene, r, step, wild) for r in recordings)]
    return Checked(summary, lines + [f"to validate, {_duration(scene, r, step, wild)}" for r in held_back], doubts)


def check_latent(path: Path) -> Checked:
    """Check a study of an unknown force with its recordings.

    **Raises:** `FileError` with everything that is wrong.
    """
    study = read_latent(path)
    if study.scene is not None:
        from ..loading import enable_x64  # to be linear is a matter of computing, which starts JAX

        enable_x64()
    from ..study.latent.known import known_of
    from ..study.latent.of_scene import OfScene

    known = known_of(study)
    scene = known.given if isinstance(known, OfScene) else None
    records, held_back = read_records(study, scene=scene), read_records(study, "validate", scene)
    samples = sum(len(record.y) for record in records)
    of = "an unknown force" if scene is None else f"unknown friction at {', '.join(study.latent.joints)}"
    summary = f"{path}: study of {of}, {_count(len(records), 'recording')} with {samples} samples"
    lines = [f"{r.name}: {length(float(r.time[-1] - r.time[0]), r.h)}{_seen(r)}" for r in records]
    return Checked(summary, lines + [f"to validate, {r.name}: {len(r.y)} samples" for r in held_back], [])


def _seen(record: Record) -> str:
    """What is not as usual about its stamps."""
    missing = int(np.sum(~np.isfinite(record.y).all(axis=1)))
    return ("" if record.even else " on average") + (f", {missing} without a reading" if missing else "")


def _duration(scene: Scene, recording: Recording, step: float, wild: float) -> str:
    duration, rate = float(recording.time[-1] - recording.time[0]), fastest_turn(scene, recording, wild)
    turned = f", {rate * step:.2g} rad in one at the fastest, {rate:.3g} rad/s" if rate else ""
    return f"{recording.name}: {length(duration, step)}{turned}"


def length(duration: float, step: float) -> str:
    """A duration [s] and its number of steps, in words."""
    return f"{duration:g} s, {_count(round(duration / step), 'step')} of {step:g} s"


def _contents(scene: Scene) -> str:
    kinds = (("bodies", "body"), ("joints", "joint"), ("motors", "motor"), ("sensors", "sensor"))
    return ", ".join(_count(len(getattr(scene, section)), word) for section, word in kinds)


def _count(number: int, word: str) -> str:
    plural = {"body": "bodies"}.get(word, f"{word}s")
    return f"{number} {word if number == 1 else plural}"
