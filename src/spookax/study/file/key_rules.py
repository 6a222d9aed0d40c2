"""What the keys of a study file must fulfil together.

The rules read the raw data of the file and pass over what has a wrong type, so that they report even
when the schema fails elsewhere.
"""

import graphlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeGuard, get_args

from spookax.scene.explain import Finding, Loc, nearest
from spookax.scene.expression import CURE, Expression, ExpressionError, in_order
from spookax.scene.fields import is_number
from spookax.scene.located import dotted

Transform = Literal["log", "sinh", "identity", "box", "inertia", "network"]
Rule = Literal["extended", "unscented", "ensemble"]

DATASET_FILE = re.compile(r"[^/]+/[^/]+")
"""A file of a public data set: NAME/FILE."""

_JOINT = r"joints\.[^.]+\.(axes\.[^.]+\.)?"
_POSITIVE = re.compile(
    r"bodies\.[^.]+\.(mass|inertia\.(xx|yy|zz))"
    rf"|{_JOINT}(friction\.(backward|stribeck\.speed|learned\.(speed|force)|elements\.\d+\.(stiffness|reach))|spring\.stiffness|length|radius)"
    r"|motors\.[^.]+\.(stiffness|max_force)"
    r"|contacts\.surfaces\.[^.]+\.(radius|length|size\.[xyz])"
)
_MAYBE_ZERO = re.compile(
    rf"{_JOINT}(friction\.(viscous|drag|coulomb|bearing|stribeck\.excess)|armature)"
    r"|motors\.[^.]+\.(back_emf|damping|delay)|sensors\.[^.]+\.delay"
    r"|contacts\.materials\.[^.]+\.friction"
    r"|bodies\.[^.]+\.air\.(turning\.)?(viscous|drag)"
)
_WHOLES: dict[str, Transform] = {
    r"bodies\.[^.]+\.inertia": "inertia",
    r"joints\.[^.]+\.(axes\.[^.]+\.)?friction\.learned\.weights": "network",
}


def _of_whole(path: str) -> Transform | None:
    """The transform of what is unknown as a whole."""
    return next((transform for pattern, transform in _WHOLES.items() if re.fullmatch(pattern, path)), None)


def default_transform(path: str) -> Transform:
    """`inertia` for a whole inertia, `network` for all weights of a network, `log` for what is positive, `sinh` for
    what may be zero, `identity` for the rest.
    """
    if whole := _of_whole(path):
        return whole
    if _MAYBE_ZERO.fullmatch(path):
        return "sinh"
    return "log" if _POSITIVE.fullmatch(path) else "identity"


def default_name(recording: Mapping[str, Any]) -> str | None:
    """Name of a run that is given none: its file's name without the ending."""
    file = recording.get("file") or recording.get("dataset")
    return Path(file).stem if isinstance(file, str) else None


def study_rules(data: Any, origin: Callable[[Loc], Loc] = lambda loc: loc) -> list[Finding]:
    """Everything that is inconsistent in the raw data of a study, written out (`spookax.study.file.windows`).

    `origin`: where the user wrote a place in the data, for places that messages name.
    """
    study = _mapping(data)
    found = list(_recordings(study, origin))
    parameters = _mapping(study.get("parameters"))
    for path, spec in parameters.items():
        found += [_under(("parameters", path), finding) for finding in _parameter(path, _mapping(spec))]
        whole = path.rpartition(".")[0]
        if whole in parameters and _of_whole(whole):
            message = f"is part of {whole}, which is unknown as a whole"
            found.append(Finding(("parameters", path), None, message, "Keep one of the two."))
    found += [_under(("ties",), finding) for finding in _ties(_mapping(study.get("ties")), parameters)]
    estimator = _mapping(study.get("estimator"))
    noise = _mapping(estimator.get("process_noise"))
    bodies = noise.get("kind") == "bodies"
    if estimator.get("form") == "residual" and not bodies:
        message = "the residual form needs noise on every body"
        found.append(Finding(("estimator", "form"), "residual", message, "Write `process_noise: {kind: bodies}`."))
    if isinstance(noise.get("density"), dict) and bodies:
        message = "noise on bodies has one level"
        found.append(Finding(("estimator", "process_noise", "density"), None, message, "Write one number."))
    found += [_under(("recursive",), finding) for finding in _recursive(_mapping(study.get("recursive")), parameters)]
    found += [_under(("recursive",), finding) for finding in _modes(_mapping(study.get("recursive")), parameters)]
    found += [_under(("recursive",), finding) for finding in _modes_and_ties(study)]
    for key in ("friction_speed", "noise_scale"):
        stages = estimator.get(key)
        if isinstance(stages, list | tuple):
            found += [_under(("estimator", key), finding) for finding in _stages(stages)]
    return found


