"""What spares boilerplate in a study file: `defaults` of all recordings, and several `windows` of one file.

Both are written out before anything else looks at the data, and every place in the result knows which of the user's
places it comes from.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeGuard, get_args

from spookax.scene.explain import Finding, Loc, nearest, shown
from spookax.scene.fields import is_number
from spookax.scene.located import Located
from spookax.study.file.key_rules import default_name

RecordingList = Literal["recordings", "validate"]
"""A key of a study that lists recordings."""

LISTS: tuple[RecordingList, ...] = get_args(RecordingList)

SHARED = ("time", "inputs", "sensors", "every", "time_sd", "offsets")
"""What `defaults` may say for all recordings."""

Span = Callable[[Mapping[str, Any]], tuple[float, float] | None]
"""First and last stamp of a recording's file [s], of its raw entry; None where they cannot be read."""

_MOST = 10_000  # windows of one recording: more are a slip of units


def written_out(data: Any, span: Span = lambda _: None) -> tuple[Any, dict[Loc, Loc]]:
    """The raw data of a study with one entry for each window, and in each entry what `defaults` says.

    `span`: first and last stamp of an entry's file, asked where windows of a length have no `stop`. What is wrong with
    a window stays as it is, for the schema to refuse. Data that is written out stays as it is.

    **Returns:** the data, and for places in it that the user wrote elsewhere: the place -> that of the user.
    """
    moved: dict[Loc, Loc] = {}
    if not isinstance(data, dict):
        return data, moved
    defaults = data.get("defaults")
    shared = {key: defaults[key] for key in SHARED if key in defaults} if isinstance(defaults, dict) else {}
    result = dict(data)
    for key in LISTS:
        if not isinstance(data.get(key), list):
            continue
        result[key] = []
        for index, entry in enumerate(data[key]):
            here: Loc = (key, index)
            for changes, places in _windows(_ended(entry, shared, span), here):
                there = (key, len(result[key]))
                moved[there] = here
                if isinstance(entry, dict):
                    moved |= {(*there, name): ("defaults", name) for name in shared if name not in entry}
                    moved |= {(*there, name): place for name, place in places.items()}
                    kept = {name: value for name, value in entry.items() if name not in changes}
                    changes = {name: value for name, value in changes.items() if name != "windows"}
                    result[key].append({**shared, **kept, **changes})
                else:
                    result[key].append(entry)
    return result, moved


def located_out(located: Located, span: Span) -> Located:
    """A study file's data written out; its lines and places are still those of the file."""
    data, moved = written_out(located.data, span)
    return dataclasses.replace(located, data=data, moved=moved)


def _ended(entry: Any, shared: Mapping[str, Any], span: Span) -> Any:
    """An entry that is to be split, with `start` and `stop` from its file where `stop` is left out."""
    if not (isinstance(entry, dict) and isinstance(entry.get("windows"), dict) and entry.get("stop") is None):
        return entry
    ends = span({**shared, **entry})
    return entry if ends is None else {"start": ends[0], **entry, "stop": ends[1]}


def _windows(entry: Any, here: Loc) -> Iterator[tuple[dict[str, Any], dict[str, Loc]]]:
    """Of each recording that an entry stands for: what its window changes in it, and where the user wrote that."""
    windows = entry.get("windows") if isinstance(entry, dict) else None
    if windows is None:
        yield {}, {}
        return
    if window_findings(entry):
        yield {key: entry[key] for key in ("start", "stop") if key in entry}, {}
        return
    if not all(entry.get(key) is None or is_number(entry[key]) for key in ("start", "stop")):
        yield {"windows": None}, {}  # these keys are refused, and there is nothing to split
        return
    place: Loc = (*here, "windows")
    if isinstance(windows, dict):
        spans, places = _split(entry), None
    else:
        spans, places = windows, [(*place, k) for k in range(len(windows))]
    name = entry.get("name") or default_name(entry)
    for k, (start, stop) in enumerate(spans):
        changes: dict[str, Any] = {"windows": None, "start": start, "stop": stop}
        if isinstance(name, str):
            changes["name"] = f"{name}_{k + 1}"
        yield changes, dict.fromkeys(("start", "stop"), places[k] if places else place)


def _split(entry: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Consecutive whole windows from `start` (else 0) to `stop`; each n-th of them."""
    length, start = entry["windows"]["length"], entry.get("start") or 0.0
    count = math.floor((entry["stop"] - start) / length * (1 + 1e-9))
    every = entry["windows"].get("every") or 1
    return [(round(start + k * length, 12), round(start + (k + 1) * length, 12)) for k in range(0, count, every)]


def window_findings(entry: Mapping[str, Any]) -> list[Finding]:
    """What is wrong with the `windows` of a recording; places are relative to the recording."""
    windows = entry["windows"]
    if isinstance(windows, Mapping):
        return list(_split_findings(entry, windows))
    cure = "Write times on the recording's own clock [s], such as [[0, 2.5], [5, 7.5]], or {length: 2.5}."
    if not isinstance(windows, list | tuple) or not windows:
        return [Finding(("windows",), windows, f"must be a list of windows, got {shown(windows or None)}", cure)]
    found = [
        Finding((key,), entry[key], "the windows have times of their own", "Delete this line, or the list of windows.")
        for key in ("start", "stop")
        if entry.get(key) is not None
    ]
    for k, window in enumerate(windows):
        pair = isinstance(window, list | tuple) and len(window) == 2 and all(map(_is_time, window))
        if not pair or window[0] >= window[1]:
            found.append(
                Finding(("windows", k), window, f"must be [start, stop] of a window, got {shown(window)}", cure)
            )
    return found


def _split_findings(entry: Mapping[str, Any], windows: Mapping[str, Any]) -> Iterator[Finding]:
    for key in windows:
        if key not in ("length", "every"):
            yield Finding(("windows", key), windows[key], "unknown key", nearest(key, ("length", "every")))
    length, every = windows.get("length"), windows.get("every")
    if not _is_time(length) or length <= 0:
        message = "is missing" if length is None else f"must be a number > 0 s, got {shown(length)}"
        yield Finding(("windows", "length"), length, message, "Write `length: 2.5`, in seconds.")
        return
    if every is not None and (type(every) is not int or every < 1):
        message = f"must be a whole number >= 1, got {shown(every)}"
        yield Finding(("windows", "every"), every, message, "Write 3 to take each third window.")
    start, stop = entry.get("start"), entry.get("stop")
    if stop is None:
        message = "nothing says where the last window ends, for the times of the file cannot be read"
        yield Finding(("windows",), None, message, "Mend that, or add `stop`: the last time used [s].")
    elif _is_time(stop) and (start is None or _is_time(start)):
        count = (stop - (start or 0.0)) / length * (1 + 1e-9)
        if not 1 <= count <= _MOST:
            word = "no whole window" if count < 1 else f"more than {_MOST} windows"
            message = f"there is {word} of {length:g} s between {start or 0.0:g} s and {stop:g} s"
            yield Finding(
                ("windows", "length"), length, message, "Change it, or `start` and `stop`; all are in seconds."
            )


def _is_time(value: Any) -> TypeGuard[float]:
    return is_number(value) and math.isfinite(value)
