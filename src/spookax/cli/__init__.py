"""The shell: `spookax check | simulate | identify | filter | smooth | view | import-mjcf | export-mjcf`."""

from . import mjcf as mjcf  # registers its commands
from .app import app as app
