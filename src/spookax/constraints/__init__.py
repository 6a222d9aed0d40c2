"""Rows of the step: joints, axes (springs, friction, motors), the user's own, and their assembly."""

from .assemble import Rows as Rows
from .assemble import assemble as assemble
from .axes import coordinates as coordinates
from .axes import rates as rates
from .custom import AbstractBounded as AbstractBounded
from .custom import AbstractHolonomic as AbstractHolonomic
from .custom import AbstractNonholonomic as AbstractNonholonomic
from .custom import AbstractUnilateral as AbstractUnilateral
from .custom import Pose as Pose
from .prepared import Prepared as Prepared
from .prepared import prepare as prepare
