"""What a compiled program depends on besides the values of its arrays, as a digest that is the same in every process.

Numbers in arrays are no part of it, only their shapes and types. Whatever is not an array is: names, connections,
options, classes, and functions with what they enclose. Objects of classes that neither this package nor the libraries
below it define have no digest: their code may depend on anything.
"""

import dataclasses
import enum
import functools
import hashlib
import importlib.metadata
import os
import platform
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

_KNOWN = frozenset(
    ("spookax", "jax", "jaxlib", "equinox", "jaxtyping", "numpy", "builtins", "functools", "operator", "math")
)
_VERSIONED = ("blackjax", "jax", "jaxlib", "equinox", "lineax", "numpy", "optimistix")
# settings of JAX that change what is logged or where compiled programs are kept, not what they compute
_IDLE = ("compilation_cache", "persistent_cache", "log", "traceback", "pprint", "captured_constants", "raise_")


_PLAIN = (bool, int, float, complex, str, bytes, type(Ellipsis))
_ARRAYS = (np.ndarray, np.generic, jax.Array)


class NoFingerprintError(Exception):
    """Something of unknown dependencies."""


def fingerprint(arguments: Any, *others: Any) -> bytes:
    """Digest of a pytree of arguments, arrays by shape and type and the rest by value, and of others by value.

    **Raises:** `NoFingerprintError` for objects of classes, and for functions, of other packages.
    """
    walk = _Walk()
    leaves, form = jax.tree.flatten(arguments)
    kinds = [kind(x) if isinstance(x, _ARRAYS) else walk.digest(x) for x in leaves]
    return hashlib.sha256(walk.form(form) + repr(kinds).encode() + walk.digest(others)).digest()


def kind(x: Any) -> tuple[Any, ...]:
    """Of an array: what a program is compiled for. Values are no part of it."""
    if isinstance(x, jax.Array):
        return x.shape, str(x.dtype), getattr(x, "weak_type", False)  # keys of random numbers among them
    return x.shape, str(jax.dtypes.canonicalize_dtype(x.dtype)), False


@functools.cache
def surroundings() -> bytes:
    """Digest of the code of this package, the versions below it, the machine's processor and XLA's options."""
    digest = hashlib.sha256()
    home = Path(__file__).parent
    for file in sorted(home.rglob("*.py")):
        digest.update(f"{file.relative_to(home)}\0".encode() + file.read_bytes())
    device = jax.devices()[0]
    versions = [_version(name) for name in _VERSIONED]
    said = (versions, platform.machine(), processor(), os.environ.get("XLA_FLAGS"), device.client.platform_version)
    digest.update(repr((said, device.platform, device.device_kind, len(jax.devices()))).encode())
    return digest.digest()


def _version(name: str) -> str | None:
    """Of a library; None where it is not installed, as those of extras need not be."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def settings() -> bytes | None:
    """Digest of JAX's settings as this thread sees them; None where this version of JAX does not tell them."""
    try:
        from jax._src.config import config_states
    except ImportError:
        return None
    told = [(name, state.value) for name, state in config_states.items() if not any(part in name for part in _IDLE)]
    return hashlib.sha256(repr(sorted(told, key=lambda pair: pair[0])).encode()).digest()


def processor() -> str:
    """Name and features: a program is machine code for this processor."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor()
    lines = info.read_text(errors="replace").splitlines()
    told = ("flags", "Features", "model name", "CPU part", "CPU implementer")
    return "\n".join(sorted({line for line in lines if line.startswith(told)}))


class _Walk:
    """One digest; objects that are met again are not walked again."""

    def __init__(self):
        self._met: dict[int, tuple[Any, bytes]] = {}  # the objects too: an address may be given again

    def form(self, form: Any) -> bytes:
        """Of the structure of a pytree, with what its nodes hold beside their children."""
        node, children = form.node_data(), [self.form(child) for child in form.children()]
        return hashlib.sha256((b"leaf" if node is None else self.digest(node)) + b"".join(children)).digest()

    def digest(self, x: Any) -> bytes:
        """By value."""
        known = self._met.get(id(x))
        if known is None:
            self._met[id(x)] = x, b"itself"  # a function may enclose itself
            known = self._met[id(x)] = x, self._digest(x)
        return known[1]

    def _many(self, name: Any, parts: Iterable[Any]) -> bytes:
        return hashlib.sha256(f"{name}\0".encode() + b"".join(map(self.digest, parts))).digest()

    def _digest(self, x: Any) -> bytes:
        what = type(x)
        if x is None or what in _PLAIN or isinstance(x, np.dtype):
            return _text(what.__name__, x)
        if isinstance(x, _ARRAYS):
            return _text("array", *kind(x), np.asarray(x).tobytes())
        if what in (tuple, list):
            return self._many(what.__name__, x)
        if isinstance(x, Mapping):
            return self._many("mapping", (part for pair in x.items() for part in pair))
        if isinstance(x, jax.tree_util.PyTreeDef):
            return self.form(x)
        if what in (set, frozenset):
            return _text("set", sorted(map(self.digest, x)))
        if isinstance(x, types.FunctionType):
            return self._function(x)
        if isinstance(x, types.MethodType):
            return self._many("method", (x.__func__, x.__self__))
        if isinstance(x, functools.partial):
            return self._many("partial", (x.func, x.args, x.keywords))
        if isinstance(x, type | types.BuiltinFunctionType | np.ufunc):
            return _text("named", *_place(x))
        place = _place(what)
        if isinstance(x, enum.Enum):
            return _text("enum", place, x.name)
        if dataclasses.is_dataclass(x):  # equinox modules are
            return self._many(place, (part for f in dataclasses.fields(x) for part in (f.name, getattr(x, f.name))))
        if hasattr(x, "__wrapped__"):  # jitted, or with a derivative of its own
            return self._many(place, (x.__wrapped__,))
        if isinstance(x, tuple):
            return self._many(place, x)
        if vars(x) == {} if hasattr(x, "__dict__") else not hasattr(what, "__slots__"):  # a marker
            return _text("marker", place)
        raise NoFingerprintError(repr(place))

    def _function(self, f: types.FunctionType) -> bytes:
        enclosed = [cell.cell_contents for cell in f.__closure__ or ()]
        return self._many(_place(f), (f.__defaults__, f.__kwdefaults__, enclosed, _code(f.__code__)))


def _code(code: types.CodeType) -> tuple[Any, ...]:
    """Tells functions of one name apart; what they call is part of `surroundings`."""
    constants = tuple(_code(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts)
    return code.co_code, code.co_names, constants


def _text(*parts: Any) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


def _place(x: Any) -> tuple[str, str]:
    module = getattr(x, "__module__", None) or ("numpy" if isinstance(x, np.ufunc) else "builtins")
    if module.partition(".")[0].lstrip("_") not in _KNOWN:
        raise NoFingerprintError(f"{module}.{getattr(x, '__qualname__', x)}")
    return module, getattr(x, "__qualname__", None) or x.__name__