def start_findings(spec: Mapping[str, Any], value: float, loc: Loc) -> Iterator[Finding]:
    """What forbids `value` as the start of a parameter: its sign or its bounds.

    `spec` is an entry of `parameters` with its transform filled in.
    """
    if spec["transform"] in ("log", "sinh") and value <= 0:
        message = f"the start must be > 0 for the transform {spec['transform']}, got {value:g}"
        yield Finding(loc, value, message, "Write a positive `start`, or `transform: identity`.")
        return
    lower, upper = _number(spec, "lower", float("-inf")), _number(spec, "upper", float("inf"))
    if not lower < value < upper:
        message = f"the start must lie inside the bounds ({lower:g}, {upper:g}), got {value:g}"
        yield Finding(loc, value, message, "Move `start` or the bounds.")


def _recordings(study: Mapping[str, Any], origin: Callable[[Loc], Loc]) -> Iterator[Finding]:
    first: dict[str, Loc] = {}
    listed = {key: study[key] for key in ("recordings", "validate") if isinstance(study.get(key), list)}
    for here, entry in [
        ((key, index), entry) for key, entries in listed.items() for index, entry in enumerate(entries)
    ]:
        recording = _mapping(entry)
        for finding in _recording(recording) if recording else ():
            yield _under(here, finding)
        name = recording.get("name") or default_name(recording)
        if isinstance(name, str) and re.search(r"[/\\]", name):
            message = f"must have no slash, got '{name}'"
            cure = "Write another name; results are stored under it."
            yield Finding((*here, "name"), name, message, cure)
        if isinstance(name, str) and first.setdefault(name, here) != here:
            message = f"the name '{name}' is taken by {dotted(origin(first[name]))}"
            yield Finding((*here, "name"), name, message, "Give each its own `name`.")


def _recording(recording: Mapping[str, Any]) -> Iterator[Finding]:
    given = [key for key in ("file", "dataset") if recording.get(key) is not None]
    if len(given) != 1:
        has = "both `file` and" if given else "neither `file` nor"
        yield Finding((), None, f"has {has} `dataset`", "Write one of the two.")
    dataset = recording.get("dataset")
    if isinstance(dataset, str) and not DATASET_FILE.fullmatch(dataset):
        message = f"must name a data set and a file in it, got '{dataset}'"
        yield Finding(("dataset",), dataset, message, "Write NAME/FILE, such as emps/emps_periods_1to3.csv.")
    start, stop = recording.get("start"), recording.get("stop")
    if _is_number(start) and _is_number(stop) and start >= stop:
        message = f"must be later than start {start:g} s, got {stop:g} s"
        yield Finding(("stop",), stop, message, "Write a later time, or leave one of them out.")
    for sensor in _mapping(recording.get("offsets")):
        if sensor not in _mapping(recording.get("sensors")):
            message = f"the sensor '{sensor}' is not read in this recording"
            yield Finding(("offsets", sensor), None, message, "Add it under `sensors`, or delete this line.")


def _modes(recursive: Mapping[str, Any], parameters: Mapping[str, Any]) -> Iterator[Finding]:
    """What the modes of a mechanism need, and what they cannot go with."""
    if "modes" not in recursive:
        if recursive.get("switching") is not None:
            yield Finding(("switching",), None, "there are no `modes` to switch between", "Add them, or delete this.")
        return
    modes = _mapping(recursive["modes"])
    if len(modes) < 2:
        cure = "Write at least two, such as `free: {}` beside one that changes a number; or delete `modes`."
        yield Finding(("modes",), None, f"needs two modes or more, got {len(modes)}", cure)
    if recursive.get("switching") is None:
        cure = "Add `switching: {dwell_time: SECONDS}`."
        yield Finding(("modes",), None, "nothing says how the modes follow one another", cure)
    if recursive.get("rule") == "ensemble":
        message = "modes are told apart by the likelihood of the readings, and that of an ensemble is a sample"
        yield Finding(("rule",), "ensemble", message, "Write extended or unscented, or delete `modes`.")
    for name, mode in modes.items():
        for path in _mapping(_mapping(mode).get("set")):
            whole = str(path).rpartition(".")[0]
            if recursive.get("parameters") != "held" and (path in parameters or whole in parameters):
                message = "is one of the study's parameters, which the filter estimates"
                cure = "Write `parameters: held` under `recursive`, or take it out of one of the two."
                yield Finding(("modes", name, "set", path), None, message, cure)
    switching = _mapping(recursive.get("switching"))
    for key in ("dwell_time", "initial"):
        if isinstance(given := switching.get(key), Mapping):
            yield from (_under(("switching", key), finding) for finding in _for_every_mode(key, given, modes))


def _modes_and_ties(study: Mapping[str, Any]) -> Iterator[Finding]:
    """Numbers that a mode sets and that a tie gives or needs."""
    ties = _mapping(study.get("ties"))
    tied = {word for path, text in ties.items() for word in (path, *re.findall(r"[\w.-]+", str(text)))}
    for name, mode in _mapping(_mapping(study.get("recursive")).get("modes")).items():
        for path in _mapping(_mapping(mode).get("set")):
            if path in tied:
                message = "takes part in one of the `ties`, which hold in every mode"
                yield Finding(("modes", name, "set", path), None, message, "Take it out of one of the two.")


