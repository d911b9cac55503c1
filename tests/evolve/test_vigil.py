"""Vigil and staleness: a live head is watched on its own runs, an alarm re-opens a question, a new policy ages evidence."""

import random
from pathlib import Path
from typing import Any

import pytest

from evolve.change import Change, Edits
from evolve.gate import Rule
from evolve.house import Episode, Seeds
from evolve.loop import consider, generation
from evolve.remeasure import remeasure
from evolve.stale import latest, stale
from evolve.verdict import Verdict
from evolve.vigil import USE, Vigil, reopened, restoring, vigil
from rl.recipe import Adapter, Recipe, Trained
from rl.shelf import Shelf
from tests.evolve.worlds import ROOT, World, adding, skill, tasks

CARRIER, BASE = "a" * 64, "b" * 64
RULE = Rule(margin=0.15, max_pairs=400)


class Living(World):
    """Success with the text, with the adapter `CARRIER` in its place, and with neither; each may be changed in mid-life."""

    text: float = 0.95
    adapter: float = 0.95
    bare: float = 0.1

    async def roll(self, episode: Episode) -> Any:
        carried = episode.spec.policy.adapter == CARRIER
        chance = self.text if episode.spec.bank else self.adapter if carried else self.bare
        self.outcome = lambda task, recalled, rng: float(rng.random() < chance)
        return await super().roll(episode)

    def seen(self) -> Vigil:
        return vigil(self.lineage, self.house.ledger, self.house.store)


def living(folder: Path) -> Living:
    world = Living(folder, lambda task, recalled, rng: 0.0)
    made = Trained(adapter=CARRIER, kept=1, curve=(), held=(), seconds=1.0)
    Shelf(world.database).put(
        Adapter(base="w", skill=skill().digest, source="own runs", runs=(), recipe=Recipe(), training="t", trained=made,
                created=world.lineage.head().created)
    )  # fmt: skip
    return world


async def admitted(folder: Path) -> Living:
    """A head with the skill in its prompt, by a verdict."""
    world = living(folder)
    [verdict] = await generation(world.house, [adding()], tasks(40), Rule())
    assert verdict.decision == "admit"
    return world


async def internalised(folder: Path) -> Living:
    """A head whose adapter carries the skill, by a verdict, re-measured on fresh pairs."""
    world = await admitted(folder)
    before = world.lineage.head().spec
    change = Change(
        name="helpful", kind="retire", drops=(skill().digest,), edits=Edits(policy=ROOT.policy.replace(adapter=CARRIER))
    )
    verdict = await consider(world.house, change, tasks(40), RULE)
    assert verdict is not None
    assert verdict.decision == "admit"
    await remeasure(world.house, "helpful", before, world.lineage.head().spec, tasks(40))
    return world


async def use(world: Living, n: int, begin: int = 0) -> None:
    spec, rng = world.lineage.head().spec, random.Random(begin)
    for number in range(begin, begin + n):
        task = tasks(40, "train")[number % 40]
        await world.house.run(Episode(task, spec, Seeds(world=number, sampling=rng.getrandbits(40)), USE))


def test_a_head_that_was_never_measured_cannot_fall(tmp_path: Path) -> None:
    seen = living(tmp_path).seen()
    assert (seen.made, seen.alarm) == (None, None)
    assert "never measured" in seen.reason


async def test_a_steady_head_raises_no_alarm(tmp_path: Path) -> None:
    world = await internalised(tmp_path)
    await use(world, 200)
    seen = world.seen()
    assert (seen.runs, seen.alarm) == (200, None)
    assert 0.7 < seen.floor < 0.95
    assert reopened(seen, Shelf(world.database), world.lineage) is None


async def test_a_fall_raises_an_alarm_and_the_gate_brings_the_text_back(tmp_path: Path) -> None:
    world = await internalised(tmp_path)
    await use(world, 40)
    world.adapter = 0.1
    await use(world, 40, begin=40)
    seen = world.seen()
    assert seen.alarm is not None
    assert 40 < seen.alarm <= 80
    again = reopened(seen, Shelf(world.database), world.lineage)
    assert again is not None
    assert (again.kind, again.restores, again.occasion) == ("restore", (skill().digest,), seen.occasion)
    verdict = await consider(world.house, again, tasks(40), Rule())
    assert verdict is not None
    assert verdict.decision == "admit"
    head = world.lineage.head()
    assert (head.spec.policy.adapter, world.bank.status(skill().digest)) == ("", "active")


