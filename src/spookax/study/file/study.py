"""Study files: which recordings of which scene, which parameters are unknown, and how to estimate them.

The models mirror the keys of the YAML file; `docs/study.md` explains them field by field.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationInfo, model_validator

from spookax import datasets
from spookax.scene.explain import refuse
from spookax.scene.fields import Name, NonNegative, Number, Positive, Strict, Text
from spookax.scene.located import Located
from spookax.study.file.key_rules import Rule, Transform, default_transform, study_rules
from spookax.study.file.recording_keys import Column as Column
from spookax.study.file.recording_keys import Defaults, may_be_left_out
from spookax.study.file.recording_keys import RecordingSpec as RecordingSpec
from spookax.study.file.windows import RecordingList, written_out

Switch = Annotated[bool, Field(strict=True)]
Stages = tuple[Positive, ...]


class ParameterSpec(Strict):
    """An unknown parameter of the scene, in its SI unit."""

    model_config = ConfigDict(json_schema_extra=may_be_left_out("transform"))

    start: Number | None = Field(default=None, description="Start of the search; the scene's value when left out")
    lower: Number | None = Field(default=None, description="Lower bound")
    upper: Number | None = Field(default=None, description="Upper bound")
    transform: Transform = Field(
        description="log, sinh (may be zero), identity, box (between both bounds), inertia (six numbers, a possible "
        "body) or network (all weights of learned friction); when left out, inertia and network for these, log for "
        "what is positive, sinh for what may be zero as well, else identity",
    )
    prior_sd: Positive | None = Field(
        default=None,
        description="Prior standard deviation about `start`, in transformed units (log, sinh: relative)",
    )


def _with_transforms(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    return {path: _with_transform(path, spec) for path, spec in data.items()}


def _with_transform(path: str, spec: Any) -> Any:
    if not isinstance(spec, dict) or spec.get("transform") is not None:
        return spec
    return {**spec, "transform": default_transform(path)}


class ProcessNoise(Strict):
    """Impulses that the model does not know of: the scalar weight between motion and sensors."""

    kind: Literal["joints", "bodies"] | None = Field(
        default=None,
        description="On the joints' free directions, or on every body; when left out, on the joints, unless they leave "
        "a body free",
    )
    density: Positive | dict[str, Positive] = Field(
        default=1.0e-5,
        description="Standard deviation of the impulse per root of a second [N m sqrt(s) or N sqrt(s)]; "
        "a mapping from every joint (`joint.axis` where it has several) gives each a level of its own",
    )
    estimate: Literal["prediction"] | Switch = Field(
        default="prediction",
        description="How its level is found: the one whose fit predicts best what it has not seen (prediction), from "
        "the evidence (true), or not at all: it is kept (false)",
    )


class SensorNoise(Strict):
    """Noise levels of the sensors; they start at the scene's `sd`."""

    estimate: Switch | None = Field(
        default=None,
        description="Whether they are estimated from the evidence, or kept; when left out, they are estimated where "
        "the process noise is found by prediction",
    )


class Estimator(Strict):
    """The estimator and its settings."""

    form: Literal["simulator", "residual"] = Field(
        default="simulator", description="Unknowns are initial states and impulses, or all states"
    )
    objective: Literal["marginal", "joint"] = Field(
        default="marginal", description="States are integrated out, or estimated beside the parameters"
    )
    step: Positive | None = Field(default=None, description="Time step h; the scene's when left out [s]")
    process_noise: ProcessNoise = Field(default_factory=ProcessNoise, description="Process noise")
    sensor_noise: SensorNoise = Field(default_factory=SensorNoise, description="Sensor noise")
    outliers: Annotated[float, Field(gt=0, lt=0.5)] | None = Field(
        default=None,
        description="Share of the readings that may be wild and lose their weight; when left out, all count",
    )
    friction_speed: Stages | None = Field(
        default=None,
        description="Speeds below which dry friction is smoothed, one per stage [rad/s or m/s]; when left out, 0.05, "
        "0.01 and 0.002 of the RMS rate of the slowest joint that moves",
    )
    noise_scale: Stages = Field(default=(1.0,), description="Factors on the process noise, one per stage")
    max_iterations: Annotated[int, Field(strict=True, ge=1)] = Field(
        default=60, description="Largest number of iterations"
    )
    tolerance: Positive = Field(default=1.0e-6, description="Relative change of the cost at which to stop")
    restarts: Annotated[int, Field(strict=True, ge=0)] = Field(
        default=6, description="Other starts that are drawn when the first one failed"
    )
    check_half_step: Switch = Field(
        default=True,
        description="Whether to find out what half the time step would change, and to count that as an error",
    )


class Mode(Strict):
    """A mode of the mechanism: the scene with other numbers."""

    set: dict[str, Number] = Field(
        default_factory=dict, description="Path in the scene file -> its number in this mode [SI]; all others are kept"
    )