def _for_every_mode(key: str, given: Mapping[str, Any], modes: Mapping[str, Any]) -> Iterator[Finding]:
    for name in given:
        if name not in modes:
            yield Finding((name,), None, f"there is no mode '{name}'", nearest(name, modes))
    for name in modes:
        if name not in given:
            yield Finding((), None, f"the mode '{name}' has no number here", f"Add a line for '{name}'.")
    numbers = [value for value in given.values() if _is_number(value)]
    if key == "initial" and len(numbers) == len(given) and abs(sum(numbers) - 1) > 1e-6:
        message = f"the probabilities must sum to 1, got {sum(numbers):g}"
        yield Finding((), None, message, "Change one of them.")


def _stages(stages: Sequence[Any]) -> Iterator[Finding]:
    if not stages:
        yield Finding((), stages, "has no stage", "Write at least one number.")
    valid = all(_is_number(value) and value > 0 for value in stages)
    if valid and any(later > earlier for earlier, later in pairwise(stages)):
        message = f"must not rise from one stage to the next, got {list(stages)}"
        yield Finding((), stages, message, "Write the largest value first.")


def _parameter(path: str, spec: Mapping[str, Any]) -> Iterator[Finding]:
    given = spec.get("transform")
    transform = given if given in get_args(Transform) else default_transform(path)
    whole = _of_whole(path)
    if whole and transform != whole:
        message = f"this has several numbers and needs the transform {whole}, got {transform}"
        cure = f"Leave the transform out, or name one number, such as {path}.{'zz' if whole == 'inertia' else 0}."
        yield Finding(("transform",), transform, message, cure)
    elif transform in _WHOLES.values() and not whole:
        places = {"inertia": "bodies.NAME.inertia", "network": "joints.NAME.friction.learned.weights"}
        message = f"the transform {transform} is for {places[str(transform)]}"
        yield Finding(("transform",), transform, message, "Use log, sinh, identity or box.")
    if whole:
        for key in ("start", "lower", "upper"):
            if spec.get(key) is not None:
                cure = "Delete the line; the search starts at the scene's numbers."
                yield Finding((key,), spec[key], "this is not one number", cure)
        return
    lower, upper = _number(spec, "lower", float("-inf")), _number(spec, "upper", float("inf"))
    if transform == "box" and (spec.get("lower") is None or spec.get("upper") is None):
        yield Finding(("transform",), "box", "box needs `lower` and `upper`", "Add both, or use identity.")
    if transform in ("log", "sinh") and _is_number(spec.get("lower")) and lower < 0:
        message = f"must be >= 0 for the transform {transform}, got {lower:g}"
        yield Finding(("lower",), lower, message, "Write 0, or `transform: identity`.")
    if lower >= upper:
        message = f"must be > lower {lower:g}, got {upper:g}"
        yield Finding(("upper",), upper, message, "Exchange or widen the bounds.")
    elif _is_number(spec.get("start")):
        yield from start_findings({**spec, "transform": transform}, spec["start"], ("start",))


def _ties(ties: Mapping[str, Any], parameters: Mapping[str, Any]) -> Iterator[Finding]:
    """Expressions that cannot be read, numbers that have two sources, and cycles."""
    read: dict[str, Expression] = {}
    for path, text in ties.items():
        if path in parameters or path.rpartition(".")[0] in parameters:
            message = "is one of the study's parameters, and tied to others as well"
            yield Finding((path,), None, message, "Take it out of `parameters` or out of `ties`.")
        if not isinstance(text, str):
            continue  # the schema says so
        try:
            read[path] = Expression(text)
        except ExpressionError as error:
            yield Finding((path,), text, f"the expression '{text}' {error}", CURE)
    try:
        in_order(read)
    except graphlib.CycleError as error:
        cycle = error.args[1]
        message = f"goes round in a circle: {' needs '.join(reversed(cycle))}"
        yield Finding((cycle[0],), None, message, "Make one of them a parameter, or express it by others.")


def _recursive(recursive: Mapping[str, Any], parameters: Mapping[str, Any]) -> Iterator[Finding]:
    rule = recursive.get("rule", "extended")
    for key, its_rule in (("iterations", "extended"), ("members", "ensemble")):
        if key in recursive and rule in get_args(Rule) and rule != its_rule:
            message = f"is a setting of the rule {its_rule}, and the rule is {rule}"
            yield Finding((key,), recursive[key], message, f"Delete the line, or write `rule: {its_rule}`.")
    for path in _mapping(recursive.get("drift")):
        if path not in parameters:
            message = f"'{path}' is not one of the study's parameters"
            yield Finding(("drift", path), None, message, nearest(path, parameters))


def _under(loc: Loc, finding: Finding) -> Finding:
    return Finding((*loc, *finding.loc), finding.value, finding.message, finding.cure)


def _mapping(data: Any) -> Mapping[str, Any]:
    return data if isinstance(data, Mapping) else {}


def _is_number(value: Any) -> TypeGuard[float]:
    return is_number(value) and math.isfinite(value)


def _number(data: Mapping[str, Any], key: str, otherwise: float) -> float:
    return float(data[key]) if _is_number(data.get(key)) else otherwise
