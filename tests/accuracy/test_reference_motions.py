"""The reference motions of `benchmarks/accuracy.yaml`: as close as a plain prototype of the method, second order."""

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
    """The double four-bar lies flat, where it could fold, ten times in 10 s: it ends on the right branch (0.2 m)."""
    problem = PROBLEMS["double_four_bar"]
    assert max(problem.errors(0.0025, 2.0).values()) < 0.2


@pytest.mark.slow
def test_stiff_springs_are_stable_at_long_steps():
    """The governor's springs of 8e5 N/m with dampers of 4e4 N s/m at h = 10 ms: 80 times the explicit limit."""
    errors = PROBLEMS["flyball_governor"].errors(0.01, 2.0)
    assert max(errors.values()) < 0.02, errors
