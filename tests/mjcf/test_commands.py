"""`spookax import-mjcf` and `spookax export-mjcf`."""

from cli.scenes import ROOT, run
from mjcf.models import text, write

from spookax.mjcf import import_mjcf
from spookax.scene import read_scene, with_numbers, write_scene


def test_there_and_back(tmp_path):
    model, out, back = write(tmp_path, text("furuta")), tmp_path / "scene.yaml", tmp_path / "back.xml"
    result = run("import-mjcf", str(model), "--out", str(out))
    assert (result.exit_code, result.stdout) == (0, f"wrote {out}\n")
    assert read_scene(out) == import_mjcf(model).scene
    assert run("export-mjcf", str(out), "--out", str(back)).exit_code == 0
    assert import_mjcf(back).scene.motors == read_scene(out).motors


def test_what_is_missing_ends_with_status_2_or_is_said(tmp_path):
    model = write(
        tmp_path, '<worldbody><body name="a" gravcomp="1"><joint/><geom size="1" contype="0"/></body></worldbody>'
    )
    out = tmp_path / "scene.yaml"
    result = run("import-mjcf", str(model), "--out", str(out))
    assert result.exit_code == 2
    assert "body 'a'" in result.stderr
    assert not out.exists()
    result = run("import-mjcf", str(model), "--out", str(out), "--allow-missing")
    assert (result.exit_code, result.stdout) == (0, f"wrote {out}, without 1 thing listed above\n")
    assert "body 'a'" in result.stderr
    assert read_scene(out).bodies


def test_into_the_original(tmp_path):
    model, scene, out = write(tmp_path, text("furuta")), tmp_path / "scene.yaml", tmp_path / "new.xml"
    write_scene(with_numbers(import_mjcf(model).scene, {"bodies.furuta_arm.mass": 0.5}), scene)
    assert run("export-mjcf", str(scene), "--original", str(model), "--out", str(out)).exit_code == 0
    assert import_mjcf(out).scene.bodies["furuta_arm"].mass == 0.5


def test_files_that_are_not_there(tmp_path):
    for command in (["import-mjcf", "none.xml", "--out", "x.yaml"], ["export-mjcf", "none.yaml", "--out", "x.xml"]):
        assert run(*command).exit_code == 2


def test_shipped_scenes_are_written(tmp_path):
    for file in sorted((ROOT / "scenes").glob("*.yaml")):
        out = tmp_path / f"{file.stem}.xml"
        assert run("export-mjcf", str(file), "--out", str(out), "--allow-missing").exit_code == 0
        assert import_mjcf(out).scene.bodies
