"""Trials are honest: each world here would fool a naive comparison, and must get the right verdict."""

import contextlib
import random
from pathlib import Path

import pytest

from evolve.arms import Paused
from evolve.change import Change, Edits
from evolve.gate import Rule
from evolve.house import Seeds
from evolve.loop import consider, explore
from evolve.trial import prepare, trial
from evolve.verdict import Verdict
from harness.errors import SplitError, UsageError
from harness.task import Task
from harness.tool import Tool
from tests.evolve.worlds import DOWN, ROOT, Outcome, World, adding, chance, finished, tasks

RULE = Rule()


async def verdict(world: World, change: Change | None = None, rule: Rule = RULE, n: int = 40) -> Verdict:
    answer = await consider(world.house, change or adding(), tasks(n), rule)
    assert answer is not None
    return answer


async def test_a_useful_skill_is_admitted_and_becomes_the_head(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.1, 0.7))
    answer = await verdict(world)
    assert (answer.decision, answer.code) == ("admit", "admitted")
    assert answer.low > 0
    head = world.lineage.head()
    assert (head.number, head.how, head.trial) == (2, "admitted", answer.trial)
    assert world.bank.skills(head.spec.bank) == adding().drafts
    assert world.budget.state("add").admissions == 1


async def test_a_harmful_skill_is_rejected_and_the_head_stays(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.9, 0.4))
    answer = await verdict(world)
    assert answer.decision == "reject"
    assert world.lineage.head().spec == ROOT
    assert world.bank.status(adding().drafts[0].digest) == "rejected"


async def test_a_candidate_that_is_never_recalled_costs_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.1, 1.0), recalls=lambda task: False)
    answer = await verdict(world)
    assert (answer.decision, answer.code, answer.pairs, answer.share) == ("reject", "never_recalled", 0, 0.0)
    assert world.calls == []
    assert world.budget.state("add").taken == 0


async def test_a_skill_for_one_task_in_ten_is_admitted_on_its_own_tasks(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.2, 0.9), recalls=lambda task: int(str(task.data["i"])) % 10 == 0)
    answer = await verdict(world, n=60)
    assert answer.decision == "admit"
    assert answer.share == pytest.approx(0.1)
    assert answer.drawn <= 6
    assert answer.overall == pytest.approx(answer.effect * 0.1)


async def test_a_lucky_source_does_not_flatter_its_draft(tmp_path: Path) -> None:
    """Regression to the mean: the runs that the skill was drafted from succeeded by luck, and are not evidence."""
    world = World(tmp_path, chance(0.3, 0.3))
    groups = await explore(world.house, tasks(40, "train"), enough=5)
    lucky = tuple(run.id for group in groups for run in group.members if run.success)
    answer = await verdict(world, adding(runs=lucky))
    assert answer.decision != "admit"
    assert not set(lucky) & {r.trajectory for r in world.house.ledger.column(f"candidate:{answer.trial}").values()}


async def test_drafting_from_validate_runs_is_refused_by_name(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.3, 0.3))
    run = finished(tasks(1)[0], ROOT, Seeds(world=1, sampling=1), "explore", 1.0)
    world.house.store.add(run)
    with pytest.raises(SplitError, match="validate split"):
        await prepare(world.house, adding(runs=(run.id,)), tasks(5), RULE)
    with pytest.raises(SplitError, match="validate tasks alone"):
        await prepare(world.house, adding(), tasks(5, "test"), RULE)
    with pytest.raises(SplitError, match="train"):
        await explore(world.house, tasks(5, "test"))


async def test_equal_infrastructure_failures_are_repeated_and_change_nothing(tmp_path: Path) -> None:
    """Half of the episodes meet one failing call; each is run again with the same seeds."""
    failed: set[str] = set()

    def outcome(task: Task, recalled: bool, rng: random.Random) -> Outcome:
        key = f"{task.digest}:{recalled}:{rng.random()}"
        if rng.random() < 0.5 and key not in failed:
            failed.add(key)
            return DOWN
        return float(rng.random() < (0.7 if recalled else 0.1))

    answer = await verdict(World(tmp_path, outcome))
    assert answer.decision == "admit"
    assert answer.before.failures > 0
    assert answer.after.failures > 0


