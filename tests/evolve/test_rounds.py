"""Rounds: what a command set out to try is kept, so that the same command goes on with it and another one does not."""

from pathlib import Path

import pytest

from evolve.change import Change, apply
from evolve.gate import Rule
from evolve.loop import generation
from evolve.rounds import Rounds, settled
from harness.errors import UsageError
from tests.evolve.worlds import ROOT, World, adding, chance, skill, tasks


def made(folder: Path) -> tuple[World, Rounds]:
    world = World(folder, chance(0.1, 0.9))
    return world, Rounds(world.database)


def test_the_same_command_goes_on_and_another_does_not(tmp_path: Path) -> None:
    world, rounds = made(tmp_path)
    begun = rounds.begin(["evolve", 1], 1, [adding()])
    assert rounds.under_way(["evolve", 1], world.lineage) == begun
    assert rounds.under_way(["evolve", 2], world.lineage) is None
    assert rounds.begin(["evolve", 2], 1, []).number == begun.number + 1
    assert rounds.under_way(["evolve", 1], world.lineage) is None


def test_what_was_proposed_once_stands(tmp_path: Path) -> None:
    world, rounds = made(tmp_path)
    number = rounds.begin("evolve", 1, [adding("first")]).number
    assert rounds.propose(number, [adding("second")]).changes == (adding("first"), adding("second"))
    again = rounds.propose(number, [adding("other")])
    assert again.drafted == (adding("second"),)
    assert Rounds(world.database).under_way("evolve", world.lineage) == again


def test_nothing_to_propose_is_an_answer_and_is_kept(tmp_path: Path) -> None:
    _, rounds = made(tmp_path)
    number = rounds.begin("evolve", 1, []).number
    assert rounds.propose(number, []).drafted == ()


async def test_its_own_admission_does_not_end_a_round_and_another_head_does(tmp_path: Path) -> None:
    world, rounds = made(tmp_path)
    begun = rounds.begin("evolve", 1, [adding(), adding("other")])
    [verdict] = await generation(world.house, [adding()], tasks(40), Rule())
    assert verdict.decision == "admit"
    now = rounds.under_way("evolve", world.lineage)
    assert now == begun
    assert settled(world.lineage, now) == {adding().digest: verdict}
    by_hand = Change(name="by-hand", drafts=(skill("by-hand", "do it otherwise"),))
    head = world.lineage.head().spec
    world.lineage.force(by_hand, *apply(by_hand, head, world.bank.revision(head.bank)))
    assert rounds.under_way("evolve", world.lineage) is None


def test_a_finished_round_is_over(tmp_path: Path) -> None:
    world, rounds = made(tmp_path)
    rounds.finish(rounds.begin("evolve", 1, []).number)
    assert rounds.under_way("evolve", world.lineage) is None
    with pytest.raises(UsageError, match="has no round 9"):
        rounds.finish(9)


def test_each_agent_has_its_own(tmp_path: Path) -> None:
    world, rounds = made(tmp_path)
    rounds.begin("evolve", 1, [])
    assert Rounds(world.database, "other").under_way("evolve", world.lineage) is None
    assert world.lineage.head().spec == ROOT
