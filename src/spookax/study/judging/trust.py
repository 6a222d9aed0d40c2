"""Whether to trust an estimate, in a sentence and its reasons, from the content of `estimate.json`."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Grade = Literal["good", "fair", "bad"]

_WRONG = 0.5  # error of a simulation over the signal's standard deviation: it predicts nothing
_ROUGH = 0.1  # the same: it is not to be relied on for long
_NOISE = 3.0  # times the sensors' assumed noise: beyond it an error is the model's
_OTHER = 10.0  # ratio of found and assumed noise that is not to be passed over
_COLOURED = 3.0  # factor on standard deviations
_FAR_MORE = 3.0  # times the share of outliers that the study expects
_SOME = 10  # outliers of a sensor that are worth a word
_NEARLY_ALL = 0.9  # of the innovations' square
# suspicions for which no law has to be found
_MENDED = frozenset({"clock", "delay", "drift", "scale", "sign", "step", "unit", "zero"})
_SWALLOWED = 10.0  # ratio of the process noise that the evidence asks for and the one that predicts best


@dataclass(frozen=True)
class Trust:
    """`sentence`: what to do with the estimate; `reasons`: why, the worst first."""

    grade: Grade
    sentence: str
    reasons: tuple[str, ...]


def _with_units(rms: float, units: str) -> str:
    """An error in the units of a sensor's numbers, `m, m, m`: those that are equal once."""
    return f"{rms:.2g} {', '.join(dict.fromkeys(units.split(', ')))}".strip()


def trust(content: Mapping[str, Any]) -> Trust:
    """What the content of an estimate says about its use. What is missing is passed over."""
    bad, fair, aside = list(_bad(content)), list(_fair(content)), list(_set_aside(content))
    if bad:
        return Trust("bad", "Do not use these numbers", tuple(bad + fair + aside))
    if fair:
        return Trust("fair", "Use these numbers with care", tuple(fair + aside))
    if not content.get("runs"):
        return Trust("fair", "Nothing shows how well this estimate predicts", ())
    return Trust("good", "These numbers can be trusted as far as the recordings reach", (_praise(content), *aside))


def _bad(content: Mapping[str, Any]) -> Iterator[str]:
    if (status := content.get("status")) != "converged":
        yield f"The identification did not converge: it ended with “{str(status).replace('_', ' ')}”."
    if wrong := (content.get("checks") or {}).get("misread"):
        how = "with its sign turned" if wrong["factor"] < 0 else f"multiplied by {wrong['factor']:.3g}"
        yield f"{wrong['channel']} is misread: {how}, even a rough fit misses {100 * wrong['ratio']:.2g} % as much."
    if first := _to_mend(content):
        yield f"Nearly all of the innovations has one cause, which can be mended: {first['text']}. {first['cure']}"
    for name, error, relative, noises in _errors(content):
        if _misses(relative, noises) and not _unforeseeable(content):
            yield f"{_where(content)}, it misses {name} by {error}, {_share(relative)}."
    for reason, told in _held_back(content):
        if told:
            yield reason


def _fair(content: Mapping[str, Any]) -> Iterator[str]:
    for reason, told in _held_back(content):
        if not told:
            yield reason
    for name, error, relative, noises in _errors(content):
        if _misses(relative, noises) and (span := _unforeseeable(content)):
            yield (
                f"{_leaves(content, name)} Simulated over {span['seconds']:.2g} s that were left out, it misses by "
                f"{_share(span['relative'])}."
            )
        if relative is not None and _ROUGH <= relative < _WRONG and _misses(None, noises):
            yield f"{_where(content)}, it misses {name} by {error}, {_share(relative)}."
    checks = content.get("checks") or {}
    tried = (checks.get("prediction") or {}).get("tried") or []
    chosen = (checks.get("prediction") or {}).get("chosen", 0)
    if tried:
        ratio = _largest(tried[0]["density"]) / max(_largest(tried[chosen]["density"]), 1e-300)
        if ratio > 0.9 * _SWALLOWED:
            yield (
                f"The model lacks something: one step ahead it asks for {ratio:.2g} times the process noise with which "
                f"it predicts best. {'' if _to_mend(content) else _what_to_try(content)}".strip()
            )
    if (checks.get("coloured") or 1.0) > _COLOURED:
        yield (
            "Innovations are not white, so that the model lacks something; standard deviations are up to "
            f"{checks['coloured']:.2g} times those of white ones."
        )
    noise = content.get("noise") or {}
    for sensor, assumed in (noise.get("assumed") or {}).items():
        found = (noise.get("sensors") or {}).get(sensor) or assumed
        ratio = max(a / b for a, b in zip(found, assumed, strict=True))
        if ratio > _OTHER:
            yield f"The noise of {sensor} was found {ratio:.2g} times as large as the scene says."
    yield from _too_many(content)
    if groups := checks.get("gauge"):
        yield groups[0]["message"]


