"""Draw the pictures of the first page and of the tutorial: `python scripts/figures.py` writes `docs/figures/`.

`first_page.svg` has the demo's mechanism, and `demo/test.csv` as read and as predicted by the estimate from
`demo/train.csv`, which has not seen it, with what is left. `motor.svg` is the mechanism of the tutorial.
"""

import re
from pathlib import Path

import numpy as np
import projection
import yaml

import spookax as sx
from spookax.scene import Scene
from spookax.scene.parts import Initial
from spookax.study.file.against_scene import sensor_dimensions
from spookax.study.identifying.predict import HEAD, errors, predict_recording
from spookax.study.recordings.recording import read_recording
from spookax.viewer.poses import initial_poses

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs/figures"
INK, GREY, RULE, MEASURED, PREDICTED = "#1a2330", "#5c6775", "#dfe5ec", "#c8500a", "#0063a6"
FONT = 'font-family="system-ui, -apple-system, Segoe UI, Roboto, Arial, sans-serif"'
LEFT, RIGHT = 372, 884  # of the charts [px]
STEP = 4  # every n-th sample is drawn


def first_page() -> str:
    """Identify the demo, predict its other recording, and draw both. Takes half a minute."""
    sx.enable_x64()
    study = sx.load_study(ROOT / "demo/furuta_study.yaml")
    estimate = sx.identify(study)
    assert estimate.scene is not None
    spec = study.recordings[0].model_copy(update={"name": "test", "file": "test.csv"})
    recording = read_recording(ROOT / "demo/test.csv", spec, sensor_dimensions(estimate.scene))
    predicted = predict_recording(study, estimate, recording, spec).simulated
    parts = [_head(900, 470), *_mechanism(estimate.scene, {"elbow": 0.6, "shoulder": 0.35}, (12, 30, 340, 420))]
    titles = {"arm_encoder": "Arm", "pend_encoder": "Pendulum"}
    for (sensor, simulated), top in zip(predicted.items(), (54, 262), strict=True):
        read = recording.sensors[sensor]
        print(f"{sensor}: RMS error {errors(read, simulated)['rms']:.2e} rad over {recording.time[-1]:.0f} s")
        parts += _signal(titles[sensor], top, recording.time, read[:, 0], simulated[:, 0])
    for x, k, anchor in ((LEFT + 44, 0, "start"), (RIGHT, -1, "end")):
        parts.append(_text(x, 464, f"{recording.time[k]:g} s", 10, GREY, anchor=anchor))
    parts.append(_text(LEFT, 24, "A recording that the identification has not seen", 15, weight="bold"))
    legend = f"dots: measured; line: simulated with its inputs alone, from the state of its first {HEAD:g} s"
    parts.append(_text(LEFT, 42, legend, 11, GREY))
    return "\n".join([*parts, "</svg>", ""])


def motor() -> str:
    """The mechanism of the tutorial, from the scene that its text writes."""
    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"write motor/scene\.yaml -->\n```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    scene = Scene.model_validate(yaml.safe_load(text))
    return "\n".join([_head(360, 300), *_mechanism(scene, {"shaft": 0.7}, (10, 10, 340, 280)), "</svg>", ""])


def _mechanism(scene: Scene, positions: dict[str, float], box: tuple[float, float, float, float]) -> list[str]:
    start = {joint: Initial(position=angle) for joint, angle in positions.items()}
    return projection.draw(scene, initial_poses(scene.model_copy(update={"initial": start})), box)


def _signal(title: str, top: float, time: np.ndarray, read: np.ndarray, simulated: np.ndarray) -> list[str]:
    """A reading with its prediction, and under it the residual."""
    parts = [_text(LEFT + 44, top + 12, f"{title} [rad]", 12, weight="600")]
    parts += _panel(top + 20, 110, time, [(simulated, PREDICTED, False), (read, MEASURED, True)])
    parts.append(_text(LEFT + 44, top + 147, "measured − simulated [rad]", 11, GREY))
    return parts + _panel(top + 152, 34, time, [(read - simulated, INK, False)])


def _panel(top: float, height: float, time: np.ndarray, lines: list[tuple[np.ndarray, str, bool]]) -> list[str]:
    values = np.concatenate([line for line, _, _ in lines])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    at_x = LEFT + 44 + (RIGHT - LEFT - 44) * (time - time[0]) / (time[-1] - time[0])
    parts = []
    for value in (low, high):
        y = top + height * (high - value) / (high - low)
        parts.append(f'<line x1="{LEFT + 44}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}" stroke="{RULE}"/>')
        parts.append(_text(LEFT + 38, y + 4, f"{value:.2g}", 10, GREY, anchor="end"))
    for line, colour, dots in lines:
        at_y = top + height * (high - line) / (high - low)
        some = slice(None, None, 4 * STEP if dots else STEP)
        points = [(x, y) for x, y in zip(at_x[some], at_y[some], strict=True) if np.isfinite(y)]
        if dots:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.7" fill="{colour}"/>' for x, y in points]
        else:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.2"/>')
    return parts


def _head(width: float, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'{FONT}>\n<rect width="{width}" height="{height}" fill="#ffffff"/>'
    )


def _text(
    x: float, y: float, text: str, size: float, colour: str = INK, weight: str = "normal", anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{colour}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{text}</text>'
    )


def main() -> None:
    """Write the pictures."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    for name, draw in {"motor": motor, "first_page": first_page}.items():
        (FIGURES / f"{name}.svg").write_text(draw(), encoding="utf-8")
        print(f"wrote docs/figures/{name}.svg", flush=True)


if __name__ == "__main__":
    main()
