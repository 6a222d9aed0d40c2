"""The commands. Whatever needs JAX is imported inside them, so that help and checks of files come at once."""

from pathlib import Path
from typing import Annotated

import typer

from .._interruption import Stop, stoppable
from .._store import nothing_kept
from .errors import BAD_INPUT, FAILED, doubt, refusals, refuse, warn
from .signs import by_iteration, by_recording, signs

COMPILING = "compiling; what follows comes when that is done ..."

HELP = "From a scene and a recording to identified parameters and a simulator that matches them."

app = typer.Typer(
    name="spookax",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(help=HELP)
def options(
    context: typer.Context,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Neither use compiled programs that were kept nor keep any.")
    ] = False,
) -> None:
    """What holds for every command."""
    if no_cache:
        context.with_resource(nothing_kept())


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scene and study files.")],
) -> None:
    """Report everything that is wrong with scene and study files.

    A study is checked with its scene and its recordings; closed loops are assembled. What looks like a slip of
    units is a warning. The exit status is 2 if anything is wrong.

    \b
    Example:
      spookax check scenes/pendulum.yaml demo/furuta_study.yaml
    """
    bad = False
    for file in files:
        try:
            with refusals():
                with signs(f"reading {file}"):
                    from .check import check_file

                    checked = check_file(file)
                typer.echo(f"{checked.summary}: ok")
                for line in checked.lines:
                    typer.echo(f"  {line}")
                warn(checked.doubts)
        except typer.Exit as end:
            if end.exit_code != BAD_INPUT:
                raise
            bad = True
    if bad:
        raise typer.Exit(BAD_INPUT)


@app.command()
def simulate(
    scene: Annotated[Path, typer.Argument(metavar="SCENE", help="Scene file, or the folder of an estimate.")],
    time: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Duration [s]; that of the --input when left out."),
    ] = None,
    input: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Recording with the motors' inputs; its first column is the time."),
    ] = None,
    motor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Input of a motor: a number, or the name of a column of --input. May be repeated.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a CSV or NPZ file.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a 3D page that opens offline.")] = None,
) -> None:
    """Simulate a scene from its initial state.

    Writes time, motor inputs, joint positions and rates, sensor readings without noise, and normal force and
    friction of the surfaces that touch, with a unit in every header: a recording that a study can read. A motor
    without input gets 0, a position servo holds where it starts. The page shows where surfaces touch, and their forces.

    \b
    Examples:
      spookax simulate scenes/pendulum.yaml --time 5 --out swing.csv --html swing.html
      spookax simulate demo/furuta.yaml --input demo/test.csv --motor drive=u --out predicted.csv
    """
    with refusals():
        if out is not None and out.suffix.lower() not in (".csv", ".npz"):
            raise typer.BadParameter("the name must end in .csv or .npz", param_hint="--out")
        with signs(f"reading {scene}") as told, stoppable() as stop:
            from ..scene import read_scene
            from ..scene.located import load_located
            from ..study.recordings.doubts import angle_doubts, far_in_a_step, step_doubts
            from .inputs import read_inputs

            path = scene_file(scene)
            read = read_scene(path)
            inputs = read_inputs(read, motor or [], input, time)
            located = load_located(path)
            warn([*step_doubts(read.step, located), *angle_doubts(read, located), *inputs.doubts])

            told.phase("starting JAX")
            from .._compiled import on_device
            from .._results import STEP_RESULTS
            from ..loading import enable_x64, load
            from ..stepping import contact_points, rollout
            from ..viewer import save_html
            from .outputs import pace, summary, table, write_table

            enable_x64()
            told.phase("assembling")
            system, params, state = load(path)
            told.phase(f"simulating {len(inputs.values)} steps")
            trajectory = rollout(system, params, state, on_device(inputs.values), throw=False)
            stepped = bool(system.contacts.pairs) and int(trajectory.failed_step) != 0
            touching = contact_points(system, params, trajectory) if stepped else None
            columns = table(read, system, params, trajectory, inputs, touching)
            with stop.waiting("writing"):
                wrote = []
                if out is not None:
                    write_table(columns, out)
                    wrote.append(f"wrote {out}: {columns['t [s]'].size} lines, {len(columns)} columns")
                if html is not None:
                    wrote.append(f"wrote {save_html(read, trajectory, html, contacts=touching)}")
            text, turned = pace(columns, read.step)
        for line in (f"{read.name}: {text}", *wrote):
            typer.echo(line)
        if far_in_a_step(turned):
            message = f"a joint turns {turned:.3g} rad in a step of {read.step:g} s"
            warn([doubt(path, message, "Give a smaller `step`.")])
        if out is None:
            typer.echo(summary(columns))
        if int(trajectory.failed_step) >= 0:
            failed = int(trajectory.failed_step)
            reason = STEP_RESULTS[trajectory.result]
            typer.echo(f"the simulation failed in step {failed + 1}, at {failed * read.step:g} s. {reason}", err=True)
            raise typer.Exit(FAILED)
        end_if(stop)


