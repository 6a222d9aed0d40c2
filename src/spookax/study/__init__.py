"""Recordings and study files: joins models and estimation."""

from spookax.study.file.against_scene import check_against_scene as check_against_scene
from spookax.study.file.against_scene import sensor_dimensions as sensor_dimensions
from spookax.study.file.read import StudyError as StudyError
from spookax.study.file.read import read_study as read_study
from spookax.study.file.study import RecordingSpec as RecordingSpec
from spookax.study.file.study import Study as Study
from spookax.study.file.study import json_schema as json_schema
from spookax.study.file.table import RecordingError as RecordingError
from spookax.study.recordings.recording import Recording as Recording
from spookax.study.recordings.recording import read_recording as read_recording
from spookax.study.recordings.recording import read_recordings as read_recordings
