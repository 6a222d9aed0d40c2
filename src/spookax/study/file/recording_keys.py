"""Recordings in a study file: which file, which columns, which part of it."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from spookax.scene.explain import Finding, refuse, shown
from spookax.scene.fields import Number, Pair, Positive, Strict, Text
from spookax.study.file.key_rules import default_name
from spookax.study.file.units import UnitError, parse_unit, split_header
from spookax.study.file.windows import window_findings


def may_be_left_out(*keys: str) -> Callable[[dict[str, Any]], None]:
    """For the JSON Schema: keys that the file may leave out although the model always has them."""

    def mend(schema: dict[str, Any]) -> None:
        for key in keys:
            schema["required"].remove(key)
        if not schema["required"]:
            del schema["required"]

    return mend


class Column(Strict):
    """A column of the recording: `q_arm`, or `{column: q_arm, unit: rad}` when the header has no unit."""

    column: Text = Field(description="Name in the header, without unit")
    unit: Text | None = Field(default=None, description="Unit of the values, when the header does not say")
    shift: Number = Field(
        default=0.0,
        description="Added to the time of its values [s], to the nearest sample; negative where it was recorded late",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, data: Any) -> Any:
        if isinstance(data, str):
            name, unit = split_header(data)
            return {"column": name, "unit": unit}
        if not isinstance(data, dict | Column):
            message = f"must be the name of a column, got {shown(data)}"
            refuse([Finding((), data, message, "Write its name, in quotes if it looks like a number.")])
        return data

    @field_validator("unit")
    @classmethod
    def _known(cls, unit: str | None) -> str | None:
        if unit is not None:
            try:
                parse_unit(unit)
            except UnitError as error:
                refuse([Finding((), unit, str(error), error.cure)])
        return unit

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "minLength": 1}, handler(core_schema)]}


def _as_list(data: Any) -> Any:
    return data if isinstance(data, list) else [data]


def _of_time(column: Column) -> Column:
    if column.shift:
        cure = "Shift the columns of inputs and sensors."
        refuse([Finding(("shift",), column.shift, "the time is what other columns are shifted by", cure)])
    return column


TimeColumn = Annotated[Column, AfterValidator(_of_time)]
Columns = Annotated[list[Column], BeforeValidator(_as_list), Field(min_length=1)]


class Start(Strict):
    """Where a joint starts in one recording, as a first guess; what is left out comes from the data."""

    position: Number | None = Field(default=None, description="Position [rad; m for a prismatic joint]")
    rate: Number | None = Field(default=None, description="Rate [rad/s; m/s for a prismatic joint]")


Every = Annotated[int, Field(strict=True, ge=1)]


class Split(Strict):
    """A recording in consecutive whole windows from its `start` to its `stop`."""

    length: Positive = Field(description="Length of a window [s]")
    every: Every = Field(default=1, description="Take each n-th window")


class Defaults(Strict):
    """What holds for every recording that does not say otherwise."""

    time: TimeColumn | None = Field(default=None, description="Column of the time")
    time_sd: Positive | None = Field(default=None, description="Standard deviation of the time stamps [s]")
    every: Every = Field(default=1, description="Use every n-th sample of the sensors")
    inputs: dict[str, Column] = Field(default_factory=dict, description="Motor -> column of its input")
    sensors: dict[str, Columns] = Field(
        default_factory=dict, description="Sensor -> its column, or the list of its columns"
    )
    offsets: dict[str, Positive] = Field(
        default_factory=dict,
        description="Sensor -> prior standard deviation of a zero offset of each recording [rad or m]",
    )


class RecordingSpec(Strict):
    """One recording and how its columns map to the scene."""

    model_config = ConfigDict(json_schema_extra=may_be_left_out("name", "time", "sensors"))

    name: Text = Field(description="Name of the run in the results; the file's name without its ending when left out")
    file: Text | None = Field(default=None, description="CSV, NPZ or Parquet file, relative to the study file")
    dataset: Text | None = Field(default=None, description="NAME/FILE of a public data set, instead of `file`")
    time: TimeColumn = Field(description="Column of the time")
    time_sd: Positive | None = Field(
        default=None,
        description="Standard deviation of the time stamps [s]; readings of a fast signal weigh less by it",
    )
    every: Every = Field(
        default=1,
        description="Use every n-th sample of the sensors: for errors that neighbouring samples share",
    )
    inputs: dict[str, Column] = Field(
        default_factory=dict,
        description="Motor -> column of its input, held between samples; a motor that is left out gets 0",
    )
    sensors: dict[str, Columns] = Field(min_length=1, description="Sensor -> its column, or the list of its columns")
    start: Number | None = Field(default=None, description="First time used, on the recording's clock [s]")
    stop: Number | None = Field(default=None, description="Last time used, on the recording's clock [s]")
    windows: list[Pair] | Split | None = Field(
        default=None,
        description="Several windows, `[[start, stop], ...]` or `{length: }`; each is a recording NAME_1, NAME_2, ...",
    )
    offsets: dict[str, Positive] = Field(
        default_factory=dict,
        description="Sensor -> prior standard deviation of a zero offset of this recording alone [rad or m]",
    )
    initial: dict[str, Start] = Field(
        default_factory=dict, description="Joint, or `joint.axis` -> first guess of where it starts"
    )

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("windows") is not None:
            alone = Finding(("windows",), None, "only a study is split into windows", "Write `start` and `stop`.")
            refuse(window_findings(data) or [alone])
        if isinstance(data, dict) and data.get("name") is None and (name := default_name(data)):
            return {**data, "name": name}
        return data
