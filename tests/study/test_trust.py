"""The first sentence about an estimate, from made-up contents."""

import numpy as np
import pytest

from spookax.study.judging.bands import foretold
from spookax.study.judging.diagnosis import Suspect
from spookax.study.judging.trust import trust


def content(**changes):
    signal = {"unit": "rad", "rms": 1e-3, "rms_open_loop": 1.2e-3, "nrmse_open_loop": 1.2e-3}
    plain = {
        "status": "converged",
        "runs": {"swing": {"signals": {"encoder": signal | changes.pop("signal", {})}}},
        "noise": {"sensors": {"encoder": [1e-3]}, "assumed": {"encoder": [1e-3]}},
        "checks": {"gauge": [], "half_step": None, "coloured": 1.0, "prediction": None},
        "diagnosis": {"suspects": []},
    }
    for key, value in changes.items():
        plain[key] = {**plain[key], **value} if isinstance(value, dict) else value
    return plain


def test_a_good_one():
    found = trust(content())
    assert found.grade == "good"
    assert found.reasons == ("Simulated from the start of a recording, it misses encoder by 0.0012 rad.",)


def test_equal_units_of_a_sensor_are_said_once():
    given = content()
    for run in given["runs"].values():
        for signal in run["signals"].values():
            signal["unit"] = "m, m, m, rad, rad, rad"
    assert "misses encoder by 0.0012 m, rad." in trust(given).reasons[0]


@pytest.mark.parametrize(
    ("changes", "grade", "word"),
    [
        ({"status": "no_progress"}, "bad", "no progress"),
        ({"signal": {"rms_open_loop": 0.7, "nrmse_open_loop": 0.7}}, "bad", "70 %"),
        ({"signal": {"rms_open_loop": 0.7, "nrmse_open_loop": float("nan")}}, "bad", "unknown"),
        ({"signal": {"rms_open_loop": 0.2, "nrmse_open_loop": 0.2}}, "fair", "20 %"),
        ({"checks": {"coloured": 8.0}}, "fair", "8 times"),
        (
            {"checks": {"gauge": [{"paths": [], "message": "Known only up to a common factor."}]}},
            "fair",
            "common factor",
        ),
        ({"noise": {"sensors": {"encoder": [0.03]}}}, "fair", "30 times"),
    ],
)
def test_what_is_wrong_is_named(changes, grade, word):
    found = trust(content(**changes))
    assert found.grade == grade
    assert word in found.reasons[0]


def test_process_noise_that_swallowed_what_the_model_lacks():
    tried = [{"density": d, "rms": {"encoder": e}, "relative": e} for d, e in ((1e-3, 0.5), (1e-6, 0.01))]
    found = trust(content(checks={"prediction": {"tried": tried, "chosen": 1}}))
    assert found.grade == "fair"
    assert "1e+03 times the process noise" in found.reasons[0]
    assert found.reasons[0].endswith("try another friction law.")


def test_no_law_is_asked_for_where_the_step_is_too_long():
    tried = [{"density": d, "rms": {"encoder": e}, "relative": e} for d, e in ((1e-3, 0.5), (1e-6, 0.01))]
    step = Suspect("step", "", 100.0, 0.5, "0.005 s is long for this motion", "Write `step: 0.0025`.")._asdict()
    other = Suspect("friction", "pin", 50.0, 0.2, "friction is different", "Try another friction law.")._asdict()
    for suspects, end in (
        ([step, other], "The time step of 0.005 s is long for this motion. Write `step: 0.0025`."),
        ([other, step], "try another friction law."),
    ):
        told = content(checks={"prediction": {"tried": tried, "chosen": 1}}, diagnosis={"suspects": suspects})
        assert trust(told).reasons[0].endswith(end)


def unforeseeable(time, *errors):
    """Foretold for so long; the errors over 4, 2, 1 and 0.5 s that were left out."""
    spans = [{"seconds": s, "relative": e} for s, e in zip((4.0, 2.0, 1.0, 0.5), errors, strict=True)]
    left_out = {"tried": [{"density": 1e-6, "rms": {"encoder": 3.0}, "relative": 3.0}], "chosen": 0, "spans": spans}
    signal = {"rms_open_loop": 1.0, "nrmse_open_loop": 1.0, "foretold": time}
    return content(signal=signal, checks={"prediction": left_out})


