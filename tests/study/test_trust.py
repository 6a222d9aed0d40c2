"""The first sentence about an estimate, from made-up contents."""

import pytest

from spookax.study.trust import trust


def content(**changes):
    signal = {"unit": "rad", "rms": 1e-3, "rms_open_loop": 1.2e-3, "nrmse_open_loop": 1.2e-3}
    plain = {
        "status": "converged",
        "runs": {"swing": {"signals": {"encoder": signal | changes.pop("signal", {})}}},
        "noise": {"sensors": {"encoder": [1e-3]}, "assumed": {"encoder": [1e-3]}},
        "checks": {"gauge": [], "half_step": None, "coloured": 1.0, "prediction": None},
    }
    for key, value in changes.items():
        plain[key] = {**plain[key], **value} if isinstance(value, dict) else value
    return plain


def test_a_good_one():
    found = trust(content())
    assert found.grade == "good"
    assert found.reasons == ("Simulated from the start of a recording, it misses encoder by 0.0012 rad.",)


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


def test_an_estimate_of_nothing_is_not_praised():
    assert trust({"status": "converged"}).grade == "fair"


def held_back(**changes):
    signal = {"unit": "rad", "rms": 0.02, "nrmse": 0.02, "fit": 98.0, "rms_held": 1.2} | changes
    return {"late": {"horizon": 10.0, "head": 0.3, "signals": {"encoder": signal}}}


def test_recordings_that_were_held_back_are_part_of_the_praise():
    found = trust(content() | {"validation": held_back()})
    assert found.grade == "good"
    assert "held back, it misses every sensor by at most 2 %" in found.reasons[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rms": 1.1, "nrmse": 1.1}, "misses encoder by 1.1 rad: the mean of the recording misses less"),
        ({"rms": 0.5, "nrmse": 0.8, "rms_held": 0.4}, "the reading that it starts from, held, misses less"),
        ({"rms": float("nan"), "nrmse": float("nan")}, "does not predict encoder at all"),
        ({"rms": None, "nrmse": None, "rms_held": None}, "does not predict encoder at all"),
    ],
)
def test_a_constant_that_predicts_better_is_a_reason_for_caution(changes, words):
    found = trust(content() | {"validation": held_back(**changes)})
    assert found.grade == "fair"
    assert "Simulated over late, which was held back" in found.reasons[0]
    assert words in found.reasons[0]
