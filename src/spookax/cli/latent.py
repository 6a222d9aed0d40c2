"""The command that finds an unknown friction force."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from .._interruption import stoppable
from .app import COMPILING, Quiet, app, end_if
from .errors import FAILED, refusals
from .signs import Signs, signs


class Hyperparameters(StrEnum):
    """How far they are known."""

    map = "map"
    laplace = "laplace"
    sample = "sample"


@app.command()
def latent(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="Study file with a section `latent`.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the result; made if there is none.")],
    hyperparameters: Annotated[
        Hyperparameters | None,
        typer.Option(help="What bands count, in place of what the study says: map, laplace or sample."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from what a run that was stopped has kept.")] = False,
    quiet: Quiet = False,
) -> None:
    """Find the unknown friction force of a mass on a spring, or at joints of a scene, when it sticks and slides, and a
    law for it.

    Writes latent.json, the force of every recording as a CSV file, scene.yaml with the law that was found, the loads to
    simulate it with, latent.html, and every chart of that page as an SVG file. Ctrl-C keeps what was computed, and
    --resume goes on from there. The exit status is 0, 1 if the search for the hyperparameters did not converge (the
    folder is written all the same), 2 if a file is wrong, 130 after Ctrl-C and 143 after SIGTERM.

    \b
    Example:
      spookax latent demo/friction/study.yaml --out out/friction
    """
    with refusals():
        with signs(f"reading {study}", COMPILING, quiet=quiet) as told, stoppable() as stop:
            from .check import check_latent

            check_latent(study)
            out.mkdir(parents=True, exist_ok=True)

            told.phase("starting JAX")
            from ..loading import enable_x64
            from ..report import write_latent
            from ..report.latent_charts import latent_cautions
            from ..study.latent.record import read_latent
            from ..study.latent.run import latent as run
            from ..study.latent.unfinished import UNFINISHED

            enable_x64()
            asked = read_latent(study)
            if hyperparameters is not None:
                known = asked.latent.model_copy(update={"hyperparameters": hyperparameters.value})
                asked = asked.model_copy(update={"latent": known})
            found = run(asked, report=_by_phase(told), keep=out, resume=resume)
            told.phase("writing")
            with stop.waiting("writing"):
                found.save(out)
                page = write_latent(out, found.content, found.states)
                (out / UNFINISHED).unlink(missing_ok=True)
        typer.echo(latent_text(found.content))
        for caution in latent_cautions(found.content):
            typer.echo(f"caution: {caution}")
        typer.echo(f"wrote {out}; the page is {page}")
        end_if(stop)
        if not found.content["hyperparameters"]["converged"]:
            raise typer.Exit(FAILED)


def _by_phase(told: Signs):
    """A callback: a line that stays for each phase, the live line alone for what goes on in it."""

    def report(text: str) -> None:
        if ":" not in text:
            told.line(text)
        told.phase(text)

    return report


def latent_text(content: Mapping[str, Any]) -> str:
    """What was found, in a few lines."""
    lines, contacts = [], content["contacts"]
    for name, run in content["runs"].items():
        text = f"{name}: " if run["used"] else f"{name}, held back: "
        for contact, own in (run["contacts"] if run["used"] else {}).items():
            text += (
                f"{_of(contact, contacts)}sticks {100 * own['sticking']:.3g} % of the time, {len(own['stops'])} stops; "
            )
        law = "law" if len(contacts) == 1 else "laws"
        lines.append(f"{text}simulated with the {law}, its readings are met to {run['prediction_nmse']:.3g} % (NMSE)")
    for contact, told in contacts.items():
        law, unit = told["law"], told["units"]["force"]
        numbers = ", ".join(f"{name} {_with(value, law['sd'][name])}" for name, value in law["parameters"].items())
        lines.append(f"{_of(contact, contacts)}law: {law['kind']}, {numbers} (SI)")
        if static := told["static_friction"]:
            level = _with(static["mean"], static["sd"])
            count = len(static["values"])
            lines.append(f"{_of(contact, contacts)}static friction: {level} {unit}, from {count} stop(s)")
    for name, row in content["mechanism"]["numbers"].items():
        if "suggested" in row:
            verb = "corrected to" if content["mechanism"]["corrected"] else "would be"
            value = row["used"] if content["mechanism"]["corrected"] else row["suggested"]
            lines.append(f"{name}: given {row['given']:g}, {verb} {_with(value, row['sd'])} {row['unit']}")
    return "\n".join(lines)


def _of(contact: str, contacts: Mapping[str, Any]) -> str:
    """What a line about one of several contacts begins with."""
    return "" if len(contacts) == 1 else f"{contact} "


def _with(value: float, sd: float) -> str:
    return f"{value:.5g} +- {sd:.2g}" if sd else f"{value:.5g}"
