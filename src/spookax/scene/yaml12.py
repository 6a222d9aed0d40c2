"""YAML whose numbers and words follow the core schema of YAML 1.2.

PyYAML follows YAML 1.1, where `1e-3` is text and `on`, `yes` and `no` are true or false.
"""

import re
from typing import Any, ClassVar

import yaml

_CORE = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
}


class Loader12(yaml.SafeLoader):
    """Composes nodes whose tags are those of YAML 1.2."""

    yaml_implicit_resolvers: ClassVar = {}


class Dumper12(yaml.SafeDumper):
    """Writes plain data; lists of numbers on one line."""

    yaml_implicit_resolvers: ClassVar = {}


for _tag, (_pattern, _first) in _CORE.items():
    for _side in (Loader12, Dumper12):
        _side.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)


def number(kind: str, text: str) -> int | float:
    """The number that a scalar of kind "int" or "float" stands for; hundreds of digits become a float.

    **Raises:** `ValueError` if it stands for none.
    """
    if kind == "int" and len(text) < 300:
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))


def _float(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    text = repr(value)
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")  # 1.0e-06 is a number to readers of YAML 1.1, too
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


def _sequence(dumper: yaml.SafeDumper, value: Any) -> yaml.SequenceNode:
    flow = not any(isinstance(item, dict) for item in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=flow)


Dumper12.add_representer(float, _float)
Dumper12.add_representer(tuple, _sequence)
Dumper12.add_representer(list, _sequence)
