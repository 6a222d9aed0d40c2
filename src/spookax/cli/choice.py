"""The command that chooses among laws of friction."""

from pathlib import Path
from typing import Annotated

import typer

from .._interruption import stoppable
from .app import Quiet, app, end_if
from .errors import FAILED, refusals, warn
from .signs import by_iteration, signs


@app.command("choose-friction")
def choose_friction(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="Study file, with recordings under `validate`.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the laws; made if there is none.")],
    joint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Joint whose friction is tried; those whose friction is unknown in the study when left out. May be "
            "repeated.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the laws that --out holds, and go on with the others.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Choose the law of friction of a study's joints by what it predicts.

    Identifies the study once for every law: none, viscous, Coulomb, both, asymmetric, Stribeck, bearing (it grows with
    the load), quadratic drag, air against the body (where that is another motion). Each predicts the recordings under
    `validate`, and the table has the best first. A star
    marks the simplest that these recordings do not tell from the best. Writes a folder for every law with its study,
    estimate and report, choice.json, and the study that was chosen. Ctrl-C keeps what is finished; --resume goes on.

    \b
    Example:
      spookax choose-friction study.yaml --out out/laws
    """
    with refusals():
        said = "compiling; every law compiles programs of its own ..."
        with signs(f"reading {study}", said, quiet=quiet) as told, stoppable() as stop:
            from .check import check_study

            warn(check_study(study).doubts)
            out.mkdir(parents=True, exist_ok=True)

            told.phase("starting JAX")
            from ..loading import enable_x64
            from ..report import write_report
            from ..study.comparing.choose import choose_friction as run
            from ..study.identifying.estimate import Estimate
            from .progress import choice_text

            enable_x64()

            def begin(law: str) -> None:
                told.line(f"law: {law}")
                told.phase(f"law {law}: planning the first trajectories")

            def done(folder: Path, estimate: Estimate) -> None:
                write_report(folder, estimate.to_json(), estimate.states)

            report = None if quiet else by_iteration(told)
            found = run(study, out, joints=joint or (), resume=resume, begin=begin, report=report, done=done)
        typer.echo(choice_text(found.content))
        typer.echo(f"wrote {out}")
        if found.interrupted:
            raise typer.Exit(stop.exit_status)
        end_if(stop)
        if found.content["chosen"] is None:
            typer.echo("no law was identified to the end: none is chosen", err=True)
            raise typer.Exit(FAILED)
