"""Where surfaces touch: points, normals and gaps of pairs, as functions of poses and sizes."""

from .pair_kinds import KINDS as KINDS
from .pair_kinds import Most as Most
from .pair_kinds import Which as Which
from .pair_kinds import touches as touches
from .posed import Grid as Grid
from .posed import Polyhedron as Polyhedron
from .posed import Posed as Posed
from .posed import Touch as Touch
