"""The inertia of a rigid body as it stands in a file, and what makes it physical."""

from typing import Annotated, Any

import numpy as np
import pydantic
from pydantic import Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from spookax.scene.explain import Finding, refuse
from spookax.scene.fields import Number, Strict, matrix

COMPONENTS = ("xx", "yy", "zz", "xy", "xz", "yz")
MOMENTS = COMPONENTS[:3]


class Inertia(Strict):
    """Inertia about the centre of mass in body axes. [kg m^2]

    In a file also the diagonal `[xx, yy, zz]` or three rows. Off-diagonal entries are those of the matrix:
    `xy` is minus the integral of x y over the mass.
    """

    xx: Number = Field(description="Moment of inertia about x [kg m^2]")
    yy: Number = Field(description="Moment of inertia about y [kg m^2]")
    zz: Number = Field(description="Moment of inertia about z [kg m^2]")
    xy: Number = Field(default=0.0, description="Entry xy of the inertia matrix [kg m^2]")
    xz: Number = Field(default=0.0, description="Entry xz of the inertia matrix [kg m^2]")
    yz: Number = Field(default=0.0, description="Entry yz of the inertia matrix [kg m^2]")

    def matrix(self) -> np.ndarray:
        """The symmetric matrix, (3, 3). [kg m^2]"""
        return np.array([[self.xx, self.xy, self.xz], [self.xy, self.yy, self.yz], [self.xz, self.yz, self.zz]])

    @pydantic.model_validator(mode="before")
    @classmethod
    def _from_list(cls, data: Any) -> Any:
        if not isinstance(data, list | tuple):
            return data
        if len(data) == 3 and not any(isinstance(row, list | tuple) for row in data):
            return dict(zip(COMPONENTS, data, strict=False))
        rows = matrix(data)
        cure = "Write {xx: , yy: , zz: , xy: , xz: , yz: }, [xx, yy, zz] or three rows of three numbers."
        if rows is None:
            refuse([Finding((), data, "is not a matrix of three rows of three numbers", cure)])
        array = np.array(rows)
        finite = bool(np.all(np.isfinite(array)))  # what is not finite is refused entry by entry
        if finite and not np.allclose(array, array.T, rtol=0, atol=1e-9 * np.abs(array).max()):
            refuse([Finding((), data, "must be a symmetric matrix", cure)])
        return from_matrix(array)

    @pydantic.model_validator(mode="after")
    def _physical(self) -> "Inertia":
        refuse(flaws(self.matrix()))
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        by_name = handler.resolve_ref_schema(handler(core_schema))
        three = {"type": "array", "minItems": 3, "maxItems": 3}
        number = {"type": "number"}
        diagonal = {**three, "items": number, "description": "Diagonal, xx, yy, zz [kg m^2]"}
        rows = {**three, "items": {**three, "items": number}, "description": "Three rows [kg m^2]"}
        return {"description": by_name.pop("description"), "anyOf": [by_name, diagonal, rows]}


Symmetric = Annotated[np.ndarray, "3 3"]


def from_matrix(inertia: Symmetric) -> dict[str, float]:
    """The six components, by name, of a (3, 3) matrix. [kg m^2]"""
    index = {"x": 0, "y": 1, "z": 2}
    return {name: float(inertia[index[name[0]], index[name[1]]]) for name in COMPONENTS}


def flaws(inertia: Symmetric) -> list[Finding]:
    """What keeps a (3, 3) matrix from being the inertia of a rigid body, with its principal moments.

    The principal moments must be positive, and none may exceed the sum of the other two (each is a
    sum such as the integral of y^2 + z^2); rounding of 1e-9 of the largest is forgiven.
    """
    if not np.all(np.isfinite(inertia)):
        return []
    a, b, c = (float(moment) for moment in np.linalg.eigvalsh(inertia))
    moments = f"its principal moments are {a:.6g}, {b:.6g} and {c:.6g} kg m^2"
    if a <= 0:
        message = f"must be positive definite; {moments}"
        return [Finding((), None, message, "Make every moment > 0 and the products of inertia smaller.")]
    if c > (a + b) * (1 + 1e-9):
        message = f"violates the triangle inequality: {moments}, and {c:.6g} > {a:.6g} + {b:.6g}"
        cure = "No mass distribution has that; check the units, and whether all moments are about one point."
        return [Finding((), None, message, cure)]
    return []
