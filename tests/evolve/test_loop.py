"""The loop: runs are paid once, what was begun is ended first, and an empty purse ends the round, never a finished pair."""

import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from evolve.change import Change
from evolve.gate import Rule
from evolve.loop import consider, explore, generation, propose, unfinished
from evolve.propose import from_contrasts, from_successes
from evolve.purse import Paid, Purse
from evolve.trial import prepare, trial
from harness.errors import Refused, UsageError
from harness.message import Completion, Usage
from harness.models.scripted import Scripted
from harness.policy import Policy, Sampling
from harness.trajectory import Trajectory
from skills.draft import Refusal
from skills.skill import Skill
from tests.evolve.worlds import Killed, World, adding, chance, skill, tasks

RULE = Rule()
SHORT = Rule(max_pairs=10)


async def test_exploring_stops_when_the_purse_is_empty_and_stored_runs_cost_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.5, 0.5), price=1.0, concurrency=1, limit=3.0)
    first = await explore(world.house, tasks(10, "train"))
    assert sum(len(group.members) for group in first) == 3
    world.house.purse.limit = 6.0
    again = await explore(world.house, tasks(10, "train"))
    assert sum(len(group.members) for group in again) == 6
    assert world.house.purse.spent == 6.0
    assert len(world.calls) == 6


async def test_a_free_model_is_never_stopped_by_money(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.5, 0.5), limit=0.0)
    assert len(await explore(world.house, tasks(10, "train"))) == 10


async def test_an_empty_purse_ends_a_trial_and_the_same_trial_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.3, 0.35), price=1.0, concurrency=1, limit=8.0)
    stopped = await consider(world.house, adding(), tasks(40), RULE)
    assert stopped is not None
    assert (stopped.decision, stopped.code, stopped.pairs) == ("indecisive", "stopped", 4)
    assert "8.00 of 8.00 USD" in stopped.reason
    assert await generation(world.house, [adding("next")], tasks(40), RULE) == []
    world.house.purse.limit = 1000.0
    [again] = await generation(world.house, unfinished(world.house), tasks(40), RULE)
    assert again.trial == stopped.trial
    assert again.pairs > stopped.pairs
    assert world.budget.state("add").taken == 1
    assert unfinished(world.house) == []


async def test_what_was_killed_is_found_again_under_its_own_head_alone(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.1, 0.7))
    killed = await prepare(world.house, adding("killed"), tasks(40), SHORT)
    await trial(world.house, killed)
    assert [change.name for change in unfinished(world.house)] == ["killed"]
    await consider(world.house, adding("helpful"), tasks(40), RULE)
    assert world.lineage.head().number == 2
    assert unfinished(world.house) == []


async def test_the_same_skill_is_the_same_trial_whoever_proposes_it(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.3, 0.35))
    first = await consider(world.house, adding(), tasks(40), SHORT)
    other = Change(name="by hand", why="found in the bank", proposer="human", drafts=adding().drafts)
    second = await consider(world.house, other, tasks(40), Rule(max_pairs=20))
    assert first is not None
    assert second is not None
    assert (second.trial, second.index, second.pairs) == (first.trial, first.index, 20)


@pytest.mark.parametrize("name", ["helpful", "another-name"])
async def test_what_the_head_says_already_is_a_duplicate_at_no_cost(tmp_path: Path, name: str) -> None:
    world = World(tmp_path, chance(0.1, 0.7))
    await consider(world.house, adding(), tasks(40), RULE)
    calls = len(world.calls)
    answer = await consider(world.house, Change(name=name, drafts=(skill(name, "do it right"),)), tasks(40), RULE)
    assert answer is not None
    assert (answer.decision, answer.code, answer.pairs) == ("reject", "duplicate", 0)
    assert f"'{name}' says what 'helpful' says" in answer.reason
    assert len(world.calls) == calls
    assert world.budget.state("add").taken == 1
    assert world.bank.status(adding().drafts[0].digest) == "active"
    assert world.lineage.head().number == 2


async def test_proposers_see_the_past_and_do_not_repeat_it(tmp_path: Path) -> None:
    world = World(tmp_path, chance(1.0, 1.0), steps=1)
    groups = await explore(world.house, tasks(5, "train"))
    [change] = await propose(world.house, groups, [from_successes(2)])
    [verdict] = await generation(world.house, [change], tasks(40), RULE)
    assert verdict.decision == "reject"
    assert await propose(world.house, groups, [from_successes(2)]) == []


async def test_a_drafter_that_writes_nothing_usable_is_left_in_peace(tmp_path: Path) -> None:
    """Three failures are shown for each draft that is wanted; why each answer was refused is told."""
    world = World(tmp_path, lambda task, recalled, rng: float(int(str(task.data["i"])) == 0))
    groups = await explore(world.house, tasks(30, "train"))
    asked, refused = [], []

    async def write(failure: Trajectory, successes: Sequence[Trajectory]) -> Skill | Refusal:
        asked.append(failure.id)
        return Refusal(code="unreadable", reason="no JSON", answer="Hello!")

    assert await propose(world.house, groups, [from_contrasts(write, 2, refused.append)]) == []
    assert len(asked) == len(refused) == 6


async def test_a_paid_model_stops_at_an_empty_purse() -> None:
    purse = Purse(limit=1.0)
    model = Paid(Scripted(lambda *_: Completion(text="a", usage=Usage(cost=0.6, calls=1))), purse)
    policy = Policy(model="scripted/model")
    for _ in range(2):
        await model.complete(policy, (), (), Sampling())
    assert (purse.spent, purse.left, purse.empty) == (pytest.approx(1.2), 0.0, True)
    with pytest.raises(Refused, match="--max-cost"):
        await model.complete(policy, (), (), Sampling())


@pytest.mark.parametrize("limit", [math.nan, -1.0])
def test_a_limit_that_nothing_reaches_is_refused(limit: float) -> None:
    with pytest.raises(UsageError, match="--max-cost"):
        Purse(limit)


async def test_a_round_ends_the_same_however_often_it_was_killed(tmp_path: Path) -> None:
    """Cancelled after any number of episodes and begun again: the same head, the same pairs, one index of the budget."""
    whole = World(tmp_path / "whole", chance(0.1, 0.7))
    [verdict] = await generation(whole.house, [adding()], tasks(40), RULE)
    rng = random.Random(5)
    broken = World(tmp_path / "broken", chance(0.1, 0.7))
    for _ in range(4):
        broken.dies_after = len(broken.calls) + rng.randrange(1, 8)
        with pytest.raises(Killed):
            await generation(broken.house, unfinished(broken.house) or [adding()], tasks(40), RULE)
    broken.dies_after = None
    [again] = await generation(broken.house, unfinished(broken.house), tasks(40), RULE)
    assert (again.pairs, again.effect, again.decision) == (verdict.pairs, verdict.effect, verdict.decision)
    assert broken.lineage.head().spec == whole.lineage.head().spec
    assert broken.budget.state("add").taken == 1
