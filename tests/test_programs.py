"""Compiled programs on disk: loaded by whoever asks for the same; where a file is wrong, compiled instead."""

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import compilation_cache

from spookax import _compiled, _fingerprint, _store
from spookax._compiled import Compiled
from spookax._fingerprint import NoFingerprintError, fingerprint
from spookax._store import Store
from spookax.complementarity import MLCP, solve_mlcp
from spookax.math import rotation
from spookax.scene import read_scene
from spookax.study.file.read import read_study
from spookax.study.recordings.recording import read_recordings
from spookax.study.running.setup import set_up

DEMO = Path(__file__).parents[1] / "demo" / "furuta_study.yaml"
P, Q = np.array([1.0, 0.0, 0.0, 0.0]), np.array([0.6, 0.8, 0.0, 0.0])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty place for programs."""
    monkeypatch.setenv("SPOOKAX_CACHE", str(tmp_path / "programs"))
    return tmp_path / "programs"


@pytest.fixture(autouse=True)
def _without_the_cache_of_jax(monkeypatch):
    """What comes from there is not kept a second time: these tests look at what is."""
    monkeypatch.setattr(compilation_cache, "_cache_used", False)
    monkeypatch.setattr(compilation_cache, "_cache_checked", True)


@pytest.fixture
def built(monkeypatch):
    """Names of the functions that were traced and compiled."""
    names = []

    def count(self, leaves, form, build=Compiled._built):
        names.append(self.__name__)
        return build(self, leaves, form)

    monkeypatch.setattr(Compiled, "_built", count)
    return names


def multiply():
    """A product of quaternions as a process finds it that has not called it yet."""
    return Compiled(rotation.multiply, {})


def files(folder):
    return sorted(folder.glob("*.program"))


def keep(folder):
    """The one file of a program that was compiled."""
    multiply()(P, Q)
    (file,) = files(folder)
    return file


def test_a_program_is_compiled_once_and_then_loaded(folder, built):
    first = multiply()(P, Q)
    again = multiply()
    np.testing.assert_array_equal(again(P, Q), first)
    np.testing.assert_array_equal(again(Q, Q), rotation.multiply(Q, Q))
    assert built == ["multiply"]


def test_of_arrays_only_shape_and_type_count(folder, built):
    multiply()(P, Q)
    multiply()(jnp.asarray(Q), Q)
    assert built == ["multiply"]
    multiply()(np.stack([P, P]), np.stack([Q, Q]))
    multiply()(P.astype(np.float32), Q.astype(np.float32))
    assert built == ["multiply"] * 3


def test_what_is_no_array_is_part_of_the_program_and_of_the_result(folder, built):
    M = np.eye(2)
    lcp = MLCP(M, np.array([-1.0, 1.0]), np.zeros(2), np.full(2, np.inf))
    first, loaded = Compiled(solve_mlcp, {})(lcp), Compiled(solve_mlcp, {})(lcp)
    assert type(loaded) is type(first)
    np.testing.assert_array_equal(loaded.x, first.x)
    assert loaded.result == first.result
    assert built == ["solve_mlcp"]


def spoil(what, file):
    content = file.read_bytes()
    changed = {
        "empty": b"",
        "cut in the head": content[:40],
        "cut in the body": content[: len(content) // 2],
        "a flipped bit": content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
        "of another version of the format": content.replace(b"program 1\n", b"program 0\n", 1),
        "something else": b"#!/bin/sh\n",
    }
    file.write_bytes(changed[what])


@pytest.mark.parametrize(
    "what",
    [
        "empty",
        "cut in the head",
        "cut in the body",
        "a flipped bit",
        "of another version of the format",
        "something else",
    ],
)
def test_a_damaged_file_is_compiled_again_and_replaced(folder, built, what):
    file = keep(folder)
    whole = file.read_bytes()
    spoil(what, file)
    np.testing.assert_array_equal(multiply()(P, Q), Q)
    assert len(built) == 2
    assert len(file.read_bytes()) == pytest.approx(len(whole), rel=0.1)
    multiply()(P, Q)
    assert len(built) == 2


def test_a_program_of_another_structure_under_the_same_name_is_not_used(folder, built):
    file = keep(folder)
    multiply()(np.stack([P, P]), np.stack([Q, Q]))
    (other,) = (f for f in files(folder) if f != file)
    other.replace(file)
    np.testing.assert_array_equal(multiply()(P, Q), Q)
    assert len(built) == 3


def test_a_sound_file_that_holds_no_program_is_compiled_instead(folder, built):
    file = keep(folder)
    Store(folder, 1e9).write(bytes.fromhex(file.stem), b"not what this version of the package writes")
    np.testing.assert_array_equal(multiply()(P, Q), Q)
    assert len(built) == 2


def test_a_program_that_does_not_run_is_compiled_instead(folder, built, monkeypatch):
    file = keep(folder)

    def broken(*_):
        raise jax.errors.JaxRuntimeError("NOT_FOUND: a function that the file does not hold")

    load = _compiled.serialize_executable.deserialize_and_load
    monkeypatch.setattr(_compiled.serialize_executable, "deserialize_and_load", lambda *_: broken)
    found = multiply()
    np.testing.assert_array_equal(found(P, Q), Q)
    np.testing.assert_array_equal(found(P, Q), Q)
    assert len(built) == 2
    monkeypatch.setattr(_compiled.serialize_executable, "deserialize_and_load", load)
    multiply()(P, Q)
    assert len(built) == 2
    assert files(folder) == [file]


def test_what_comes_from_the_cache_of_jax_is_not_kept(folder, built, monkeypatch):
    def compiled_there(self, leaves, form, build=Compiled._built):
        program = build(self, leaves, form)
        jax.monitoring.record_event("/jax/compilation_cache/cache_hits")
        return program

    monkeypatch.setattr(Compiled, "_built", compiled_there)
    np.testing.assert_array_equal(multiply()(P, Q), Q)
    assert files(folder) == []


@pytest.mark.parametrize("what", ["jax", "blackjax", "processor", "XLA", "code"])
def test_other_versions_options_processors_and_code_have_programs_of_their_own(folder, built, monkeypatch, what):
    keep(folder)
    _fingerprint.surroundings.cache_clear()
    if what == "jax":
        version = _fingerprint.importlib.metadata.version
        monkeypatch.setattr(_fingerprint.importlib.metadata, "version", lambda name: version(name) + "+other")
    elif what == "blackjax":  # of an extra
        known = _fingerprint._version
        monkeypatch.setattr(_fingerprint, "_version", lambda name: "1.0+other" if name == "blackjax" else known(name))
    elif what == "processor":
        monkeypatch.setattr(_fingerprint, "processor", lambda: "flags: none")
    elif what == "XLA":
        monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", "") + " ")
    else:
        read = Path.read_bytes
        monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + (b"#" if path.suffix == ".py" else b""))
    try:
        multiply()(P, Q)
    finally:
        _fingerprint.surroundings.cache_clear()
    assert len(built) == 2
    assert len(files(folder)) == 2


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs file permissions as on Linux")
@pytest.mark.parametrize("whose", ["folder of all", "file of all", "another user's", "a link"])
def test_nothing_is_run_that_others_may_have_written(folder, built, monkeypatch, tmp_path, whose):
    file = keep(folder)
    if whose == "folder of all":
        folder.chmod(0o777)
    elif whose == "file of all":
        file.chmod(0o666)
    elif whose == "a link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    else:
        mine = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    np.testing.assert_array_equal(multiply()(P, Q), Q)
    assert len(built) == 2


@pytest.mark.parametrize("what", ["no permission", "full disk", "full on renaming", "a file in place of the folder"])
def test_where_nothing_can_be_written_the_program_runs_all_the_same(folder, built, monkeypatch, what):
    def refuse(*args, code=errno.EACCES if what == "no permission" else errno.ENOSPC, **kwargs):
        raise OSError(code, os.strerror(code))

    if what == "a file in place of the folder":
        folder.write_text("here first")
    else:
        place = {"no permission": "mkstemp", "full disk": "write", "full on renaming": "replace"}[what]
        if place == "mkstemp":
            monkeypatch.setattr(_store.tempfile, "mkstemp", refuse)
        elif place == "replace":
            monkeypatch.setattr(_store.os, "replace", refuse)
        else:
            monkeypatch.setattr(_store, "open", Full, raising=False)
    np.testing.assert_array_equal(multiply()(P, Q), Q)
    np.testing.assert_array_equal(multiply()(P, Q), Q)
    assert len(built) == 2
    assert not folder.is_dir() or list(folder.iterdir()) == []


class Full:
    """A file on a full disk."""

    def __init__(self, number, mode):
        self.file = os.fdopen(number, mode)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, content):
        self.file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_folder_that_is_removed_while_running(folder, built):
    file = keep(folder)
    file.unlink()
    folder.rmdir()
    np.testing.assert_array_equal(multiply()(P, Q), Q)
    multiply()(P, Q)
    assert len(built) == 2
    assert files(folder) == [file]


def test_the_least_recently_used_make_way(tmp_path):
    kept = Store(tmp_path, 3500)
    keys, payload = [bytes([i]) * 32 for i in range(4)], os.urandom(1000)
    for age, key in enumerate(keys[:3]):
        kept.write(key, payload)
        os.utime(tmp_path / f"{key.hex()}.program", (0, age))
    assert kept.read(keys[0]) == payload  # used just now
    kept.write(keys[3], payload)
    assert [kept.read(key) is not None for key in keys] == [True, False, True, True]
    kept.write(keys[1], os.urandom(5000))  # more than all may take
    assert kept.read(keys[1]) is None


@pytest.mark.parametrize("word", ["off", "0", "none"])
def test_nothing_is_kept_on_request(tmp_path, monkeypatch, built, word):
    monkeypatch.setenv("SPOOKAX_CACHE", word)
    monkeypatch.chdir(tmp_path)
    assert _store.store() is None
    multiply()(P, Q)
    multiply()(P, Q)
    assert len(built) == 2
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_kept_for_a_while(folder):
    seen = []
    with _store.nothing_kept():
        seen.append(_store.store())
    assert seen == [None]
    assert _store.store() is not None


def test_functions_of_others_are_compiled_but_not_kept(folder, built):
    def twice(x):
        return 2 * x

    with pytest.raises(NoFingerprintError):
        fingerprint((P,), twice)
    function = Compiled(twice, {})
    np.testing.assert_array_equal(function(P), 2 * P)
    np.testing.assert_array_equal(function(Q), 2 * Q)
    assert built == ["twice"]
    assert not folder.exists()


def model_of(tmp_path, scene_change=("", ""), study_change=("", "")):
    """The demo's model, with something else in its files."""
    scene, study = tmp_path / "furuta.yaml", tmp_path / "furuta_study.yaml"
    scene.write_text((DEMO.parent / "furuta.yaml").read_text().replace(*scene_change, 1))
    text = DEMO.read_text().replace("train.csv", str(DEMO.parent / "train.csv"))
    study.write_text(text.replace("test.csv", str(DEMO.parent / "test.csv")).replace(*study_change, 1))
    read = read_study(study)
    setup = set_up(read, read_scene(read.scene_path), read_recordings(read))
    return setup.stages[0].model, setup.problem.z0


