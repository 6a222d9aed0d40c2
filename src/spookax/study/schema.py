"""The JSON Schema of study files; `python -m spookax.study.schema` prints it, with `latent` that of unknown forces.

The package imports the models from where they are defined, so that this module can be run.
"""

import json
import sys

from spookax.study.file.study import json_schema
from spookax.study.latent import section as latent

if __name__ == "__main__":
    json.dump(latent.json_schema() if sys.argv[1:] == ["latent"] else json_schema(), sys.stdout, indent=2)
    print()
