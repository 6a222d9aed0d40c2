"""Charts of an unknown friction force: regimes, force with its band, force over the speed with laws, prediction."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .charts import Figure, band_chart, law_chart, methods_chart, share_chart

MEANINGS = {
    "force": "standard deviation of the force",
    "length": "length scale of the force while the mass slides",
    "change": "by how much the force changes while the mass slides, in the root of a second",
    "noise": "standard deviation of a reading",
    "dwell": "mean time from one jump of the force to the next",
}
"""What the hyperparameters are."""

_GAIN = 3.0  # of the log evidence, that regimes have to bring
_INDEPENDENT = 50.0  # draws, for intervals of 90 %
_APART = 1.05  # R-hat
_POOR = 10.0  # NMSE of a prediction [%]


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
    for name, run in content["runs"].items():
        if run["used"] and run["evidence"] < run["evidence_one_regime"] + _GAIN:
            found.append(
                f"{name}: regimes explain the readings no better than one smooth force does; do not rely on them."
            )
        if not run["prediction_nmse"] < _POOR:
            found.append(f"{name}: the law that was found does not predict the readings; see the prediction.")
    if (off := content["law"]["in_scene"]["off"]) > 0:
        found.append(
            f"A scene has no law of this kind: its own is up to {off:.2g} N away along the speeds that were seen."
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


def law_of(content: Mapping[str, Any], states: Mapping[str, np.ndarray]) -> tuple[str, Figure]:
    """Caption and chart of the force over the speed."""
    laws = {law["kind"]: states[f"law/{law['kind']}"] for law in content["laws"]}
    static = content.get("static_friction")
    level = ("static friction", static["mean"], static["sd"]) if static else None
    points = states["points/speed"], states["points/force"]
    chart = law_chart("friction against the speed", "force [N]", points, states["law/speed"], laws, level)
    caption = "Force against the motion where the mass slides for sure, and the laws that were fitted, the best first."
    return caption, chart


def latent_charts(
    run: str, content: Mapping[str, Any], states: Mapping[str, np.ndarray]
) -> dict[str, tuple[str, Figure]]:
    """Name -> caption and chart of a recording: of one that was held back the prediction alone."""
    own = {key.removeprefix(f"{run}/"): a for key, a in states.items() if key.startswith(f"{run}/")}
    time, sensor = own["time"], content["settings"]["sensor"]
    unit = {"displacement": "m", "velocity": "m/s", "acceleration": "m/s²"}[sensor]
    found: dict[str, tuple[str, Figure]] = {}
    if "force" in own:
        regimes = {name: own[name] for name in ("slides", "sticks", "jumps")}
        found["regimes"] = (
            f"Run {run}: probability of every regime; they sum to one.",
            share_chart("regimes", time, regimes),
        )
        chart = band_chart("friction force", "N", time, own["force"], own["force_sd"])
        found["force"] = f"Run {run}: friction force, with a band of two standard deviations.", chart
        chart = band_chart("velocity", "m/s", time, own["velocity"], own["velocity_sd"])
        found["velocity"] = f"Run {run}: velocity, with a band of two standard deviations.", chart
    by = {"simulated": own["predicted"]}
    chart = methods_chart(sensor, unit, time, own["reading"], by)
    used = "" if content["runs"][run]["used"] else ", which took no part,"
    found["prediction"] = f"Run {run}{used} simulated from its first state with its load alone, and as read.", chart
    return found
