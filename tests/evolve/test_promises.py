"""What the gate promises, held by simulation with fixed seeds: error rates, power, pairs (issue 3; DESIGN section 6).

A promise "at most p" fails when the 99 % Clopper-Pearson lower bound of the simulated rate exceeds p, "at least p" when the rate
itself falls short.
"""

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest

from evolve.budget import level as granted
from evolve.capital import Floats, capital
from evolve.forecast import clopper_pearson
from evolve.gate import Rule
from evolve.simulate import alike, campaign, graded, independent, simulate

STREAMS, LOOKS = 2000, 400
World = Callable[[np.random.Generator, int, int, float, float], Floats]


def at_least(rate: int, streams: int = STREAMS) -> float:
    return clopper_pearson(rate, streams, 0.98)[0]


def wide(rng: np.random.Generator, streams: int, pairs: int, incumbent: float, candidate: float) -> Floats:
    """Tasks that are nearly always solved or nearly never."""
    return alike(rng, streams, pairs, incumbent, candidate, spread=4.0)


def coarse(rng: np.random.Generator, streams: int, pairs: int, incumbent: float, candidate: float) -> Floats:
    """Graded rewards that are mostly near 0 or 1."""
    return graded(rng, streams, pairs, incumbent, candidate, spread=3.0)


KINDS: list[tuple[World, float]] = [
    *((independent, base) for base in (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)),
    *((world, base) for world in (alike, wide) for base in (0.1, 0.5, 0.9)),
    *((world, base) for world in (graded, coarse) for base in (0.1, 0.5, 0.9)),
]


def each(kinds: list[tuple[World, float]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("world", "base"), kinds, ids=[f"{world.__name__}-{base}" for world, base in kinds])


@each(KINDS)
def test_a_candidate_that_is_no_better_is_admitted_in_at_most_alpha(world: World, base: float) -> None:
    """Looked at after every pair up to 400, never given up as futile; at the default level and at a campaign's first grant."""
    d = world(np.random.default_rng(1), STREAMS, LOOKS, base, base)
    for level in (0.05, 0.0114):
        admitted = simulate(d, Rule(max_pairs=LOOKS), level, patient=True).admitted
        assert at_least(int(admitted.sum())) <= level


@each(KINDS)
def test_the_band_covers_at_all_pairs_together(world: World, base: float) -> None:
    """Capital at the true mean never reaches 1 / 0.025 on either side, in 95 % of streams."""
    candidate = base + 0.4 * (1 - base) if base < 0.5 else 0.7 * base
    d, mean = world(np.random.default_rng(2), STREAMS, LOOKS, base, candidate), candidate - base
    goal = math.log(1 / 0.025)
    missed = sum(
        int(((capital(part, mean) >= goal) | (capital(-part, -mean) >= goal)).any(axis=1).sum()) for part in np.split(d, 20)
    )
    assert at_least(missed) <= 0.05


@each([(world, base) for world, base in KINDS if base <= 0.9])
def test_a_candidate_worth_finding_is_rejected_in_at_most_one_of_ten(world: World, base: float) -> None:
    d = world(np.random.default_rng(3), STREAMS, LOOKS, base, min(base + 0.1, 0.999))
    rejected = simulate(d, Rule(max_pairs=LOOKS), 0.0114, patient=True).rejected
    assert at_least(int(rejected.sum())) <= 0.1


def test_a_good_candidate_is_found_within_150_pairs() -> None:
    ended = simulate(independent(np.random.default_rng(4), STREAMS, 300, 0.1, 0.3), Rule())
    assert (ended.admitted & (ended.pairs <= 150)).mean() >= 0.9


@pytest.mark.parametrize("world", [independent, alike])
def test_what_is_not_needed_is_removed_and_rarely_kept(world: World) -> None:
    rule = Rule(margin=0.1, max_pairs=600)
    ended = simulate(world(np.random.default_rng(5), STREAMS, 600, 0.9, 0.9), rule)
    assert ended.admitted.mean() >= 0.9
    assert ended.rejected.mean() <= 0.1


@pytest.mark.parametrize("base", [0.9, 0.5])
def test_what_is_worth_its_margin_is_removed_in_at_most_alpha(base: float) -> None:
    rule = Rule(margin=0.1, max_pairs=600)
    ended = simulate(independent(np.random.default_rng(6), STREAMS, 600, base, base - 0.1), rule, patient=True)
    assert at_least(int(ended.admitted.sum())) <= 0.05


@pytest.mark.parametrize("base", [0.02, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("level", [0.05, 0.0114, 0.00077])
def test_a_useless_candidate_is_over_soon(base: float, level: float) -> None:
    ended = simulate(independent(np.random.default_rng(7), STREAMS, 300, base, base), Rule(), level)
    assert np.median(ended.pairs) <= 80


def test_a_harmful_candidate_is_over_sooner() -> None:
    rng = np.random.default_rng(8)
    for base, candidate, pairs in ((0.5, 0.3, 20), (0.5, 0.1, 9), (0.9, 0.7, 20), (0.9, 0.5, 9)):
        ended = simulate(independent(rng, STREAMS, 300, base, candidate), Rule())
        assert np.median(ended.pairs) <= pairs
        assert ended.admitted.mean() <= 0.01


@pytest.mark.parametrize(("base", "power"), [(0.1, 0.9), (0.5, 0.7)])
def test_a_campaign_admits_what_is_useful_and_little_else(base: float, power: float) -> None:
    """50 candidates, 10 % of them better by 0.2, at most 300 pairs each, levels from the error budget."""
    rng, campaigns, size = np.random.default_rng(9), 300, 50
    useful = np.zeros((campaigns, size), dtype=bool)
    useful[:, :5] = True
    useful = rng.permuted(useful, axis=1)

    def draw(better: np.ndarray) -> Floats:
        return independent(rng, campaigns, 300, base, base + 0.2 * better)

    admitted, pairs = campaign(useful, draw, Rule(), functools.partial(_level, size))
    false = (admitted & ~useful).sum(axis=1) / np.maximum(admitted.sum(axis=1), 1)
    assert false.mean() <= 0.05
    assert admitted[useful].mean() >= power
    assert pairs.mean() <= 80


def _level(size: int, t: int, admissions: int) -> float:
    return granted(0.05, t, size, admissions)
