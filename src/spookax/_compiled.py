"""`jit` with options for programs of many small operations, and `compiled` for the large ones of the estimators.

What they compile is kept on disk (`_store.py`) by what it depends on (`_fingerprint.py`), and loaded from there by a
later process: neither traced nor compiled again.
"""

import contextlib
import dataclasses
import functools
import hashlib
import pickle
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jax.experimental import serialize_executable

from ._fingerprint import NoFingerprintError, fingerprint, kind, settings, surroundings
from ._progress import compiling
from ._store import store

try:
    from jax._src.config import trace_context  # JAX's settings as this thread sees them: not public
except ImportError:
    trace_context = settings

T = TypeVar("T")

# A step is thousands of operations on tiny arrays. To run those that do not wait for each other at once, to call a
# library or to form a team of threads for a product of 3 by 3 matrices costs more than the product (`benchmarks/`).
PLAIN: dict[str, Any] = {
    "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    "xla_cpu_multi_thread_eigen": False,
    "xla_cpu_experimental_ynn_fusion_type": "",
    # compiling one fusion at a time by the newer emitters takes twice as long as by the elder ones; a step is no faster
    "xla_cpu_use_fusion_emitters": False,
    # into how many modules a program is cut, to be compiled by several threads: 32 cost a tenth more work than a few
    "xla_cpu_parallel_codegen_split_count": 4,
}
QUICK: dict[str, Any] = PLAIN | {"xla_backend_optimization_level": 1}
SLOW = QUICK | {"xla_backend_optimization_level": 0}


def known_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of XLA's options that this version of it knows."""
    return dict(_known(tuple(options.items())))


@functools.cache
def _known(options: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    def accepted(some: tuple[tuple[str, Any], ...]) -> bool:
        try:
            jax.jit(lambda x: x).lower(0.0).compile(dict(some))
        except Exception:
            return False
        return True

    return options if accepted(options) else tuple(option for option in options if accepted((option,)))


@functools.cache
def _fetch_lapack() -> None:
    """JAX looks LAPACK's routines up when it first lowers a call of one. A program from a file that calls them, in a
    process that has traced nothing, would jump to nowhere.
    """
    jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), np.float32))


@dataclasses.dataclass(frozen=True)
class _Slot:
    """In the form of a result: the place of an array."""

    number: int


@dataclasses.dataclass
class _Program:
    """An executable, which takes and returns arrays, and the form of its result."""

    run: Callable[..., Sequence[jax.Array]]
    form: Any
    leaves: list[Any]  # of the form: slots, and what is no array
    untried: bool = False  # from a file, and not run yet

    def __call__(self, arrays: Sequence[Any]) -> Any:
        out = self.run(*arrays)
        return jax.tree.unflatten(self.form, [out[x.number] if type(x) is _Slot else x for x in self.leaves])

    def packed(self, inputs: int) -> bytes:
        executable, _, _ = serialize_executable.serialize(self.run)  # pyright: ignore[reportArgumentType]
        return pickle.dumps((executable, inputs, jax.tree.unflatten(self.form, self.leaves)))

    @staticmethod
    def unpacked(payload: bytes) -> "_Program":
        if b"lapack" in payload:  # the names of what it calls
            _fetch_lapack()
        executable, inputs, result = pickle.loads(payload)
        leaves, form = jax.tree.flatten(result)
        outputs = [x for x in leaves if type(x) is _Slot]
        forms = jax.tree.structure(((0,) * inputs, {})), jax.tree.structure([0] * len(outputs))
        return _Program(serialize_executable.deserialize_and_load(executable, *forms), form, leaves, untried=True)


