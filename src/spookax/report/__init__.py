"""The report of an estimate: one HTML file that opens offline."""

from .write import write_comparison as write_comparison
from .write import write_latent as write_latent
from .write import write_prediction as write_prediction
from .write import write_report as write_report
from .write import write_tracking as write_tracking