def _misses(relative: float | None, noises: float | None) -> bool:
    """Whether an error is half of how much a signal moves or more, and more than its noise: of what hardly moves noise
    is all that there is to predict.
    """
    return (relative is None or not relative < _WRONG) and (noises is None or not noises <= _NOISE)


def _still(content: Mapping[str, Any], sensor: str, signal: Mapping[str, Any]) -> bool:
    """Whether a prediction is as good as the noise of a sensor allows, and that is all that it reads."""
    return _misses(signal["nrmse"], None) and not _misses(None, _noises(content, sensor, signal["rms"]))


def _what_to_try(content: Mapping[str, Any]) -> str:
    """Where a model lacks something. A step that is too long looks like that, and no law mends it."""
    suspects = (content.get("diagnosis") or {}).get("suspects") or []
    if suspects and suspects[0]["kind"] == "step":
        return f"The time step of {suspects[0]['text']}. {suspects[0]['cure']}"
    return "Look at the residuals, and try another friction law."


def _to_mend(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The likeliest of the suspicions that are weighed by innovations, if that can be mended and is all but alone."""
    suspects = (content.get("diagnosis") or {}).get("suspects") or []
    first = next((suspect for suspect in suspects if suspect["share"] is not None), None)
    return first if first and first["kind"] in _MENDED and first["share"] > _NEARLY_ALL else None


def _leaves(content: Mapping[str, Any], sensor: str) -> str:
    """Why a sensor is not foretold."""
    own, least = _foretold(content, sensor), _foretold(content)
    if own > 2 * least:
        return (
            f"{sensor} is carried along by what is foretold for {least:.2g} s, as of an unstable motion, and no longer."
        )
    return f"What the recordings tell foretells {sensor} for {own:.2g} s, as of an unstable motion, and no longer."


def _too_many(content: Mapping[str, Any]) -> Iterator[str]:
    """Sensors of which far more was set aside than the study expects."""
    found = content.get("outliers") or {}
    for sensor, counts in (found.get("sensors") or {}).items():
        share, count = counts["set_aside"] / max(counts["of"], 1), counts["set_aside"]
        if count >= _SOME and share > _FAR_MORE * found["share"]:
            yield (
                f"More readings of {sensor} were set aside than the study expects: {100 * share:.2g} %, not "
                f"{100 * found['share']:.2g} %. Perhaps they are right, and the model lacks what they show."
            )


def _set_aside(content: Mapping[str, Any]) -> Iterator[str]:
    """How many readings count as outliers, where the study allows for some."""
    if found := content.get("outliers"):
        aside, of = (sum(sensor[key] for sensor in found["sensors"].values()) for key in ("set_aside", "of"))
        were = "were set aside as outliers" if aside > 1 else "was set aside as an outlier"
        yield f"{aside or 'None'} of {of} readings {were}."


def _errors(content: Mapping[str, Any]) -> Iterator[tuple[str, str, float | None, float | None]]:
    """(sensor, error with unit, error over the signal's standard deviation, over its noise), of what was left out where
    something was, else of the simulation from the start.
    """
    found: dict[str, list[tuple[float, float | None, str]]] = {}
    for run in (content.get("runs") or {}).values():
        for sensor, signal in (run.get("signals") or {}).items():
            rms, relative = signal.get("rms_open_loop"), signal.get("nrmse_open_loop")
            if rms is not None:
                found.setdefault(sensor, []).append((rms, relative, signal.get("unit", "")))
    prediction = (content.get("checks") or {}).get("prediction")
    for sensor, errors in found.items():
        rms, relative, unit = max(errors, key=lambda e: e[0] if e[1] is None else e[1])
        if prediction:
            left = prediction["tried"][prediction["chosen"]]
            error = left["rms"].get(sensor, rms)
            signal = rms / relative if relative else None
            rms, relative = error, error / signal if signal else None
        yield sensor, _with_units(rms, unit), relative, _noises(content, sensor, rms)


def _noises(content: Mapping[str, Any], sensor: str, rms: float) -> float | None:
    """An error over the noise of a sensor: what the scene says, or was found where that is less; None where neither is
    known.
    """
    noise = content.get("noise") or {}
    levels = [max(level) for key in ("assumed", "sensors") if (level := (noise.get(key) or {}).get(sensor))]
    return rms / min(levels) if levels and min(levels) > 0 else None


def _foretold(content: Mapping[str, Any], sensor: str | None = None) -> float:
    """How long a simulation from the posterior tells a sensor, or all of them, in the recording in which it does so
    least. [s]
    """
    runs = (content.get("runs") or {}).values()
    signals = [item for run in runs for item in (run.get("signals") or {}).items()]
    found = [signal.get("foretold") for name, signal in signals if sensor in (None, name)]
    return min((time for time in found if time is not None), default=math.inf)


def _unforeseeable(content: Mapping[str, Any]) -> Mapping[str, float] | None:
    """Of what was left out, the part over which a sensor could be foretold, where that is not all and the estimate does
    so. An unstable motion leaves every simulation after a while, and the posterior knows it. What leaves takes all else
    along that hangs on it.
    """
    spans = ((content.get("checks") or {}).get("prediction") or {}).get("spans") or []
    # where readings end less is known of the state than where they begin, with all of them ahead
    time = _foretold(content) / 2
    if not spans or time >= max(span["seconds"] for span in spans):
        return None
    within = [span for span in spans if span["seconds"] <= time]
    span = max(within, key=lambda s: s["seconds"]) if within else min(spans, key=lambda s: s["seconds"])
    return span if span["relative"] < _WRONG else None


def _held_back(content: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """What is wrong with simulations of recordings that were held back; and whether that says not to use the numbers: a
    sensor is missed by more than half of how much it moves, where all could be foretold in recordings as long.
    """
    longest = max((run.get("duration", 0.0) for run in (content.get("runs") or {}).values()), default=0.0)
    for run, entry in (content.get("validation") or {}).items():
        if stretches := entry.get("stretches"):
            yield from _stretches(content, run, entry, stretches)
            continue
        for sensor, signal in entry["signals"].items():
            rms, relative, held = signal["rms"], signal["nrmse"], signal["rms_held"]
            begin = f"Simulated over {run}, which was held back, it"
            foreseeable = entry["horizon"] <= min(longest, _foretold(content))
            if rms is None or not math.isfinite(rms):
                yield f"{begin} does not predict {sensor} at all.", foreseeable
                continue
            if _still(content, sensor, signal):
                continue
            misses, nearer = (
                f"{begin} misses {sensor} by {_with_units(rms, signal['unit'])}",
                _nearer(rms, relative, held),
            )
            wrong = relative is not None and not relative < _WRONG
            if nearer:
                yield f"{misses}: {nearer} misses less.", wrong and foreseeable
            elif wrong:
                yield f"{misses}, {_share(relative)}.", foreseeable


def _stretches(
    content: Mapping[str, Any], run: str, entry: Mapping[str, Any], stretches: Mapping[str, Any]
) -> Iterator[tuple[str, bool]]:
    """What is said of a recording that could not be foretold to its end; it is judged by what could."""
    begin = f"Simulated over {stretches['seconds']:.2g} s at a time of {run}, which was held back, it misses"
    shares: list[float] = []
    for sensor, signal in stretches["signals"].items():
        rms, relative = signal["rms"], signal["nrmse"]
        if rms is None or not math.isfinite(rms):
            yield f"{begin} {sensor} altogether.", True
        elif not _still(content, sensor, signal):
            shares.append(math.inf if relative is None else relative)
            if _misses(relative, None):
                unit = entry["signals"][sensor]["unit"]
                yield f"{begin} {sensor} by {_with_units(rms, unit)}, {_share(relative)}.", True
    if shares and max(shares) < _WRONG:
        unstable = f"is foretold for {stretches['foretold']:.2g} s, as an unstable motion is, and no longer"
        over = f"Simulated over {stretches['seconds']:.2g} s at a time"
        worst = f"it misses every sensor by at most {_share(max(shares))}"
        yield f"{run}, which was held back, {unstable}. {over}, {worst}.", False


def _nearer(rms: float, relative: float | None, held: float | None) -> str:
    """A constant that predicts a signal better than an error of `rms`; nothing if there is none."""
    if relative is not None and relative > 1:
        return "the mean of the recording"
    return "the reading that it starts from, held," if held is not None and rms > held else ""


def _where(content: Mapping[str, Any]) -> str:
    left = (content.get("checks") or {}).get("prediction")
    return "Simulated over readings that were left out" if left else "Simulated from the start of a recording"


def _share(relative: float | None) -> str:
    if relative is None or not math.isfinite(relative):
        return "which is unknown beside how much it moves"
    return f"{100 * relative:.2g} % of how much it moves"


def _largest(density: Any) -> float:
    return max(density) if isinstance(density, list) else float(density)


def _praise(content: Mapping[str, Any]) -> str:
    errors = [f"{name} by {error}" for name, error, _, _ in _errors(content)]
    praise = f"{_where(content)}, it misses {', '.join(errors)}."
    if seen := content.get("validation"):
        signals = [item for entry in seen.values() for item in entry["signals"].items()]
        shares = [signal["nrmse"] for name, signal in signals if not _still(content, name, signal)]
        worst = max((share for share in shares if share is not None and math.isfinite(share)), default=None)
        praise += f" Over recordings that were held back, it misses every sensor by at most {_share(worst)}."
    return praise
