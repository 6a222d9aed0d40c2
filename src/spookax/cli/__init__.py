"""The shell: `spookax check | simulate | identify | view`."""

from .app import app as app
