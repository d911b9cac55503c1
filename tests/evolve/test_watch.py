"""Vetoes: harm that is shown, harm that is still allowed, and metrics that an admission must wait for."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.capital import Undefined, capital, differences
from evolve.forecast import clopper_pearson
from evolve.watch import Watch, judge

laws = settings(derandomize=True, deadline=None, max_examples=60)
values = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=60)


def events(rng: np.random.Generator, pairs: int, before: float, after: float) -> list[tuple[float, float]]:
    return [(float(a), float(b)) for a, b in zip(rng.random(pairs) < before, rng.random(pairs) < after, strict=True)]


def test_shown_harm_vetoes_and_more_good_pairs_do_not_undo_it() -> None:
    watch = Watch(name="unsafe actions", margin=0.05)
    harmful = [(0.0, 1.0)] * 10
    assert judge(watch, harmful, 0.01).veto
    assert judge(watch, harmful + [(1.0, 0.0)] * 200, 0.01).veto
    assert "unsafe actions" in judge(watch, harmful, 0.01).reason
    assert not judge(watch, harmful[:2], 0.01).veto


@laws
@given(values, st.sampled_from([0.0, 0.05, 0.3]), st.sampled_from([0.05, 0.001]))
def test_only_a_required_metric_holds_back_and_only_while_harm_is_not_excluded(
    pairs: list[tuple[float, float]], margin: float, level: float
) -> None:
    plain = judge(Watch(name="cost", margin=margin), pairs, level)
    required = judge(Watch(name="cost", margin=margin, require=True), pairs, level)
    assert not plain.holds_back
    excluded = bool((capital(-differences(pairs), -margin) >= -math.log(level)).any())
    assert required.holds_back == (not excluded)
    assert (plain.allowed < margin) == excluded
    assert (plain.veto, plain.allowed, plain.harm) == (required.veto, required.allowed, required.harm)
    assert plain.pairs == len(pairs)


def test_a_required_metric_lets_go_once_harm_is_excluded() -> None:
    watch = Watch(name="tasks that used to pass", margin=0.1, require=True)
    assert judge(watch, [], 0.05).holds_back
    assert judge(watch, [(0.0, 0.0)] * 20, 0.05).holds_back
    assert not judge(watch, [(0.0, 0.0)] * 60, 0.05).holds_back
    assert judge(watch, [(0.0, 0.0)] * 60, 0.0001).holds_back


def test_harm_within_the_margin_is_vetoed_in_at_most_one_of_twenty_trials() -> None:
    rng = np.random.default_rng(5)
    watch = Watch(name="tasks that used to pass", margin=0.05)
    vetoed = sum(judge(watch, events(rng, 150, 0.05, 0.1), 0.05).veto for _ in range(400))
    assert clopper_pearson(vetoed, 400, 0.99)[0] <= 0.05


def test_a_fall_past_the_margin_is_seen_in_about_one_trial_of_five() -> None:
    """From 0.95 to 0.85 passed, margin 0.05, 150 pairs: a weak guard, as the verdict must admit."""
    rng = np.random.default_rng(6)
    watch = Watch(name="tasks that used to pass", margin=0.05)
    found = [judge(watch, events(rng, 150, 0.05, 0.15), 0.05) for _ in range(400)]
    low, high = clopper_pearson(sum(each.veto for each in found), len(found), 0.99)
    assert low <= 0.22 <= high
    assert np.mean([each.allowed >= 0.1 for each in found]) >= 0.95


def test_undefined_values_are_refused() -> None:
    with pytest.raises(Undefined, match="pair 1"):
        judge(Watch(name="cost", margin=0.1), [(0.0, 1.5)], 0.05)
    with pytest.raises(Undefined, match="level"):
        judge(Watch(name="cost", margin=0.1), [], 0.0)
    with pytest.raises(ValueError, match="margin"):
        Watch(name="cost", margin=-0.1)