class Switching(Strict):
    """How the mechanism goes from one mode to another, and where it starts."""

    dwell_time: Positive | dict[str, Positive] = Field(
        description="Mean time for which a mode lasts [s], then each of the others is as probable; "
        "a mapping from every mode gives each a time of its own"
    )
    initial: dict[str, NonNegative] | None = Field(
        default=None, description="Mode -> its probability at the start of a recording; all alike when left out"
    )


class Recursive(Strict):
    """How `spookax filter` and `spookax smooth` go through the recordings."""

    rule: Rule = Field(default="extended", description="Linearised at the mean, at sigma points, or not at all")
    iterations: Annotated[int, Field(strict=True, ge=1)] = Field(
        default=1,
        description="Linearisations of the readings of a step (rule extended only): above 1 the iterated filter",
    )
    members: Annotated[int, Field(strict=True, ge=2)] = Field(default=100, description="Members (rule ensemble only)")
    parameters: Literal["estimated", "held"] = Field(
        default="estimated", description="Whether the study's parameters are states, too, or keep their start"
    )
    parameter_sd: Positive = Field(
        default=0.5,
        description="Standard deviation at the start of parameters without a `prior_sd` (log: relative; identity: "
        "relative to the start)",
    )
    drift: dict[str, Positive] = Field(
        default_factory=dict,
        description="Parameter -> how fast it may change, per root of a second, in the units of its `prior_sd`; "
        "all others are constant",
    )
    initial_sd: Positive = Field(
        default=0.1, description="Standard deviation of the first positions [rad or m]; of rates ten times as much"
    )
    gate: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="Readings of a step that are less probable than this are not used"
    )
    modes: dict[Name, Mode] = Field(
        default_factory=dict, description="Mode -> what it changes; the filter tells which of them holds"
    )
    switching: Switching | None = Field(default=None, description="How `modes` follow one another")


class Comparison(Strict):
    """Settings of the methods that `spookax compare --methods` runs beside the others of the study."""

    segment: Positive | None = Field(
        default=None,
        description="Length of a segment of multiple shooting [s]; an eighth of the longest recording when left out",
    )
    iterations: Annotated[int, Field(strict=True, ge=500)] = Field(
        default=4000, description="Iterations of the training of the networks at most"
    )


class Recorded(Strict):
    """What studies of every kind have: recordings. Paths in them are relative to the folder that the file lies in."""

    spookax: Literal[1] = Field(description="Version of the format, 1")
    defaults: Defaults | None = Field(default=None, description="What every recording takes unless it says otherwise")
    recordings: list[RecordingSpec] = Field(min_length=1, description="Recordings, one entry each")
    validation: list[RecordingSpec] = Field(
        default_factory=list,
        alias="validate",  # `validate` itself is a method of every model
        description="Recordings that take no part in the identification: it predicts them afterwards",
    )

    _located: Located | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _written_out(cls, data: Any) -> Any:
        return written_out(data)[0]

    @model_validator(mode="after")
    def _rules(self, info: ValidationInfo) -> "Recorded":
        refuse(study_rules(self.model_dump(exclude_unset=True, by_alias=True), info.context or (lambda loc: loc)))
        return self

    @property
    def located(self) -> Located:
        """The file's data with line numbers; empty for a study that was not read from a file."""
        return self._located or Located("study", {})

    def listed(self, key: RecordingList) -> list[RecordingSpec]:
        """What is listed under one of the keys that list recordings."""
        return self.recordings if key == "recordings" else self.validation

    @property
    def folder(self) -> Path:
        """What paths in the study are relative to; the current folder if it was not read from a file."""
        return Path(self._located.file).parent if self._located else Path()

    def recording_path(self, spec: RecordingSpec) -> Path:
        """The file of one of the recordings.

        **Raises:** `DatasetMissing` if it belongs to a public data set that is not on this machine.
        """
        return recording_path(self.folder, spec.file, spec.dataset)


class Study(Recorded):
    """A study file. Paths in it are relative to the folder it lies in."""

    scene: Text = Field(description="Scene file, relative to the study file")
    parameters: Annotated[dict[str, ParameterSpec], BeforeValidator(_with_transforms)] = Field(
        min_length=1, description="Path in the scene file -> what is known of this unknown"
    )
    ties: dict[str, Text] = Field(
        default_factory=dict,
        description="Path in the scene file -> expression of others, at least one of them unknown: "
        "`1.2 - bodies.a.mass` [SI]",
    )
    estimator: Estimator = Field(default_factory=Estimator, description="Estimator and its settings")
    recursive: Recursive = Field(default_factory=Recursive, description="Settings of `filter` and `smooth`")
    comparison: Comparison = Field(default_factory=Comparison, description="Settings of `compare --methods`")

    @property
    def scene_path(self) -> Path:
        """The scene file."""
        return self.folder / self.scene


def recording_path(folder: Path, file: str | None, dataset: str | None) -> Path:
    """A recording's file: `file` in `folder`, or else the file NAME/FILE of a public data set.

    **Raises:** `DatasetMissing`.
    """
    if file is not None:
        return folder / file
    name, _, member = str(dataset).partition("/")
    return datasets.path(name, member)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of study files, for editors that complete and check them."""
    schema = Study.model_json_schema()
    title = "spookax study, format version 1"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": title}
