"""The section `latent` of a study file: a mass on a spring whose friction is unknown."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from spookax.scene.explain import Finding, refuse
from spookax.scene.fields import NonNegative, Positive, Strict
from spookax.study.file import units as u
from spookax.study.file.study import Recorded

INPUTS = {"force": (u.FORCE,), "base": (u.LENGTH,)}
"""What drives the mass, and in which dimension."""
SENSORS = {"displacement": (u.LENGTH,), "velocity": (u.SPEED,), "acceleration": (u.ACCELERATION,)}
"""What is read of the mass, and in which dimension."""

Law = Literal["auto", "coulomb", "stribeck", "dieterich-ruina"]
Correctable = Literal["mass", "damping", "stiffness"]
Treatment = Literal["map", "laplace", "sample"]
Many = Annotated[int, Field(strict=True, ge=20, le=100_000)]
Count = Annotated[int, Field(strict=True, ge=1, le=9)]


class Latent(Strict):
    """What is known of the mechanism, m z'' + c z' + k z + f = load, and how its friction f is found."""

    mass: Positive = Field(description="Mass m [kg]")
    damping: NonNegative = Field(description="Viscous damping c, as far as it is known [N s/m]")
    stiffness: NonNegative = Field(description="Stiffness k of the spring [N/m]")
    correct: list[Correctable] = Field(
        default_factory=list, description="Which of mass, damping and stiffness are guesses, to be corrected"
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

    latent: Latent = Field(description="What is known of the mechanism, and how the force is found")

    @model_validator(mode="after")
    def _driven_and_read(self) -> "LatentStudy":
        found = []
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
        return "base" in self.recordings[0].inputs


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
