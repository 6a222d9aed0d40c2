"""Recordings and study files: joins models and estimation."""

from spookax.study.check import check_against_scene as check_against_scene
from spookax.study.check import sensor_dimensions as sensor_dimensions
from spookax.study.model import RecordingSpec as RecordingSpec
from spookax.study.model import Study as Study
from spookax.study.model import json_schema as json_schema
from spookax.study.read import StudyError as StudyError
from spookax.study.read import read_study as read_study
from spookax.study.recording import Recording as Recording
from spookax.study.recording import read_recording as read_recording
from spookax.study.recording import read_recordings as read_recordings
from spookax.study.table import RecordingError as RecordingError