@app.command()
def identify(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="Study file.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the estimate; made if there is none.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last iterate that --out holds.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Identify the unknown parameters of a study.

    Writes estimate.json, the states, the identified scene and report.html into a folder. Ctrl-C keeps the
    last iterate, from which --resume goes on; pressed again, it ends at once and keeps nothing. SIGTERM does
    the same. The exit status is 0 if the identification converged, 1 if it ended otherwise (the folder is
    written all the same), 2 if a file is wrong, 130 after Ctrl-C and 143 after SIGTERM.

    \b
    Example:
      spookax identify demo/furuta_study.yaml --out out/furuta
    """
    with refusals():
        said = "compiling; the first iteration comes when that is done, often after a minute ..."
        with signs(f"reading {study}", said, quiet=quiet) as told, stoppable() as stop:
            from .check import check_study

            doubts = check_study(study).doubts
            warn(doubts)
            out.mkdir(parents=True, exist_ok=True)

            told.phase("starting JAX")
            from ..loading import enable_x64
            from ..report import write_report
            from ..study.identifying.identify import identify as run
            from .progress import result_text, say_end

            enable_x64()
            told.phase("planning the first trajectories")
            report = None if quiet else by_iteration(told)
            estimate = run(study, report=report, resume=out if resume else None, keep=out)
            told.phase("writing")
            with stop.waiting("writing"):
                estimate.save(out)
                page = write_report(out, estimate.to_json(), estimate.states)
        typer.echo(result_text(estimate))
        typer.echo(f"wrote {out}; the report is {page}")
        say_end(estimate)
        if estimate.status == "interrupted":
            raise typer.Exit(stop.exit_status)
        end_if(stop)
        if estimate.status != "converged":
            raise typer.Exit(FAILED)


def end_if(stop: Stop) -> None:
    """The exit status of a signal that came while what has been written was still under way."""
    if stop.asked:
        raise typer.Exit(stop.exit_status)


Estimated = Annotated[
    Path | None,
    typer.Option("--estimate", metavar="DIR", help="Hold the parameters and noise levels of this estimate."),
]
Tracked = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the result; made if there is none.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]


@app.command()
def filter(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="Study file.")],
    out: Tracked,
    estimate: Estimated = None,
    quiet: Quiet = False,
) -> None:
    """Filter the recordings of a study: every state from the readings up to its time.

    The study's parameters are states, too, unless --estimate or `recursive: {parameters: held}` hold them.
    Writes tracking.json, the states, the scene with the last parameters and tracking.html, a page with states,
    bands, innovations and their tests, and of a mechanism with modes their probabilities.

    \b
    Examples:
      spookax filter demo/furuta_study.yaml --out out/filtered
      spookax filter demo/furuta_study.yaml --estimate out/furuta --out out/filtered
    """
    _track(study, out, estimate, quiet, smooth=False)


@app.command()
def smooth(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="Study file.")],
    out: Tracked,
    estimate: Estimated = None,
    quiet: Quiet = False,
) -> None:
    """Filter and smooth the recordings of a study: every state from all readings of its recording.

    Otherwise as `spookax filter`.

    \b
    Example:
      spookax smooth demo/furuta_study.yaml --out out/smoothed
    """
    _track(study, out, estimate, quiet, smooth=True)


def _track(study: Path, out: Path, estimate: Path | None, quiet: bool, *, smooth: bool) -> None:
    with refusals():
        with signs(f"reading {study}", COMPILING, quiet=quiet) as told, stoppable() as stop:
            from .check import check_study

            warn(check_study(study).doubts)
            out.mkdir(parents=True, exist_ok=True)

            told.phase("starting JAX")
            from ..loading import enable_x64
            from ..report import write_tracking
            from ..study.tracking.filter_recordings import filter_recordings, smooth_recordings
            from .progress import tracking_text

            enable_x64()
            told.phase("planning the first trajectories")
            report = None if quiet else by_recording(told)
            found = (smooth_recordings if smooth else filter_recordings)(study, estimate=estimate, report=report)
            told.phase("writing")
            with stop.waiting("writing"):
                found.save(out)
                page = write_tracking(out, found.content, found.states)
        typer.echo(tracking_text(found))
        typer.echo(f"wrote {out}; the page is {page}")
        if found.content["message"]:
            typer.echo(found.content["message"], err=True)
            raise typer.Exit(FAILED)
        end_if(stop)


@app.command()
def view(
    what: Annotated[Path, typer.Argument(metavar="SCENE|DIR", help="Scene file, or the folder of an estimate.")],
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the page here instead of opening it.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Recording of an estimate to show; the first one when left out."),
    ] = None,
) -> None:
    """Show a scene, or the motion of an estimate, in 3D.

    \b
    Examples:
      spookax view scenes/pendulum.yaml --html pendulum.html
      spookax view out/furuta --html furuta.html
    """
    with refusals():
        with signs(f"reading {what}") as told, stoppable() as stop:
            from ..scene import read_scene
            from ..viewer import view as draw
            from .check import has_loops
            from .estimates import estimated_contacts, estimated_motion

            scene, touching = read_scene(scene_file(what)), None
            if what.is_dir():
                motion = estimated_motion(what, scene, run)
                touching = estimated_contacts(what, run)
            elif run is not None:
                raise typer.BadParameter("only the folder of an estimate has runs", param_hint="--run")
            elif has_loops(scene):
                told.phase("starting JAX")
                from ..loading import assemble, enable_x64

                enable_x64()
                told.phase("assembling")
                motion = assemble(what)
            else:
                motion = None
            drawn = draw(scene, motion, contacts=touching)
            with stop.waiting("writing"):
                done = f"wrote {drawn.save(html)}" if html else f"opened {drawn.open()}"
        typer.echo(done)
        end_if(stop)


def scene_file(path: Path) -> Path:
    """The scene file itself, or the identified one in the folder of an estimate."""
    from .estimates import told

    if not path.is_dir():
        return path
    if not (path / "scene.yaml").is_file():
        if why := told(path):
            raise refuse(path, f"this folder holds no identified scene: {why}", "Identify again, or give a scene file.")
        raise refuse(path, "this folder holds no estimate", "Give a scene file, or the --out of `spookax identify`.")
    return path / "scene.yaml"
