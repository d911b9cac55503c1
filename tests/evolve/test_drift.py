"""Drift: what is promised of false alarms and of how soon a fall is noticed, with the floor estimated as it is in use."""

import random
import statistics
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.capital import differences, lower
from evolve.drift import CEILING, Detector, floor, watched
from harness.errors import UsageError

MEASURED = 110
"""Episodes behind a floor: some sixty pairs of a trial and the fifty fresh ones."""
STREAMS = 500


def successes(rng: random.Random, mean: float) -> Iterator[float]:
    while True:
        yield float(rng.random() < mean)


def alarm(stream: Iterator[float], detector: Detector, longest: int) -> int:
    """The run at which it comes, `longest` at most."""
    while detector.seen < longest and not detector.see(next(stream)):
        pass
    return detector.seen


def bound(lengths: list[int], longest: int) -> float:
    """Exact lower bound, 95 %, of the mean of run lengths that were cut off at `longest`: only smaller than the true one."""
    zero_half = [(0.5, length / longest) for length in lengths]
    return (lower(2 * differences(zero_half), 0.05) / 2 + 0.5) * longest


@pytest.mark.parametrize("mean", [0.6, 0.9])
def test_a_steady_head_runs_longer_than_stated_until_a_false_alarm(mean: float) -> None:
    lengths = []
    for number in range(STREAMS):
        rng = random.Random(f"steady {mean} {number}")
        stream = successes(rng, mean)
        measured = floor([next(stream) for _ in range(MEASURED)])
        lengths.append(alarm(stream, Detector(measured, 1000), 2500))
    assert bound(lengths, 2500) >= 1000


def test_it_does_even_where_the_floor_is_the_true_mean() -> None:
    lengths = [alarm(successes(random.Random(f"edge {number}"), 0.9), Detector(0.9, 1000), 20_000) for number in range(STREAMS)]
    assert bound(lengths, 20_000) >= 1000


@pytest.mark.parametrize("good", [0, 1000])
def test_a_fall_is_noticed_soon_at_once_and_after_a_thousand_good_runs(good: int) -> None:
    waits = []
    for number in range(200):
        rng = random.Random(f"fall {good} {number}")
        before, after = successes(rng, 0.9), successes(rng, 0.6)
        measured = floor([next(before) for _ in range(MEASURED)])
        detector = Detector(measured, 10_000)
        alarm(before, detector, good)
        waits.append(alarm(after, detector, good + 2000) - good)
    assert statistics.median(waits) <= 70


def test_the_floor_is_seldom_above_the_true_mean() -> None:
    above = 0
    for number in range(STREAMS):
        stream = successes(random.Random(f"floor {number}"), 0.9)
        above += floor([next(stream) for _ in range(MEASURED)]) > 0.9
    assert above <= 0.08 * STREAMS


@given(st.lists(st.floats(0, 1), max_size=40))
def test_a_floor_is_a_number_that_a_detector_takes(rewards: list[float]) -> None:
    found = floor(rewards)
    assert 0 <= found <= CEILING
    assert found <= max([*rewards, 0.0])
    Detector(found)


@given(st.lists(st.floats(0, 1), max_size=40), st.integers(0, 39), st.floats(0, 0.98))
def test_a_better_reward_is_never_more_evidence_of_a_fall(rewards: list[float], place: int, lowest: float) -> None:
    better = [1.0 if at == place else reward for at, reward in enumerate(rewards)]
    assert watched(better, lowest).evidence <= watched(rewards, lowest).evidence * (1 + 1e-12)


def test_one_failure_of_a_head_that_never_failed_is_no_alarm() -> None:
    assert watched([1.0] * 300 + [0.0] + [1.0] * 300, floor([1.0] * 400)).alarm is None


def test_an_alarm_stays() -> None:
    detector = watched([0.0] * 60, 0.8)
    first = detector.alarm
    assert first is not None
    assert detector.see(1.0)
    assert detector.alarm == first


@pytest.mark.parametrize(("lowest", "length"), [(1.0, 10.0), (-0.1, 10.0), (float("nan"), 10.0), (0.5, 0.0), (0.5, float("nan"))])
def test_settings_out_of_range_are_refused(lowest: float, length: float) -> None:
    with pytest.raises(UsageError, match=r"allowed are \[0, 1\) and 1 or more"):
        Detector(lowest, length)


@pytest.mark.parametrize("reward", [-0.1, 1.1, float("nan"), float("inf")])
def test_rewards_out_of_range_are_refused(reward: float) -> None:
    with pytest.raises(UsageError, match="found reward"):
        Detector(0.5).see(reward)
