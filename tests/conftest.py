"""What every test runs under: float64, fixed seeds, a compilation cache that outlives the checkout."""

import contextlib
import gc
import hashlib
import os
import random
import time
from collections import Counter
from pathlib import Path

# Programs of this package, by its source. `pytest --cache-clear` removes them.
# What is loaded is not traced, and what is not traced has no shapes to be checked.
PROGRAMS = Path(__file__).parents[1] / ".pytest_cache" / "d" / "programs"
os.environ.setdefault(
    "SPOOKAX_CACHE", str(PROGRAMS.with_name("shapes") if os.environ.get("SPOOKAX_SHAPES") else PROGRAMS)
)
MAPPINGS = Path("/proc/self/maps")
# XLA without its slow passes, for what a test compiles itself and for operations one by one.
LEVEL, EMITTERS = "xla_backend_optimization_level", "xla_cpu_use_fusion_emitters"
SPLIT = "xla_cpu_parallel_codegen_split_count"  # each process of tests has one core
QUICK = f"--{EMITTERS}=false --{LEVEL}=0 --{SPLIT}=1"

import jax  # noqa: E402
import numpy as np  # noqa: E402
import platformdirs  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

if os.environ.get("SPOOKAX_SHAPES"):  # every annotated shape and dtype is checked as its function is called
    from jaxtyping import install_import_hook
    from shapes import MODULES

    install_import_hook(MODULES, "shapes.called")

from spookax import _compiled, _fingerprint  # noqa: E402

# What XLA has made of a program that tests trace, by its text: every checkout of this user shares it, so that a second
# run is twice as fast, of another commit too. JAX's key does not tell one processor from another.
CACHE = Path(os.environ.get("SPOOKAX_TEST_CACHE") or platformdirs.user_cache_dir("spookax"), "tests").absolute()
CACHE /= hashlib.sha256(_fingerprint.processor().encode()).hexdigest()[:12]
OLD = 14 * 86400  # seconds after which what was compiled is thrown away
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))  # processes that a test starts read it too
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)

# The same examples every time, so that a red test stays red; compiling makes the first of them slow.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.load_profile("fixed")


# The package's programs: as its users have them in slow tests, which run long; without slow passes in the others.
OWN = (
    (_compiled.PLAIN, {LEVEL: 3, SPLIT: 1}),
    (_compiled.QUICK, {LEVEL: 1, SPLIT: 1}),
    (_compiled.SLOW, {LEVEL: 0, SPLIT: 1}),
)


STRICT = {"jax_numpy_rank_promotion": "raise", "jax_numpy_dtype_promotion": "strict"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budget", type=float, metavar="SECONDS", help="skip tests that have not begun by then")


def pytest_configure(config: pytest.Config) -> None:
    """No silent change of rank or dtype; and compiling is what the tests cost."""
    os.environ.setdefault("XLA_FLAGS", QUICK)  # before the first array
    for name, value in STRICT.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = value  # of processes that a test starts, which share kept programs with it
    gc.set_threshold(200_000, 20, 100)  # tracing makes millions of objects, and few of them are cycles
    if not hasattr(config, "workerinput"):  # of several processes the one that starts the others
        for file in CACHE.parent.rglob("*-cache"):
            with contextlib.suppress(OSError):
                if time.time() - file.stat().st_mtime > OLD:
                    file.unlink()


BEGAN = time.monotonic()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """CI has an end: on a slow computer what comes last is left out, and says so."""
    budget = item.config.getoption("budget")
    if budget is not None and time.monotonic() - BEGAN > budget:
        pytest.skip(f"left out: {budget:.0f} s were over before it began")


# Files that take longest, slow tests included, in this order before all others: processes that share the tests then
# end together (`make test` and `make test-slow`). Roughly by processor time from empty caches.
LONGEST = (
    "documentation/test_pages.py",
    "study/test_real.py",
    "documentation/test_brief_pages.py",
    "models/test_joint_tangent.py",
    "study/test_identify.py",
    "study/test_modes.py",
    "study/test_contacts.py",
    "study/test_recursive.py",
    "study/test_latent.py",
    "engine/test_contact_slots.py",
    "engine/test_hard_cases.py",
    "engine/test_public_cases.py",
    "engine/test_following.py",
    "study/test_predict.py",
)

# Files that come after all others, again the longest first: most of what they look at is looked at elsewhere, too, in
# fewer cases.
LAST = (
    "engine/test_simulator.py",
    "study/test_latent_scene.py",
    "engine/test_random_contacts.py",
    "engine/test_random_mechanisms.py",
    "study/test_latent_sampling.py",
    "estimation/test_residual_form.py",
    "study/test_loops.py",
    "study/test_outliers.py",
    "study/test_latent_sensors.py",
    "study/test_choose.py",
    "study/test_methods.py",
    "study/test_latent_scene_numbers.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, then those of many tests, and some at the end."""
    count, here = Counter(item.path for item in items), Path(__file__).parent
    place = {here / name: i for i, name in enumerate((*LONGEST, None, *LAST)) if name}
    items.sort(key=lambda item: (place.get(item.path, len(LONGEST)), -count[item.path]))


@pytest.fixture(scope="module", autouse=True)
def _passes(request: pytest.FixtureRequest):
    # A file may say that its programs take longer to compile than to run (`quick`), or the other way round (`busy`).
    quick = "not slow" in request.config.option.markexpr
    if request.node.get_closest_marker("quick"):
        quick = True
    elif request.node.get_closest_marker("busy"):
        quick = False
    for options, own in OWN:
        wanted = {LEVEL: 0, EMITTERS: False, SPLIT: 1} if quick else own
        if any(options.get(key) != value for key, value in wanted.items()):
            _compiled.forget_programs()
            options.update(wanted)


@pytest.fixture(autouse=True)
def _fixed_seeds():
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 (for libraries that draw from the global state)


@pytest.fixture(scope="module", autouse=True)
def _compiled_code_is_let_go():
    # A compiled function holds some ten memory mappings. Linux allows 65530 in a process, and the compiler crashes
    # at the next one: a session that keeps all that its tests compile does not reach its end.
    yield
    if MAPPINGS.exists() and MAPPINGS.read_bytes().count(b"\n") > 20_000:
        _compiled.forget_programs()
        jax.clear_caches()


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers, the same in every run."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the public recordings; without it the test is skipped."""
    folder = os.environ.get("SPOOKAX_DATA")
    if not folder:
        pytest.skip("SPOOKAX_DATA is not set: this test needs the public recordings (docs/study.md)")
    if not Path(folder).is_dir():
        pytest.fail(f"SPOOKAX_DATA names a folder that does not exist: {folder}")
    return Path(folder)
