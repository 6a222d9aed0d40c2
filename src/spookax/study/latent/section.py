"""The section `latent` of a study file: a mass on a spring, or joints of a scene, whose friction is unknown."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from spookax.scene.explain import Finding, nearest, refuse
from spookax.scene.fields import AxisName, NonNegative, Positive, Strict, Text
from spookax.study.file import units as u
from spookax.study.file.study import Recorded

INPUTS = {"force": (u.FORCE,), "base": (u.LENGTH,)}
"""What drives the mass, and in which dimension."""
SENSORS = {"displacement": (u.LENGTH,), "velocity": (u.SPEED,), "acceleration": (u.ACCELERATION,)}
"""What is read of the mass, and in which dimension."""

Law = Literal["auto", "coulomb", "stribeck", "dieterich-ruina"]
CORRECTABLE = "mass", "damping", "stiffness"
Treatment = Literal["map", "laplace", "sample"]
Many = Annotated[int, Field(strict=True, ge=20, le=100_000)]
Count = Annotated[int, Field(strict=True, ge=1, le=9)]
_MOST = 3  # contacts


class Latent(Strict):
    """What is known of the mechanism, m z'' + c z' + k z + f = load or a scene, and how its friction f is found."""

    joints: list[AxisName] = Field(
        default_factory=list,
        description="Joints of the scene, or `joint.axis`, whose dry friction is unknown; without a scene none",
    )
    mass: Positive | None = Field(default=None, description="Mass m [kg]; without a scene")
    damping: NonNegative | None = Field(
        default=None, description="Viscous damping c, as far as it is known [N s/m]; without a scene"
    )
    stiffness: NonNegative | None = Field(default=None, description="Stiffness k of the spring [N/m]; without a scene")
    bases: list[Text] = Field(
        default_factory=list,
        description="Motors of the scene of type `position` whose input is the displacement of a base that carries "
        "their spring and damper, as it was read; without a scene none",
    )
    correct: list[Text] = Field(
        default_factory=list,
        description="What is a guess, to be corrected: mass, damping, stiffness; of a scene the paths of its numbers",
    )
    law: Law = Field(default="auto", description="Law that is fitted to the force: the one that fits best, or this one")
    components: Count = Field(default=3, description="Gaussians that the filter and the smoother keep of every regime")
    noise: Positive | None = Field(
        default=None,
        description="Standard deviation of a reading, in its SI unit; estimated when left out",
    )
    hyperparameters: Treatment = Field(
        default="map",
        description="What bands of the force count: hyperparameters at their likeliest (map), a normal density about "
        "that (laplace), or draws of a sampler (sample; needs blackjax, the extra `sampling`)",
    )
    draws: Many = Field(default=200, description="Draws of the sampler, of all its chains together")


