"""Batches that are spread over several devices. A process has its devices from its start: they get one of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_batches_on_several_devices_do_what_they_do_on_one():
    surroundings = os.environ | {"JAX_NUM_CPU_DEVICES": "4", "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
    command = [sys.executable, "-W", "error", "-m", "tests.envs.spread_over_devices"]
    ran = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found.pop("devices") == [4]
    assert found.pop("refused") == "`spread`: 7 entries for 4 devices. Take a multiple of that number"
    assert max(found.values()) < 1e-12, found