def test_other_numbers_starts_and_bounds_are_the_same_program_and_other_unknowns_are_not(tmp_path):
    same = fingerprint(model_of(tmp_path))
    numbers = "start: 2.25e-3, lower: 1.0e-5, upper: 0.1", "start: 2.0e-3, lower: 1.0e-4, upper: 0.5"
    assert all(old in DEMO.read_text() for old in (numbers[0], "density: 1.0e-4", "tilt.x:"))
    assert fingerprint(model_of(tmp_path, study_change=numbers)) == same
    assert fingerprint(model_of(tmp_path, study_change=("density: 1.0e-4", "density: 2.0e-4"))) == same
    assert fingerprint(model_of(tmp_path, ("mass: ", "mass: 1"))) == same
    assert fingerprint(model_of(tmp_path, study_change=("  tilt.x:", "  # tilt.x:"))) != same


RACE = """
    import sys, time
    from pathlib import Path
    import jax, numpy as np
    jax.config.update("jax_enable_x64", True)
    import os
    from spookax._compiled import Compiled
    from spookax.math import rotation
    me, other, place = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    p, q = np.array([1.0, 0, 0, 0]), np.array([0.6, 0.8, 0, 0])
    for round in range(10):
        os.environ["SPOOKAX_CACHE"] = str(place / f"round{round}")
        (place / f"{me}{round}").touch()
        while not (place / f"{other}{round}").exists():
            time.sleep(1e-4)
        for turn in range(2):
            assert np.array_equal(Compiled(rotation.multiply, {})(p, q), q)
    print("all right")
"""


