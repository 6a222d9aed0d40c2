"""The commands that predict recordings with estimates."""

from pathlib import Path
from typing import Annotated

import typer

from .._interruption import stoppable
from .app import COMPILING, Quiet, app, end_if
from .errors import FAILED, refusals, warn
from .signs import by_phase, by_recording, signs

Other = Annotated[
    Path | None,
    typer.Option("--study", metavar="FILE", help="Study whose recordings are predicted; the estimate's when left out."),
]

_METHODS = "Run methods on a study: batch, filter, smoother, shooting, simulation, equation, network; or all."


@app.command()
def predict(
    estimate: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of an estimate.")],
    recording: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Recording to predict; those under `validate` when left out. May be repeated."
        ),
    ] = None,
    study: Other = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Folder for the result; made if there is none.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(metavar="K", min=1, help="Predict every reading K steps ahead, too.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Predict recordings with an estimate: simulate them with their inputs alone.

    The first 0.3 s of a recording tell where it starts. With --out writes prediction.json, a CSV file for every
    recording (time, measured, predicted) and prediction.html. With --steps a Kalman filter follows the recording, and
    from each of its states the readings K steps of the simulator later are predicted.

    \b
    Examples:
      spookax predict out/furuta
      spookax predict out/furuta --recording train --steps 50 --out out/predicted
    """
    with refusals():
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        with signs("starting JAX", COMPILING, quiet=quiet) as told, stoppable() as stop:
            from ..loading import enable_x64
            from ..report import write_prediction
            from ..study.comparing.forecast import forecast
            from .outputs import prediction_table, write_table
            from .progress import prediction_lines

            enable_x64()
            told.phase(f"reading {estimate}")
            report = None if quiet else by_recording(told)
            found = forecast(estimate, study=study, recordings=recording or [], steps=steps, report=report)
            wrote = []
            if out is not None:
                with stop.waiting("writing"):
                    found.save(out)
                    for prediction in found.predictions:
                        write_table(prediction_table(prediction), out / f"{prediction.recording.name}.csv")
                    page = write_prediction(out, found.content, found.states)
                wrote.append(f"wrote {out}; the page is {page}")
        for line in (*prediction_lines(found.content), *wrote):
            typer.echo(line)
        end_if(stop)


@app.command()
def compare(
    estimates: Annotated[
        list[Path], typer.Argument(metavar="DIR...|STUDY", help="Folders of estimates; a study with --methods.")
    ],
    methods: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help=_METHODS),
    ] = None,
    study: Other = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE|DIR", help="Write the table as JSON; with --methods a folder."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Compare estimates, or methods of estimation, by how well they predict the same recordings.

    Predicts the recordings under `validate` in the study of the first estimate (where there are none, all of them), or
    those of --study, as `spookax predict` does. Beside them stand the scene as it was written, with the numbers that it
    had before, least squares of the equation error and of the simulation error on what was identified from, and the
    last reading before the simulation goes on alone, held. A star marks the least error.

    With --methods a study is given instead: every method runs on its recordings from the same start, and with what each
    found the recordings under `validate` are predicted. With --out writes comparison.json, comparison.html and the
    identified scene of every method. The exit status is 1 if no method came to an end.

    \b
    Examples:
      spookax compare out/furuta out/other --study demo/furuta_study.yaml
      spookax compare --methods batch,filter,simulation demo/furuta_study.yaml --out out/methods
    """
    with refusals():
        if methods is not None:
            _compare_methods(estimates, methods, study, out, quiet)
            return
        with signs("starting JAX", COMPILING, quiet=quiet) as told:
            from ..loading import enable_x64
            from ..study.comparing.forecast import compare as run
            from ..study.identifying.estimate import finite_json
            from .progress import comparison_text

            enable_x64()
            told.phase(f"reading {estimates[0]}")
            found = run(estimates, study=study, report=None if quiet else by_recording(told))
        typer.echo(comparison_text(found))
        if out is not None:
            with stoppable() as stop, stop.waiting("writing"):
                out.parent.mkdir(parents=True, exist_ok=True)
                out.write_text(finite_json(found), encoding="utf-8")
            typer.echo(f"wrote {out}")


def _compare_methods(given: list[Path], methods: str, study: Path | None, out: Path | None, quiet: bool) -> None:
    if len(given) != 1 or study is not None:
        raise typer.BadParameter("it takes one study, and no --study", param_hint="--methods")
    from ..study.comparing.method_names import NAMES, known_methods

    names = [name.strip() for name in methods.split(",") if name.strip()]
    names = known_methods(list(NAMES) if names == ["all"] else names)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with signs(f"reading {given[0]}", COMPILING, quiet=quiet) as told, stoppable() as stop:
        from .check import check_study

        warn(check_study(given[0]).doubts)
        told.phase("starting JAX")
        from ..loading import enable_x64
        from ..report import write_comparison
        from ..study.comparing.methods import compare_methods as run
        from .progress import methods_text

        enable_x64()
        found = run(given[0], names, report=None if quiet else by_phase(told))
        wrote = ""
        if out is not None:
            with stop.waiting("writing"):
                found.save(out)
                wrote = f"wrote {out}; the page is {write_comparison(out, found.content, found.states)}"
    typer.echo(methods_text(found.content))
    if wrote:
        typer.echo(wrote)
    if found.interrupted:
        raise typer.Exit(stop.exit_status)
    end_if(stop)
    if not any(row["status"] == "done" for row in found.content["methods"].values()):
        raise typer.Exit(FAILED)
