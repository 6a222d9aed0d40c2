"""How far a step of the simulator form goes, and which model it is linearised with.

The derivative of a step with dry friction is that of its active set. It ends where a joint begins or ceases to stick,
and a trajectory with many such events has one at the next hair's breadth: what is proposed is right for a small part of
its length, and beyond it the states (not the parameters) miss what was promised. Damping of the parameters does not
help, and shorter steps only crawl. A wider friction speed has the same events spread over a longer way: where short
steps are refused, too, the trajectory is linearised with the next wider one. What decides about a trial is always the
stage's own model, and it has the last word: at the end steps are linearised with it again.

A step that had to be shortened grows when it keeps its promise; after a longer one that failed, twice as many have to,
so that steps are not taken and refused in turn.
"""

from typing import Any

import numpy as np

from ..levenberg_marquardt import AbstractAcceptance, AnyStep, Ending, Limits, Trial

_GOOD = 0.5  # part of the predicted gain with which a step may grow
_PATIENCE = 8  # good steps before a longer one, at most
_SHORT = 0.125  # fraction of a step that, refused, calls for another model
_SHORT_ROUGHLY = 0.5  # the same where only rough work is done, which has few steps
_AGAIN = 0.25  # fraction that the first step with another model goes, at least
_DAMPING = 1e-9, 1e6
_CORNER = 0.1  # step of the parameters, in their standard deviations, below which a kink is not followed any further
_LEAST = 1e-3  # fraction of a step that is not halved again


class Reach(AbstractAcceptance):
    """Takes what lowers the cost, along a part of the step.

    `alpha`: fraction of what the linear problem proposes; `damping`: of its parameters; `width`: which of the
    stage's models it is linearised with, 0 its own and `widest` the one with the widest friction speed.
    """

    def __init__(self, damping: float, widest: int, width: int = 0, *, short: float = _SHORT, last_word: bool = True):
        self.damping, self.alpha, self.width, self.widest = damping, 1.0, width, widest
        self._short = short
        self._due = last_word  # whether the stage's own model is still to have the last word
        self._last = False  # whether it has it now
        self._ending: Ending | None = None
        self._good, self._patience = 0, 1  # steps that kept their promise, and how many before the next is longer
        self._grown = False  # whether the next step is longer than the one before

    @classmethod
    def roughly(cls, widest: int, width: int = 0) -> "Reach":
        """For a few steps: more damping at first, wider models sooner, and any model may be the last."""
        return cls(1e-4, widest, width, short=_SHORT_ROUGHLY, last_word=False)

    @classmethod
    def to_the_end(cls, widest: int, width: int = 0) -> "Reach":
        """For steps until nothing is gained."""
        return cls(1e-9, widest, width)

    @property
    def limits(self) -> Limits:
        return Limits(self.damping, self.alpha, self.width)

    @property
    def ending(self) -> Ending | None:
        """At a corner, or stuck: the parameters were promised a long way, and no part of it lowers the cost."""
        return self._ending

    def takes(self, value: float, step: AnyStep, trial: Trial[Any]) -> bool:
        if np.isfinite(trial.gain) and trial.gain >= 0:
            self.accept(trial.gain, trial.promised)
            return True
        self.refuse(step.length)
        return False

    def accept(self, gain: float, predicted: float) -> None:
        """A step lowered the cost by `gain`."""
        self.damping = max(self.damping / 10, _DAMPING[0])
        if self._grown:
            self._patience = 1
        self._good = self._good + 1 if gain >= _GOOD * predicted else 0
        self._grown = self.alpha < 1.0 and self._good >= self._patience
        if self._grown:
            self.alpha, self._good = 2 * self.alpha, 0

    def refuse(self, length: float) -> None:
        """A step was not taken: the next model is asked, or the step is shortened. `length`: of the whole step of the
        parameters, in their standard deviations.
        """
        if self._grown:
            self._patience = min(2 * self._patience, _PATIENCE)
        self._good, self._grown = 0, False
        corner = self.widest > 0 and self.alpha * length < _CORNER
        if (corner or self.alpha <= self._short) and self.width < self.widest and not self._last:
            self.width, self.alpha = self.width + 1, max(self.alpha, _AGAIN)
            return
        self.damping, self.alpha = min(self.damping * 10, _DAMPING[1]), self.alpha / 2
        if corner:
            self._ending = Ending.corner
        elif self.alpha < _LEAST:
            self._ending = Ending.stuck

    def goes_on(self, ending: Ending) -> bool:
        """At the end: back to the stage's own model for the rest. False where it was the last that was asked."""
        if ending in (Ending.limit, Ending.nonfinite) or not (self.width and self._due):
            return False
        self.alpha, self.width, self._ending, self._last = 1.0, 0, None, True
        return True
