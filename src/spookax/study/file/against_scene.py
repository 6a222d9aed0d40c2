"""A study against the scene that it names."""

import difflib
from collections.abc import Iterable, Iterator

from spookax.scene.explain import Finding, Loc, nearest
from spookax.scene.expression import Expression, in_order, tied_values
from spookax.scene.files import SceneError
from spookax.scene.located import Located
from spookax.scene.model import Scene
from spookax.scene.parts import BodyPose, ContactForce, JointPosition, PointPosition, PositionMotor
from spookax.scene.paths import numeric_paths, wholes, with_numbers
from spookax.scene.row_types import row_findings
from spookax.study.file import units as u
from spookax.study.file.bodies import make_way
from spookax.study.file.key_rules import start_findings
from spookax.study.file.read import StudyError
from spookax.study.file.study import Recorded, RecordingSpec, Study
from spookax.study.file.windows import LISTS


def sensor_dimensions(scene: Scene) -> dict[str, tuple[str, ...]]:
    """Sensor -> the dimension of each number that it reads (`read_recording` checks units by them)."""
    dimensions: dict[str, tuple[str, ...]] = {}
    for name, sensor in scene.sensors.items():
        if isinstance(sensor, BodyPose):
            dimensions[name] = (u.LENGTH,) * 3 + (u.ANGLE,) * 3
        elif isinstance(sensor, PointPosition):
            dimensions[name] = (u.LENGTH,) * 3
        elif isinstance(sensor, ContactForce):
            dimensions[name] = (u.FORCE,) * 3
        else:
            turns = scene.free_axes()[sensor.joint].rotational
            if isinstance(sensor, JointPosition):
                dimensions[name] = (u.ANGLE if turns else u.LENGTH,)
            else:
                dimensions[name] = (u.ANGULAR_RATE if turns else u.SPEED,)
    return dimensions


def check_against_scene(study: Study, located: Located, scene: Scene) -> None:
    """Checks that motors, sensors, joints and parameters of the study are in the scene, and where they start.

    `located` is `study.located`; it gives the lines.

    **Raises:** `StudyError` with every problem, each with the nearest name that exists.
    """
    checks = (_row_findings, _parameter_findings, _tie_findings, _noise_findings, _form_findings, _mode_findings)
    _refuse(located, [finding for check in checks for finding in check(study, scene)] + _all_recordings(study, scene))


def input_dimensions(scene: Scene) -> dict[str, tuple[str, ...]]:
    """Motor -> the dimensions that its input may have, where these are not those of any motor: a servo holds a
    position.
    """
    found = {}
    for name, motor in scene.motors.items():
        if isinstance(motor, PositionMotor):
            turns = scene.free_axes()[motor.joint].rotational
            found[name] = (u.ANGLE if turns else u.LENGTH, u.NUMBER, u.VOLTAGE, u.CURRENT)
    return found


def check_recordings(study: Recorded, scene: Scene) -> None:
    """Checks that the recordings of a study suit a scene, whatever its parameters are.

    **Raises:** `StudyError` as `check_against_scene` does.
    """
    _refuse(study.located, _all_recordings(study, scene))


def _refuse(located: Located, found: list[Finding]) -> None:
    if found:
        problems = dict.fromkeys(located.problem(finding) for finding in found)  # windows have the same
        raise StudyError(sorted(problems, key=lambda problem: problem.line))


def _row_findings(study: Study, scene: Scene) -> Iterator[Finding]:
    del study
    for finding in row_findings(scene):
        name = ".".join(map(str, finding.loc))
        yield Finding(("scene",), finding.value, f"{name} of the scene: {finding.message}", finding.cure)


def _all_recordings(study: Recorded, scene: Scene) -> list[Finding]:
    listed = [((key, i), spec) for key in LISTS for i, spec in enumerate(study.listed(key))]
    return [
        Finding((*here, *finding.loc), finding.value, finding.message, finding.cure)
        for here, spec in listed
        for finding in _recording_findings(spec, scene)
    ]


def _recording_findings(recording: RecordingSpec, scene: Scene) -> Iterator[Finding]:
    for section, kind, known in (
        ("inputs", "motor", scene.motors),
        ("sensors", "sensor", scene.sensors),
        ("initial", "axis", scene.free_axes()),
    ):
        for name in getattr(recording, section):
            if name not in known:
                message = f"the scene has no {kind} '{name}'"
                yield Finding((section, name), None, message, nearest(name, known))
    for name, dimension in sensor_dimensions(scene).items():
        columns = recording.sensors.get(name, ())
        if columns and len(columns) != len(dimension):
            message = f"the sensor '{name}' reads {len(dimension)} numbers, got {len(columns)} columns"
            yield Finding(("sensors", name), None, message, f"Write a list of {len(dimension)} columns.")
    for name in recording.offsets:
        if name in scene.sensors and not isinstance(scene.sensors[name], JointPosition):
            message = f"the sensor '{name}' has no zero offset"
            yield Finding(("offsets", name), None, message, "Only joint_position has one; delete this line.")


