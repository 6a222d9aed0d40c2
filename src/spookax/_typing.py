"""Array aliases. Shapes are given as jaxtyping annotations, units in the docstrings (SI throughout)."""

from typing import TypeAlias

from jaxtyping import Array, Float, Int

Scalar: TypeAlias = Float[Array, ""]
Vector3: TypeAlias = Float[Array, " 3"]
Quaternion: TypeAlias = Float[Array, " 4"]
Matrix3: TypeAlias = Float[Array, "3 3"]

__all__ = ["Array", "Float", "Int", "Matrix3", "Quaternion", "Scalar", "Vector3"]
