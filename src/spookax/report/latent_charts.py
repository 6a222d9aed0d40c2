"""Charts of an unknown friction force: regimes, force with its band, force over the speed with laws, prediction."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import numbers
from .charts import Figure, band_chart, law_chart, methods_chart, share_chart

MEANINGS = {
    "force": "standard deviation of the force",
    "length": "length scale of the force while its contact slides",
    "change": "by how much the force changes while its contact slides, in the root of a second",
    "noise": "standard deviation of a reading",
    "dwell": "mean time from one jump of the force to the next",
}
"""What the kinds of hyperparameters are."""

_GAIN = 3.0  # of the log evidence, that regimes have to bring
_INDEPENDENT = 50.0  # draws, for intervals of 90 %
_APART = 1.05  # R-hat
_POOR = 10.0  # NMSE of a prediction [%]
_BENT = 0.05  # of the friction, that the scene may be off a linear one


def latent_cautions(content: Mapping[str, Any]) -> list[str]:
    """What to know before the numbers are used, in sentences."""
    found = []
    if not content["hyperparameters"]["converged"]:
        found.append("The search for the hyperparameters did not converge: the force may be better than this one.")
    draws = content["hyperparameters"].get("draws")
    if draws is not None and (draws["effective"] < _INDEPENDENT or draws["rhat"] > _APART):
        found.append(
            f"The draws of the hyperparameters are worth only {draws['effective']:.0f} independent ones (R-hat "
            f"{draws['rhat']:.3f}): ask for more `draws`."
        )
    contacts = content["contacts"]
    for name, run in content["runs"].items():
        if run["used"] and run["evidence"] < run["evidence_one_regime"] + _GAIN:
            found.append(
                f"{name}: regimes explain the readings no better than one smooth force does; do not rely on them."
            )
        if not run["prediction_nmse"] < _POOR:
            found.append(f"{name}: the law that was found does not predict the readings; see the prediction.")
    for contact, told in contacts.items():
        unit, of = told["units"]["force"], "" if len(contacts) == 1 else f"{contact}: "
        if (off := told["law"]["in_scene"]["off"]) > 0:
            found.append(
                f"{of}A scene has no law of this kind: its own is up to {off:.2g} {unit} away along the speeds that "
                "were seen."
            )
    for contact, off in content["mechanism"].get("linearisation", {}).items():
        level, unit = contacts[contact]["law"]["parameters"]["force"], contacts[contact]["units"]["force"]
        if off > _BENT * level:
            found.append(
                f"{contact}: the scene is not linear along this motion: {off:.2g} {unit} (rms) of what is called "
                "friction is that. Take a recording that moves less."
            )
    for name, row in content["mechanism"]["numbers"].items():
        if (
            not content["mechanism"]["corrected"]
            and "suggested" in row
            and abs(row["suggested"] - row["given"]) > 3 * row["sd"]
        ):
            text = f"With a {name} of {row['suggested']:.5g} {row['unit']} the force would depend on the speed alone. "
            same = " Friction that grows with the speed looks the same." if name == "damping" else ""
            found.append(f"{text}If {row['given']:.5g} is a guess, write `correct: [{name}]`.{same}")
    return found


def law_of(contact: str, content: Mapping[str, Any], states: Mapping[str, np.ndarray]) -> tuple[str, Figure]:
    """Caption and chart of the force of a contact over the speed."""
    told, many = content["contacts"][contact], len(content["contacts"]) > 1
    own = {key.removeprefix(f"contact/{contact}/"): a for key, a in states.items()}
    laws = {law["kind"]: own[f"law/{law['kind']}"] for law in told["laws"]}
    static, unit = told["static_friction"], numbers.unit(told["units"]["force"])
    level = ("static friction", static["mean"], static["sd"]) if static else None
    points = own["points/speed"], own["points/force"]
    speed = numbers.unit(told["units"]["velocity"])
    title = f"{contact}: friction against the speed" if many else "friction against the speed"
    chart = law_chart(title, f"force [{unit}]", points, own["law/speed"], laws, level, f"speed [{speed}]")
    what = f"joint {contact}" if content["mechanism"]["scene"] else "the mass"
    caption = f"Force against the motion where {what} slides for sure, and the laws that were fitted, the best first."
    return caption, chart


def latent_charts(
    run: str, content: Mapping[str, Any], states: Mapping[str, np.ndarray]
) -> dict[str, tuple[str, Figure]]:
    """Name -> caption and chart of a recording: of one that was held back the prediction alone."""
    own = {key.removeprefix(f"{run}/"): a for key, a in states.items() if key.startswith(f"{run}/")}
    time, used, found = own["time"], content["runs"][run]["used"], {}
    contacts = content["contacts"] if used else {}
    for contact, told in contacts.items():
        mark, of = ("", "") if len(contacts) == 1 else (f"{contact}_", f"{contact}, ")
        shares = {name: own[f"{contact}/{name}"] for name in ("slides", "sticks", "jumps")}
        found[f"{mark}regimes"] = (
            f"Run {run}: {of}probability of every regime; they sum to one.",
            share_chart(f"{of}regimes", time, shares),
        )
        for name, title in (("force", "friction force"), ("velocity", "velocity")):
            unit, a, sd = numbers.unit(told["units"][name]), own[f"{contact}/{name}"], own[f"{contact}/{name}_sd"]
            caption = f"Run {run}: {of}{title}, with a band of two standard deviations."
            found[f"{mark}{name}"] = caption, band_chart(f"{of}{title}", unit, time, a, sd)
    part = "" if used else ", which took no part,"
    sensors = content["sensors"]
    for sensor, unit in sensors.items():
        by = {"simulated": own[f"{sensor}/predicted"]}
        chart = methods_chart(sensor, numbers.unit(unit), time, own[f"{sensor}/reading"], by)
        text = f"Run {run}{part} simulated from its first state with its load alone, and as read."
        found["prediction" if len(sensors) == 1 else f"{sensor}_prediction"] = text, chart
    return found