def _noise_findings(study: Study, scene: Scene) -> Iterator[Finding]:
    density, loc = study.estimator.process_noise.density, ("estimator", "process_noise", "density")
    if not isinstance(density, dict):
        return
    known = list(scene.free_axes())
    for name in density:
        if name not in known:
            message = f"the scene has no axis '{name}'"
            yield Finding((*loc, name), density[name], message, nearest(name, known))
    for name in known:
        if name not in density:
            yield Finding(loc, None, f"the axis '{name}' has no density", f"Add a line for '{name}'.")


def _form_findings(study: Study, scene: Scene) -> Iterator[Finding]:
    along = [joint.along(axis.name) for joint in scene.joints.values() for axis in joint.kind.axes]
    if study.estimator.form == "residual" and any(part.friction.elements for part in along):
        message = "the residual form knows no elasto-slide elements, and the scene has some"
        yield Finding(("estimator", "form"), "residual", message, "Write `simulator`.")
    if study.estimator.form == "residual" and any(isinstance(s, ContactForce) for s in scene.sensors.values()):
        message = "the residual form knows no forces of contacts, and the scene has a sensor of them"
        yield Finding(("estimator", "form"), "residual", message, "Write `simulator`.")


def _parameter_findings(study: Study, scene: Scene) -> Iterator[Finding]:
    values = numeric_paths(scene)
    whole = wholes(scene)
    for path, spec in study.parameters.items():
        loc = ("parameters", path)
        if path in values:
            if spec.start is None:
                yield from start_findings(spec.model_dump(), values[path], loc)
        elif path not in whole:
            yield _no_such_number(loc, path, [*values, *whole])


def _tie_findings(study: Study, scene: Scene) -> Iterator[Finding]:
    """Paths that the scene lacks, and numbers that with the starts are no possible scene."""
    values = numeric_paths(scene)
    ties = {path: Expression(text) for path, text in study.ties.items()}
    missing = False
    for path, tie in ties.items():
        for named in dict.fromkeys((path, *tie.paths)):
            if named not in values:
                missing = True
                found = _no_such_number(("ties", path), named, values)
                yield Finding(found.loc, named, f"the scene has no number '{named}'", found.cure)
    starts = {p: spec.start for p, spec in study.parameters.items() if p in values and spec.start is not None}
    if missing or not (ties or starts):
        return
    unknown = {p for p in values if p in study.parameters or p.rpartition(".")[0] in study.parameters}
    for path in in_order(ties):
        if not unknown.isdisjoint(ties[path].paths):
            unknown.add(path)
            continue
        message = f"nothing in the expression '{ties[path].text}' is unknown"
        remedy = "Name one of the study's parameters in it, or write the number into the scene."
        yield Finding(("ties", path), ties[path].text, message, remedy)
    cure = "Change the expression, or the `start` of what it names." if ties else "Change a `start`, or the scene."
    loc = ("ties",) if ties else ("parameters",)
    try:
        numbers = starts | tied_values(ties, values | starts)
    except ArithmeticError as error:
        yield Finding(loc, None, f"cannot be worked out at the start: {error}", cure)
        return
    try:
        with_numbers(scene, numbers | make_way(scene, numbers))
    except SceneError as error:
        for problem in error.problems:
            yield Finding(loc, None, f"no possible scene at the start: {problem.path} {problem.message}", cure)


def _mode_findings(study: Study, scene: Scene) -> Iterator[Finding]:
    values = numeric_paths(scene)
    for name, mode in study.recursive.modes.items():
        loc = ("recursive", "modes", name, "set")
        unknown = [path for path in mode.set if path not in values]
        yield from (_no_such_number((*loc, path), path, values) for path in unknown)
        if unknown:
            continue
        try:
            with_numbers(scene, mode.set)
        except SceneError as error:
            for problem in error.problems:
                yield Finding(loc, None, f"no possible scene: {problem.path} {problem.message}", problem.cure)


def _no_such_number(loc: Loc, path: str, known: Iterable[str]) -> Finding:
    near = difflib.get_close_matches(path, list(known), n=3, cutoff=0.4)
    cure = f"Nearest: {', '.join(near)}." if near else "Write a path such as bodies.NAME.mass."
    return Finding(loc, None, "the scene has no such number", cure)
