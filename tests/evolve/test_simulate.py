"""The simulation is the gate, pair for pair; and the forecast reads it rightly."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binomtest

from evolve.capital import Floats, Undefined
from evolve.forecast import chances, clopper_pearson
from evolve.gate import Decision, Rule, decide
from evolve.simulate import alike, campaign, graded, independent, simulate

World = Callable[[np.random.Generator, int, int, float, float], Floats]


def as_pairs(d: Floats) -> list[tuple[float, float]]:
    """Rewards with these differences."""
    return [(max(-x, 0.0), max(x, 0.0)) for x in d.tolist()]


def by_hand(d: Floats, rule: Rule, level: float) -> Decision:
    """A trial that asks the gate after every pair."""
    pairs = as_pairs(d)
    for t in range(1, len(pairs) + 1):
        found = decide(pairs[:t], rule, level=level)
        if found.code != "undecided":
            return found
    return found


@pytest.mark.parametrize("world", [independent, alike, graded])
@pytest.mark.parametrize(
    ("rule", "level"),
    [
        (Rule(max_pairs=80), 0.05),
        (Rule(max_pairs=80, smallest_effect=0.3), 0.0114),
        (Rule(max_pairs=60, margin=0.2), 0.05),
        (Rule(max_pairs=300), 0.001),
    ],
)
def test_the_simulation_agrees_with_decide_pair_for_pair(world: World, rule: Rule, level: float) -> None:
    rng = np.random.default_rng(7)
    d = np.concatenate([world(rng, 2, 70, 0.4, candidate) for candidate in (0.2, 0.4, 0.5, 0.6, 0.9)])
    ended = simulate(d, rule, level)
    for stream, code, pairs, effect in zip(d, ended.code, ended.pairs, ended.effect, strict=True):
        found = by_hand(stream, rule, level)
        assert (found.code, found.pairs) == (code, pairs)
        assert found.effect == pytest.approx(effect, abs=1e-12)


def test_a_patient_simulation_is_decide_on_the_whole_stream() -> None:
    d = independent(np.random.default_rng(8), 60, 120, 0.3, 0.4)
    rule = Rule(max_pairs=120)
    ended = simulate(d, rule, patient=True)
    found = [decide(as_pairs(stream), rule) for stream in d]
    assert list(ended.code) == [each.code for each in found]
    assert list(ended.pairs) == [each.pairs for each in found]
    assert {"admitted", "rejected", "max_pairs"} == set(ended.code)


def test_every_stream_may_have_its_own_level() -> None:
    d = np.tile(independent(np.random.default_rng(9), 1, 300, 0.1, 0.5), (2, 1))
    ended = simulate(d, Rule(), np.array([0.05, 0.0005]))
    assert ended.admitted.all()
    assert ended.pairs[0] < ended.pairs[1]
    with pytest.raises(Undefined):
        simulate(d, Rule(), np.array([0.05, 0.0]))


@pytest.mark.parametrize("world", [independent, alike, graded])
def test_worlds_have_the_means_they_state(world: World) -> None:
    for incumbent, candidate in ((0.3, 0.3), (0.1, 0.3), (0.8, 0.5)):
        d = world(np.random.default_rng(1), 400, 500, incumbent, candidate)
        assert d.mean() == pytest.approx(candidate - incumbent, abs=0.006)
        assert np.abs(d).max() <= 1


def test_sharing_difficulty_correlates_the_arms() -> None:
    apart, together = (world(np.random.default_rng(2), 100, 500, 0.5, 0.5).var() for world in (independent, alike))
    assert together < 0.6 * apart


def test_a_campaign_raises_levels_with_its_own_admissions_alone() -> None:
    useful = np.array([[True, True, True], [False, False, False]])
    asked: list[tuple[int, int]] = []

    def levels(t: int, admissions: int) -> float:
        asked.append((t, admissions))
        return 0.05 * (admissions + 1) / t

    def draw(better: np.ndarray) -> Floats:
        return np.where(better, 1.0, -1.0)[:, None] * np.ones(300)

    admitted, pairs = campaign(useful, draw, Rule(), levels)
    assert (admitted == useful).all()
    assert pairs.shape == useful.shape
    assert asked == [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]


def test_the_forecast_is_the_same_again_and_brackets_its_figures() -> None:
    rule = Rule(max_pairs=200)
    found = chances(rule, 0.0114, 0.1, effects=(0.0, 0.1, 0.3), streams=500)
    assert found == chances(rule, 0.0114, 0.1, effects=(0.0, 0.1, 0.3), streams=500)
    nothing, little, much = found
    assert nothing.admitted < little.admitted < much.admitted
    assert much.pairs_to_admit is not None
    assert much.pairs_to_admit < 100
    assert nothing.pairs_to_admit is None
    for each in found:
        assert each.admitted_band[0] <= each.admitted <= each.admitted_band[1]
        assert each.pairs_band[0] <= each.pairs <= each.pairs_band[1]
    more = chances(rule, 0.0114, 0.1, effects=(0.3,), streams=4000, seed=1)[0]
    assert much.admitted_band[0] <= more.admitted <= much.admitted_band[1]
    assert much.pairs_band[0] <= more.pairs <= much.pairs_band[1]


def test_the_forecast_leaves_out_effects_that_the_base_has_no_room_for() -> None:
    assert [each.effect for each in chances(Rule(), 0.05, 0.8, streams=20)] == [0.1, 0.2]
    assert [each.effect for each in chances(Rule(), 0.05, 0.9, (-0.95, -0.9, 0.1), streams=20)] == [-0.9, 0.1]


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (10, 10), (3, 17), (1900, 2000)])
def test_clopper_pearson_is_the_exact_interval(hits: int, trials: int) -> None:
    expected = binomtest(hits, trials).proportion_ci(0.99, method="exact")
    assert clopper_pearson(hits, trials, 0.99) == pytest.approx((expected.low, expected.high))


def test_no_trials_say_nothing_of_a_probability() -> None:
    assert clopper_pearson(0, 0) == (0.0, 1.0)


def test_the_median_interval_covers_the_median() -> None:
    rule = Rule(max_pairs=100)
    truth = chances(rule, 0.05, 0.2, (0.3,), streams=20000, seed=99)[0].pairs
    bands = [chances(rule, 0.05, 0.2, (0.3,), streams=60, seed=seed)[0].pairs_band for seed in range(200)]
    covered = sum(low <= truth <= high for low, high in bands)
    assert clopper_pearson(covered, len(bands), 0.99)[1] >= 0.95
