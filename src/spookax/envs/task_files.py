"""Task files: a scene, a task and the loop around it, as YAML beside the scene; and the tasks that ship."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, Unpack

import pydantic
from pydantic import Field

from ..scene.explain import Finding, nearest
from ..scene.fields import AxisName, Name, NonNegative, Number, Pair, Positive, Strict, Text, Vector, Version
from ..scene.located import load_located, validate
from ..scene.model import Scene
from ..study.identifying.estimate import Estimate
from .environment import Environment
from .observation import AbstractObservation, Coordinates, Sensors
from .randomisation import AbstractRandomisation
from .standing import Standing
from .task import AbstractTask, Configuration, Point

_GIVEN = (Path(__file__).parents[1], Path(__file__).parents[3])  # of a wheel, of a clone


class _Configuration(Strict):
    type: Literal["configuration"]
    goal: dict[AxisName, Number] = Field(min_length=1)
    weight: dict[AxisName, NonNegative] = Field(default_factory=dict)
    rate_weight: dict[AxisName, NonNegative] = Field(default_factory=dict)
    action_weight: NonNegative = 0.0
    start: dict[AxisName, NonNegative] = Field(default_factory=dict)
    start_rate: dict[AxisName, NonNegative] = Field(default_factory=dict)
    at: dict[AxisName, Number] = Field(default_factory=dict)
    within: dict[AxisName, Pair] = Field(default_factory=dict)
    tolerance: Positive = 0.17453292519943295

    def made(self) -> AbstractTask:
        return Configuration(**self.model_dump(exclude={"type"}))


class _Point(Strict):
    type: Literal["point"]
    body: Name
    at: Vector
    target: Vector
    box: tuple[NonNegative, NonNegative, NonNegative] = (0.0, 0.0, 0.0)
    circle: dict[Literal["x", "y", "z"], Positive] = Field(default_factory=dict)
    turn: Positive = 1.0
    scale: Positive = 0.1
    action_weight: NonNegative = 0.0
    start: dict[AxisName, NonNegative] = Field(default_factory=dict)
    shift: tuple[NonNegative, NonNegative, NonNegative] = (0.0, 0.0, 0.0)
    tolerance: Positive = 0.02

    def made(self) -> AbstractTask:
        return Point(**self.model_dump(exclude={"type"}))


class _Standing(Strict):
    type: Literal["standing"]
    body: Name
    height: Number
    scale: Positive = 0.1
    velocity: tuple[Number, Number] | None = None
    velocity_scale: Positive = 0.3
    action_weight: NonNegative = 0.0
    start: dict[AxisName, NonNegative] = Field(default_factory=dict)
    within: Pair | None = None
    tolerance: Positive = 0.05
    tilt: Positive = 0.2

    def made(self) -> AbstractTask:
        return Standing(**self.model_dump(exclude={"type"}, exclude_none=True))


class _Sensors(Strict):
    type: Literal["sensors"]
    sensors: list[Name] | None = None
    cos_sin: list[Name] = Field(default_factory=list)
    differences: list[Name] = Field(default_factory=list)
    noise: NonNegative = 1.0

    def made(self) -> AbstractObservation:
        chosen = None if self.sensors is None else tuple(self.sensors)
        told = tuple(self.cos_sin), tuple(self.differences)
        return Sensors(chosen, cos_sin=told[0], differences=told[1], noise=self.noise)


class _Coordinates(Strict):
    type: Literal["coordinates"]
    positions: list[AxisName] | None = None
    rates: list[AxisName] | None = None
    cos_sin: list[AxisName] = Field(default_factory=list)

    def made(self) -> AbstractObservation:
        chosen = (None if names is None else tuple(names) for names in (self.positions, self.rates))
        return Coordinates(*chosen, cos_sin=tuple(self.cos_sin))


class TaskFile(Strict):
    """What a task file says."""

    spookax: Version
    scene: Text
    task: Annotated[_Configuration | _Point | _Standing, Field(discriminator="type")]
    actions: dict[Name, Positive | Pair] = Field(min_length=1)
    observation: Annotated[_Sensors | _Coordinates, Field(discriminator="type")] = _Sensors(type="sensors")
    control_period: Positive | None = None
    time_limit: Positive = 10.0
    action_rates: dict[Name, Positive] = Field(default_factory=dict)
    action_delay: NonNegative = 0.0


class Changes(TypedDict, total=False):
    """Arguments of `Environment` that take the place of what a task file says."""

    scene: str | os.PathLike[str] | Scene
    task: AbstractTask
    actions: Mapping[str, float | tuple[float, float]]
    observation: AbstractObservation | None
    control_period: float | None
    time_limit: float
    action_rates: Mapping[str, float] | None
    action_delay: float
    randomise: AbstractRandomisation | Estimate | None


def make(name: str | os.PathLike[str], **changes: Unpack[Changes]) -> Environment:
    """The environment of a task file, or of a task that ships (`task_names`).

    **Arguments:** `changes`: see `Changes`.

    **Raises:** `FileError` for whatever is wrong with the file, with line and cure; as `Environment` does.
    """
    path = Path(name)
    if not path.suffix:
        folder = _folder()
        path = folder / f"{name}.yaml"
        if not path.is_file():
            raise ValueError(f"there is no task '{name}'. {nearest(str(name), task_names())}")
    located = load_located(path)

    def also(data: Any) -> Iterator[Finding]:
        scene = data.get("scene") if isinstance(data, Mapping) else None
        if isinstance(scene, str) and "scene" not in changes and not (path.parent / scene).is_file():
            cure = "Paths are relative to the task file."
            yield Finding(("scene",), scene, f"no such file: {path.parent / scene}", cure)

    given = validate(located, TaskFile, also=also)
    options: dict[str, Any] = {
        "actions": given.actions,
        "observation": given.observation.made(),
        "control_period": given.control_period,
        "time_limit": given.time_limit,
        "action_rates": given.action_rates,
        "action_delay": given.action_delay,
    } | changes
    scene, task = options.pop("scene", path.parent / given.scene), options.pop("task", None) or given.task.made()
    try:
        return Environment(scene, task, **options)
    except ValueError as wrong:
        if isinstance(wrong, pydantic.ValidationError):
            raise
        raise ValueError(f"{path}: {wrong}") from None


def task_names() -> tuple[str, ...]:
    """The tasks that ship, for `make`."""
    return tuple(sorted(path.stem for path in _folder().glob("*.yaml")))


def _folder() -> Path:
    for place in _GIVEN:
        if (place / "tasks").is_dir():
            return place / "tasks"
    raise FileNotFoundError("the tasks that ship are not there: install the package, or use a clone of its repository")
