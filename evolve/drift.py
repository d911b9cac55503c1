"""Drift: has a live head fallen below what it was measured to do? Rewards in, an alarm out; what follows is for the gate."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from evolve.capital import Floats, differences, lower
from harness.errors import UsageError

BETS: Final[Floats] = np.array([0.03, 0.06, 0.12, 0.2, 0.3, 0.45, 0.65])
"""Small bets notice a small fall, large ones a large fall soon."""
RUN_LENGTH: Final = 10_000
"""Runs to a false alarm of a steady head, on average and at least."""
DOUBT: Final = 0.05
"""Chance that the floor lies above what the head really does."""
CEILING: Final = 0.99
"""The highest floor: one failure of a head that never failed must not be an alarm by itself."""


def floor(rewards: Sequence[float]) -> float:
    """A mean reward in [0, 1] that a head meets with probability 1 - DOUBT, from the rewards of its own measured episodes."""
    zero_half = [(0.5, reward) for reward in rewards]
    return min(max(lower(2 * differences(zero_half), DOUBT) / 2 + 0.5, 0.0), CEILING)


class Detector:
    """A mixture of Shiryaev-Roberts e-detectors of "the mean reward is below `floor`".

    M_j <- (M_j + 1) (1 + l_j (floor - r) / (1 - floor)) for each bet l_j; the alarm comes when the mean of the M_j reaches
    `run_length`. While the mean reward given the past is at least the floor, sum M - n is a supermartingale, so that the mean
    number of runs to a false alarm is at least `run_length`. Shin, Ramdas and Rinaldo, "E-detectors" (2023), sections 2 and 3.
    """

    def __init__(self, floor: float, run_length: float = RUN_LENGTH) -> None:
        """Raises UsageError for a floor outside [0, 1) or a run length below 1."""
        if not 0 <= floor < 1 or not run_length >= 1:
            raise UsageError(f"drift: found floor {floor!r} and run length {run_length!r}; allowed are [0, 1) and 1 or more")
        self.floor, self.run_length = floor, float(run_length)
        self.seen = 0
        self.alarm: int | None = None
        """Place, counted from 1, of the run at which it was raised; it stays."""
        self._evidence = np.zeros(len(BETS))

    @property
    def evidence(self) -> float:
        """Alarm at `run_length`."""
        return float(self._evidence.mean())

    def see(self, reward: float) -> bool:
        """Take the next verified reward in [0, 1]; whether the alarm is raised. Raises UsageError for another number."""
        if not 0 <= reward <= 1 or math.isnan(reward):
            raise UsageError(f"drift: found reward {reward!r}; allowed is a number in [0, 1]")
        self.seen += 1
        growth = 1 + BETS * (self.floor - reward) / (1 - self.floor)
        self._evidence = np.minimum((self._evidence + 1) * growth, 1e300)
        if self.alarm is None and self.evidence >= self.run_length:
            self.alarm = self.seen
        return self.alarm is not None


def watched(rewards: Iterable[float], floor: float, run_length: float = RUN_LENGTH) -> Detector:
    """A detector that has seen these rewards, in order."""
    detector = Detector(floor, run_length)
    for reward in rewards:
        detector.see(reward)
    return detector
