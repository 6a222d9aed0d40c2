"""The reference motions of `benchmarks/accuracy.yaml`: as close as a plain prototype of the method, second order."""

import dataclasses

import pytest

from benchmarks.accuracy import PRESETS, order, problems

PROBLEMS = problems()


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_error_falls_with_the_square_of_the_step(name):
    problem = PROBLEMS[name]
    for relaxation in PRESETS:
        errors = {h: max(problem.errors(h, relaxation).values()) for h in problem.steps}
        assert order(list(errors), list(errors.values())) >= 1.8, (relaxation, errors)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, problem in PROBLEMS.items() if problem.bound])
def test_the_error_is_at_most_that_of_the_prototype(name):
    problem = PROBLEMS[name]
    for h, relaxation, most in problem.bound:
        assert max(problem.errors(h, relaxation).values()) <= most, (h, relaxation)


@pytest.mark.slow
def test_a_loop_finds_its_branch_at_every_singular_pose():
    """The double four-bar lies flat, where it could fold, again and again in 10 s: there its B0 still is where it was.

    On the other branch it would be off by the length of a rod; the phase is off by 2 mm at 2.5 ms.
    """
    later = dataclasses.replace(PROBLEMS["double_four_bar"], values={10.0: [0.328458112, 0.944518538, 0.0]})
    errors = [later.errors(h, 2.0)[10.0] for h in (0.0025, 0.00125)]
    assert errors[0] < 0.1
    assert errors[0] > 3.5 * errors[1]


@pytest.mark.slow
def test_stiff_springs_are_stable_at_long_steps():
    """The governor's springs of 8e5 N/m with dampers of 4e4 N s/m on a slider of 3 kg, at h = 10 ms."""
    errors = PROBLEMS["flyball_governor"].errors(0.01, 2.0)
    assert max(errors.values()) < 0.02, errors
