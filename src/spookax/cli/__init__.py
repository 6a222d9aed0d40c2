"""The shell: `spookax COMMAND`; every command is a function of the modules below, whose docstring is its help."""

from . import choice as choice  # registers its commands
from . import latent as latent
from . import mjcf as mjcf
from . import predictions as predictions
from .app import app as app
