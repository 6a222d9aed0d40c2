"""Where surfaces touch: points, normals and gaps of pairs, as functions of poses and sizes."""

from .touch import Mesh as Mesh
from .touch import Posed as Posed
from .touch import Touch as Touch
from .touch import touches as touches
