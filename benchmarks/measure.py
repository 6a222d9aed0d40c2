"""What the benchmarks share: times after compilation, compile times, peak memory, and the rows they report."""

import dataclasses
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from spookax._compiled import PLAIN, known_options

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build/benchmarks"

Row = dict[str, str | float | None]
MIB = 2**20


@dataclasses.dataclass(frozen=True)
class Times:
    """Repetitions of one call: best and median of the wall time, least processor time of all threads [s]."""

    best: float
    median: float
    processor: float


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A compiled function, the time to trace and compile it [s], and its temporary memory [bytes], if XLA tells."""

    call: Callable[..., Any]
    seconds: float
    temporary: float | None


def timed(call: Callable[[], Any], budget: float = 2.0, least: int = 5, most: int = 100) -> Times:
    """Repeat a call that is compiled already, for about `budget` seconds; the first one does not count."""
    jax.block_until_ready(call())
    walls: list[float] = []
    processors: list[float] = []
    began = time.perf_counter()
    while len(walls) < least or (len(walls) < most and time.perf_counter() - began < budget):
        started, processor = time.perf_counter(), time.process_time()
        jax.block_until_ready(call())
        walls.append(time.perf_counter() - started)
        processors.append(time.process_time() - processor)
    return Times(min(walls), statistics.median(walls), min(processors))


def compile_now(function: Callable[..., Any], *args: Any, options: Mapping[str, Any] | None = None) -> Compiled:
    """Trace, lower and compile a function of arrays for these arguments; with the options of `sx.jit`, or others."""
    chosen = known_options(PLAIN) if options is None else dict(options)
    began = time.perf_counter()
    call = jax.jit(function, compiler_options=chosen).lower(*args).compile()
    return Compiled(call, time.perf_counter() - began, temporary_memory(call))


def temporary_memory(compiled: Any) -> float | None:
    """Temporary memory of a compiled program [bytes]."""
    analysis = compiled.memory_analysis()
    return None if analysis is None else float(analysis.temp_size_in_bytes)


def peak_memory() -> float:
    """Largest resident size of this process so far [MiB]."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / MIB if sys.platform == "darwin" else peak / 1024


class CompileClock:
    """What JAX traces and compiles: the times since the last `take`."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []

    def take(self) -> float:
        """Length of time covered since the last call, overlaps counted once [s]."""
        covered, until = 0.0, 0.0
        for begin, end in sorted(self.spans):
            covered += max(0.0, end - max(begin, until))
            until = max(until, end)
        self.spans.clear()
        return covered


@contextmanager
def compile_clock() -> Iterator[CompileClock]:
    """Listen to everything that JAX traces and compiles inside."""
    clock = CompileClock()

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event.startswith("/jax/core/compile/"):
            clock.spans.append((time.time() - duration_secs, time.time()))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield clock
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def row(
    case: str,
    quantity: str,
    best: float,
    unit: str,
    *,
    median: float | None = None,
    over: float | None = None,
    to: str = "",
) -> Row:
    """One line of a table. `over`, `to`: the value that the ratio refers to, and its name."""
    ratio = None if over is None else best / over
    return {
        "case": case,
        "quantity": quantity,
        "best": best,
        "median": median,
        "unit": unit,
        "ratio": ratio,
        "to": to or None,
    }


def beside(
    case: str, quantity: str, unit: str, ours: float, theirs: Mapping[str, float], scale: float = 1.0
) -> list[Row]:
    """Lines of the same quantity, the package's and the peers', each of these with what ours is times it."""
    rows = [row(case, quantity, ours * scale, unit)]
    for label, value in theirs.items():
        line = row(case, f"{quantity}, {label}", value * scale, unit)
        rows.append({**line, "ratio": ours / value, "to": "ours over this"})
    return rows


def table(rows: list[Row]) -> str:
    """Rows as aligned text; the columns are the keys of the rows, those without any value left out."""
    names = list(dict.fromkeys(name for line in rows for name, value in line.items() if value is not None))
    cells = [names, *([_cell(line.get(name)) for name in names] for line in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    numeric = [any(isinstance(line.get(name), int | float) for line in rows) for name in names]
    return "\n".join(
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in cells
    )


def _cell(value: str | float | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