# what comes from JAX's own cache is not kept
ALONE = {"JAX_ENABLE_COMPILATION_CACHE": "false"}


def test_two_processes_at_once(tmp_path):
    script = tmp_path / "race.py"
    script.write_text(textwrap.dedent(RACE))
    commands = ([sys.executable, script, *pair, tmp_path] for pair in (("a", "b"), ("b", "a")))
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | ALONE) for command in commands
    ]
    assert [process.communicate(timeout=120)[0] for process in both] == ["all right\n"] * 2
    for round in range(10):
        assert len(list((tmp_path / f"round{round}").iterdir())) == 1


def test_a_digest_is_the_same_in_every_process(tmp_path):
    code = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import jax, pathlib
        jax.config.update("jax_enable_x64", True)
        from test_programs import fingerprint, model_of
        print(fingerprint(model_of(pathlib.Path({str(tmp_path)!r}))).hex())
    """
    said = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = [sys.executable, "-c", textwrap.dedent(code)]
        said.add(subprocess.run(done, env=environment, check=True, capture_output=True, text=True).stdout)
    assert said == {fingerprint(model_of(tmp_path)).hex() + "\n"}


def test_a_kept_program_may_be_the_first_to_call_lapack(tmp_path):
    code = """
        import numpy as np
        import jax
        from spookax._compiled import Compiled
        from spookax.math.sqrt_gaussian import lower
        print(Compiled(lower, {})(np.arange(30.0, dtype=np.float32).reshape(6, 5)).shape)
    """
    environment = os.environ | ALONE | {"SPOOKAX_CACHE": str(tmp_path / "kept")}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (0, "(6, 6)\n")
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_programs_in_memory_are_let_go():
    function = multiply()
    function(P, Q)
    assert function._programs
    _compiled.forget_programs()
    assert not function._programs
