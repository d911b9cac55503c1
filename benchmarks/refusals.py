"""Retirements that should fail, on the embedded model: shuffled targets, another skill's adapter, half of the families, and none.

Run from the repository: `python -m benchmarks.refusals [--seed 0] [--pairs 300]` (about a quarter of an hour; needs the extra
`local`). It prints each verdict with its three questions and asserts nothing.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import monotonic

from api.settings import Settings
from api.wiring import Platform, learning, opened
from evolve.change import Change, Edits, apply
from evolve.distil import Learning
from evolve.gate import Rule
from evolve.loop import consider, explore
from harness.environments import desk
from harness.policy import Policy
from harness.spec import HarnessSpec
from harness.task import Task
from harness.trajectory import Trajectory
from rl.dataset import Row, rows
from rl.recipe import Recipe
from skills.skill import Provenance, Skill

MODEL = "local/smollm2-135m-instruct"
RUNS = 24
"""Correct runs of each family."""
REFUND = """Request: Refund order 7702.
> refund 7702
to finish, type: confirm K318
> confirm K318
"""
RETURN = """Request: Take back order 2438.
> receipt 2438
next, type: return T935
> return T935
to finish, type: confirm Z829
> confirm Z829
"""
NOTE = "worked examples written by hand, for this benchmark"


def skill(name: str, body: str) -> Skill:
    provenance = Provenance(source="human", note=NOTE)
    return Skill(name=name, description="Refund or take back an order at the front desk.", body=body, provenance=provenance)


def shuffled(some: Sequence[Row], seed: int) -> list[Row]:
    """The same prompts and the same ids to learn, dealt to the wrong places."""
    taught = [id for row in some for id, own in zip(row.ids, row.mask, strict=True) if own]
    Random(seed).shuffle(taught)
    dealt = iter(taught)
    return [row.replace(ids=tuple(next(dealt) if own else id for id, own in zip(row.ids, row.mask, strict=True))) for row in some]


class Bench:
    """One agent with one skill in its prompt, by hand."""

    def __init__(self, platform: Platform, settings: Settings, taught: Skill, pairs: int) -> None:
        self.house, self.skill, self.rule = platform.house, taught, Rule(margin=0.15, max_pairs=pairs)
        self.learning: Learning = learning(settings, platform)
        change = Change(name=taught.name, drafts=(taught,))
        self.house.lineage.force(change, *apply(change, self.head, self.house.bank.revision(self.head.bank)))

    @property
    def head(self) -> HarnessSpec:
        return self.house.lineage.head().spec

    async def rows(self, tasks: Sequence[Task]) -> list[Row]:
        """Rows of the first correct runs, as if the skill had not been in the prompt."""
        groups = await explore(self.house, tasks, enough=RUNS)
        correct: list[Trajectory] = [run for group in groups for run in group.members if run.success]
        found: list[Row] = []
        for run in correct:
            tools = (await self.house.glance(run.task, self.head)).tools
            found += rows(run, self.head, tools, self.learning.ids(self.head), without=(self.skill.digest,))
        print(f"  {len(correct)} correct runs of {sum(len(group.members) for group in groups)}", flush=True)
        return found

    async def tried(self, label: str, some: Sequence[Row], tasks: Sequence[Task]) -> None:
        began = monotonic()
        made = await self.learning.train(some, Recipe(), "", lambda point: None)
        edits = Edits(policy=self.head.policy.replace(adapter=made.adapter))
        change = Change(name=self.skill.name, why=label, kind="retire", drops=(self.skill.digest,), edits=edits)
        verdict = await consider(self.house, change, tasks, self.rule)
        assert verdict is not None, "nobody refuses this trial"
        arms = (("text", verdict.before), ("adapter", verdict.after), ("neither", verdict.neither))
        means = ", ".join(f"{name} {arm.success or 0:.2f}" for name, arm in arms)
        print(f"{label}: {verdict.decision} ({verdict.code}), {verdict.pairs} pairs, {monotonic() - began:.0f} s; {means}")
        for answer in verdict.answers:
            print(f"    {answer.question.name}: {answer.decision.reason}")
        print(f"    {verdict.reason}", flush=True)


async def main(seed: int, pairs: int, folder: Path) -> None:
    spec = desk.spec(Policy(model=MODEL, temperature=0.7))
    refunds, returns = (desk.tasks(family, "train", 400, seed) for family in ("refund", "return"))
    validate = [desk.tasks(family, "validate", 150, seed) for family in ("refund", "return")]
    mixed = [task for pair in zip(*validate, strict=True) for task in pair]
    settings = Settings(data=folder, agent="both", model=MODEL)
    async with opened(settings, desk.world(), spec) as platform:
        bench = Bench(platform, settings, skill("orders", f"{REFUND}\n{RETURN}"), pairs)
        half, other = await bench.rows(refunds), await bench.rows(returns)
        await bench.tried("shuffled targets", shuffled(half + other, seed), mixed)
        await bench.tried("half of the families", half, mixed)
        await bench.tried("all of it, the control", half + other, mixed)
    settings = Settings(data=folder, agent="refunds", model=MODEL)
    async with opened(settings, desk.world(), spec) as platform:
        bench = Bench(platform, settings, skill("refunds", REFUND), pairs)
        await bench.tried("another skill's adapter", other, validate[0])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=300)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(given.seed, given.pairs, Path(made)))
