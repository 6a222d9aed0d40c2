"""Array aliases. Shapes are given as jaxtyping annotations, units in the docstrings (SI throughout)."""

from typing import TypeAlias

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

AnyArray: TypeAlias = Array | np.ndarray  # on a device or on the host: what compiled functions take

Scalar: TypeAlias = Float[Array, ""]
Vector3: TypeAlias = Float[Array, " 3"]
Quaternion: TypeAlias = Float[Array, " 4"]
Matrix3: TypeAlias = Float[Array, "3 3"]

__all__ = ["AnyArray", "Array", "Bool", "Float", "Int", "Matrix3", "Quaternion", "Scalar", "Shaped", "Vector3"]