async def test_a_candidate_that_crashes_its_tools_is_not_run_again_into_a_win(tmp_path: Path) -> None:
    """With the skill, an episode that would fail breaks its connection instead, and is drawn anew when it is repeated."""

    def outcome(task: Task, recalled: bool, rng: random.Random) -> Outcome:
        won = rng.random() < 0.5
        return DOWN if recalled and not won else float(won)

    world = World(tmp_path, outcome)
    world.fresh_on_retry = True
    answer: Verdict | None = None
    while answer is None:
        with contextlib.suppress(Paused):
            answer = await verdict(world)
    assert (answer.decision, answer.code) == ("indecisive", "unequal_failures")
    assert world.lineage.head().number == 1


async def test_a_dead_provider_pauses_the_trial_and_keeps_its_pairs(tmp_path: Path) -> None:
    alive = True
    world = World(tmp_path, lambda task, recalled, rng: float(rng.random() < (0.4 if recalled else 0.3)) if alive else DOWN)
    prepared = await prepare(world.house, adding(), tasks(40), Rule(max_pairs=10))
    first = await trial(world.house, prepared)
    assert first.pairs == 10
    alive = False
    more = await prepare(world.house, adding(), tasks(40), Rule(max_pairs=100))
    with pytest.raises(Paused, match="3 attempts"):
        await trial(world.house, more)
    alive = True
    calls = len(world.calls)
    again = await trial(world.house, await prepare(world.house, adding(), tasks(40), Rule(max_pairs=12)))
    assert again.pairs == 12
    assert again.level == first.level
    assert len(world.calls) - calls <= 2 * world.concurrency + 4


async def test_slow_successes_do_not_decide_by_coming_late(tmp_path: Path) -> None:
    """The candidate's successes take longest: judged in completion order, its failures would count first."""
    quick = World(tmp_path / "quick", chance(0.1, 0.7))
    slow = World(tmp_path / "slow", chance(0.1, 0.7), delay=lambda task, reward: 0.002 * reward, concurrency=32)
    answers = [await verdict(world) for world in (quick, slow)]
    assert [a.decision for a in answers] == ["admit", "admit"]
    assert (answers[0].pairs, answers[0].effect) == (answers[1].pairs, answers[1].effect)


async def test_world_effects_are_refused_with_the_line_to_add(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.1, 0.7), tools=(Tool(name="wire_money", effect="world"),))
    with pytest.raises(UsageError, match=r'"effects": \{"wire_money": "episode"\}'):
        await prepare(world.house, adding(), tasks(5), RULE)
    assert world.calls == []


async def test_the_incumbents_column_is_shared_by_candidates_of_one_head_when_weights_are_ours(tmp_path: Path) -> None:
    for owned, expected in ((True, 0), (False, 10)):
        world = World(tmp_path / str(owned), chance(0.5, 0.5), owned=owned, concurrency=1)
        rule = Rule(max_pairs=10)
        await verdict(world, adding("first"), rule)
        before = sum(arm == "incumbent" for arm, _ in world.calls)
        await verdict(world, adding("second"), rule)
        assert sum(arm == "incumbent" for arm, _ in world.calls) - before == expected


async def test_a_new_head_ends_the_other_trials(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.1, 0.7))
    late = await prepare(world.house, adding("late"), tasks(40), Rule(max_pairs=5))
    answer = await trial(world.house, late)
    await verdict(world, adding("helpful"))
    with pytest.raises(UsageError, match="tried against head 1, the live head is 2"):
        world.lineage.settle(late.change, answer, late.candidate, late.revision)


async def test_an_edit_that_cannot_be_seen_beforehand_draws_from_the_whole_split(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.5, 0.5))
    change = Change(name="more steps", edits=Edits(limits=ROOT.limits.replace(steps=40)))
    answer = await verdict(world, change, Rule(max_pairs=30))
    assert answer.share == 1.0
    assert answer.drawn > 5
