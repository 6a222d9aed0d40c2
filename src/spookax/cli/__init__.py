"""The shell: `spookax COMMAND`; every command is a function of the modules below, whose docstring is its help."""

from . import mjcf as mjcf  # registers its commands
from . import predictions as predictions
from .app import app as app
