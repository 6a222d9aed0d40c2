"""`spookax check`: everything that can be known to be wrong before anything is computed."""

from pathlib import Path

from ..scene import FileError, Scene, SceneError, read_scene
from ..scene.located import load_located
from ..study.check import check_against_scene, sensor_dimensions
from ..study.read import read_study
from ..study.recording import read_recordings


def check_file(path: Path) -> str:
    """Check a scene, or a study with its scene and its recordings.

    **Returns:** one line that says what the file holds.

    **Raises:** `FileError` with everything that is wrong, also with the scene and the recordings of a study.
    """
    data = load_located(path).data
    if "recordings" in data or "parameters" in data:
        return _check_study(path)
    return f"{path}: scene '{data.get('name', 'scene')}', {_contents(check_scene(path))}"


def check_scene(path: Path) -> Scene:
    """Read a scene; if it has closed loops, assemble them.

    **Raises:** `SceneError`.
    """
    scene = read_scene(path)
    if has_loops(scene):
        from ..loading import enable_x64, load  # computing starts JAX, which only loops need

        enable_x64()
        load(path)
    return scene


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


def _check_study(path: Path) -> str:
    study = read_study(path)
    refused: list[FileError] = []
    scene = None
    try:
        scene = check_scene(study.scene_path)
    except SceneError as error:
        refused.append(error)
    dimensions = None
    if scene is not None:
        try:
            check_against_scene(study, study.located, scene)
            dimensions = sensor_dimensions(scene)
        except FileError as error:
            refused.append(error)
    recordings = []
    try:
        recordings = read_recordings(study, dimensions)
    except FileError as error:
        refused.append(error)
    if refused:
        raise FileError(problem for error in refused for problem in error.problems)
    assert scene is not None
    samples = sum(recording.time.size for recording in recordings)
    runs, unknown = _count(len(recordings), "recording"), _count(len(study.parameters), "unknown parameter")
    return f"{path}: study of scene '{scene.name}', {unknown}, {runs} with {samples} samples"


def _contents(scene: Scene) -> str:
    kinds = (("bodies", "body"), ("joints", "joint"), ("motors", "motor"), ("sensors", "sensor"))
    return ", ".join(_count(len(getattr(scene, section)), word) for section, word in kinds)


def _count(number: int, word: str) -> str:
    plural = {"body": "bodies"}.get(word, f"{word}s")
    return f"{number} {word if number == 1 else plural}"
