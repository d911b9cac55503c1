"""The laws of capital and of the bounds that follow from it."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.capital import EVEN, SHARP, Undefined, band, capital, differences, lower

laws = settings(derandomize=True, deadline=None, max_examples=60)
grades = st.lists(st.sampled_from([-1.0, 0.0, 1.0]) | st.floats(-1, 1).map(lambda x: round(x, 3)), min_size=1, max_size=60)
bounds = st.floats(-0.9, 0.9)


def owned(d: Sequence[float], m: float, bets: Sequence[float]) -> float:
    """K(m) as section 6 of the design writes it."""
    return sum(math.prod(1 + bet * (x - m) / (1 + m) for x in d) for bet in bets) / len(bets)


@laws
@given(grades, bounds)
def test_capital_is_the_mean_over_the_bets_after_every_pair(d: list[float], m: float) -> None:
    even = [(j - 0.5) / 16 for j in range(1, 17)]
    sharp = [math.sin(math.pi / 2 * bet) for bet in even]
    assert np.exp(capital(np.array(d), m)) == pytest.approx([owned(d[:t], m, even) for t in range(1, len(d) + 1)], rel=1e-9)
    assert np.exp(capital(np.array(d), m, SHARP))[-1] == pytest.approx(owned(d, m, sharp), rel=1e-9)


@laws
@given(grades, bounds, st.randoms(use_true_random=False))
def test_capital_does_not_depend_on_the_order_within_a_prefix(d: list[float], m: float, random: object) -> None:
    shuffled = np.random.default_rng(len(d)).permutation(d)
    assert capital(shuffled, m)[-1] == pytest.approx(capital(np.array(d), m)[-1], abs=1e-9)


@laws
@given(grades, bounds, bounds)
def test_capital_falls_in_the_bound(d: list[float], m: float, other: float) -> None:
    assert np.all(capital(np.array(d), min(m, other)) >= capital(np.array(d), max(m, other)) - 1e-12)


@laws
@given(bounds.map(lambda m: round(m, 2)))
def test_capital_is_a_fair_game_at_its_bound(m: float) -> None:
    """d = 1 with probability (1 + m) / 2, else -1: mean m, and the mean of K over both outcomes is 1."""
    win, lose = (math.exp(capital(np.array([x]), m)[0]) for x in (1.0, -1.0))
    assert (1 + m) / 2 * win + (1 - m) / 2 * lose == pytest.approx(1)


def test_capital_takes_many_streams_at_once() -> None:
    d = np.random.default_rng(0).uniform(-1, 1, (3, 5, 20))
    assert capital(d, 0.1)[2, 4] == pytest.approx(capital(d[2, 4], 0.1))


@laws
@given(grades, st.sampled_from([0.05, 0.025, 0.001, 1e-9]))
def test_the_lower_bound_is_the_largest_that_some_prefix_refutes(d: list[float], level: float) -> None:
    stream = np.array(d)

    def refuted(m: float) -> bool:
        return bool(capital(stream, m).max() >= -math.log(level))

    low, high = -1 + 1e-9, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    assert lower(stream, level) == pytest.approx(low, abs=1e-7)
    assert not refuted(lower(stream, level) + 1e-7)


@laws
@given(grades)
def test_the_band_only_narrows_and_ends_at_the_bounds_of_the_whole(d: list[float]) -> None:
    stream = np.array(d)
    low, high = band(stream)
    assert np.all(np.diff(low) >= 0)
    assert np.all(np.diff(high) <= 0)
    for t in {1, len(d) // 2 + 1, len(d)}:
        assert low[t - 1] == pytest.approx(lower(stream[:t], 0.025), abs=1e-9)
        assert high[t - 1] == pytest.approx(-lower(-stream[:t], 0.025), abs=1e-9)


@laws
@given(grades)
def test_a_bound_known_before_changes_nothing(d: list[float]) -> None:
    stream = np.array(d)
    assert lower(stream, 0.05, lower(stream[: len(d) // 2], 0.05)) == pytest.approx(lower(stream, 0.05), abs=1e-9)


def test_bounds_without_data_are_vacuous() -> None:
    assert lower(np.empty(0), 0.05) == -1
    assert all(len(side) == 0 for side in band(np.empty(0)))
    assert lower(-np.ones(400), 0.05) == -1


def test_bounds_survive_extreme_streams() -> None:
    wins = np.ones(3000)
    assert 0.99 < lower(wins, 0.05) < 1
    assert 0.57 < lower(wins, 1e-300) < 0.58
    assert -1 < lower(-np.linspace(1, 0, 3000), 0.05) < -0.5


def test_bets_lie_inside_the_unit_interval() -> None:
    assert EVEN.mean() == pytest.approx(0.5)
    assert np.all((EVEN > 0) & (EVEN < 1) & (SHARP > EVEN) & (SHARP < 1))


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([(0.5, math.nan)], "pair 1"),
        ([(0, 1), (math.inf, 0)], "pair 2"),
        ([(0, 1.0001)], "pair 1"),
        ([(0, 1), (0, 1), (-0.1, 0)], "pair 3"),
        ([(0, None)], "two numbers"),
        ([("0", "1")], "two numbers"),
        ([(0, 1, 1)], "shape"),
        ([0.5, 0.5], "shape"),
        ([(0, 1), (0,)], "every pair"),
    ],
)
def test_undefined_pairs_are_refused_by_place(pairs: object, says: str) -> None:
    with pytest.raises(Undefined, match=says):
        differences(pairs)


def test_rewards_may_be_booleans_and_integers() -> None:
    assert differences([(False, True), (1, 0)]).tolist() == [1, -1]
