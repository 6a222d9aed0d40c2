"""The commands that read and write MuJoCo's files."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .app import app, scene_file
from .errors import refusals

if TYPE_CHECKING:
    from ..scene import FileProblem


@app.command("import-mjcf")
def import_mjcf(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="MJCF or URDF file.")],
    out: Annotated[Path, typer.Option(metavar="SCENE", help="Scene file to write.")],
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Write a scene without what a scene cannot say.")
    ] = False,
) -> None:
    """Write an MJCF or URDF file as a scene.

    Whatever the scene cannot say is listed. The exit status is then 2 and nothing is written, unless --allow-missing is
    given. Needs MuJoCo: pip install 'spookax[mjcf]'.

    \b
    Example:
      spookax import-mjcf robot.xml --out robot.yaml
    """
    with refusals():
        from ..mjcf import import_mjcf as read
        from ..scene import write_scene

        imported = read(file, allow_missing)
        write_scene(imported.scene, out)
        _say(out, imported.missing)


@app.command("export-mjcf")
def export_mjcf(
    scene: Annotated[Path, typer.Argument(metavar="SCENE", help="Scene file, or the folder of an estimate.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="MJCF file to write.")],
    original: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The MJCF or URDF file that the scene came from: all else of it is kept."),
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Write a file without what MJCF cannot say.")
    ] = False,
) -> None:
    """Write a scene as MJCF, or its numbers into the file it came from.

    Whatever has no place in the file is listed. The exit status is then 2 and nothing is written, unless
    --allow-missing is given. Only --original needs MuJoCo: pip install 'spookax[mjcf]'.

    \b
    Examples:
      spookax export-mjcf scenes/pendulum.yaml --out pendulum.xml
      spookax export-mjcf out/robot --original robot.xml --out identified.xml
    """
    with refusals():
        from ..mjcf import update_mjcf, write_mjcf
        from ..scene import read_scene

        read = read_scene(scene_file(scene))
        if original is None:
            missing = write_mjcf(read, out, allow_missing)
        else:
            missing = update_mjcf(original, read, out, allow_missing)
        _say(out, missing)


def _say(out: Path, missing: "Iterable[FileProblem]") -> None:
    missing = list(missing)
    for problem in missing:
        typer.echo(str(problem), err=True)
    lost = f", without {len(missing)} {'thing' if len(missing) == 1 else 'things'} listed above" if missing else ""
    typer.echo(f"wrote {out}{lost}")
