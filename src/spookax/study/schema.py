"""The JSON Schema of study files; `python -m spookax.study.schema` prints it.

The package imports the models from where they are defined, so that this module can be run.
"""

import json
import sys

from spookax.study.model import json_schema

if __name__ == "__main__":
    json.dump(json_schema(), sys.stdout, indent=2)
    print()
