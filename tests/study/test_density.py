"""The density of the process noise that predicts best: how it is chosen, and that it finds what evidence does not."""

from types import SimpleNamespace

import numpy as np

from spookax.study.judging import density


def candidates(*scores):
    return [SimpleNamespace(score=np.array(score), error={}) for score in scores]


def test_the_best_over_the_longest_time_that_is_predicted_at_all():
    assert density.best(candidates([0.3, 0.01], [0.1, 0.02], [0.2, 0.03])) == 1
    # nobody predicts all that was left out: the first half decides
    assert density.best(candidates([0.9, 0.3], [0.8, 0.2], [0.7, 0.4])) == 1
    # nor that: the evidence stands
    assert density.best(candidates([0.9, 0.6], [0.8, 0.7])) == 0
    assert not density.told(candidates([0.9, 0.6], [0.8, 0.7]))


def test_of_those_that_are_as_good_the_one_with_the_most_noise():
    assert density.best(candidates([0.3], [0.1005], [0.1], [0.1001])) == 1
