"""Replacing a text by weights: three arms, three questions; what does nothing must not pass, and what carries it must."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.change import Change, Edits
from evolve.gate import Rule
from evolve.loop import consider, generation
from evolve.questions import Side, asked, judge, simulate_replacement
from evolve.verdict import Verdict
from harness.errors import UsageError
from harness.policy import Policy
from tests.evolve.worlds import ROOT, World, adding, skill, tasks

MARGIN = Rule(margin=0.15, max_pairs=400)
FIRST_RETIRE = 0.0055
"""Level of the first trial of the stream of removals, in a campaign of 50."""


class Weighted(World):
    """A world in which the adapter `a` carries as much as it is said to, beside the skill in the prompt."""

    adapter: float = 0.9
    text: float = 0.9
    bare: float = 0.1

    async def roll(self, episode: Any) -> Any:
        weights = bool(episode.spec.policy.adapter)
        chance = self.adapter if weights else self.text if episode.spec.bank else self.bare
        self.outcome = lambda task, recalled, rng: float(rng.random() < chance)
        return await super().roll(episode)


async def retired(tmp_path: Path, rule: Rule = MARGIN, **rates: float) -> tuple[Weighted, Verdict]:
    """The verdict on the adapter of a skill that was admitted before."""
    world = Weighted(tmp_path, lambda task, recalled, rng: 0.0)
    world.text, world.bare = 0.9, 0.1
    await generation(world.house, [adding()], tasks(40), Rule())
    for name, rate in rates.items():
        setattr(world, name, rate)
    answer = await consider(world.house, retiring(), tasks(40), rule)
    assert answer is not None
    return world, answer


def retiring(policy: Policy | None = None) -> Change:
    return Change(
        name="internalise helpful", kind="retire", drops=(skill().digest,),
        edits=Edits(policy=policy or ROOT.policy.replace(adapter="a" * 64)),
    )  # fmt: skip


async def test_an_adapter_that_carries_it_takes_the_texts_place(tmp_path: Path) -> None:
    world, answer = await retired(tmp_path)
    assert (answer.decision, answer.code) == ("admit", "admitted")
    assert [a.question.name for a in answer.answers] == ["kept", "carries", "needed"]
    assert all(a.decision.decision == "admit" for a in answer.answers)
    head = world.lineage.head()
    assert (head.spec.bank, head.spec.policy.adapter) == ("", "a" * 64)
    assert world.bank.status(skill().digest) == "internalised"
    assert answer.low > -0.15


@pytest.mark.parametrize(
    ("rates", "codes"),
    [
        ({"adapter": 0.1}, {"rejected"}),
        ({"adapter": 0.4}, {"rejected", "futile"}),
        ({"adapter": 0.6, "text": 0.6, "bare": 0.6}, {"carries_nothing", "nothing_to_internalise", "futile"}),
        ({"adapter": 1.0, "text": 0.3, "bare": 0.4}, {"nothing_to_internalise", "futile"}),
    ],
)
async def test_what_does_not_carry_it_is_refused_with_the_reason(
    tmp_path: Path, rates: dict[str, float], codes: set[str]
) -> None:
    world, answer = await retired(tmp_path, **rates)
    assert answer.code in codes
    assert answer.decision == ("indecisive" if answer.code == "futile" else "reject")
    assert world.bank.status(skill().digest) == "active"
    assert not world.lineage.head().spec.policy.adapter


async def test_a_removal_states_its_margin_and_stays_below_the_cap(tmp_path: Path) -> None:
    world, _ = await retired(tmp_path)
    with pytest.raises(UsageError, match="states no margin"):
        await consider(world.house, Change(name="x", kind="retire", edits=Edits(policy=ROOT.policy)), tasks(4), Rule())
    with pytest.raises(UsageError, match=r"given away 0\.150 .* the cap is 0\.1\. .*--cap 0\.250"):
        await consider(world.house, Change(name="x", kind="retire", edits=Edits(policy=ROOT.policy)), tasks(4), Rule(margin=0.1))


async def test_the_text_comes_back_by_a_verdict_of_its_own(tmp_path: Path) -> None:
    """The engine stops serving the adapter; a re-opened question has fresh rollouts of the head, and the text wins."""
    world, _ = await retired(tmp_path)
    world.adapter = 0.1
    back = Change(
        name="restore helpful", kind="restore", restores=(skill().digest,), edits=Edits(policy=ROOT.policy), occasion="alarm 1"
    )
    [answer] = await generation(world.house, [back], tasks(40), Rule())
    assert (answer.decision, answer.kind) == ("admit", "restore")
    head = world.lineage.head()
    assert (head.spec.policy.adapter, world.bank.status(skill().digest)) == ("", "active")
    world.lineage.rollback(3)
    assert world.bank.status(skill().digest) == "internalised"


async def test_an_occasion_opens_a_block_of_its_own(tmp_path: Path) -> None:
    world, _ = await retired(tmp_path)
    columns = []
    for occasion in ("", "alarm 1", "alarm 2"):
        back = Change(name="back", kind="restore", restores=(skill().digest,), occasion=occasion)
        answer = await consider(world.house, back, tasks(40), Rule(max_pairs=10))
        assert answer is not None
        opened = world.house.ledger.trial(answer.trial)
        assert opened is not None
        columns.append(opened.column("incumbent"))
        if world.lineage.head().number != 3:
            break
    assert len(set(columns)) == len(columns)


def test_an_adapter_that_does_nothing_passes_at_most_one_time_in_twenty() -> None:
    """Margin 0.2 would forgive losing the whole text (neither 0.85, text 0.90): the two other questions do not."""
    rng, n = np.random.default_rng(4), 4000
    rule = Rule(margin=0.2, max_pairs=400)
    arms = [(rng.random((n, 400)) < rate).astype(float) for rate in (0.90, 0.85, 0.85)]
    for level in (0.05, FIRST_RETIRE):
        assert simulate_replacement(*arms, rule, level).admitted.mean() <= 0.05


def test_a_good_adapter_usually_passes() -> None:
    rng, n = np.random.default_rng(4), 1000
    arms = [(rng.random((n, 400)) < rate).astype(float) for rate in (0.9, 0.9, 0.1)]
    ends = simulate_replacement(*arms, Rule(margin=0.15, max_pairs=400), FIRST_RETIRE)
    assert ends.admitted.mean() > 0.9
    assert np.median(ends.pairs) < 150


@given(st.integers(0, 10_000), st.sampled_from([(0.9, 0.9, 0.1), (0.9, 0.5, 0.1), (0.6, 0.6, 0.5), (0.5, 0.9, 0.5)]))
def test_the_simulation_decides_as_the_trial_does(seed: int, rates: tuple[float, float, float]) -> None:
    rng, pairs = random.Random(seed), 120
    rule = Rule(margin=0.15, max_pairs=pairs)
    sides: tuple[Side, ...] = ("incumbent", "candidate", "neither")
    arms = {side: [float(rng.random() < rate) for _ in range(pairs)] for side, rate in zip(sides, rates, strict=True)}
    ended = simulate_replacement(*(np.array([arms[side]]) for side in sides), rule, 0.05)
    questions = asked(rule, replaces=True)
    for n in range(1, pairs + 1):
        values = [{side: arms[side][:n] for side in (q.before, q.after)} for q in questions]
        now = judge(questions, values, rule, 0.05)
        if now.code != "undecided":
            break
    assert n == ended.pairs[0]
    assert (now.decision == "admit") == bool(ended.admitted[0])