def test_an_unstable_motion_is_judged_as_far_as_it_can_be_foretold():
    found = trust(unforeseeable(2.5, 3.0, 1.0, 0.2, 0.1))
    assert found.grade == "fair"
    assert "foretells encoder for 2.5 s" in found.reasons[0]
    assert "over 1 s that were left out, it misses by 20 %" in found.reasons[0]


def test_what_hangs_on_an_unstable_motion_is_carried_along():
    """An arm's wrist could be foretold for longer than its shoulder, which takes it along."""
    found = unforeseeable(2.5, 3.0, 1.0, 0.2, 0.1)
    run = next(iter(found["runs"].values()))
    run["signals"]["wrist"] = run["signals"]["encoder"] | {"foretold": 19.0}
    told = trust(found)
    assert told.grade == "fair"
    assert any("wrist is carried along by what is foretold for 2.5 s" in reason for reason in told.reasons)


@pytest.mark.parametrize("time", [0.3, None])
def test_what_could_be_foretold_and_is_not_counts_against_it(time):
    assert trust(unforeseeable(time, 3.0, 1.0, 0.7, 0.7)).grade == "bad"
    assert trust(unforeseeable(time, 3.0, 1.0, 0.2, 0.1)).grade == ("bad" if time is None else "fair")


def test_a_signal_is_foretold_until_the_band_is_half_as_wide_as_it_moves():
    time = np.linspace(0.0, 1.0, 101)
    measured = np.sin(20 * time)[:, None]
    sd = 1e-3 * np.exp(10 * time)[:, None]
    until = np.log(np.std(measured) / 2 / 1e-3) / 10
    found = foretold(time, measured, sd)
    assert found is not None
    assert until <= found < until + 0.01
    assert foretold(time, measured, 1e-3 * np.ones_like(sd)) is None
    assert foretold(time, measured, np.where(time[:, None] < 0.5, 0.0, np.inf)) == 0.5
    # of what hardly moves there is nothing to tell but noise
    assert foretold(time, 1e-3 * measured, 2e-3 * np.ones_like(sd)) == 0.0
    assert foretold(time, 1e-3 * measured, 2e-3 * np.ones_like(sd), 1e-3) is None


def test_an_estimate_of_nothing_is_not_praised():
    assert trust({"status": "converged"}).grade == "fair"


def held_back(**changes):
    signal = {"unit": "rad", "rms": 0.02, "nrmse": 0.02, "fit": 98.0, "rms_held": 1.2} | changes
    return {"late": {"horizon": 10.0, "head": 0.3, "signals": {"encoder": signal}}}


def test_recordings_that_were_held_back_are_part_of_the_praise():
    found = trust(content() | {"validation": held_back()})
    assert found.grade == "good"
    assert "held back, it misses every sensor by at most 2 %" in found.reasons[0]


def test_numbers_from_a_channel_with_the_wrong_sign_are_not_to_be_used():
    """The fit has made up for it, and predicts roughly."""
    found = trust(content(checks={"misread": {"channel": "place", "factor": -1.0, "ratio": 0.03}}))
    assert found.grade == "bad"
    assert found.reasons[0].startswith("place is misread: with its sign turned, even a rough fit misses 3 % as much")


@pytest.mark.parametrize(
    ("kind", "share", "grade"),
    [("delay", 0.99, "bad"), ("delay", 0.7, "good"), ("friction", 0.99, "good"), ("outliers", None, "good")],
)
@pytest.mark.parametrize("blemished", [False, True])
def test_a_fault_that_is_nearly_all_of_the_innovations_is_mended_first(kind, share, grade, blemished):
    """Also where the recording has a blemish that is seen without a fit, and comes first."""
    suspect = Suspect(kind, "angle", 100.0, share, "angle: 0.04 s late against the others", "Write a delay.")._asdict()
    gaps = Suspect("gaps", "", 1e6, None, "run: 7 lines are missing", "Cut the recording.")._asdict()
    found = trust(content(diagnosis={"suspects": [gaps, suspect] if blemished else [suspect]}))
    assert found.grade == grade
    assert ("0.04 s late against the others. Write a delay." in found.reasons[0]) == (grade == "bad")


