"""What a fault explains of innovations: none that would have to be absurdly large."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from spookax.estimation.batch.problem import Part
from spookax.estimation.batch.sweeps import Filtered
from spookax.estimation.linearise import Linearised
from spookax.study.judging.error_bars import ErrorBars
from spookax.study.judging.signatures import Explained, Key, explained, signatures
from spookax.study.recordings.grid import grid_of
from spookax.study.recordings.recording import Recording

SD = 1e-3
TIME = 1e-2 * np.arange(640)
ANGLE = np.sin(3 * TIME)
SYSTEM = SimpleNamespace(sensors=[SimpleNamespace(name="angle", size=1)], sensor_index=lambda name: 0)


def told(readings: np.ndarray) -> list[Explained]:
    """Of readings where the motion is known to be `ANGLE`, beside one parameter that shifts all of them."""
    grid, steps = grid_of(TIME, 1e-2), len(TIME)
    recording = Recording("run", Path("run.csv"), TIME, {}, {"angle": readings[:, None]}, {}, {}, "")
    none, nu = np.zeros((steps, 1, 1)), ((readings - ANGLE) / SD)[:, None]
    parameter = np.full((steps, 1, 1), -1 / SD)
    lin = Linearised(A=none, B=none, C=none, H=none, J=none, D=parameter, e=nu)
    filled = dict.fromkeys(Filtered._fields, none) | {"nu": nu, "S": parameter}
    part = Part([lin], np.zeros((1, 1)), np.zeros((1, 1)), [Filtered(**filled)], [], *(np.zeros((1, 1)) for _ in "Ngq"))
    samples = SimpleNamespace(weight=np.ones((steps, 1, 1)))
    problem = SimpleNamespace(
        samples=[samples], own_weight=np.zeros(0), weight=np.zeros(1), prior=np.zeros(1), z0=np.zeros(1)
    )
    model = SimpleNamespace(noise=SimpleNamespace(kind="bodies"))
    setup = cast(
        Any,
        SimpleNamespace(
            problem=problem, grids=[grid], sensors=("angle",), system=SYSTEM, model=model, density=1e-5, recordings=[]
        ),
    )
    noise = SimpleNamespace(process=np.ones(()), sensor=np.array([SD]))
    iterate = SimpleNamespace(z=np.zeros(1), own=[np.zeros(0)])
    fit = cast(
        Any,
        SimpleNamespace(
            parts=[part], noise=noise, iterate=iterate, reach=np.zeros(1), root_weights=[np.ones((steps, 1, 1))]
        ),
    )
    columns = signatures(setup, recording, grid, {"angle": ANGLE[:, None]}, cast(Any, None))
    return explained(setup, fit, [columns])


def scale(off: float, rng: np.random.Generator) -> Explained:
    """What a wrong scale explains of readings whose scale is off by so much."""
    found = told((1 + off) * ANGLE + SD * rng.standard_normal(len(TIME)))
    return next(e for e in found if e.key == Key("scale", "angle"))


@pytest.mark.parametrize("off", [-0.05, 0.1])
def test_a_scale_that_is_off_is_told_with_its_size(off, rng):
    found = scale(off, rng)
    assert found.size == pytest.approx(off, rel=0.02)
    assert found.gain > 100
    assert found.share > 0.9


@pytest.mark.parametrize("off", [-0.6, 1.2])
def test_one_that_would_be_absurd_explains_nothing(off, rng):
    found = scale(off, rng)
    assert found.size == pytest.approx(off, rel=0.02)  # it would have explained them well
    assert found.gain == -np.inf


def test_no_absurd_fault_widens_the_error_bars():
    bars, shift = object.__new__(ErrorBars), np.ones(1)
    bars.suspicion = None
    bars._counted = cast(Any, lambda shift, weight: {"weight": weight})
    absurd = Explained(Key("scale", "angle"), -np.inf, 0.7, 1.2, shift)
    bars.count_fault([absurd])
    assert bars.suspicion is None
    bars.count_fault([absurd._replace(gain=20.0), absurd])
    assert bars.suspicion == {"weight": pytest.approx(1.0)}
