"""Mixed linear complementarity problems as data, solvers that say why they stopped, and one derivative."""

from .active_set import active_set as active_set
from .active_set import active_set_solve as active_set_solve
from .block_pivoting import BlockPivoting as BlockPivoting
from .derivative import free_rows as free_rows
from .derivative import solve_mlcp as solve_mlcp
from .lemke import Lemke as Lemke
from .mlcp import MLCP as MLCP
from .mlcp import AbstractMLCPSolver as AbstractMLCPSolver
from .mlcp import Solution as Solution
from .projected import ProjectedGaussSeidel as ProjectedGaussSeidel
from .projected import projected_sweeps as projected_sweeps
from .replay import Replay as Replay