class Compiled(Generic[T]):
    """`eqx.filter_jit` with options for the outermost program, which is kept on disk.

    Several threads may call it: what is not compiled yet is compiled by one of them, and the others wait for it.
    """

    def __init__(self, function: Callable[..., T], options: Mapping[str, Any], donated: tuple[int, ...] = ()):
        functools.update_wrapper(self, function)
        self._function, self._options, self._donated = (
            function,
            options,
            donated,
        )  # arrays in place of which results lie
        self._compiling = threading.Lock()
        self._programs: dict[Any, _Program | None] = {}  # None: by `_jitted`
        _everything.add(self)

    @functools.cached_property
    def _part_of_another(self) -> Callable[..., T]:
        return eqx.filter_jit(self._function)  # options belong to the outermost program

    @functools.cached_property
    def _jitted(self) -> Callable[..., T]:
        options = known_options(self._options)
        return eqx.filter_jit(self._function, compiler_options=options)  # pyright: ignore[reportCallIssue]

    def __call__(self, *args: Any, **kwargs: Any) -> T:
        leaves, form = jax.tree.flatten((args, kwargs))
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            return self._part_of_another(*args, **kwargs)
        program = self._program(leaves, form)
        if program is None:
            return self._jitted(*args, **kwargs)
        arrays = [x for x in leaves if eqx.is_array(x)]
        return self._first_run(program, leaves, form, arrays) if program.untried else program(arrays)

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Compile for arguments of this form, unless that has been done."""
        if self._program(*jax.tree.flatten((args, kwargs))) is None:
            self._jitted(*args, **kwargs)

    def executable(self, *arrays: Any) -> Callable[..., Sequence[jax.Array]]:
        """The program itself, for arrays like these: it returns the arrays of the result. A call costs nothing else."""
        self(*arrays)
        program = self._program(list(arrays), jax.tree.structure((arrays, {})))
        return (lambda *given: jax.tree.leaves(self(*given))) if program is None else program.run

    def forget(self) -> None:
        """Let go of the programs in memory."""
        self._programs.clear()

    def _program(self, leaves: list[Any], form: Any) -> _Program | None:
        if _as_operations() or _elsewhere(leaves):
            return None
        name = _name(leaves, form)
        try:
            return self._programs[name]
        except KeyError:
            pass
        with self._compiling:
            if name not in self._programs:
                self._programs[name] = self._found(leaves, form)
            return self._programs[name]

    def _first_run(self, program: _Program, leaves: list[Any], form: Any, arrays: list[Any]) -> T:
        """The result of a program from a file, or of one that is built in its place if that does not run."""
        try:
            out = jax.block_until_ready(program(arrays))
            program.untried = False
            return out
        except jax.errors.JaxRuntimeError:
            with self._compiling:
                if (kept := store()) is not None and (key := self._key(leaves, form)) is not None:
                    kept.discard(key)
                name = _name(leaves, form)
                if self._programs.get(name) is program:
                    self._programs[name] = self._found(leaves, form)
            return self(*(given := jax.tree.unflatten(form, leaves))[0], **given[1])

    def _found(self, leaves: list[Any], form: Any) -> _Program | None:
        kept, key = store(), None
        if kept is not None:
            key = self._key(leaves, form)
        if kept is not None and key is not None and (payload := kept.read(key)) is not None:
            try:
                return _Program.unpacked(payload)
            except Exception:  # whatever it is that this version of JAX has against it
                kept.discard(key)
        with compiling(self.__name__):  # type: ignore[attr-defined]
            program = self._built(leaves, form)
        if program is not None and kept is not None and key is not None and not _compiler.cached:
            with contextlib.suppress(Exception):  # not every program can be kept
                kept.write(key, program.packed(sum(map(eqx.is_array, leaves))))
        return program

    def _key(self, leaves: list[Any], form: Any) -> bytes | None:
        """What the program depends on; None where that is not known."""
        told = settings()
        try:
            name = fingerprint(jax.tree.unflatten(form, leaves), self._function, dict(self._options), self._donated)
        except NoFingerprintError:
            return None
        return None if told is None else hashlib.sha256(name + told + surroundings()).digest()

    def _built(self, leaves: list[Any], form: Any) -> _Program | None:
        """Traced and compiled; None if it calls Python while it runs, which `equinox.filter_jit` reports better."""
        result: list[Any] = []

        def flat(*arrays: Any) -> list[Any]:
            given = iter(arrays)
            args, kwargs = jax.tree.unflatten(form, [next(given) if eqx.is_array(x) else x for x in leaves])
            found, shape = jax.tree.flatten(self._function(*args, **kwargs))
            out = [x for x in found if eqx.is_array(x)]
            numbers = iter(range(len(out)))
            result[:] = shape, [_Slot(next(numbers)) if eqx.is_array(x) else x for x in found]
            return out

        flat.__name__ = self.__name__  # type: ignore[attr-defined]
        lowered = jax.jit(flat, donate_argnums=self._donated).lower(*(x for x in leaves if eqx.is_array(x)))
        if _calls_python(lowered):
            return None
        options = known_options(self._options)
        _compiler.cached = False
        return _Program(lowered.compile(options), *result)


def on_device(x: Any) -> jax.Array:
    """Floats of the host as an array of JAX. `jax.numpy.asarray` compiles a program for every shape."""
    return jax.device_put(np.asarray(x, dtype=float))


def _name(leaves: list[Any], form: Any) -> Any:
    """Of a program, in this process."""
    return form, tuple([kind(x) if eqx.is_array(x) else (type(x), x) for x in leaves]), trace_context()


_everything: weakref.WeakSet[Compiled[Any]] = weakref.WeakSet()


class _Compiler(threading.local):
    """Whether this thread's last program came from JAX's own cache: it would not survive a second one."""

    cached = False

    def listen(self, event: str, **_: Any) -> None:
        if event == "/jax/compilation_cache/cache_hits":
            self.cached = True


_compiler = _Compiler()
jax.monitoring.register_event_listener(_compiler.listen)


def forget_programs() -> None:
    """Let go of all programs in memory, as `jax.clear_caches` does; those on disk stay."""
    for each in tuple(_everything):
        each.forget()


def _calls_python(lowered: Any) -> bool:
    arguments = getattr(lowered._lowering, "compile_args", None) or {}
    return bool(arguments.get("host_callbacks", True))


def _as_operations() -> bool:
    """Whether JAX is asked to run one operation after the other, or to watch them."""
    return jax.config.jax_disable_jit or jax.config.jax_debug_nans or jax.config.jax_debug_infs  # pyright: ignore


def _elsewhere(leaves: list[Any]) -> bool:
    """Whether an array lies on another device than the usual one, or on several."""
    if len(jax.devices()) == 1:
        return False
    usual = {jax.config.jax_default_device or jax.devices()[0]}  # pyright: ignore[reportAttributeAccessIssue]
    return any(isinstance(x, jax.Array) and x.devices() != usual for x in leaves)


def jit(function: Callable[..., T]) -> Compiled[T]:
    """`jax.jit` for programs that step: arrays are traced, everything else is part of the program, as in
    `equinox.filter_jit`.

    On a CPU with XLA's own options a step takes up to twice as long, because operations that do not wait for each
    other are handed to several threads, which takes longer than to do them. Inside another compiled function these
    options are that one's.
    """
    return Compiled(function, PLAIN)


def compiled(function: Callable[..., T]) -> Compiled[T]:
    """A function as `Compiled`, in nine tenths of the time of `jit`, to run at nine tenths of the speed."""
    return Compiled(function, QUICK)


def seldom_called(function: Callable[..., T]) -> Compiled[T]:
    """A function as `Compiled` in half the time, to run at a quarter of the speed."""
    return Compiled(function, SLOW)