def test_what_is_to_be_mended_is_said_once():
    tried = [{"density": d, "rms": {"encoder": e}, "relative": e} for d, e in ((1e-3, 0.5), (1e-6, 0.01))]
    step = Suspect("step", "", 100.0, 0.95, "0.005 s is long for this motion", "Write `step: 0.0025`.")._asdict()
    told = trust(content(checks={"prediction": {"tried": tried, "chosen": 1}}, diagnosis={"suspects": [step]}))
    assert "".join(told.reasons).count("Write `step: 0.0025`.") == 1
    assert told.reasons[1].endswith("with which it predicts best.")


@pytest.mark.parametrize(
    ("rms", "grade", "words"),
    [
        (0.03, "fair", "late, which was held back, is foretold for 2 s, as an unstable motion is, and no longer. "),
        (0.7, "bad", "Simulated over 1 s at a time of late, which was held back, it misses encoder by 0.7 rad, 70 %"),
        (None, "bad", "it misses encoder altogether."),
    ],
)
def test_what_nobody_can_foretell_to_its_end_is_judged_by_stretches(rms, grade, words):
    seen = held_back(rms=40.0, nrmse=40.0)
    signals = {"encoder": {"rms": rms, "nrmse": rms, "fit": None}}
    seen["late"]["stretches"] = {"foretold": 2.0, "seconds": 1.0, "count": 9, "signals": signals}
    found = trust(content() | {"validation": seen})
    assert found.grade == grade
    assert words in found.reasons[0]
    assert not any("40 rad" in reason for reason in found.reasons)


def test_a_sensor_that_reads_its_noise_alone_is_not_missed():
    """The noise is that of the scene, unless less was found: then that of the scene was no more than a guess."""
    nothing = {"rms_open_loop": 2e-3, "nrmse_open_loop": 1.4}
    seen = held_back(rms=2e-3, nrmse=1.4, rms_held=1.9e-3)
    found = trust(content(signal=nothing) | {"validation": seen})
    assert found.grade == "good"
    assert "140 %" not in found.reasons[0]
    quiet = content(signal=nothing, noise={"sensors": {"encoder": [1e-4]}})
    assert trust(quiet).grade == "bad"
    assert "held back" in trust(content(noise={"sensors": {"encoder": [1e-4]}}) | {"validation": seen}).reasons[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rms": 1.1, "nrmse": 1.1}, "misses encoder by 1.1 rad: the mean of the recording misses less"),
        ({"rms": 0.5, "nrmse": 0.8, "rms_held": 0.4}, "the reading that it starts from, held, misses less"),
        ({"rms": float("nan"), "nrmse": float("nan")}, "does not predict encoder at all"),
        ({"rms": None, "nrmse": None, "rms_held": None}, "does not predict encoder at all"),
        ({"rms": 0.7, "nrmse": 0.7}, "misses encoder by 0.7 rad, 70 % of how much it moves."),
    ],
)
@pytest.mark.parametrize(
    ("foretold", "duration", "grade"),
    [(None, 12.0, "bad"), (None, 8.0, "fair"), (4.0, 12.0, "fair")],
    ids=["as long as others", "longer than others", "unstable"],
)
def test_what_was_held_back_and_is_not_predicted(changes, words, foretold, duration, grade):
    """Nothing is held against an estimate that no recording as long as that one was there to tell."""

    given = content(signal={"foretold": foretold})
    given["runs"]["swing"]["duration"] = duration
    found = trust(given | {"validation": held_back(**changes)})
    assert found.grade == grade
    assert "Simulated over late, which was held back" in found.reasons[0]
    assert words in found.reasons[0]
