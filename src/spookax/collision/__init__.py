"""Where surfaces touch: points, normals and gaps of pairs, as functions of poses and sizes."""

from .kinds import KINDS as KINDS
from .kinds import Most as Most
from .kinds import Which as Which
from .kinds import touches as touches
from .posed import Polyhedron as Polyhedron
from .posed import Posed as Posed
from .posed import Touch as Touch
