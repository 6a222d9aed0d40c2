"""Rows of the step: joints, axes (springs, friction, motors), the user's own, and their assembly."""

from .assemble import Prepared as Prepared
from .assemble import Rows as Rows
from .assemble import assemble as assemble
from .assemble import prepare as prepare
from .axes import coordinates as coordinates
from .axes import rates as rates
from .custom import AbstractHolonomic as AbstractHolonomic
from .custom import AbstractNonholonomic as AbstractNonholonomic
from .custom import Pose as Pose
