"""The lineage: one transaction a verdict, rollback as a pointer, and a head that moved ends what was tried against it."""

from pathlib import Path

import pytest

from evolve.change import Change, apply
from evolve.gate import Rule
from evolve.loop import consider, explore
from evolve.trial import prepare, trial
from harness.errors import UsageError
from tests.evolve.worlds import ROOT, World, adding, chance, tasks


async def test_settling_a_verdict_twice_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.1, 0.7))
    prepared = await prepare(world.house, adding(), tasks(40), Rule())
    verdict = await trial(world.house, prepared)
    first = world.lineage.settle(adding(), verdict, prepared.candidate, prepared.revision)
    assert world.lineage.settle(adding(), verdict, prepared.candidate, prepared.revision) == first
    assert world.budget.state("add").admissions == 1
    assert len(world.lineage.heads()) == 2


async def test_a_verdict_that_cannot_be_settled_leaves_nothing_behind(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.1, 0.7))
    prepared = await prepare(world.house, adding(), tasks(40), Rule())
    verdict = await trial(world.house, prepared)
    world.lineage.force(adding("other"), *apply(adding("other"), ROOT, world.bank.revision("")))
    with pytest.raises(UsageError, match="try it again"):
        world.lineage.settle(adding(), verdict, prepared.candidate, prepared.revision)
    assert world.lineage.verdicts() == []
    assert world.budget.state("add").admissions == 0
    assert world.bank.status(adding().drafts[0].digest) == "candidate"


async def test_rollback_moves_the_statuses_with_the_head_and_counts_in_no_budget(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.1, 0.7))
    await consider(world.house, adding(), tasks(40), Rule())
    digest = adding().drafts[0].digest
    back = world.lineage.rollback(1)
    assert (back.number, back.how, back.spec) == (3, "rollback", ROOT)
    assert world.bank.status(digest) == "retired"
    forward = world.lineage.rollback(2)
    assert world.bank.status(digest) == "active"
    assert forward.trial != ""
    assert world.budget.state("add").admissions == 1
    with pytest.raises(UsageError, match="live already"):
        world.lineage.rollback(4)
    with pytest.raises(UsageError, match="no head 77"):
        world.lineage.rollback(77)


async def test_a_removal_is_tried_on_its_own_stream(tmp_path: Path) -> None:
    """A skill that does nothing may go, when going costs no more than the margin."""
    world = World(tmp_path, chance(0.9, 0.9))
    world.lineage.force(adding(), *apply(adding(), ROOT, world.bank.revision("")))
    change = Change(name="retire helpful", kind="retire", drops=(adding().drafts[0].digest,))
    verdict = await consider(world.house, change, tasks(40), Rule(margin=0.2, max_pairs=400))
    assert verdict is not None
    assert verdict.decision == "admit"
    assert world.bank.status(adding().drafts[0].digest) == "retired"
    assert world.budget.state("retire").admissions == 1
    assert world.budget.state("add").taken == 0


async def test_proposers_learn_decision_and_code_and_no_figures(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.9, 0.3))
    await consider(world.house, adding(), tasks(40), Rule())
    [tried] = world.lineage.tried()
    assert tried.model_dump().keys() == {"change", "name", "decision", "code"}


async def test_exploring_again_repeats_no_stored_run(tmp_path: Path) -> None:
    world = World(tmp_path, chance(0.3, 0.3), delay=lambda task, reward: 0.002 * reward)
    first = await explore(world.house, tasks(40, "train"), enough=4)
    paid = len(world.calls)
    again = await explore(world.house, tasks(40, "train"), enough=4)
    assert [[run.id for run in g.members] for g in again] == [[run.id for run in g.members] for g in first]
    assert len(world.calls) - paid <= world.concurrency
    assert sum(run.success for g in first for run in g.members) == 4
