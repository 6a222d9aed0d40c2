"""Small scenes and a study for the shell, and how commands are run."""

from pathlib import Path

from typer.testing import CliRunner, Result

from spookax.cli import app

ROOT = Path(__file__).parents[2]

# Constant force on a mass: x = u gain / (2 mass) t^2, which leap-frog meets exactly.
SLIDER = """\
spookax: 1
name: slider
step: 0.01
bodies:
  cart: {mass: 2.0, com: [0.1, 0, 0], inertia: [0.1, 0.1, 0.1]}
joints:
  rail: {type: prismatic, child: cart, at: [0, 0, 1], axis: [1, 0, 0]}
motors:
  drive: {type: torque, joint: rail, gain: 4.0}
sensors:
  scale: {type: joint_position, joint: rail, offset: 0.5}
  tacho: {type: joint_rate, joint: rail}
  marker: {type: point_position, body: cart, at: [0, 0.2, 0]}
  camera: {type: body_pose, body: cart}
"""

STUDY = """\
spookax: 1
scene: slider.yaml
recordings:
  - {file: run.csv, time: t, inputs: {drive: u}, sensors: {scale: x}}
parameters:
  bodies.cart.mass: {start: 1.0}
estimator:
  process_noise: {estimate: false}
"""

RUN = "t [s],u [V],x [mm]\n0,1,500\n0.01,1,500.1\n0.02,1,500.4\n"


def write(folder: Path, **files: str) -> Path:
    """Write files named by keywords (`run_csv` is run.csv); returns the folder."""
    for name, text in files.items():
        (folder / ".".join(name.rsplit("_", 1))).write_text(text)
    return folder


def study_folder(folder: Path) -> Path:
    return write(folder, slider_yaml=SLIDER, study_yaml=STUDY, run_csv=RUN)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(*arguments: object) -> str:
    """Run a command that must end with status 2, without a traceback and with its report on stderr alone."""
    result = run(*arguments)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr
