"""The gate against section 6 of the design, written out here a second time and slowly."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from evolve.capital import Undefined, capital, differences
from evolve.gate import Decision, Rule, decide

laws = settings(derandomize=True, deadline=None, max_examples=80)
Pair = tuple[float, float]
rewards = st.sampled_from([0.0, 1.0]) | st.floats(0, 1).map(lambda x: round(x, 2))
streams = st.lists(st.tuples(rewards, rewards), min_size=1, max_size=70) | st.builds(
    lambda pair, n: [pair] * n, st.tuples(rewards, rewards), st.integers(1, 70)
)
rules = st.builds(
    Rule,
    smallest_effect=st.sampled_from([0.05, 0.1, 0.3, 0.8]),
    margin=st.sampled_from([0.0, 0.0, 0.1, 0.5]),
    max_pairs=st.sampled_from([10, 40, 60, 300]),
)
levels = st.sampled_from([0.05, 0.0114, 0.3, 0.00077])
EVEN = [(j - 0.5) / 16 for j in range(1, 17)]
SHARP = [math.sin(math.pi / 2 * bet) for bet in EVEN]


def paths(d: list[float], m: float, bets: list[float]) -> list[float]:
    products, path = [1.0] * 16, []
    for x in d:
        products = [p * (1 + bet * (x - m) / (1 + m)) for p, bet in zip(products, bets, strict=True)]
        path.append(sum(products) / 16)
    return path


def plainly(pairs: list[Pair], rule: Rule, level: float) -> tuple[str, int]:
    """Code and pairs, pair by pair."""
    d = [candidate - incumbent for incumbent, candidate in pairs]
    m = -rule.margin
    hope = -rule.margin / 2 if rule.margin else rule.smallest_effect
    gain, loss = paths(d, m, EVEN), paths([-x for x in d], -hope, SHARP)
    for t in range(1, len(d) + 1):
        if gain[t - 1] >= 1 / level:
            return "admitted", t
        if loss[t - 1] >= 10:
            return "rejected", t
    t = len(d)
    if t >= rule.max_pairs:
        return "max_pairs", t
    x = [(each - m) / (1 + m) for each in d]
    mean = sum(x) / t
    v = max((sum(each**2 for each in x) + 1 / 4) / (t + 1) - mean**2, 0.01)
    o = mean + 2 * math.sqrt(v / t)
    g = o**2 / (2 * (v + o**2)) if o > 0 else 0
    if t >= 20 and math.log(gain[-1]) + (rule.max_pairs - t) * g < math.log(1 / level):
        return "futile", t
    return "undecided", t


@laws
@given(streams, rules, levels)
def test_decide_is_the_rule_of_the_design(pairs: list[Pair], rule: Rule, level: float) -> None:
    found = decide(pairs, rule, level=level)
    assert (found.code, found.pairs) == plainly(pairs, rule, level)
    assert found.decision == {"admitted": "admit", "rejected": "reject"}.get(found.code, "indecisive")
    d = [candidate - incumbent for incumbent, candidate in pairs[: found.pairs]]
    assert found.effect == pytest.approx(sum(d) / len(d))
    assert found.e_value == pytest.approx(paths(d, -rule.margin, EVEN)[-1], rel=1e-9)
    assert found.level == level


@laws
@given(streams, rules, levels)
def test_admitted_if_and_only_if_low_exceeds_minus_the_margin(pairs: list[Pair], rule: Rule, level: float) -> None:
    found = decide(pairs, rule, level=level)
    assert (found.decision == "admit") == (found.low > -rule.margin)


@laws
@given(streams, rules)
def test_rounding_on_the_threshold_does_not_contradict_the_decision(pairs: list[Pair], rule: Rule) -> None:
    for logarithm in capital(differences(pairs), -rule.margin):
        if logarithm > 0.1:
            found = decide(pairs, rule, level=math.exp(-logarithm))
            assert (found.decision == "admit") == (found.low > -rule.margin)


@laws
@given(streams, rules, levels, streams)
def test_what_is_decided_stays_decided(pairs: list[Pair], rule: Rule, level: float, later: list[Pair]) -> None:
    found = decide(pairs, rule, level=level)
    if found.decision != "indecisive":
        assert decide(pairs + later, rule, level=level) == found
        assert decide(pairs[: found.pairs], rule, level=level) == found
        assert decide(pairs, rule.replace(max_pairs=5000), level=level) == found


@laws
@given(streams, rules, levels)
def test_the_order_before_the_last_pair_of_an_open_trial_changes_only_the_bounds(
    pairs: list[Pair], rule: Rule, level: float
) -> None:
    found, turned = decide(pairs, rule, level=level), decide(pairs[::-1], rule, level=level)
    if found.decision == turned.decision == "indecisive":
        assert turned.e_value == pytest.approx(found.e_value, rel=1e-9)
        assert turned.effect == pytest.approx(found.effect, abs=1e-12)
        assert turned.code == found.code


@laws
@given(streams)
def test_swapping_the_arms_mirrors_effect_and_band(pairs: list[Pair]) -> None:
    deaf = Rule(smallest_effect=0.999, max_pairs=5000)
    found = decide(pairs, deaf, level=1e-300)
    swapped = decide([(b, a) for a, b in pairs], deaf, level=1e-300)
    if found.pairs == swapped.pairs:
        assert swapped.effect == pytest.approx(-found.effect, abs=1e-12)
        assert swapped.band == pytest.approx((-found.band[1], -found.band[0]), abs=1e-9)


@laws
@given(streams, rules, levels)
def test_high_is_the_upper_side_of_the_band(pairs: list[Pair], rule: Rule, level: float) -> None:
    found = decide(pairs, rule, level=level)
    assert found.high == found.band[1]
    at_side = decide(pairs[: found.pairs], rule, level=0.025)
    if at_side.pairs == found.pairs:
        assert found.band == pytest.approx(at_side.band)


@laws
@given(streams, rules)
def test_a_stricter_level_admits_later_or_never(pairs: list[Pair], rule: Rule) -> None:
    strict, loose = decide(pairs, rule, level=0.001), decide(pairs, rule, level=0.05)
    if strict.decision == "admit":
        assert loose.decision == "admit"
        assert loose.pairs <= strict.pairs


def test_an_identical_candidate_is_rejected_at_pair_29() -> None:
    found = decide([(1.0, 1.0), (0.0, 0.0)] * 50, Rule())
    assert (found.decision, found.code, found.pairs, found.effect) == ("reject", "rejected", 29, 0.0)


def test_no_pairs_are_no_evidence() -> None:
    found = decide([], Rule())
    assert (found.decision, found.code, found.pairs, found.e_value) == ("indecisive", "undecided", 0, 1.0)
    assert (found.low, found.high, found.band) == (-1.0, 1.0, (-1.0, 1.0))


def test_the_level_is_alpha_unless_granted() -> None:
    pairs = [(0.0, 1.0)] * 9
    assert decide(pairs, Rule()).level == 0.05
    assert decide(pairs, Rule(alpha=0.2)) == decide(pairs, Rule(alpha=0.2), level=0.2)
    assert decide(pairs, Rule()).decision == "admit"
    assert decide(pairs, Rule(), level=1e-6).decision == "indecisive"


def test_an_admission_on_the_same_pair_wins() -> None:
    pairs, rule = [(0.0, 0.5)] * 60, Rule(smallest_effect=0.9)
    rejected = decide(pairs, rule, level=1e-12)
    assert rejected.decision == "reject"
    at = math.exp(-capital(differences(pairs), 0.0)[rejected.pairs - 1]) * (1 + 1e-9)
    assert capital(differences(pairs), 0.0)[rejected.pairs - 2] < -math.log(at)
    found = decide(pairs, rule, level=at)
    assert (found.decision, found.pairs) == ("admit", rejected.pairs)


def test_a_removal_is_rejected_when_half_its_margin_is_ruled_out() -> None:
    rule = Rule(margin=0.2, max_pairs=2000)
    lost = [(1.0, 0.0)] + [(1.0, 1.0)] * 4
    assert decide(lost * 400, rule, level=0.01).decision == "reject"
    kept = [(1.0, 1.0)] * 100
    assert decide(kept, rule, level=0.01).decision == "admit"
    assert decide(kept, rule.replace(smallest_effect=0.9), level=0.01) == decide(kept, rule, level=0.01)


def test_futile_is_not_final_and_never_said_before_pair_20() -> None:
    even = [(0.0, 1.0), (1.0, 0.0)] * 15
    rule = Rule(max_pairs=35)
    found = decide(even, rule)
    assert (found.code, found.decision) == ("futile", "indecisive")
    assert decide(even[:19], rule).code == "undecided"
    assert decide(even[:20], rule).code == "futile"
    assert decide(even, rule.replace(max_pairs=500)).code == "undecided"
    assert decide(even + [(0.0, 1.0)] * 30, rule).decision == "admit"


def test_an_open_trial_ends_at_max_pairs_and_goes_on_with_more() -> None:
    mixed = [(0.0, 1.0), (0.0, 1.0), (1.0, 0.0)] * 10
    assert decide(mixed, Rule(max_pairs=30)).code == "max_pairs"
    assert decide(mixed, Rule(max_pairs=300)).code == "undecided"
    more = mixed + [(0.0, 1.0)] * 20
    assert decide(more, Rule(max_pairs=30)).decision == "admit"
    assert decide(more, Rule(max_pairs=30)).pairs > 30


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.5, math.nan, math.inf])
def test_levels_outside_the_unit_interval_are_refused(level: float) -> None:
    with pytest.raises(Undefined, match="level"):
        decide([(0.0, 1.0)] * 50, Rule(), level=level)


def test_undefined_rewards_are_a_value_error_even_after_the_decision() -> None:
    with pytest.raises(ValueError, match="pair 51"):
        decide([(0.0, 1.0)] * 50 + [(0.0, math.nan)], Rule())


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rule(alpha=0),
        lambda: Rule(alpha=1),
        lambda: Rule(alpha=math.nan),
        lambda: Rule(smallest_effect=0),
        lambda: Rule(smallest_effect=1),
        lambda: Rule(margin=-0.1),
        lambda: Rule(margin=1),
        lambda: Rule(max_pairs=0),
        lambda: Rule.model_validate({"max_pair": 3}),
    ],
)
def test_rules_out_of_range_are_refused(make: Callable[[], Rule]) -> None:
    with pytest.raises(ValidationError):
        make()


def test_reasons_name_what_was_shown() -> None:
    assert "better than the incumbent" in decide([(0, 1)] * 20, Rule()).reason
    assert "less 0.3" in decide([(1, 1)] * 40, Rule(margin=0.3)).reason
    assert "+0.1 or more is ruled out" in decide([(1, 1)] * 40, Rule()).reason


def test_a_decision_survives_its_own_json() -> None:
    found = decide(np.random.default_rng(3).integers(0, 2, (40, 2)).tolist(), Rule())
    assert Decision.model_validate_json(found.model_dump_json()) == found