async def test_a_text_that_helps_no_more_stays_out_and_the_floor_moves(tmp_path: Path) -> None:
    """Everything got worse: what the alarm re-opened is refused, and the head is watched against what it does now."""
    world = await internalised(tmp_path)
    world.adapter = world.text = world.bare = 0.5
    await use(world, 100)
    seen = world.seen()
    again = reopened(seen, Shelf(world.database), world.lineage)
    assert again is not None
    verdict = await consider(world.house, again, tasks(40), Rule(smallest_effect=0.3))
    assert verdict is not None
    assert verdict.decision == "reject"
    assert world.bank.status(skill().digest) == "internalised"
    after = world.seen()
    assert (after.runs, after.alarm) == (0, None)
    assert after.floor < 0.6


async def test_only_the_heads_own_use_counts(tmp_path: Path) -> None:
    """Neither the pairs of trials, nor test runs, nor another head's runs."""
    world = await internalised(tmp_path)
    spec = world.lineage.head().spec
    world.adapter = 0.0
    for number, task in enumerate(tasks(60, "test")):
        await world.house.run(Episode(task, spec, Seeds(world=number, sampling=number), USE))
    for number, task in enumerate(tasks(60, "train")):
        await world.house.run(Episode(task, ROOT, Seeds(world=number, sampling=number), USE))
        await world.house.run(Episode(task, spec, Seeds(world=number, sampling=number), "explore"))
    assert world.seen().runs == 0


async def test_an_adapter_that_another_skill_rides_on_is_left_in_place(tmp_path: Path) -> None:
    world = await internalised(tmp_path)
    other = BASE
    world.lineage.force(
        Change(name="newer adapter", edits=Edits(policy=ROOT.policy.replace(adapter=other))),
        world.lineage.head().spec.replace(policy=ROOT.policy.replace(adapter=other)), world.bank.revision(""),
    )  # fmt: skip
    change = restoring("helpful", (skill().digest,), Shelf(world.database), world.lineage, why="asked for")
    assert change.edits == Edits()


async def test_evidence_about_another_policy_is_stale_and_is_tried_again(tmp_path: Path) -> None:
    world = await admitted(tmp_path)
    assert stale(world.lineage) == []
    spec = world.lineage.head().spec
    policy = ROOT.policy.replace(model="scripted/newer")
    world.lineage.force(
        Change(name="newer model", edits=Edits(policy=policy)), spec.replace(policy=policy), world.bank.revision(spec.bank)
    )
    [one] = stale(world.lineage)
    assert (one.skill, one.change.kind, one.change.drops) == (skill().digest, "retire", (skill().digest,))
    assert "scripted/world without an adapter, the head has scripted/newer" in one.why
    verdict = await consider(world.house, one.change, tasks(40), RULE)
    assert verdict is not None
    assert verdict.decision == "reject"
    assert stale(world.lineage) == []
    assert latest(world.lineage.verdicts(), skill().digest) == verdict


async def test_evidence_about_other_weights_under_the_same_name_is_stale(tmp_path: Path) -> None:
    world = living(tmp_path)
    world.house = world.house.__class__(**{**world.house.__dict__, "weights": "w1"})
    await generation(world.house, [adding()], tasks(40), Rule())
    assert stale(world.lineage, "w1") == []
    [one] = stale(world.lineage, "w2")
    assert "about weights w1, the head's are w2" in one.why


async def test_an_alarm_about_an_active_skill_makes_its_evidence_stale(tmp_path: Path) -> None:
    world = await admitted(tmp_path)
    await remeasure(world.house, "helpful", ROOT, world.lineage.head().spec, tasks(40))
    world.text = 0.3
    await use(world, 200)
    seen = world.seen()
    assert seen.alarm is not None
    [one] = stale(world.lineage, seen=seen)
    assert one.occasion == seen.occasion
    assert reopened(seen, Shelf(world.database), world.lineage) is None


@pytest.mark.parametrize("decisions", [(), ("indecisive",)])
def test_no_settled_verdict_is_no_evidence(decisions: tuple[str, ...]) -> None:
    made = [
        Verdict(trial="t", change="c", name="n", kind="add", head=1, incumbent="i", candidate="c", decision=decision,
                code="futile", reason="", pairs=9, skills=("s",), created="2026-01-01T00:00:00Z")
        for decision in decisions
    ]  # fmt: skip
    assert latest(made, "s") is None
