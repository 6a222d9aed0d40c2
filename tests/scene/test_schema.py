"""The published JSON Schema is that of the code, and describes everything."""

import json
import subprocess
import sys
from pathlib import Path

from spookax.scene import json_schema

PUBLISHED = Path(__file__).parents[2] / "docs" / "schema" / "scene.schema.json"


def test_the_published_schema_is_up_to_date():
    assert json.loads(PUBLISHED.read_text()) == json_schema()


def test_running_the_module_prints_the_published_file():
    command = [sys.executable, "-W", "error", "-m", "spookax.scene.schema"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == PUBLISHED.read_text()


def test_every_key_is_described():
    schema = json_schema()
    parts = [*schema["$defs"].values(), schema, schema["$defs"]["Inertia"]["anyOf"][0]]
    named = [(name, field) for part in parts for name, field in part.get("properties", {}).items()]
    assert len(named) > 60
    assert [name for name, field in named if not field.get("description")] == []