class LatentStudy(Recorded):
    """A study of an unknown friction force. Paths in it are relative to the folder it lies in."""

    scene: Text | None = Field(
        default=None,
        description="Scene file of the mechanism, relative to the study file; left out for a mass on a spring",
    )
    latent: Latent = Field(description="What is known of the mechanism, and how the force is found")

    @model_validator(mode="after")
    def _of_one_kind(self) -> "LatentStudy":
        """With a scene its joints are named, without one mass, damping and stiffness are given."""
        own, found = self.latent, []
        for name in ("mass", "damping", "stiffness"):
            given = getattr(own, name) is not None
            if given and self.scene is not None:
                message, cure = "the scene says it already", f"Take `{name}` out, or `scene`."
                found.append(Finding(("latent", name), getattr(own, name), message, cure))
            elif not given and self.scene is None:
                cure = f"Write `{name}: NUMBER`, or name a `scene` and its `joints`."
                found.append(Finding(("latent",), None, f"`{name}` is missing", cure))
        for name in ("joints", "bases"):
            if self.scene is None and getattr(own, name):
                message = f"{name} are those of a scene, and none is named"
                cure = "Write `scene: FILE`, or take it out."
                found.append(Finding(("latent", name), getattr(own, name), message, cure))
        for i, name in enumerate(own.correct):
            if self.scene is None and name not in CORRECTABLE:
                message = f"must be one of {', '.join(CORRECTABLE)}"
                found.append(Finding(("latent", "correct", i), name, message, nearest(name, CORRECTABLE)))
        for key, what in (("joints", "joint"), ("bases", "base"), ("correct", "number")):
            if len(set(named := getattr(own, key))) < len(named):
                found.append(Finding(("latent", key), named, f"a {what} is named twice", "Name each once."))
        if self.scene is not None and not own.joints:
            message = "no joint is named whose friction is unknown"
            found.append(Finding(("latent",), None, message, "Write `joints: [NAME]`."))
        if len(own.joints) > _MOST:
            message = f"{len(own.joints)} contacts have {3 ** len(own.joints)} combinations of regimes"
            found.append(Finding(("latent", "joints"), own.joints, message, f"Name {_MOST} joints at most."))
        refuse(found)
        return self

    @model_validator(mode="after")
    def _driven_and_read(self) -> "LatentStudy":
        found = []
        if self.scene is not None:
            refuse(_alike(self))
            return self
        for key in ("recordings", "validate"):
            for index, spec in enumerate(self.recordings if key == "recordings" else self.validation):
                found += _named((key, index, "inputs"), spec.inputs, INPUTS, "an input")
                found += _named((key, index, "sensors"), spec.sensors, SENSORS, "a sensor")
        driven = {name for spec in self.recordings + self.validation for name in spec.inputs}
        if not found and len(driven) > 1:
            message = "some recordings have a force and others a base that moves"
            found.append(Finding(("recordings",), None, message, "Make a study for each kind."))
        if "base" in driven and "mass" in self.latent.correct:
            message = "a base that moves tells k / m and c / m, never the mass itself"
            found.append(Finding(("latent", "correct"), self.latent.correct, message, "Take `mass` out."))
        refuse(found)
        return self

    @property
    def base(self) -> bool:
        """Whether it is the base that moves."""
        return self.scene is None and "base" in self.recordings[0].inputs


def _alike(study: LatentStudy) -> list[Finding]:
    """Recordings of a scene have the same inputs and sensors."""
    found, first = [], study.recordings[0]
    for key in ("sensors", "inputs"):
        if not getattr(first, key):
            message = f"a recording needs {key}"
            found.append(Finding(("recordings", 0, key), None, message, f"Write `{key}: {{NAME: COLUMN}}`."))
    for key in ("recordings", "validate"):
        for index, spec in enumerate(study.recordings if key == "recordings" else study.validation):
            for part in ("inputs", "sensors"):
                if list(getattr(spec, part)) != list(getattr(first, part)):
                    names = ", ".join(getattr(first, part))
                    message = f"has other {part} than the first recording"
                    found.append(Finding((key, index, part), None, message, f"Name {names}, in this order."))
    own = study.latent
    if own.noise is not None and len(first.sensors) > 1:
        message = "one number for the noise of several sensors"
        found.append(Finding(("latent", "noise"), own.noise, message, "Take it out: each is estimated."))
    return found


def _named(loc: tuple[str | int, ...], given: dict[str, Any], known: dict[str, Any], what: str) -> list[Finding]:
    """One entry, of those that are known."""
    names = " or ".join(known)
    if len(given) != 1:
        message = f"must name one of {names}, got {', '.join(given) or 'none'}"
        return [Finding(loc, None, message, f"Write `{loc[-1]}: {{{next(iter(known))}: COLUMN}}`.")]
    name, columns = next(iter(given.items()))
    if name not in known:
        return [Finding((*loc, name), None, f"'{name}' is not {what} of a mass on a spring", f"Write {names}.")]
    if isinstance(columns, list) and len(columns) != 1:
        return [Finding((*loc, name), None, f"reads one number, but names {len(columns)} columns", "Name one column.")]
    return []


def json_schema() -> dict[str, Any]:
    """The JSON Schema of these files, for editors that complete and check them."""
    schema = LatentStudy.model_json_schema()
    title = "spookax study of an unknown force, format version 1"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": title}
